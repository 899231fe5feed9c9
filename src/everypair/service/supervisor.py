"""The supervisor process: starts and restarts workers, and switches all of them to a new model, or none."""

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

from everypair.runtime.signals import may_be_handled
from everypair.service.messages import ReloadResult, WorkerOptions
from everypair.service.settings import Settings
from everypair.service.snapshot import Snapshots
from everypair.service.telemetry import METRICS_FOLDER, log, log_to_stderr, without_path
from everypair.service.worker import BACKLOG, SHUTDOWN_SECONDS, run_worker

POLL_SECONDS = 0.5  # between looks at the model's folder
OPEN_SECONDS = 600.0  # for a worker to open a model
FIRST_DELAY, MAX_DELAY = 1.0, 30.0  # seconds before a worker is restarted; the delay doubles while restarts fail
MAX_OPEN_FILES = 65_536
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class WorkerProcess:
    """A worker as the supervisor sees it: the process, the pipe to it, and its socket, which survives restarts."""

    def __init__(self, number: int, listener: socket.socket) -> None:
        self.number, self.listener = number, listener
        self.process: Any = None
        self.pipe: Any = None
        self.reload_requested = False  # by a client
        self.restart_delay, self.restart_at, self.started_at = FIRST_DELAY, 0.0, 0.0

    def start(self, options: WorkerOptions) -> None:
        if self.pipe is not None:
            self.pipe.close()
        context = multiprocessing.get_context("spawn")
        self.pipe, worker_end = context.Pipe()
        name, arguments = f"worker {self.number}", (options, self.listener, worker_end)
        self.process = context.Process(target=run_worker, args=arguments, name=name, daemon=True)
        self.process.start()
        worker_end.close()
        self.started_at, self.reload_requested = time.monotonic(), False

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.is_alive()

    def send(self, *message: Any) -> None:
        with suppress(OSError, ValueError):
            self.pipe.send(message)

    def receive(self, timeout: float) -> tuple[Any, ...]:
        """The next message, ("late",) or ("gone",). Requests for a reload are recorded and skipped."""
        until = time.monotonic() + timeout
        try:
            while self.pipe.poll(max(0.0, until - time.monotonic())):
                message = self.pipe.recv()
                if message[0] != "reload":
                    return message
                self.reload_requested = True
        except (EOFError, OSError):
            return ("gone",)
        return ("late",)


