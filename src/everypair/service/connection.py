"""HTTP connections with limits of time, size and number, so that slow or endless clients cannot hold a worker."""

from __future__ import annotations

import asyncio
import sys
from enum import Enum
from functools import partial
from typing import Any

from httptools import HttpParserCallbackError
from pydantic_core import to_json
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from everypair.service.connection_pool import ConnectionPool
from everypair.service.errors import error_body
from everypair.service.limits import Limits
from everypair.service.middleware import CONNECTION_KEY, MAX_HEADER_BYTES, ServiceMiddleware
from everypair.service.telemetry import log
from everypair.service.tracked_request import ERROR_HEADERS, SECURITY_HEADERS

LINGER_SECONDS = 1.0  # in which a client that still sends can read why it was refused
TOO_MANY = (503, "this worker has too many connections. Try again in a second.")


def connection_factory(limits: Limits) -> Any:
    """A protocol class for uvicorn's option ``http``: the connections of one worker."""
    return partial(LimitedConnection, limits, ConnectionPool(limits.connections))


class ConnectionStage(Enum):
    """What the connection receives next."""

    REQUEST = "request"
    HEADERS = "headers"  # the rest of them
    BODY = "body"  # the rest of it


class LimitedConnection(HttpToolsProtocol):
    """Refuses what is no HTTP, and requests whose headers or bodies arrive too slowly or exceed their limits.

    The middleware refuses slow bodies of requests that it waits for. Here are those of requests that were refused before.
    """

    def __init__(self, limits: Limits, pool: ConnectionPool, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._seconds, self._max_bytes, self._pool = limits.receive_seconds, MAX_HEADER_BYTES + 2 * limits.body, pool
        self._stage, self._step, self._received = ConnectionStage.REQUEST, 0, 0  # step: the number of stages so far
        self._timer: asyncio.TimerHandle | None = None
        self._refused = False

    # of asyncio.Protocol

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        if self._pool.add(self):
            self._restart_timer()
        else:
            self.refuse(*TOO_MANY)

    def connection_lost(self, exc: Exception | None) -> None:
        self._pool.remove(self)
        self._cancel_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """The framing of a chunked body counts too, which is why the limit is twice that of a body."""
        if self._refused:
            return
        self._received += len(data)
        step = self._step
        super().data_received(data)
        if self._refused or self.transport.is_closing():
            return
        if self._stage is ConnectionStage.BODY and self._received > self._max_bytes:
            self.refuse(413, "the body is too large. Ask for less at a time.")
        elif self._stage is not ConnectionStage.BODY and self._received > MAX_HEADER_BYTES:
            self.refuse(431, f"the headers have more than {MAX_HEADER_BYTES:,} bytes.")
        elif self._stage is ConnectionStage.REQUEST and self._answering:
            self._cancel_timer()
        elif self._timer is None or self._step != step:
            self._restart_timer()

    # of the parser

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._enter(ConnectionStage.HEADERS)

    def on_headers_complete(self) -> None:
        self.scope[CONNECTION_KEY] = self  # type: ignore[typeddict-unknown-key]
        super().on_headers_complete()
        self._enter(ConnectionStage.BODY)

    def on_message_complete(self) -> None:
        self._enter(ConnectionStage.REQUEST)
        self._received = 0
        super().on_message_complete()

    def on_response_complete(self) -> None:
        self._pool.answered(self)
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        """Called for what the parser refuses."""
        error = sys.exception()
        words = "its path cannot be read" if isinstance(error, HttpParserCallbackError) else str(error)
        self.refuse(400, f"this is not a request in HTTP/1.1: {words.rstrip('.')}.")

    # of the middleware and the pool

    def accept(self) -> None:
        self._pool.accepted(self)

    def abort(self) -> None:
        self.transport.abort()

    def evict(self) -> None:
        """Close the connection in favour of another."""
        if self._refused or self._stage is ConnectionStage.REQUEST:
            self.transport.close()
        else:
            self.refuse(*TOO_MANY, linger=False)

    def refuse(self, status: int, reason: str, linger: bool = True) -> None:
        """Respond with an error and close the connection; requests before this one are answered first."""
        if self._refused:
            return
        self._refused = True
        self._cancel_timer()
        log("refused", status=status, why=reason)
        if isinstance(self.app, ServiceMiddleware):
            self.app.metrics.count_refused(status)
        if self._answering and self._stage is not ConnectionStage.BODY:
            self.cycle.keep_alive = False
        elif self._answering and (self.pipeline or self.cycle.response_started):
            self.transport.abort()  # its turn has not come, or is over: there is no place for a response
        elif self._stage is ConnectionStage.BODY and not self._answering:
            self.transport.close()  # it was refused before
        else:
            self._respond_and_close(status, reason, linger)

    def _respond_and_close(self, status: int, reason: str, linger: bool) -> None:
        if self._answering:  # by the middleware, which waits for the body
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        body = to_json(error_body(status, reason))
        own = {**ERROR_HEADERS.get(status, {}), "connection": "close", **SECURITY_HEADERS}
        headers = {"content-type": "application/json", "content-length": str(len(body)), **own}
        lines = [f"{name}: {value}\r\n".encode() for name, value in headers.items()]
        self.transport.write(b"".join([STATUS_LINE[status], *lines, b"\r\n", body]))
        if linger:  # closed with data to read, the connection would be reset, and the response lost
            self.transport.write_eof()
            self._timer = self.loop.call_later(LINGER_SECONDS, self.transport.close)
        else:
            self.transport.close()

    @property
    def _answering(self) -> bool:
        """Whether a request has arrived, in whole or with its headers, that was not answered yet."""
        return self.cycle is not None and not self.cycle.response_complete

    # time

    def _enter(self, stage: ConnectionStage) -> None:
        self._stage, self._step = stage, self._step + 1

    def _restart_timer(self) -> None:
        self._cancel_timer()
        self._timer = self.loop.call_later(self._seconds, self._late)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _late(self) -> None:
        if self._answering:  # the middleware has limits of its own
            self._restart_timer()
        elif self._stage is ConnectionStage.HEADERS:
            self.refuse(408, f"the headers did not arrive in {self._seconds:g} seconds.")
        else:
            self.transport.close()
