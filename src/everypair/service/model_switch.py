"""How workers come to use a model: all of them switch to a new one, or none."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from everypair.service.snapshot import Snapshot
from everypair.service.worker_process import GONE, WorkerProcess

WAIT_SECONDS = 0.05  # between looks for a worker that could open a model
ATTEMPTS = 2  # workers that may end while they open a model before it is refused
ENDED = "a worker ended while it opened the model."
GONE_EARLY = "a worker ended before it could answer."


class ModelSwitch:
    """The model in use, and how workers are told.

    Parameters
    ----------
    workers : mapping of int to WorkerProcess
        The workers by number, which others replace when they end.

    Attributes
    ----------
    snapshot : Snapshot, optional
        The model in use.
    version : str
    """

    def __init__(self, workers: Mapping[int, WorkerProcess]) -> None:
        self._workers = workers
        self.snapshot: Snapshot | None = None
        self.version, self._round = "", 0

    async def bring_up(self, worker: WorkerProcess) -> str | None:
        """Have a new worker open the model in use and answer requests; the reason if it cannot."""
        while True:
            snapshot, round_ = self.snapshot, self._next_round()
            assert snapshot is not None
            kind, *content = await worker.prepare(round_, snapshot)
            if kind != "ready":
                return content[0] if content else GONE_EARLY
            if snapshot is self.snapshot:  # no switch meanwhile
                (self.version,) = content
                await worker.commit(round_, snapshot)
                return None

    async def switch(self, snapshot: Snapshot) -> str | None:
        """Switch all workers to a new model; the reason if it is refused, and no worker is switched.

        One worker opens it first: a model that cannot be used costs no more than that. Workers that end meanwhile are replaced, and
        then have the model in use at that time.
        """
        if self.snapshot is not None and snapshot.contents == self.snapshot.contents:
            snapshot.close()
            return None
        prepared: dict[WorkerProcess, int] = {}
        try:
            version, refusal = await self._open_first(snapshot, prepared)
            while refusal is None and (others := [worker for worker in self._serving() if worker not in prepared]):
                prepared |= {worker: self._next_round() for worker in others}
                replies = await asyncio.gather(*(worker.prepare(prepared[worker], snapshot) for worker in others))
                refusal = next((reply[1] for reply in replies if reply[0] == "refused"), None)
        except asyncio.CancelledError:
            snapshot.close()
            raise
        if refusal is not None:
            for worker, round_ in prepared.items():
                worker.drop(round_)
            snapshot.close()
            return refusal
        before, self.snapshot, self.version = self.snapshot, snapshot, version
        await asyncio.gather(*(worker.commit(round_, snapshot) for worker, round_ in prepared.items() if not worker.ended.is_set()))
        if before is not None:
            before.close()
        return None

    async def _open_first(self, snapshot: Snapshot, prepared: dict[WorkerProcess, int]) -> tuple[str, str | None]:
        """Have one worker open a model: its version, and the reason if it is refused."""
        for _ in range(ATTEMPTS):
            while not (serving := self._serving()):
                await asyncio.sleep(WAIT_SECONDS)
            first, round_ = serving[0], self._next_round()
            prepared[first] = round_
            reply = await first.prepare(round_, snapshot)
            if reply != GONE:
                return ("", reply[1]) if reply[0] == "refused" else (reply[1], None)
        return "", ENDED

    def _serving(self) -> list[WorkerProcess]:
        return [worker for worker in self._workers.values() if worker.serving]

    def _next_round(self) -> int:
        self._round += 1
        return self._round

    def close(self) -> None:
        if self.snapshot is not None:
            self.snapshot.close()
