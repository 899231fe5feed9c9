"""Single requests that wait at the same moment are ranked together.

A matrix product for several users costs little more than that for one, and a list does not depend on what else is ranked with it
(:mod:`everypair.ranking.rank`): the answers are the same, bit for bit, and under load there are more of them.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor
from typing import Any, NamedTuple

from everypair.service.engine import Engine

MOST = 32  # requests at a time
ALIKE = ("n", "exclude_seen", "fallback", "details")  # fields that requests must agree in


class Waiting(NamedTuple):
    """A request, the model that is to answer it, and where the answer goes."""

    engine: Engine
    asked: dict[str, Any]
    answer: asyncio.Future[dict[str, Any]]

    @property
    def kind(self) -> tuple[Any, ...]:
        """Equal for those that can be ranked together; what has filters of its own is alone."""
        alone = not self.asked.keys() <= {"user", "request", *ALIKE}
        which = id(self.asked) if alone else "user" in self.asked
        return (id(self.engine), which, *(self.asked.get(name) for name in ALIKE))


class Batcher:
    """What waits while a thread computes. Used from one event loop at a time.

    Parameters
    ----------
    lane : Executor
        Of the thread.
    """

    def __init__(self, lane: Executor) -> None:
        self._lane = lane
        self._waiting: list[Waiting] = []
        self._busy = False
        self._loop: asyncio.AbstractEventLoop | None = None

    async def recommend(self, engine: Engine, asked: dict[str, Any]) -> dict[str, Any]:
        """As :meth:`Engine.recommend`, when its turn comes."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:  # one before may have ended in the middle
            self._loop, self._waiting, self._busy = loop, [], False
        waiting = Waiting(engine, asked, loop.create_future())
        self._waiting.append(waiting)
        if not self._busy:
            self._next()
        return await waiting.answer

    def _next(self) -> None:
        """The first that waits, and all that are like it; those who asked for it may have gone."""
        waiting = [each for each in self._waiting if not each.answer.done()]
        kinds = [each.kind for each in waiting[:1]]
        some = [each for each in waiting if each.kind in kinds][:MOST]
        taken = set(map(id, some))
        self._waiting = [each for each in waiting if id(each) not in taken]
        self._busy = bool(some)
        if some:
            engine, asked = some[0].engine, [each.asked for each in some]
            computing = asyncio.get_running_loop().run_in_executor(self._lane, engine.recommend_together, asked)
            computing.add_done_callback(lambda done: self._done(some, done))

    def _done(self, some: list[Waiting], computed: asyncio.Future[list[Any]]) -> None:
        failed = computed.exception()
        answers = [failed] * len(some) if failed is not None else computed.result()
        for each, answer in zip(some, answers, strict=True):
            if each.answer.done():
                continue
            if isinstance(answer, BaseException):
                each.answer.set_exception(answer)
            else:
                each.answer.set_result(answer)
        self._next()
