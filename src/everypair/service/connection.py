"""Connections that do not wait for ever: what a client sends has a size and a time, and an answer that is not taken is given up."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from everypair.service.limits import Limits
from everypair.service.middleware import ABORT, HEAD


def connections(limits: Limits) -> Any:
    """How a server makes connections with such limits."""
    return partial(Connection, limits)


class Connection(HttpToolsProtocol):
    """One that is closed when no whole head comes in time, or when head or body do not end."""

    def __init__(self, limits: Limits, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._seconds, self._most, self._size = limits.seconds, HEAD + 2 * limits.body, 0
        self._waiting: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._go_on()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Bytes of frames around parts of a body count, too: as many as the body has, and no more."""
        self._size += len(data)
        super().data_received(data)
        if self._size > (self._most if self._waiting is None else HEAD):
            self.transport.abort()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if self._waiting is None:
            self._wait()

    def on_headers_complete(self) -> None:
        self._go_on()
        self.scope[ABORT] = self.transport.abort  # type: ignore[typeddict-unknown-key]
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._size = 0
        super().on_message_complete()

    def _wait(self) -> None:
        self._waiting = self.loop.call_later(self._seconds, self.transport.abort)

    def _go_on(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None
