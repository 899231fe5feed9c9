"""The server of a worker process: uvicorn's, with the beginning and the end that workers have."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

from everypair.service.app import build_app
from everypair.service.connection import connection_factory
from everypair.service.listener import BACKLOG, Acceptor
from everypair.service.messages import SIGNALS, WorkerOptions
from everypair.service.model_slot import ModelSlot
from everypair.service.readiness import Readiness
from everypair.service.supervisor_link import SupervisorLink

SHUTDOWN_SECONDS = 30  # for requests to finish after a signal to stop
IDLE_SECONDS = 2.0  # for clients with open connections to send their last request before
KEEP_ALIVE_SECONDS = 30  # before an idle connection is closed
TICK_SECONDS = 0.05  # between looks at the connections while the worker stops


class WorkerServer(uvicorn.Server):
    """A server that begins when the supervisor says so, and stops without losing a request.

    To stop: connections that wait are accepted, and the listening socket is closed; ``/ready`` says 503; every response closes its
    connection; clients with idle connections have a moment to send a request, and then these are closed, too.
    """

    def __init__(self, options: WorkerOptions, listener: socket.socket, end: socket.socket) -> None:
        self._options, self._listener, self._end, self._readiness = options, listener, end, Readiness()
        super().__init__(uvicorn.Config(
            _not_yet, log_config=None, access_log=False, server_header=False, lifespan="off", backlog=BACKLOG, ws="none",
            proxy_headers=False, timeout_keep_alive=KEEP_ALIVE_SECONDS, timeout_graceful_shutdown=SHUTDOWN_SECONDS,
            http=connection_factory(options.settings.limits),
        ))  # fmt: skip

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Open the first model, and answer requests until the supervisor ends this."""
        loop = asyncio.get_running_loop()
        self._link = SupervisorLink(self._end, self._options.settings.title, self._stop)
        for number in (signal.SIGINT, signal.SIGHUP):  # a terminal sends them to all processes: the supervisor acts on them
            signal.signal(number, signal.SIG_IGN)
        loop.add_signal_handler(signal.SIGTERM, self._link.send, "stop")
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        self.config.app = self._app(await self._link.first_model)
        await super().serve(sockets=[])

    def _app(self, slot: ModelSlot) -> Any:
        app = build_app(slot, self._options.settings, self._link.reload, self._readiness)
        self._link.metrics = app.metrics
        app.metrics.gather = self._link.gather
        return app

    def _stop(self) -> None:
        """Called when the supervisor says so, or is gone."""
        if not self.started:
            os._exit(0)
        self.should_exit = True

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are handled above."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=[])
        self._acceptor = Acceptor(self._listener, self._new_connection)

    def _new_connection(self) -> asyncio.Protocol:
        protocol: Any = self.config.http_protocol_class
        return protocol(config=self.config, server_state=self.server_state, app_state=self.lifespan.state)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        loop, state = asyncio.get_running_loop(), self.server_state
        self._readiness.drain()
        state.default_headers = [*state.default_headers, (b"connection", b"close")]
        for connection in state.connections:
            if _is_answering(connection):
                connection.shutdown()  # after the response
        await self._acceptor.finish()
        until = loop.time() + IDLE_SECONDS
        while state.connections and loop.time() < until:
            await asyncio.sleep(TICK_SECONDS)
        await super().shutdown(sockets=[])


async def _not_yet(*_: Any) -> None:
    """The application until there is a model."""


def _is_answering(connection: Any) -> bool:
    return connection.cycle is not None and not connection.cycle.response_complete
