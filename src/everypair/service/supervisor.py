"""The process that watches: it starts workers and starts them again, and switches all of them to another model, or none."""

from __future__ import annotations

import errno
import logging
import multiprocessing
import os
import resource
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from prometheus_client.multiprocess import mark_process_dead

from everypair.service import worker as life
from everypair.service.settings import Settings
from everypair.service.snapshot import Snapshots
from everypair.service.telemetry import SHARED, log, log_to_stderr, without_path

TICK = 0.5  # seconds between looks at the folder
PATIENCE = 600.0  # seconds that a worker may take to open a model
PAUSE = 1.0, 30.0  # seconds before a worker is started again: the first time, and at most
STOPS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Worker:
    """A process, the socket it listens on, which outlives it, and the line to it."""

    def __init__(self, number: int, listening: socket.socket) -> None:
        self.number, self.listening = number, listening
        self.process: Any = None
        self.line: Any = None  # a connection
        self.wishes = False  # whether a client asked it for another model
        self.pause, self.again_at, self.since = PAUSE[0], 0.0, 0.0

    def start(self, task: life.Task) -> None:
        if self.line is not None:
            self.line.close()
        context = multiprocessing.get_context("spawn")
        self.line, theirs = context.Pipe()
        name, arguments = f"worker {self.number}", (task, self.listening, theirs)
        self.process = context.Process(target=life.run, args=arguments, name=name, daemon=True)
        self.process.start()
        theirs.close()
        self.since, self.wishes = time.monotonic(), False

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.is_alive()

    def say(self, *words: Any) -> None:
        with suppress(OSError, ValueError):
            self.line.send(words)

    def hear(self, timeout: float) -> tuple[Any, ...]:
        """What it says next, "late" or "gone"; that a client wishes for another model is noted."""
        until = time.monotonic() + timeout
        try:
            while self.line.poll(max(0.0, until - time.monotonic())):
                word, *rest = self.line.recv()
                if word != "reload":
                    return word, *rest
                self.wishes = True
        except (EOFError, OSError):
            return ("gone",)
        return ("late",)


