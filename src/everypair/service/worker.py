"""A worker process: opens the model, answers requests, and follows the messages of the supervisor."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from everypair.runtime.locks import CopyableLock
from everypair.runtime.signals import may_be_handled
from everypair.service.messages import ReloadResult, WorkerOptions

if TYPE_CHECKING:
    from everypair.service.model_slot import ModelSlot
    from everypair.service.telemetry import Metrics

SHUTDOWN_SECONDS = 30  # for requests to finish after a signal to stop
BACKLOG = 4096  # connections that wait to be accepted
KEEP_ALIVE_SECONDS = 30  # before an idle connection is closed
MEMORY_SECONDS = 5.0  # between measurements of the memory


def run_worker(options: WorkerOptions, listener: socket.socket, pipe: Connection) -> None:
    """The main function of a worker: open the model, tell the supervisor, answer requests until a signal to stop."""
    _on_signals(_end)
    import uvicorn  # these imports are not at the top: the supervisor imports this module, and does not need them

    from everypair.service.app import build_app
    from everypair.service.connection import connection_factory
    from everypair.service.engine import ServiceEngine
    from everypair.service.model_slot import ModelSlot
    from everypair.service.telemetry import log_to_stderr

    log_to_stderr(options.log_level)
    settings, supervisor = options.settings, SupervisorLink(pipe)
    try:
        engine = ServiceEngine.open(options.path, options.verify, settings.title)
    except Exception as error:
        _on_signals(_ignore)  # it ends by itself, and the supervisor's signal to end may come while it does
        supervisor.send("refused", 0, reason_of(error))
        return
    slot = ModelSlot(engine, options.path, settings.title)
    app = build_app(slot, settings, supervisor.reload)
    config = uvicorn.Config(
        app, log_config=None, access_log=False, server_header=False, lifespan="off", backlog=BACKLOG, ws="none",
        proxy_headers=False, timeout_keep_alive=KEEP_ALIVE_SECONDS, timeout_graceful_shutdown=SHUTDOWN_SECONDS,
        http=connection_factory(settings.limits),
    )  # fmt: skip
    heeded = {number for number in (signal.SIGINT, signal.SIGTERM) if may_be_handled(number)}

    class Server(uvicorn.Server):
        def handle_exit(self, sig: int, frame: Any) -> None:
            if sig in heeded:
                super().handle_exit(sig, frame)

    server = Server(config)

    def stop() -> None:
        server.should_exit = True

    supervisor.send("ready", 0, engine.version)
    threading.Thread(target=supervisor.listen, args=(slot, stop), daemon=True, name="everypair-supervisor").start()
    threading.Thread(target=_measure_memory, args=(app.metrics,), daemon=True, name="everypair-memory").start()
    _on_signals(_ignore)  # uvicorn handles signals while it runs, and raises them again when it ends
    server.run(sockets=[listener])


def _end(*_: Any) -> None:
    """End the process; another signal meanwhile would raise inside its exit functions."""
    _on_signals(_ignore)
    sys.exit(0)


def _ignore(*_: Any) -> None:
    """Do nothing."""


def _on_signals(handler: Callable[..., Any]) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if may_be_handled(number):
            signal.signal(number, handler)


class SupervisorLink:
    """The worker's end of the pipe to the supervisor (see :mod:`everypair.service.messages`)."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe, self._send_lock = pipe, CopyableLock()
        self._reload_result: Future[ReloadResult] | None = None

    def send(self, *message: Any) -> None:
        with self._send_lock:
            self._pipe.send(message)

    async def reload(self) -> ReloadResult:
        """Ask the supervisor to switch all workers. Clients that ask meanwhile get the same result."""
        if self._reload_result is None or self._reload_result.done():
            self._reload_result = Future()
            self.send("reload")
        return await asyncio.shield(asyncio.wrap_future(self._reload_result))

    def listen(self, slot: ModelSlot, stop: Callable[[], None]) -> None:
        """Follow the supervisor's messages; stop the worker when the supervisor is gone."""
        try:
            while True:
                match self._pipe.recv():
                    case ("prepare", int(round_), path, verify):
                        self._prepare(slot, round_, path, verify)
                    case ("commit", int(round_)):
                        slot.commit()
                        self.send("committed", round_, slot.current.version)
                    case ("drop", int()):
                        slot.drop()
                    case ("reloaded", result) if self._reload_result is not None and not self._reload_result.done():
                        self._reload_result.set_result(result)
        except (EOFError, OSError):
            pass
        finally:
            stop()

    def _prepare(self, slot: ModelSlot, round_: int, path: Path, verify: bool) -> None:
        try:
            self.send("ready", round_, slot.prepare(verify, path))
        except Exception as error:
            slot.drop()
            self.send("refused", round_, reason_of(error))


def reason_of(error: Exception) -> str:
    """Why a model cannot be opened: the message of an expected error, with the type of any other."""
    if isinstance(error, ValueError | OSError | ImportError) and str(error):
        return str(error)
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _measure_memory(metrics: Metrics) -> None:
    while True:
        metrics.measure_memory()
        time.sleep(MEMORY_SECONDS)
