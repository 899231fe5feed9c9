"""ASGI middleware around all routes: access control, limits, timeouts, metrics and the request log."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any, Protocol

from everypair.service.access import Access, Refusal, Scope
from everypair.service.readiness import Readiness
from everypair.service.routes import RouteTable
from everypair.service.settings import Settings
from everypair.service.telemetry import Metrics, log
from everypair.service.tracked_request import Receive, Send, TrackedRequest, replay

MAX_HEADER_BYTES = 65_536
RELOAD, RELOAD_SECONDS = "/v1/reload", 600.0  # a large model is read whole
CONNECTION_KEY = "everypair.connection"  # of the ASGI scope: the connection that the request came by, if it can be closed
SCOPE_KEY, REASON_KEY = "everypair.scope", "everypair.reason"  # of the ASGI scope: what the client may do; why a route refused
CLIENT_DISCONNECTED = 499  # status in logs and metrics, as in nginx
UNTHROTTLED = ("/live", "/ready", "/health", "/metrics")


class ClientConnection(Protocol):
    """What the middleware tells the connection of a request."""

    def accept(self) -> None:
        """The request passed all checks, and will be answered."""
        ...

    def abort(self) -> None:
        """Close it without sending the rest of the response."""
        ...


class NoConnection:
    """That of a server whose connections are not known."""

    def accept(self) -> None: ...

    def abort(self) -> None: ...


class ServiceMiddleware:
    """The ASGI application that servers run: checks and limits every request before it reaches the routes.

    A request takes one of the places of ``Limits.concurrent`` when its body is there, so that clients that send slowly take none.

    Parameters
    ----------
    app : ASGI application
        The routes.
    settings : Settings
    metrics : Metrics
    routes : RouteTable
        Of the application; requests to any other path are counted as "other".
    readiness : Readiness
        Of the worker, by which it can be told to drain.
    """

    def __init__(self, app: Any, settings: Settings, metrics: Metrics, routes: RouteTable, readiness: Readiness) -> None:
        self._app, self._settings, self._routes, self._access = app, settings, routes, Access(settings)
        self.metrics, self.readiness = metrics, readiness
        self._hosts, self._origins = settings.names, {name.lower() for name in settings.hosts}
        self._answering, self._arrived = 0, 0  # requests; bytes of bodies that are not complete

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = TrackedRequest(scope, send)
        self.metrics.count_in_flight(1)
        try:
            await self._check_and_answer(scope, receive, request)
        except ConnectionError:
            request.status = request.status or CLIENT_DISCONNECTED
        except Exception as error:
            log("failed", logging.ERROR, error, id=request.id, **request.trace)
            await request.send_error(500, f"internal error; the log has the details under the id {request.id}.")
        finally:
            self.metrics.count_in_flight(-1)
            self._report(scope, request)

    async def _check_and_answer(self, scope: Any, receive: Receive, request: TrackedRequest) -> None:
        """Refuse what can be refused by its headers, then wait for the body, then answer."""
        method, path = self._routes.resolve(scope["method"], scope["path"])
        client_scope = self._access.scope_of(request.headers.get("authorization", ""))
        scope = {**scope, "method": method, "path": path, SCOPE_KEY: client_scope}
        refusal = self._refusal(scope, request)
        if refusal is not None:
            await request.send_error(*refusal)
            return
        known = self._routes.has(method, path)  # for others, what the body is does not matter
        body = await self._body(receive, request, self._body_limit(method, path)) if known else b""
        if body is None:
            return
        limit, counted = self._settings.limits.concurrent, path not in UNTHROTTLED
        if body and request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            await request.send_error(415, "the body must be JSON, sent as Content-Type: application/json.")
        elif counted and self._answering >= limit:
            await request.send_error(429, f"at most {limit} requests are processed at a time. Try again in a second.")
        else:
            self._answering += counted
            try:
                await self._answer(scope, replay(body, receive), request)
            finally:
                self._answering -= counted

    def _refusal(self, scope: Any, request: TrackedRequest) -> Refusal | None:
        """Why the request is refused by its headers alone, if it is."""
        method, path, headers = scope["method"], scope["path"], request.headers
        host = headers.get("host", "")
        if request.header_bytes > MAX_HEADER_BYTES:
            return Refusal(431, f"the headers have more than {MAX_HEADER_BYTES:,} bytes.")
        if request.repeated is not None:
            return Refusal(400, f"the header {request.repeated.title()} was sent more than once.")
        if self._hosts and _host_name(host) not in self._hosts:
            return Refusal(421, f"the host {_host_name(host)[:100]!r} is not allowed. Allow it with --allow-host.")
        origin = headers["origin"].partition("://")[2] if "origin" in headers else host
        if origin != host and _host_name(origin) not in self._origins:
            return Refusal(403, "requests from pages of other sites are not allowed.")
        refusal = self._access.refusal(scope[SCOPE_KEY], path)
        if refusal is not None:
            return refusal
        length = int(headers["content-length"]) if headers.get("content-length", "").isdecimal() else 0
        limit = self._body_limit(method, path)
        if self._routes.has(method, path) and (length > limit or (not limit and "transfer-encoding" in headers)):
            return self._too_large(limit)
        return None

    def _body_limit(self, method: str, path: str) -> int:
        return self._settings.limits.body if self._routes.takes_body(method, path) else 0

    def _too_large(self, limit: int) -> Refusal:
        if not limit:
            return Refusal(413, "no body is expected here. Leave it out.")
        return Refusal(413, f"the body has more than {limit:,} bytes. Ask for less at a time.")

    async def _body(self, receive: Receive, request: TrackedRequest, limit: int) -> bytes | None:
        """The whole body; None if it was refused or the client disconnected."""
        limits, chunks, size = self._settings.limits, [], 0
        try:
            async with asyncio.timeout(limits.receive_seconds):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        request.status = CLIENT_DISCONNECTED
                        return None
                    chunks.append(message.get("body", b""))
                    size += len(chunks[-1])
                    self._arrived += len(chunks[-1])
                    if size > limit:
                        await request.send_error(*self._too_large(limit))
                        return None
                    if not message.get("more_body", False):
                        return b"".join(chunks)
                    if self._arrived > limits.concurrent * limits.body:
                        await request.send_error(429, "too many large requests arrive at a time. Try again in a second.")
                        return None
        except TimeoutError:
            await request.send_error(408, f"the body did not arrive in {limits.receive_seconds:g} seconds.")
            return None
        finally:
            self._arrived -= size

    async def _answer(self, scope: Any, receive: Receive, request: TrackedRequest) -> None:
        connection = scope.get(CONNECTION_KEY, NoConnection())
        if scope[SCOPE_KEY] > Scope.PUBLIC:
            connection.accept()
        seconds = RELOAD_SECONDS if scope["path"] == RELOAD else self._settings.limits.seconds
        try:
            async with asyncio.timeout(seconds):
                await self._app(scope, receive, request.send)
        except TimeoutError:
            if request.status:  # the client does not read the response
                connection.abort()
            await request.send_error(
                503, f"the request took more than {seconds:g} seconds. Ask for less at a time.", code="timeout"
            )
        finally:
            request.reason = request.reason or scope.get(REASON_KEY)

    def _report(self, scope: Any, request: TrackedRequest) -> None:
        """Count and log the request, without personal data unless the settings allow it."""
        seconds = time.perf_counter() - request.started
        route = scope["path"] if self._routes.knows(scope["path"]) else "other"
        self.metrics.count_request(route, request.status, seconds)
        personal = {}
        if self._settings.personal:
            client = scope.get("client")
            personal = {"client": client[0] if client else None, "refused": request.reason}
        log(
            "request", id=request.id, **request.trace, method=scope["method"], route=route, status=request.status,
            ms=round(1e3 * seconds, 2), model=request.model, **personal,
        )  # fmt: skip


def _host_name(host: str) -> str:
    """In lower case, without the port."""
    if host.startswith("["):
        return host.partition("]")[0].lower() + "]"
    return host.partition(":")[0].lower()
