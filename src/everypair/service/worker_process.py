"""A worker as the supervisor sees it: a process, the channel to it, and its heartbeat."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from everypair.service.channel import Channel, Message
from everypair.service.heartbeat import PING_SECONDS, Heartbeat, cpu_seconds
from everypair.service.messages import SIGNALS, WorkerOptions
from everypair.service.metric_families import Family
from everypair.service.snapshot import Snapshot
from everypair.service.telemetry import log
from everypair.service.worker import run_worker

GONE = ("gone",)  # the reply of a worker that ended
EVERY_BLAS = "OMP_NUM_THREADS"
BLAS_THREADS = (EVERY_BLAS, "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")

Reply = tuple[Any, ...]  # a message without its round


class WorkerProcess:
    """A process that runs :func:`~everypair.service.worker.run_worker`.

    Parameters
    ----------
    number : int
        Of the worker, which is the same for the processes that replace it.
    on_request : callable
        Called with this object and each message that is not a reply.

    Attributes
    ----------
    ended : Event
    serving : bool
        Whether it answers requests.
    families : list of Family
        Its metrics when it was last asked.
    snapshot : Snapshot, optional
        The model that it was last told to use.
    """

    def __init__(
        self, number: int, options: WorkerOptions, listener: socket.socket, on_request: Callable[[WorkerProcess, Message], None],
        hang_seconds: float,
    ) -> None:  # fmt: skip
        self.number, self._on_request = number, on_request
        self.ended, self.serving, self.families = asyncio.Event(), False, list[Family]()
        self.snapshot: Snapshot | None = None
        self._heartbeat, self._opening = Heartbeat(hang_seconds), False
        self._pongs: dict[int, asyncio.Future[None]] = {}
        self._reply: tuple[int, asyncio.Future[Reply]] | None = None
        self._loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        arguments, name = (options, listener, theirs), f"worker {number}"
        self._process = multiprocessing.get_context("spawn").Process(target=run_worker, args=arguments, name=name, daemon=True)
        with _blocked_signals(), _limited_blas():
            self._process.start()
        theirs.close()
        self._channel = Channel(ours, self._receive, lambda: None)
        self._loop.add_reader(self._process.sentinel, self._on_end)
        self._watching = self._loop.create_task(self._watch())

    @property
    def exit_code(self) -> int | None:
        return self._process.exitcode

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    # models

    async def prepare(self, round_: int, snapshot: Snapshot) -> Reply:
        """Have it open a model: ("ready", version), ("refused", reason) or GONE."""
        self._opening = True
        names, files = list(snapshot.files), list(snapshot.files.values())
        reply = await self._ask("prepare", round_, snapshot.path, snapshot.contents, names, files=files)
        self._opening = False
        return reply

    async def commit(self, round_: int, snapshot: Snapshot) -> Reply:
        """Have it use the model that it opened."""
        self.snapshot, self.serving = snapshot, True
        return await self._ask("commit", round_)

    def drop(self, round_: int) -> None:
        """Have it forget the model that it opened."""
        self._channel.send("drop", round_)

    async def _ask(self, kind: str, round_: int, *content: Any, files: list[int] | None = None) -> Reply:
        if self.ended.is_set():
            return GONE
        reply: asyncio.Future[Reply] = self._loop.create_future()
        self._reply = round_, reply
        self._channel.send(kind, round_, *content, files=files or [])
        return await reply

    def send(self, *message: Any) -> None:
        self._channel.send(*message)

    def _receive(self, message: Message, files: list[int]) -> None:
        match message:
            case ("pong", int(number), families):
                self.families = families
                self._heartbeat.pong(number)
                for waiting in [asked for asked in self._pongs if asked <= number]:
                    _settle(self._pongs.pop(waiting), None)
            case ("ready" | "refused" | "committed" as kind, round_, content):
                if self._reply is not None and self._reply[0] == round_:
                    _settle(self._reply[1], (kind, content))
            case _:
                self._on_request(self, message)

    # life

    async def fresh_families(self) -> list[Family]:
        """Its metrics now; those from before if it ends meanwhile."""
        if not self.ended.is_set():
            await self._ping()
        return self.families

    def _ping(self) -> asyncio.Future[None]:
        pong: asyncio.Future[None] = self._loop.create_future()
        number = self._heartbeat.ping(cpu_seconds(self.pid))
        self._pongs[number] = pong
        self._channel.send("ping", number)
        return pong

    async def _watch(self) -> None:
        """Kill it if it hangs."""
        while True:
            before = self._loop.time()
            await asyncio.sleep(PING_SECONDS)
            why = self._heartbeat.why_hung(self._loop.time() - before, cpu_seconds(self.pid), self._opening)
            if why is not None:
                log("worker hangs", logging.ERROR, worker=self.number, why=why)
                self.kill()
                return
            if self._heartbeat.answered:
                self._ping()

    def stop(self) -> None:
        """Have it complete its requests and end."""
        self._channel.send("stop") if self.serving else self.kill()

    def kill(self) -> None:
        if not self.ended.is_set():
            self._process.kill()

    def _on_end(self) -> None:
        self._loop.remove_reader(self._process.sentinel)
        self._process.join()
        self._watching.cancel()
        self._channel.close()
        self.serving = False
        self.ended.set()
        if self._reply is not None:
            _settle(self._reply[1], GONE)
        for pong in self._pongs.values():
            _settle(pong, None)


def _settle(future: asyncio.Future[Any], value: Any) -> None:
    if not future.done():
        future.set_result(value)


@contextmanager
def _blocked_signals() -> Iterator[None]:
    """Block signals in a process that is started here, until it can handle them. Those to this process wait meanwhile."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _limited_blas() -> Iterator[None]:
    """Limit BLAS to one thread in a process that is started here: parallelism is over workers. Variables of the operator stay."""
    added = [] if EVERY_BLAS in os.environ else [name for name in BLAS_THREADS if name not in os.environ]
    os.environ.update(dict.fromkeys(added, "1"))
    try:
        yield
    finally:
        for name in added:
            del os.environ[name]
