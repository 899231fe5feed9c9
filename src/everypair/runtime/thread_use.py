"""How many of a fit's threads are busy: what keeps it from being faster on more of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from everypair.runtime.locks import CopyableLock


class ThreadUse:
    """Wall seconds by the number of threads that were busy with kernels, of all workers made within :meth:`observe`.

    A thread is busy from the first to the last range that it takes of a loop. All else counts as idle: Python between loops, serial
    computations such as eigenvalues, a kernel on a single range (the other threads), and waiting for the slowest range.

    Parameters
    ----------
    clock : callable
        Returns seconds.

    Examples
    --------
    >>> import everypair as ep
    >>> use = ThreadUse()
    >>> with use.observe():
    ...     model = ep.MF(factors=2, epochs=1, n_threads=1).fit(ep.Feedback([0, 1], [0, 1]))
    >>> len(use.lap())
    2
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock, self._lock = clock, CopyableLock()
        self._depths: dict[int, int] = {}  # loops that each busy thread is in
        self._seconds: list[float] = [0.0]
        self._changed = clock()

    @contextmanager
    def observe(self) -> Iterator[None]:
        """Let workers that are made in this context report to this object."""
        token = _observer.set(self)
        try:
            yield
        finally:
            _observer.reset(token)

    def lap(self) -> list[float]:
        """Seconds with 0, 1, 2, ... busy threads since the last call, or since the construction."""
        with self._lock:
            self._count()
            seconds, self._seconds = self._seconds, [0.0] * len(self._seconds)
        return seconds

    def enter(self) -> None:
        """This thread begins with ranges of a loop."""
        self._move(1)

    def leave(self) -> None:
        """It has no more of them."""
        self._move(-1)

    def _move(self, by: int) -> None:
        this = threading.get_ident()
        with self._lock:
            self._count()
            depth = self._depths.pop(this, 0) + by
            if depth > 0:
                self._depths[this] = depth

    def _count(self) -> None:
        now, busy = self._clock(), len(self._depths)
        self._seconds += [0.0] * (busy + 1 - len(self._seconds))
        self._seconds[busy] += now - self._changed
        self._changed = now


_observer: ContextVar[ThreadUse | None] = ContextVar("observer", default=None)


def observer() -> ThreadUse | None:
    """The object that observes workers made in this context, or None."""
    return _observer.get()


def partly_idle(lap: list[float], n_threads: int) -> float:
    """Of the seconds of a :meth:`~ThreadUse.lap`, those with fewer than ``n_threads`` busy threads."""
    return sum(lap[:n_threads])
