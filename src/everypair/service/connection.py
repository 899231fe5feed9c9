"""HTTP connections with limits of time and size, so that slow or endless clients cannot hold a worker."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from everypair.service.limits import Limits
from everypair.service.middleware import ABORT_KEY, MAX_HEADER_BYTES


def connection_factory(limits: Limits) -> Any:
    """A protocol class for uvicorn's option ``http``."""
    return partial(LimitedConnection, limits)


class LimitedConnection(HttpToolsProtocol):
    """Closed when the headers of a request do not arrive in time, or when headers or body exceed their limits."""

    def __init__(self, limits: Limits, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._header_seconds, self._max_bytes, self._received = limits.seconds, MAX_HEADER_BYTES + 2 * limits.body, 0
        self._header_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._start_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """The framing of a chunked body counts too, which is why the limit is twice that of a body."""
        self._received += len(data)
        super().data_received(data)
        if self._received > (self._max_bytes if self._header_timer is None else MAX_HEADER_BYTES):
            self.transport.abort()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if self._header_timer is None:
            self._start_timer()

    def on_headers_complete(self) -> None:
        self._cancel_timer()
        self.scope[ABORT_KEY] = self.transport.abort  # type: ignore[typeddict-unknown-key]
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._received = 0
        super().on_message_complete()

    def _start_timer(self) -> None:
        self._header_timer = self.loop.call_later(self._header_seconds, self.transport.abort)

    def _cancel_timer(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None