class Supervisor:
    """Workers around one folder.

    Parameters
    ----------
    path : Path
        Of the model's folder.
    settings : Settings
    port : int
        0 for any that is free.
    n_workers : int
    watch : bool
        Switch when another model is put into the folder.
    log_level : str
    """

    def __init__(
        self, path: Path, settings: Settings, port: int, n_workers: int = 1, watch: bool = True, log_level: str = "info"
    ) -> None:
        self.path, self.settings, self._watch, self._log_level = path.absolute(), settings, watch, log_level
        self.version, self._stopping, self._round = "", False, 0
        self._snapshots = Snapshots(self.path)
        self._seen = self._snapshots.stamp()
        self._model = self.path  # what workers open
        self._workers = [Worker(j, each) for j, each in enumerate(_listen(settings.host, port, n_workers))]
        self.port = self._workers[0].listening.getsockname()[1]

    def run(self, started: Callable[[], Any] = lambda: None) -> None:
        """Until a signal says stop. ``started`` is called when all workers answer; an error if the model cannot be used."""
        log_to_stderr(self._log_level)
        _more_files()
        shared = Path(tempfile.mkdtemp(prefix="everypair-metrics-"))
        before = os.environ.get(SHARED)
        os.environ[SHARED] = str(shared)
        handlers = {each: signal.signal(each, self._stop) for each in STOPS}
        try:
            self._start()
            if not self._stopping:
                started()
                log("serving", model=self.version, workers=len(self._workers), host=self.settings.host, port=self.port)
            while not self._stopping:
                self._turn()
        finally:
            self._end()
            for each, handler in handlers.items():
                signal.signal(each, handler)
            os.environ.pop(SHARED) if before is None else os.environ.update({SHARED: before})
            shutil.rmtree(shared, ignore_errors=True)
            self._snapshots.close()

    def _stop(self, *_: Any) -> None:
        self._stopping = True

    # workers

    def _start(self) -> None:
        """The first one verifies the files, all others map them."""
        self._model = self._snapshots.take()
        for some, verify in ((self._workers[:1], True), (self._workers[1:], False)):
            for worker in some:
                worker.start(self._task(verify))
            for worker in some:
                word, *rest = self._heard(worker, 0)
                if self._stopping:
                    return
                if word != "ready":
                    raise ValueError(
                        self._by_its_name(rest[0], self._model) if word == "refused" else "a worker ended before it could answer."
                    )
                self.version = rest[0]

    def _task(self, verify: bool) -> life.Task:
        return life.Task(self._model, self.settings, self._log_level, verify)

    def _heard(self, worker: Worker, number: int) -> tuple[Any, ...]:
        """What it answers to this round, less its number, or that it is gone; looking for signals meanwhile."""
        until = time.monotonic() + PATIENCE
        while not self._stopping:
            word, *rest = worker.hear(TICK)
            if word == "gone":
                return ("gone",)
            if word != "late" and rest[0] == number:
                return word, *rest[1:]
            if time.monotonic() > until:
                log("worker hangs", logging.ERROR, worker=worker.number)
                worker.process.kill()
        return ("gone",)

    def _turn(self) -> None:
        """Look after everything once."""
        lines = {worker.line: worker for worker in self._workers if worker.alive}
        wait([*lines, *(worker.process.sentinel for worker in lines.values())], TICK)
        for worker in self._workers:
            if not worker.alive:
                self._revive(worker)
            elif worker.line.poll():
                worker.hear(0.0)
        if any(worker.wishes for worker in self._workers) or (self._watch and self._snapshots.stamp() != self._seen):
            self._reload()

    def _revive(self, worker: Worker) -> None:
        """Start it again with the model in use, soon at first and later if that does not help. Who connects meanwhile waits."""
        now = time.monotonic()
        if not worker.again_at:
            mark_process_dead(worker.process.pid)
            if now - worker.since > PAUSE[1]:
                worker.pause = PAUSE[0]
            worker.again_at = now + worker.pause
            log("worker ended", logging.WARNING, worker=worker.number, status=worker.process.exitcode, again_in=worker.pause)
            worker.pause = min(2 * worker.pause, PAUSE[1])
        elif now >= worker.again_at:
            worker.again_at = 0.0
            worker.start(self._task(verify=False))
            word, *rest = self._heard(worker, 0)
            if word == "ready":
                log("worker started", worker=worker.number, model=rest[0])
                self._seen = self._seen if rest[0] == self.version else None  # no links here: all are to have the same
            elif not self._stopping:
                log(
                    "worker not started",
                    logging.ERROR,
                    worker=worker.number,
                    why=self._by_its_name(rest[0], self._model) if rest else word,
                )

    # models

    def _reload(self) -> None:
        """Switch all workers to what is in the folder now, or leave them as they are; and tell those who asked."""
        before, self._seen = self.version, self._snapshots.stamp()
        try:
            taken = self._snapshots.take()
        except (ValueError, OSError) as error:
            refusal = str(error)
        else:
            refusal = self._switch(taken)
            if refusal is None:
                self._model = taken
                self._snapshots.keep_only(taken)
            else:
                refusal = self._by_its_name(refusal, taken)
                self._snapshots.drop(taken)
        if refusal is not None:
            log("model refused", logging.ERROR, why=refusal, model=self.version)
            refusal = without_path(refusal, self.path)
        for worker in self._workers:
            if worker.wishes:
                worker.say("reloaded", life.Reloaded(self.version, self.version != before, refusal))
                worker.wishes = False

    def _switch(self, path: Path) -> str | None:
        """Why not, if not. The first worker verifies all files; none answers with a new model before all have it."""
        workers = [worker for worker in self._workers if worker.alive]
        self._round += 1
        versions: set[str] = set()
        refusal = None if workers else "no worker is there to open it."
        for verify, some in ((True, workers[:1]), (False, workers[1:])):
            if refusal is None:
                for worker in some:
                    worker.say("prepare", self._round, path, verify)
                for worker in some:
                    word, *rest = self._heard(worker, self._round)
                    if word == "ready":
                        versions.add(rest[0])
                    else:
                        refusal = rest[0] if word == "refused" else "a worker ended while it opened the model."
        if refusal is None and len(versions) > 1:
            refusal = "it changed while it was opened."
        for worker in workers:
            worker.say("commit" if refusal is None else "drop", self._round)
        if refusal is None:
            for worker in workers:
                self._heard(worker, self._round)
            (self.version,) = versions
        return refusal

    def _by_its_name(self, message: str, taken: Path) -> str:
        """A message about links as one about the folder they were made of."""
        return message.replace(str(taken), str(self.path))

    def _end(self) -> None:
        """Workers answer what they have begun, and end."""
        log("stopping", model=self.version)
        for worker in self._workers:
            if worker.alive:
                worker.process.terminate()
        until = time.monotonic() + life.GRACE + 5
        for worker in self._workers:
            if worker.process is not None:
                worker.process.join(max(0.0, until - time.monotonic()))
                if worker.process.is_alive():
                    worker.process.kill()
                    worker.process.join()
            worker.listening.close()
        log("stopped")


def _listen(host: str, port: int, n: int) -> list[socket.socket]:
    """A socket for each worker: the system spreads connections evenly over sockets of one address, not over processes of one
    socket."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with _bound(family, host, port, shared=False) as free:  # an error if another program has it
            port = free.getsockname()[1]
        listening = [_bound(family, host, port, shared=True) for _ in range(n)]
    except OSError as error:
        told = "it is in use" if error.errno == errno.EADDRINUSE else (error.strerror or str(error))
        raise OSError(f"cannot listen on {host} port {port}: {told}. Choose another with --host and --port.") from error
    for each in listening:
        each.listen(life.BACKLOG)
    return listening


def _bound(family: int, host: str, port: int, shared: bool) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        made.bind((host, port))
    except BaseException:
        made.close()
        raise
    made.set_inheritable(True)
    return made


def _more_files() -> None:
    """As many connections as the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 65_536 if hard == resource.RLIM_INFINITY else min(hard, 65_536)
    if soft < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
