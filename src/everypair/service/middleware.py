"""What stands before every request: who may ask, how much at a time and for how long; and what is said of it afterwards."""

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

from everypair.service.errors import told
from everypair.service.settings import Settings
from everypair.service.telemetry import Metrics, log

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

HEAD = 65_536  # bytes of headers
LITTLE = 1_000  # bytes of a body where none is expected
PART = 65_536  # bytes of an answer that are sent at a time
RELOADING = 600.0  # seconds: a large model is read whole
ABORT, REASON = "everypair.abort", "everypair.reason"  # of a scope: how to hang up; why a route refused
HEALTH, METRICS = "/health", "/metrics"
OPEN = re.compile(r"/|/health|/docs|/openapi\.json|/(page|docs)/[a-z.-]+")  # nothing of a model is in them
REQUEST_ID = re.compile(r"[A-Za-z0-9_.-]{1,64}")
CONTENT = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; font-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": CONTENT,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


class Guard:
    """An ASGI application around another one.

    Parameters
    ----------
    app : ASGI application
    settings : Settings
    metrics : Metrics
    paths : iterable of str
        Those that there are: others are counted together.
    routes : iterable of (method, path)
        Those that take a body.
    """

    def __init__(
        self, app: Any, settings: Settings, metrics: Metrics, paths: Iterable[str], routes: Iterable[tuple[str, str]]
    ) -> None:
        self._app, self._settings, self.metrics = app, settings, metrics
        self._paths, self._routes = frozenset(paths), frozenset(routes)
        self._names, self._own, self._flying = settings.names, {name.lower() for name in settings.hosts}, 0

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange = Exchange(scope, send)
        self._count(1)
        try:
            refusal = self._refusal(scope, exchange)
            if refusal is not None:
                await exchange.refuse(*refusal)
            else:
                await self._answer(scope, receive, exchange)
        except ConnectionError:
            exchange.status = exchange.status or 499  # the client has gone
        except Exception as error:
            log("failed", logging.ERROR, error, id=exchange.id)
            await exchange.refuse(500, f"something went wrong here; the log has it under {exchange.id}.")
        finally:
            self._count(-1)
            self._tell(scope, exchange)

    def _count(self, change: int) -> None:
        self._flying += change
        self.metrics.flying(change)

    def _refusal(self, scope: Any, exchange: Exchange) -> tuple[int, str] | None:
        """The status and reason, if it is not to be answered at all."""
        settings, path, headers = self._settings, scope["path"], exchange.headers
        host = headers.get("host", "")
        if exchange.head > HEAD:
            return 431, f"the headers have more than {HEAD:,} bytes."
        if self._names and _name(host) not in self._names:
            return 421, f"this service is not called {_name(host)[:100]!r}. Allow the name with --allow-host."
        origin = headers["origin"].partition("://")[2] if "origin" in headers else host
        if origin != host and _name(origin) not in self._own:
            return 403, "pages of other sites may not ask this service."
        if settings.token is not None and not OPEN.fullmatch(path):
            given = headers.get("authorization", "").encode()
            if not hmac.compare_digest(given, f"Bearer {settings.token}".encode()):
                return 401, "send the token of this service: Authorization: Bearer TOKEN."
        if self._flying > settings.limits.concurrent and path not in (HEALTH, METRICS):
            return 429, f"{settings.limits.concurrent} requests are being answered, and no more at a time. Try again in a second."
        return None

    async def _answer(self, scope: Any, receive: Receive, exchange: Exchange) -> None:
        seconds = RELOADING if scope["path"] == "/reload" else self._settings.limits.seconds
        try:
            async with asyncio.timeout(seconds):
                body = await self._body(scope, receive, exchange)
                if body is None:
                    return
                if body and exchange.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
                    await exchange.refuse(415, "the body must be JSON, sent as Content-Type: application/json.")
                    return
                await self._app(scope, _replayed(body, receive), exchange.send)
        except TimeoutError:
            if exchange.status:  # it is not taken by the client
                scope.get(ABORT, lambda: None)()
            await exchange.refuse(503, f"it took more than {seconds:g} seconds. Ask for less at a time.")

    async def _body(self, scope: Any, receive: Receive, exchange: Exchange) -> bytes | None:
        """All of it; None if it was refused, or if the client has gone."""
        takes = (scope["method"], scope["path"]) in self._routes
        most, parts, size = self._settings.limits.body if takes else LITTLE, [], 0
        length = exchange.headers.get("content-length", "0")
        declared = int(length) if length.isdecimal() else 0
        while declared <= most:
            message = await receive()
            if message["type"] == "http.disconnect":
                exchange.status = 499
                return None
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > most:
                break
            if not message.get("more_body", False):
                return b"".join(parts)
        advice = "Ask for less at a time." if takes else "Nothing is expected here."
        await exchange.refuse(413, f"the body has more than {most:,} bytes. {advice}")
        return None

    def _tell(self, scope: Any, exchange: Exchange) -> None:
        """Count it and log it, without anything of a person unless that is wanted."""
        seconds = time.perf_counter() - exchange.began
        route = scope["path"] if scope["path"] in self._paths else "other"
        self.metrics.request(route, exchange.status, seconds)
        personal = {}
        if self._settings.personal:
            client = scope.get("client")
            personal = {"client": client[0] if client else None, "refused": exchange.reason or scope.get(REASON)}
        log(
            "request", id=exchange.id, method=scope["method"], route=route, status=exchange.status, ms=round(1e3 * seconds, 2),
            model=exchange.model, **personal,
        )  # fmt: skip


