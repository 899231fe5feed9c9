"""A worker's end of the channel to the supervisor."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

from everypair.service.channel import Channel, Message
from everypair.service.daemon_thread import in_daemon_thread
from everypair.service.errors import RequestError
from everypair.service.messages import ReloadResult
from everypair.service.metric_families import Family
from everypair.service.model_slot import ModelSlot
from everypair.service.served_model import ServedModel
from everypair.service.snapshot import Snapshot
from everypair.service.telemetry import Metrics, reason_of

GATHER_SECONDS = 5.0  # for the supervisor to send the metrics of all workers


class SupervisorLink:
    """Follows the messages of the supervisor (:mod:`everypair.service.messages`), in the event loop of the worker.

    Parameters
    ----------
    end : socket
    title : str, optional
        See :class:`~everypair.service.settings.Settings`.
    stop : callable
        Called when the supervisor says so, or is gone.

    Attributes
    ----------
    first_model : Future of ModelSlot
        Done when the supervisor says that the worker may answer requests.
    metrics : Metrics, optional
        Those of this worker.
    """

    def __init__(self, end: socket.socket, title: str | None, stop: Callable[[], None]) -> None:
        self._loop, self._title, self._stop = asyncio.get_running_loop(), title, stop
        self.first_model: asyncio.Future[ModelSlot] = self._loop.create_future()
        self.metrics: Metrics | None = None
        self._prepared: tuple[int, ServedModel] | None = None
        self._round = 0  # the last one
        self._tasks: set[asyncio.Task[None]] = set()
        self._requests: dict[int, asyncio.Future[Any]] = {}
        self._n_requests = 0
        self._channel = Channel(end, self._follow, self._supervisor_ended)
        self.send = self._channel.send

    async def reload(self) -> ReloadResult:
        """Ask the supervisor to switch all workers to the model that is in the folder now."""
        result: ReloadResult | None = await self._request("reload")
        if result is None:
            raise RequestError(503, "the service is stopping.")
        return result

    def gather(self) -> list[Family]:
        """The metrics of all workers. Called from other threads than that of the event loop."""
        answer = asyncio.run_coroutine_threadsafe(self._request("gather"), self._loop)
        try:
            return answer.result(GATHER_SECONDS)
        except TimeoutError:
            answer.cancel()
            raise RequestError(503, "the supervisor, which has the metrics of all workers, does not answer.") from None

    async def _request(self, kind: str) -> Any:
        self._n_requests += 1
        number, answer = self._n_requests, self._loop.create_future()
        self._requests[number] = answer
        self.send(kind, number)
        try:
            return await answer
        finally:
            del self._requests[number]

    def _supervisor_ended(self) -> None:
        for answer in self._requests.values():
            if not answer.done():
                answer.set_exception(RequestError(503, "the supervisor of this service ended."))
        self._stop()

    def _follow(self, message: Message, files: list[int]) -> None:
        match message:
            case ("prepare", int(round_), Path() as path, manifest, names):
                self._round = round_
                snapshot = Snapshot(path, manifest, dict(zip(names, files, strict=True)))
                task = self._loop.create_task(self._prepare(round_, snapshot))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            case ("commit", int(round_)):
                self._commit(round_)
            case ("drop", int()):
                self._prepared, self._round = None, 0
            case ("reloaded" | "gathered", int(number), answer):
                if number in self._requests and not self._requests[number].done():
                    self._requests[number].set_result(answer)
            case ("ping", int(number)):
                self.send("pong", number, self.metrics.families() if self.metrics is not None else [])
            case ("stop",):
                self._stop()

    async def _prepare(self, round_: int, snapshot: Snapshot) -> None:
        """Open a model in a thread, so that requests are answered meanwhile."""
        try:
            with snapshot:
                served = await in_daemon_thread(ServedModel.open, snapshot, self._title)
        except Exception as error:
            self.send("refused", round_, reason_of(error))
            return
        if round_ == self._round:
            self._prepared = round_, served
            self.send("ready", round_, served.version)

    def _commit(self, round_: int) -> None:
        if self._prepared is None or self._prepared[0] != round_:
            return
        served, self._prepared = self._prepared[1], None
        if self.first_model.done():
            self.first_model.result().use(served)
        else:
            self.first_model.set_result(ModelSlot(served))
        self.send("committed", round_, served.version)
