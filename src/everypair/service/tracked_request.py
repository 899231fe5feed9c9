"""A request with what the log and the metrics say of it, and the headers that all responses have."""

from __future__ import annotations

import re
import secrets
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

from pydantic_core import to_json

from everypair.service.errors import error_body
from everypair.service.tracing import parse_traceparent

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

SEND_CHUNK = 65_536  # bytes
REQUEST_ID = re.compile(r"[A-Za-z0-9_.-]{1,64}")
SINGLE_HEADERS = ("host", "authorization", "origin", "content-type")  # a proxy and the service may each believe another of two
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; font-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
SECURITY_HEADERS = {
    "content-security-policy": CONTENT_SECURITY_POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
CLOSE = {"connection": "close"}
RETRY = {"retry-after": "1"}  # seconds
ERROR_HEADERS = {408: CLOSE, 413: CLOSE, 429: RETRY, 503: {**CLOSE, **RETRY}}


class TrackedRequest:
    """A request and the state of its response.

    Attributes
    ----------
    started : float
        By ``time.perf_counter``.
    headers : dict of str
    header_bytes : int
    repeated : str, optional
        A header that must be sent once, and was sent more often.
    id : str
        The client's ``X-Request-Id``, or a random one; in the response, the log and messages of internal errors.
    trace : dict
        The ids of a valid ``traceparent`` header, as the log has them.
    status : int
        Of the response; 0 before it is sent.
    model : str, optional
        The version of the model that computed the response.
    reason : str, optional
        Why the middleware refused the request.
    """

    def __init__(self, scope: Any, send: Send) -> None:
        self.started, self._send, self._without_body = time.perf_counter(), send, scope["method"] == "HEAD"
        pairs = [(name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in scope["headers"]]
        self.headers = dict(pairs)
        self.header_bytes = sum(len(name) + len(value) for name, value in pairs)
        repeated = (
            {name for name, n in Counter(name for name, _ in pairs).items() if n > 1} if len(self.headers) < len(pairs) else ()
        )
        self.repeated = next((name for name in SINGLE_HEADERS if name in repeated), None)
        given = self.headers.get("x-request-id", "")
        self.id = scope["id"] = given if REQUEST_ID.fullmatch(given) else secrets.token_hex(8)
        trace = parse_traceparent(self.headers.get("traceparent", "")) if "traceparent" not in repeated else None
        self.trace = {} if trace is None else trace._asdict()
        self.status, self.model, self.reason = 0, None, None

    async def send(self, message: Message) -> None:
        """Send a message of the response, with the headers that all responses have; to HEAD, nothing but headers."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            present = {name.lower() for name, _ in message.get("headers", ())}
            added = {**SECURITY_HEADERS, "x-request-id": self.id}
            headers = [(name.encode(), value.encode()) for name, value in added.items() if name.encode() not in present]
            message = {**message, "headers": [*message.get("headers", ()), *headers]}
            self.model = next((value.decode() for name, value in message["headers"] if name == b"x-model-version"), None)
        elif self._without_body:
            message = {**message, "body": b""}
        body = message.get("body", b"")
        for start in range(0, len(body) - SEND_CHUNK, SEND_CHUNK):  # in chunks, so that a client that does not read is noticed
            await self._send({"type": "http.response.body", "body": body[start : start + SEND_CHUNK], "more_body": True})
        if len(body) > SEND_CHUNK:
            message = {**message, "body": body[(len(body) - 1) // SEND_CHUNK * SEND_CHUNK :]}
        await self._send(message)

    async def send_error(self, status: int, reason: str, headers: Mapping[str, str] = {}, code: str | None = None) -> None:
        """Respond with an error, unless a response has begun; ``code`` is that of the status by default."""
        if self.status:
            return
        self.reason, body = reason, to_json(error_body(status, reason, code=code))
        headers = {
            "content-type": "application/json", "content-length": str(len(body)), **ERROR_HEADERS.get(status, {}), **headers
        }  # fmt: skip
        pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
        await self.send({"type": "http.response.start", "status": status, "headers": pairs})
        await self.send({"type": "http.response.body", "body": body})


def replay(body: bytes, receive: Receive) -> Receive:
    """A ``receive`` that first gives a body that was already read."""
    unread = [body]

    async def replayed() -> Message:
        if unread:
            return {"type": "http.request", "body": unread.pop(), "more_body": False}
        return await receive()

    return replayed