class Exchange:
    """A request and its answer, as far as it was sent."""

    def __init__(self, scope: Any, send: Send) -> None:
        self.began, self._send = time.perf_counter(), send
        self.headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        self.head = sum(len(name) + len(value) for name, value in scope["headers"])
        given = self.headers.get("x-request-id", "")
        self.id = scope["id"] = given if REQUEST_ID.fullmatch(given) else secrets.token_hex(8)
        self.status, self.model, self.reason = 0, None, None

    async def send(self, message: Message) -> None:
        """Pass it on, with the headers that all answers have."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            own = {name.lower() for name, _ in message.get("headers", ())}
            added = {**HEADERS, "x-request-id": self.id}
            headers = [(name.encode(), value.encode()) for name, value in added.items() if name.encode() not in own]
            message = {**message, "headers": [*message.get("headers", ()), *headers]}
            self.model = next((value.decode() for name, value in message["headers"] if name == b"x-model-version"), None)
        body = message.get("body", b"")
        for start in range(0, len(body) - PART, PART):  # a part at a time: the next when that before was taken
            await self._send({"type": "http.response.body", "body": body[start : start + PART], "more_body": True})
        if len(body) > PART:
            message = {**message, "body": body[(len(body) - 1) // PART * PART :]}
        await self._send(message)

    async def refuse(self, status: int, reason: str) -> None:
        """Answer with an error, if nothing was sent yet."""
        if self.status:
            return
        self.reason, body = reason, to_json(told(status, reason))
        headers = {"content-type": "application/json", "content-length": str(len(body))}
        headers |= {
            401: {"www-authenticate": "Bearer"},
            413: {"connection": "close"},
            503: {"connection": "close"},
            429: {"retry-after": "1"},
        }.get(status, {})
        pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
        await self.send({"type": "http.response.start", "status": status, "headers": pairs})
        await self.send({"type": "http.response.body", "body": body})


def _replayed(body: bytes, receive: Receive) -> Receive:
    """A body that was read already, then whatever comes."""
    waiting = [body]

    async def again() -> Message:
        if waiting:
            return {"type": "http.request", "body": waiting.pop(), "more_body": False}
        return await receive()

    return again


def _name(host: str) -> str:
    """Without the port."""
    if host.startswith("["):
        return host.partition("]")[0].lower() + "]"
    return host.partition(":")[0].lower()
