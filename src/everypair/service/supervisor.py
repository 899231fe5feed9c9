"""The supervisor process: it keeps the workers running, and switches them to new models.

It never waits for one process: messages, ends of processes, signals and timers are events of one loop, and what may take long (to
copy a model) runs in a thread. In particular:

- A worker that hangs stops answering pings (:mod:`~everypair.service.heartbeat`), is killed, and replaced like one that ended.
- All workers accept connections from one socket (:mod:`~everypair.service.listener`): none waits for a worker that is gone.
- The model is held in memory (:mod:`~everypair.service.snapshot`), so a worker that replaces another opens what the others have. A
  new model is opened by all workers before one uses it (:mod:`~everypair.service.model_switch`).
- To stop, new connections are refused, those that wait are accepted, and workers complete their requests. Another service may share
  the socket by then, and accept them instead (:mod:`~everypair.service.handover`).
- Nothing is written to a disk, so nothing stays there if the supervisor is killed. Its workers notice, complete their requests and
  end.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from everypair.runtime.signals import may_be_handled
from everypair.service.channel import Message
from everypair.service.daemon_thread import in_daemon_thread
from everypair.service.handover import Handover, take_over
from everypair.service.heartbeat import HANG_SECONDS
from everypair.service.listener import open_listener, refuse_new_connections
from everypair.service.messages import SIGNALS, ReloadResult, WorkerOptions
from everypair.service.metric_families import Family, combined, lasting
from everypair.service.model_switch import GONE_EARLY, ModelSwitch
from everypair.service.settings import Settings
from everypair.service.snapshot import Snapshot, Stamp, stamp_of, take_snapshot
from everypair.service.telemetry import SupervisorMetrics, log, log_to_stderr, reason_of, without_path
from everypair.service.worker_process import WorkerProcess

POLL_SECONDS = 0.5  # between looks at the model's folder
GATHER_SECONDS = 1.0  # for workers to send their metrics
FIRST_DELAY, MAX_DELAY = 1.0, 30.0  # seconds before a worker is replaced that ended soon after its start; doubled each time
STOP_SECONDS = 40.0  # for workers to complete their requests
MAX_OPEN_FILES = 65_536


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
    take_over : bool
        Share the socket of a service that runs on the same address, if there is one.
    hang_seconds : float
        Replace a worker that neither answers nor computes for so long.
    """

    def __init__(
        self, path: Path, settings: Settings, port: int, n_workers: int = 1, watch: bool = True, log_level: str = "info",
        take_over: bool = False, hang_seconds: float = HANG_SECONDS,
    ) -> None:  # fmt: skip
        self.path, self._settings, self._watched = path.absolute(), settings, watch
        self._n_workers, self._options, self._hang_seconds = n_workers, WorkerOptions(settings, log_level), hang_seconds
        self._listener, self._predecessor = _listener(settings.host, port, take_over)
        self.port = self._listener.getsockname()[1]
        self._workers: dict[int, WorkerProcess] = {}
        self._metrics, self._of_ended = SupervisorMetrics(), list[Family]()
        self._asking: list[tuple[WorkerProcess, int]] = []  # clients that wait for a reload: worker, request
        self._stamp: Stamp = None  # of the folder when it was last read

    @property
    def version(self) -> str:
        """Of the model in use."""
        return self._models.version

    def run(self, on_started: Callable[[], Any] = lambda: None) -> None:
        """Run until a signal to stop; raises ValueError or OSError if the model cannot be used.

        ``on_started`` is called when all workers answer.
        """
        log_to_stderr(self._options.log_level)
        _raise_open_file_limit()
        handlers = {number: signal.getsignal(number) for number in SIGNALS if may_be_handled(number)}
        try:
            asyncio.run(self._run(on_started))
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
            self._listener.close()

    async def _run(self, on_started: Callable[[], Any]) -> None:
        loop = asyncio.get_running_loop()
        self._models = ModelSwitch(self._workers)
        self._stopping, self._reload_wanted, self._tasks = asyncio.Event(), asyncio.Event(), set[asyncio.Task[Any]]()
        for number in filter(may_be_handled, SIGNALS):
            loop.add_signal_handler(number, self._on_signal, number)
        handover = Handover(self._listener, self._predecessor)
        stopping, serving = self._start(self._stopping.wait()), asyncio.ensure_future(self._serve(on_started))
        self._tasks.add(serving)  # its errors are raised below
        try:
            await asyncio.wait((stopping, serving), return_when=asyncio.FIRST_COMPLETED)
            if serving.done():
                serving.result()
        finally:
            shared = handover.shared
            handover.close()
            await self._end(shared)

    def _start(self, work: Any) -> asyncio.Task[Any]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)
        return task

    def _finished(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log("failed", logging.ERROR, task.exception())

    def _on_signal(self, number: int) -> None:
        if number == signal.SIGHUP:
            self._reload_wanted.set()
            return
        if self._stopping.is_set() and number == signal.SIGINT:  # a second Ctrl-C
            for worker in self._workers.values():
                worker.kill()
        self._stopping.set()

    async def _serve(self, on_started: Callable[[], Any]) -> None:
        """The first worker opens the model alone, which compiles what is not in the cache of kernels yet."""
        self._models.snapshot = await self._take_snapshot()
        for numbers in (range(1), range(1, self._n_workers)):
            started = [asyncio.get_running_loop().create_future() for _ in numbers]
            for number, future in zip(numbers, started, strict=True):
                self._start(self._keep_running(number, future))
            await asyncio.gather(*started)
        on_started()
        log("serving", model=self.version, workers=self._n_workers, host=self._settings.host, port=self.port)
        if self._watched:
            self._start(self._watch())
        while True:
            await self._reload_wanted.wait()
            self._reload_wanted.clear()
            await self._reload()

    # workers

    async def _keep_running(self, number: int, started: asyncio.Future[None]) -> None:
        """Start a worker, and another one whenever it ended. ``started`` is done when the first one answers, or has the reason."""
        loop, delay = asyncio.get_running_loop(), 0.0
        while True:
            since = loop.time()
            try:
                await self._run_worker(number, started)
            except OSError as error:  # no memory, or no more processes
                self._not_started(number, started, str(error))
            if started.done() and started.exception() is not None:
                return
            delay = 0.0 if loop.time() - since > MAX_DELAY else delay
            self._metrics.count_restart()
            log("worker is replaced", worker=number, seconds=delay)
            await asyncio.sleep(delay)
            delay = min(max(2 * delay, FIRST_DELAY), MAX_DELAY)

    async def _run_worker(self, number: int, started: asyncio.Future[None]) -> None:
        """Start a worker and wait for its end."""
        worker = self._workers[number] = WorkerProcess(number, self._options, self._listener, self._on_request, self._hang_seconds)
        refusal = await self._models.bring_up(worker)
        if refusal is None and started.done():
            log("worker started", worker=number, model=self.version)
        elif refusal is None:
            started.set_result(None)
        elif refusal != GONE_EARLY or number == 0:  # others are replaced when they end, since the first serves the model
            worker.kill()
            self._not_started(number, started, refusal)
        await worker.ended.wait()
        log("worker ended", logging.WARNING, worker=number, status=worker.exit_code)
        del self._workers[number]
        self._of_ended = combined([self._of_ended, lasting(worker.families)])

    def _not_started(self, number: int, started: asyncio.Future[None], why: str) -> None:
        if started.done():
            log("worker not started", logging.ERROR, worker=number, why=why)
        else:
            started.set_exception(ValueError(why))

    def _on_request(self, worker: WorkerProcess, message: Message) -> None:
        match message:
            case ("reload", int(request)):
                self._asking.append((worker, request))
                self._reload_wanted.set()
            case ("gather", int(request)):
                self._start(self._gather(worker, request))
            case ("stop",):
                worker.stop()

    async def _gather(self, asking: WorkerProcess, request: int) -> None:
        """Send a worker the metrics of all; of workers that do not answer, those that they sent last."""
        asked = [asyncio.ensure_future(worker.fresh_families()) for worker in self._workers.values()]
        if asked:
            await asyncio.wait(asked, timeout=GATHER_SECONDS)
        workers = self._workers.values()
        families = [lasting(worker.families) if worker.ended.is_set() else worker.families for worker in workers]
        own = self._metrics.families(sum(worker.serving for worker in workers))
        asking.send("gathered", request, combined([self._of_ended, own, *families]))

    # models

    async def _take_snapshot(self) -> Snapshot:
        self._stamp = await in_daemon_thread(stamp_of, self.path)
        return await in_daemon_thread(take_snapshot, self.path)

    async def _watch(self) -> None:
        """Ask for a reload whenever the folder is not as it was when it was last read."""
        while True:
            await asyncio.sleep(POLL_SECONDS)
            if await in_daemon_thread(stamp_of, self.path) != self._stamp:
                self._reload_wanted.set()

    async def _reload(self) -> None:
        """Switch all workers to the model in the folder, or none, and report to the clients that asked before this began."""
        before, asking = self.version, self._asking
        self._asking = []
        log("reloading", model=before)
        try:
            refusal = await self._models.switch(await self._take_snapshot())
        except Exception as error:
            refusal = reason_of(error)
        except asyncio.CancelledError:
            self._asking += asking
            raise
        if refusal is not None:
            log("model refused", logging.ERROR, why=refusal, model=self.version)
            self._metrics.count_refusal()
            refusal = without_path(refusal, self.path)
        self._answer(asking, ReloadResult(self.version, self.version != before, refusal))

    def _answer(self, asking: list[tuple[WorkerProcess, int]], result: ReloadResult | None) -> None:
        for worker, request in asking:
            worker.send("reloaded", request, result)

    # the end

    async def _end(self, shared: bool) -> None:
        """Let workers complete their requests, and kill those that take too long."""
        log("stopping", model=self.version)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._answer(self._asking, None)
        if not shared:
            refuse_new_connections(self._listener)
        ends = [asyncio.ensure_future(worker.ended.wait()) for worker in self._workers.values()]
        for worker in self._workers.values():
            worker.stop()
        self._listener.close()
        if ends:
            _, late = await asyncio.wait(ends, timeout=STOP_SECONDS)
            for worker in self._workers.values() if late else ():
                worker.kill()
            await asyncio.gather(*ends)
        self._models.close()
        log("stopped")


def _listener(host: str, port: int, taken_over: bool) -> tuple[Any, Any]:
    """The listening socket, and the connection to the service that it was taken over from, if it was."""
    found = take_over(host, port) if taken_over else None
    return found if found is not None else (open_listener(host, port), None)


def _raise_open_file_limit() -> None:
    """Every connection takes a file descriptor."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_OPEN_FILES)
    if soft < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