class Supervisor:
    """Runs workers that serve the model of one folder.

    Parameters
    ----------
    path : Path
        The model's folder.
    settings : Settings
    port : int
        0 for any free port.
    n_workers : int
    watch : bool
        Switch when a new model is saved to the folder.
    log_level : str
    """

    def __init__(
        self, path: Path, settings: Settings, port: int, n_workers: int = 1, watch: bool = True, log_level: str = "info"
    ) -> None:
        self.path, self.settings, self._watch, self._log_level = path.absolute(), settings, watch, log_level
        self.version, self._stopping, self._round = "", False, 0
        self._snapshots = Snapshots(self.path)
        self._last_stamp = self._snapshots.stamp()
        self._snapshot = self.path  # the folder that workers open
        listeners = _open_listeners(settings.host, port, n_workers)
        self._workers = [WorkerProcess(number, listener) for number, listener in enumerate(listeners)]
        self.port = self._workers[0].listener.getsockname()[1]

    def run(self, on_started: Callable[[], Any] = lambda: None) -> None:
        """Run until a signal to stop; raises ValueError or OSError if the model cannot be used.

        ``on_started`` is called when all workers answer.
        """
        log_to_stderr(self._log_level)
        _raise_open_file_limit()
        metrics_folder = Path(tempfile.mkdtemp(prefix="everypair-metrics-"))
        before = os.environ.get(METRICS_FOLDER)
        os.environ[METRICS_FOLDER] = str(metrics_folder)
        handlers = {number: signal.signal(number, self._stop) for number in STOP_SIGNALS if may_be_handled(number)}
        try:
            self._start_workers()
            if not self._stopping:
                on_started()
                log("serving", model=self.version, workers=len(self._workers), host=self.settings.host, port=self.port)
            while not self._stopping:
                self._poll()
        finally:
            self._end_workers()
            for number, handler in handlers.items():
                signal.signal(number, handler)
            os.environ.pop(METRICS_FOLDER) if before is None else os.environ.update({METRICS_FOLDER: before})
            shutil.rmtree(metrics_folder, ignore_errors=True)
            self._snapshots.close()

    def _stop(self, *_: Any) -> None:
        self._stopping = True

    # workers

    def _start_workers(self) -> None:
        """The first worker verifies the checksums; the others only map the files."""
        self._snapshot = self._snapshots.take()
        for workers, verify in ((self._workers[:1], True), (self._workers[1:], False)):
            for worker in workers:
                worker.start(self._options(verify))
            for worker in workers:
                kind, *content = self._reply(worker, 0)
                if self._stopping:
                    return
                if kind != "ready":
                    refused = kind == "refused"
                    raise ValueError(
                        self._with_model_path(content[0], self._snapshot) if refused else "a worker ended before it could answer."
                    )
                self.version = content[0]

    def _options(self, verify: bool) -> WorkerOptions:
        return WorkerOptions(self._snapshot, self.settings, self._log_level, verify)

    def _reply(self, worker: WorkerProcess, round_: int) -> tuple[Any, ...]:
        """A worker's reply in a round, without the round's number; ("gone",) if the worker ends or a signal to stop comes."""
        until = time.monotonic() + OPEN_SECONDS
        while not self._stopping:
            kind, *content = worker.receive(POLL_SECONDS)
            if kind == "gone":
                return ("gone",)
            if kind != "late" and content[0] == round_:
                return kind, *content[1:]
            if time.monotonic() > until:
                log("worker hangs", logging.ERROR, worker=worker.number)
                worker.process.kill()
        return ("gone",)

    def _poll(self) -> None:
        """Wait for an event, restart workers that ended, and reload if a client or a change of the folder calls for it."""
        running = [worker for worker in self._workers if worker.alive]
        wait([*(worker.pipe for worker in running), *(worker.process.sentinel for worker in running)], POLL_SECONDS)
        for worker in self._workers:
            if not worker.alive:
                self._restart(worker)
            elif worker.pipe.poll():
                worker.receive(0.0)
        requested = any(worker.reload_requested for worker in self._workers)
        if requested or (self._watch and self._snapshots.stamp() != self._last_stamp):
            self._reload()

    def _restart(self, worker: WorkerProcess) -> None:
        """Start a worker again with the model in use, after a delay. Connections to its socket wait meanwhile."""
        now = time.monotonic()
        if not worker.restart_at:
            mark_process_dead(worker.process.pid)
            if now - worker.started_at > MAX_DELAY:
                worker.restart_delay = FIRST_DELAY
            worker.restart_at = now + worker.restart_delay
            log(
                "worker ended", logging.WARNING, worker=worker.number, status=worker.process.exitcode,
                again_in=worker.restart_delay,
            )  # fmt: skip
            worker.restart_delay = min(2 * worker.restart_delay, MAX_DELAY)
        elif now >= worker.restart_at:
            worker.restart_at = 0.0
            worker.start(self._options(verify=False))
            kind, *content = self._reply(worker, 0)
            if kind == "ready":
                log("worker started", worker=worker.number, model=content[0])
                if content[0] != self.version:  # without links it opened what is in the folder now: reload the others too
                    self._last_stamp = None
            elif not self._stopping:
                reason = self._with_model_path(content[0], self._snapshot) if content else kind
                log("worker not started", logging.ERROR, worker=worker.number, why=reason)

    # models

    def _reload(self) -> None:
        """Switch all workers to the model in the folder, or none, and report to the workers whose clients asked."""
        before, self._last_stamp = self.version, self._snapshots.stamp()
        try:
            snapshot = self._snapshots.take()
        except (ValueError, OSError) as error:
            refusal = str(error)
        else:
            refusal = self._switch(snapshot)
            if refusal is None:
                self._snapshot = snapshot
                self._snapshots.keep_only(snapshot)
            else:
                refusal = self._with_model_path(refusal, snapshot)
                self._snapshots.drop(snapshot)
        if refusal is not None:
            log("model refused", logging.ERROR, why=refusal, model=self.version)
            refusal = without_path(refusal, self.path)
        for worker in self._workers:
            if worker.reload_requested:
                worker.send("reloaded", ReloadResult(self.version, self.version != before, refusal))
                worker.reload_requested = False

    def _switch(self, snapshot: Path) -> str | None:
        """Switch all workers to a snapshot; the reason if it is refused, and no worker is switched.

        The first worker verifies the checksums. No worker uses the new model before all have opened it.
        """
        workers = [worker for worker in self._workers if worker.alive]
        self._round += 1
        versions: set[str] = set()
        refusal = None if workers else "no worker is running that could open it."
        for verify, group in ((True, workers[:1]), (False, workers[1:])):
            if refusal is None:
                for worker in group:
                    worker.send("prepare", self._round, snapshot, verify)
                for worker in group:
                    kind, *content = self._reply(worker, self._round)
                    if kind == "ready":
                        versions.add(content[0])
                    else:
                        refusal = content[0] if kind == "refused" else "a worker ended while it opened the model."
        if refusal is None and len(versions) > 1:
            refusal = "the model changed while it was opened."
        for worker in workers:
            worker.send("commit" if refusal is None else "drop", self._round)
        if refusal is None:
            for worker in workers:
                self._reply(worker, self._round)
            (self.version,) = versions
        return refusal

    def _with_model_path(self, message: str, snapshot: Path) -> str:
        """A message about a snapshot, with the path of the model's folder instead."""
        return message.replace(str(snapshot), str(self.path))

    def _end_workers(self) -> None:
        """Let workers finish their requests, and kill those that take too long."""
        log("stopping", model=self.version)
        for worker in self._workers:
            if worker.alive:
                worker.process.terminate()
        until = time.monotonic() + SHUTDOWN_SECONDS + 5
        for worker in self._workers:
            if worker.process is not None:
                worker.process.join(max(0.0, until - time.monotonic()))
                if worker.process.is_alive():
                    worker.process.kill()
                    worker.process.join()
            worker.listener.close()
        log("stopped")


def _open_listeners(host: str, port: int, n: int) -> list[socket.socket]:
    """A socket of the same address for each worker: the kernel balances connections over sockets, but not over the processes that
    share one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with _bind(family, host, port, shared=False) as probe:  # fails if another program uses the port
            port = probe.getsockname()[1]
        listeners = [_bind(family, host, port, shared=True) for _ in range(n)]
    except OSError as error:
        reason = "it is in use" if error.errno == errno.EADDRINUSE else (error.strerror or str(error))
        raise OSError(f"cannot listen on {host} port {port}: {reason}. Choose another with --host and --port.") from error
    for listener in listeners:
        listener.listen(BACKLOG)
    return listeners


def _bind(family: int, host: str, port: int, shared: bool) -> socket.socket:
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        bound.bind((host, port))
    except BaseException:
        bound.close()
        raise
    bound.set_inheritable(True)
    return bound


def _raise_open_file_limit() -> None:
    """Every connection takes a file descriptor."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_OPEN_FILES)
    if soft < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
