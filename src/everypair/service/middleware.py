"""ASGI middleware around all routes: access control, limits, timeouts, security headers, metrics and the request log."""

from __future__ import annotations

import asyncio
import hmac
import logging
import re
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any

from pydantic_core import to_json

from everypair.service.errors import error_body
from everypair.service.settings import Settings
from everypair.service.telemetry import Metrics, log

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

MAX_HEADER_BYTES = 65_536
MAX_UNEXPECTED_BODY = 1_000  # bytes sent to a route that takes no body
SEND_CHUNK = 65_536  # bytes
RELOAD_SECONDS = 600.0  # a large model is read whole
ABORT_KEY, REASON_KEY = "everypair.abort", "everypair.reason"  # of the ASGI scope: closes the connection; why a route refused
CLIENT_DISCONNECTED = 499  # status in logs and metrics, as in nginx
UNTHROTTLED = ("/health", "/metrics")
PUBLIC_PATHS = re.compile(r"/|/health|/docs|/openapi\.json|/(page|docs)/[a-z.-]+")  # no data of the model: no token needed
REQUEST_ID = re.compile(r"[A-Za-z0-9_.-]{1,64}")
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
ERROR_HEADERS = {
    401: {"www-authenticate": "Bearer"},
    413: {"connection": "close"},
    503: {"connection": "close"},
    429: {"retry-after": "1"},
}


class ServiceMiddleware:
    """The ASGI application that servers run: checks and limits every request before it reaches the routes.

    Parameters
    ----------
    app : ASGI application
        The routes.
    settings : Settings
    metrics : Metrics
    paths : iterable of str
        Paths of all routes: requests to any other path are counted as "other".
    body_routes : iterable of (method, path)
        Routes that take a body.
    """

    def __init__(
        self, app: Any, settings: Settings, metrics: Metrics, paths: Iterable[str], body_routes: Iterable[tuple[str, str]]
    ) -> None:
        self._app, self._settings, self.metrics = app, settings, metrics
        self._paths, self._body_routes = frozenset(paths), frozenset(body_routes)
        self._hosts, self._origins, self._in_flight = settings.names, {name.lower() for name in settings.hosts}, 0

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = TrackedRequest(scope, send)
        self._count_in_flight(1)
        try:
            refusal = self._refusal(scope, request)
            if refusal is not None:
                await request.send_error(*refusal)
            else:
                await self._handle(scope, receive, request)
        except ConnectionError:
            request.status = request.status or CLIENT_DISCONNECTED
        except Exception as error:
            log("failed", logging.ERROR, error, id=request.id)
            await request.send_error(500, f"internal error; the log has the details under the id {request.id}.")
        finally:
            self._count_in_flight(-1)
            self._report(scope, request)

    def _count_in_flight(self, change: int) -> None:
        self._in_flight += change
        self.metrics.count_in_flight(change)

    def _refusal(self, scope: Any, request: TrackedRequest) -> tuple[int, str] | None:
        """Status and reason, if the request is refused by its headers alone."""
        settings, path, headers = self._settings, scope["path"], request.headers
        host = headers.get("host", "")
        if request.header_bytes > MAX_HEADER_BYTES:
            return 431, f"the headers have more than {MAX_HEADER_BYTES:,} bytes."
        if self._hosts and _host_name(host) not in self._hosts:
            return 421, f"the host {_host_name(host)[:100]!r} is not allowed. Allow it with --allow-host."
        origin = headers["origin"].partition("://")[2] if "origin" in headers else host
        if origin != host and _host_name(origin) not in self._origins:
            return 403, "requests from pages of other sites are not allowed."
        if settings.token is not None and not PUBLIC_PATHS.fullmatch(path):
            given = headers.get("authorization", "").encode()
            if not hmac.compare_digest(given, f"Bearer {settings.token}".encode()):
                return 401, "send the token of this service: Authorization: Bearer TOKEN."
        if self._in_flight > settings.limits.concurrent and path not in UNTHROTTLED:
            return 429, f"at most {settings.limits.concurrent} requests are processed at a time. Try again in a second."
        return None

    async def _handle(self, scope: Any, receive: Receive, request: TrackedRequest) -> None:
        seconds = RELOAD_SECONDS if scope["path"] == "/reload" else self._settings.limits.seconds
        try:
            async with asyncio.timeout(seconds):
                body = await self._read_body(scope, receive, request)
                if body is None:
                    return
                if body and request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
                    await request.send_error(415, "the body must be JSON, sent as Content-Type: application/json.")
                    return
                await self._app(scope, _replay(body, receive), request.send)
        except TimeoutError:
            if request.status:  # the client does not read the response
                scope.get(ABORT_KEY, lambda: None)()
            await request.send_error(503, f"the request took more than {seconds:g} seconds. Ask for less at a time.")

    async def _read_body(self, scope: Any, receive: Receive, request: TrackedRequest) -> bytes | None:
        """The whole body; None if it was refused or the client disconnected."""
        expected = (scope["method"], scope["path"]) in self._body_routes
        limit, chunks, size = self._settings.limits.body if expected else MAX_UNEXPECTED_BODY, [], 0
        length = request.headers.get("content-length", "0")
        declared = int(length) if length.isdecimal() else 0
        while declared <= limit:
            message = await receive()
            if message["type"] == "http.disconnect":
                request.status = CLIENT_DISCONNECTED
                return None
            chunks.append(message.get("body", b""))
            size += len(chunks[-1])
            if size > limit:
                break
            if not message.get("more_body", False):
                return b"".join(chunks)
        advice = "Ask for less at a time." if expected else "No body is expected here."
        await request.send_error(413, f"the body has more than {limit:,} bytes. {advice}")
        return None

    def _report(self, scope: Any, request: TrackedRequest) -> None:
        """Count and log the request, without personal data unless the settings allow it."""
        seconds = time.perf_counter() - request.started
        route = scope["path"] if scope["path"] in self._paths else "other"
        self.metrics.count_request(route, request.status, seconds)
        personal = {}
        if self._settings.personal:
            client = scope.get("client")
            personal = {"client": client[0] if client else None, "refused": request.reason or scope.get(REASON_KEY)}
        log(
            "request", id=request.id, method=scope["method"], route=route, status=request.status, ms=round(1e3 * seconds, 2),
            model=request.model, **personal,
        )  # fmt: skip


