"""A process that answers requests, and does what the one that watches it says."""

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
from typing import Any, NamedTuple

from everypair.service.settings import Settings

GRACE = 30  # seconds in which requests end after a signal to stop, at most
BACKLOG = 4096  # connections that wait to be accepted
IDLE = 30  # seconds after which a connection without requests is closed
MEASURED = 5.0  # seconds between looks at the memory


class Task(NamedTuple):
    """What a worker is told when it starts."""

    path: Path
    settings: Settings
    log_level: str
    verify: bool


class Reloaded(NamedTuple):
    """The version that answers now, and whether it is another than before; or why a new one was refused."""

    version: str
    changed: bool
    refusal: str | None = None


def run(task: Task, listening: socket.socket, parent: Connection) -> None:
    """The life of a worker: open the model, say so, answer until told to stop."""
    _on_signals(lambda *_: sys.exit(0))
    import uvicorn

    from everypair.service.app import create_app
    from everypair.service.connection import connections
    from everypair.service.engine import Engine
    from everypair.service.model_slot import ModelSlot
    from everypair.service.telemetry import log_to_stderr

    log_to_stderr(task.log_level)
    line = Line(parent)
    try:
        engine = Engine.open(task.path, task.verify, task.settings.title)
    except Exception as error:
        line.say("refused", 0, told(error))
        return
    switch = ModelSlot(engine, task.path, task.settings.title)
    app = create_app(switch, task.settings, line.reload)
    config = uvicorn.Config(
        app, log_config=None, access_log=False, server_header=False, lifespan="off", backlog=BACKLOG, ws="none",
        proxy_headers=False, timeout_keep_alive=IDLE, timeout_graceful_shutdown=GRACE, http=connections(task.settings.limits),
    )  # fmt: skip
    server = uvicorn.Server(config)

    def end() -> None:
        server.should_exit = True

    line.say("ready", 0, engine.version)
    threading.Thread(target=line.listen, args=(switch, end), daemon=True, name="everypair-parent").start()
    threading.Thread(target=_measure, args=(app.metrics,), daemon=True, name="everypair-memory").start()
    _on_signals(lambda *_: None)  # the server takes them while it runs, and raises them again at its end
    server.run(sockets=[listening])


def _on_signals(handle: Callable[..., Any]) -> None:
    for sent in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(sent, handle)


class Line:
    """To the process that watches: what it says is done, and what clients wish is passed on."""

    def __init__(self, connection: Connection) -> None:
        self._connection, self._sending = connection, threading.Lock()
        self._wish: Future[Any] | None = None

    def say(self, *words: Any) -> None:
        with self._sending:
            self._connection.send(words)

    async def reload(self) -> Any:
        """All workers must do so: ask the parent, who asks them. Clients that ask meanwhile get the same answer."""
        if self._wish is None or self._wish.done():
            self._wish = Future()
            self.say("reload")
        return await asyncio.shield(asyncio.wrap_future(self._wish))

    def listen(self, switch: Any, end: Callable[[], None]) -> None:
        """Until the parent is gone: then so are we."""
        try:
            while True:
                word, *rest = self._connection.recv()
                if word == "prepare":
                    self._prepare(switch, *rest)
                elif word == "commit":
                    switch.commit()
                    self.say("committed", rest[0], switch.current.version)
                elif word == "drop":
                    switch.drop()
                elif word == "reloaded" and self._wish is not None and not self._wish.done():
                    self._wish.set_result(rest[0])
        except (EOFError, OSError):
            pass
        finally:
            end()

    def _prepare(self, switch: Any, number: int, path: Path, verify: bool) -> None:
        try:
            self.say("ready", number, switch.prepare(verify, path))
        except Exception as error:
            switch.drop()
            self.say("refused", number, told(error))


def told(error: Exception) -> str:
    """Why something cannot be used; what nobody thought of by its name."""
    if isinstance(error, ValueError | OSError | ImportError) and str(error):
        return str(error)
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _measure(metrics: Any) -> None:
    while True:
        metrics.measure()
        time.sleep(MEASURED)
