"""Micro-batching: single recommendation requests that are pending at the same time are ranked together.

A matrix product for several users costs little more than for one, and a list does not depend on the rows that are ranked with it
(:mod:`everypair.ranking.rank`): responses are the same, bit for bit, and throughput under load is higher.
"""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import Executor
from typing import Any, NamedTuple

from everypair.service.served_model import ServedModel
from everypair.service.telemetry import Metrics

MAX_BATCH = 32  # requests
SHARED_FIELDS = ("n", "exclude_seen", "fallback", "details")  # must be equal for all requests of a batch


class PendingRequest(NamedTuple):
    """A request that waits for its batch: the model to use, the fields of its body, the future of its result, and since when."""

    served: ServedModel
    fields: dict[str, Any]
    result: asyncio.Future[dict[str, Any]]
    since: float

    @property
    def batch_key(self) -> tuple[Any, ...]:
        """Equal for requests that can be ranked together. A request with item filters is ranked alone."""
        alone = not self.fields.keys() <= {"user", "request", *SHARED_FIELDS}
        group = id(self.fields) if alone else "user" in self.fields
        return (id(self.served), group, *(self.fields.get(name) for name in SHARED_FIELDS))


class Batcher:
    """Collects requests while a thread computes the batch before. Used from one event loop at a time.

    Parameters
    ----------
    executor : Executor
        With one thread, which computes the batches.
    metrics : Metrics
    queue : str
        The name of the executor in metrics.
    """

    def __init__(self, executor: Executor, metrics: Metrics, queue: str) -> None:
        self._executor, self._metrics, self._queue = executor, metrics, queue
        self._pending: list[PendingRequest] = []
        self._busy = False
        self._loop: asyncio.AbstractEventLoop | None = None

    async def recommend(self, served: ServedModel, fields: dict[str, Any]) -> dict[str, Any]:
        """The result of :meth:`ServedModel.recommend` with these fields."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:  # the loop before may have been closed while a batch was computed
            self._loop, self._pending, self._busy = loop, [], False
        request = PendingRequest(served, fields, loop.create_future(), time.perf_counter())
        self._pending.append(request)
        if not self._busy:
            self._start_batch()
        return await request.result

    def _start_batch(self) -> None:
        """Compute the oldest request and all that can be ranked with it. Requests of clients that disconnected are dropped."""
        pending = [request for request in self._pending if not request.result.done()]
        keys = [request.batch_key for request in pending[:1]]
        batch = [request for request in pending if request.batch_key in keys][:MAX_BATCH]
        taken = set(map(id, batch))
        self._pending = [request for request in pending if id(request) not in taken]
        self._busy = bool(batch)
        if batch:
            computing = asyncio.get_running_loop().run_in_executor(self._executor, self._compute, batch)
            computing.add_done_callback(lambda computed: self._finish_batch(batch, computed))

    def _compute(self, batch: list[PendingRequest]) -> list[Any]:
        """The results of a batch, in the thread of the executor."""
        began = time.perf_counter()
        for request in batch:
            self._metrics.observe_queue(self._queue, began - request.since)
        self._metrics.observe_batch(len(batch))
        return batch[0].served.recommend_together([request.fields for request in batch])

    def _finish_batch(self, batch: list[PendingRequest], computed: asyncio.Future[list[Any]]) -> None:
        failure = computed.exception()
        results = [failure] * len(batch) if failure is not None else computed.result()
        for request, result in zip(batch, results, strict=True):
            if request.result.done():
                continue
            if isinstance(result, BaseException):
                request.result.set_exception(result)
            else:
                request.result.set_result(result)
        self._start_batch()