class TrackedRequest:
    """A request and the state of its response.

    Attributes
    ----------
    started : float
        By ``time.perf_counter``.
    headers : dict of str
    header_bytes : int
    id : str
        The client's ``X-Request-Id``, or a random one; in the response, the log and messages of internal errors.
    status : int
        Of the response; 0 before it is sent.
    model : str, optional
        The version of the model that computed the response.
    reason : str, optional
        Why the middleware refused the request.
    """

    def __init__(self, scope: Any, send: Send) -> None:
        self.started, self._send = time.perf_counter(), send
        self.headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        self.header_bytes = sum(len(name) + len(value) for name, value in scope["headers"])
        given = self.headers.get("x-request-id", "")
        self.id = scope["id"] = given if REQUEST_ID.fullmatch(given) else secrets.token_hex(8)
        self.status, self.model, self.reason = 0, None, None

    async def send(self, message: Message) -> None:
        """Send a message of the response, with the headers that all responses have."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            present = {name.lower() for name, _ in message.get("headers", ())}
            added = {**SECURITY_HEADERS, "x-request-id": self.id}
            headers = [(name.encode(), value.encode()) for name, value in added.items() if name.encode() not in present]
            message = {**message, "headers": [*message.get("headers", ()), *headers]}
            self.model = next((value.decode() for name, value in message["headers"] if name == b"x-model-version"), None)
        body = message.get("body", b"")
        for start in range(0, len(body) - SEND_CHUNK, SEND_CHUNK):  # in chunks, so that a client that does not read is noticed
            await self._send({"type": "http.response.body", "body": body[start : start + SEND_CHUNK], "more_body": True})
        if len(body) > SEND_CHUNK:
            message = {**message, "body": body[(len(body) - 1) // SEND_CHUNK * SEND_CHUNK :]}
        await self._send(message)

    async def send_error(self, status: int, reason: str) -> None:
        """Respond with an error, unless a response has begun."""
        if self.status:
            return
        self.reason, body = reason, to_json(error_body(status, reason))
        headers = {"content-type": "application/json", "content-length": str(len(body)), **ERROR_HEADERS.get(status, {})}
        pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
        await self.send({"type": "http.response.start", "status": status, "headers": pairs})
        await self.send({"type": "http.response.body", "body": body})


def _replay(body: bytes, receive: Receive) -> Receive:
    """A ``receive`` that first gives a body that was already read."""
    unread = [body]

    async def replay() -> Message:
        if unread:
            return {"type": "http.request", "body": unread.pop(), "more_body": False}
        return await receive()

    return replay


def _host_name(host: str) -> str:
    """In lower case, without the port."""
    if host.startswith("["):
        return host.partition("]")[0].lower() + "]"
    return host.partition(":")[0].lower()
