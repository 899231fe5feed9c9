"""Threads that run kernels on disjoint ranges of rows: results have the same bits for every number of threads.

Kernels release the interpreter lock, so plain threads suffice. Numba's threading layer is not used: concurrent fits in threads
or forked processes are safe, and no kernel needs a second, parallel compilation.
"""

from __future__ import annotations

import copy
import itertools
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from everypair.runtime import validation as check
from everypair.runtime.blas import limit_own_thread
from everypair.runtime.group import ALONE, Group
from everypair.runtime.thread_use import observer

SMALL = 20_000  # units of work (rows plus pairs) below which one thread is faster
MOST_THREADS = 1_024
SHARES = (0.5, 0.25, 0.15, 0.1)  # of all work, in ranges of equal size: one for each thread
LEAST = 4_096  # units of work in a range, but for the last
CHUNK = 2_048  # rows per matrix product: fixed, because rounding depends on it


class Workers:
    """``n_threads`` threads that divide the ranges of a loop among them, in a process that may be one of a ``group``.

    Examples
    --------
    >>> import numpy as np
    >>> def double(start, stop, x):
    ...     x[start:stop] *= 2
    >>> x = np.ones(4)
    >>> with Workers(2) as workers:
    ...     workers.run(double, [0, 2, 4], x)
    >>> x.tolist()
    [2.0, 2.0, 2.0, 2.0]
    """

    def __init__(self, n_threads: int = 1, small: int = SMALL, group: Group = ALONE) -> None:
        self.n_threads, self._small, self.group = n_threads, small, group
        self._pool: ThreadPoolExecutor | None = None
        self._process = os.getpid()
        self._observer = observer()

    def __enter__(self) -> Workers:
        if self.n_threads > 1:
            self._start()
        return self

    def __exit__(self, *exc: object) -> None:
        if self._pool is not None and self._process == os.getpid():
            self._pool.shutdown()
        self._pool = None

    def _start(self) -> ThreadPoolExecutor:
        self._pool = ThreadPoolExecutor(self.n_threads - 1, thread_name_prefix="everypair", initializer=limit_own_thread)
        self._process = os.getpid()
        return self._pool

    def run(self, kernel: Callable[..., Any], bounds: Any, *args: Any) -> None:
        """Call ``kernel(bounds[j], bounds[j + 1], *args)`` for every j."""
        ranges = len(bounds) - 1
        if self._pool is None or ranges == 1:
            self._observed(lambda: kernel(bounds[0], bounds[-1], *args))
            return
        pool = self._pool if self._process == os.getpid() else self._start()  # a forked child does not have its parent's threads
        counter = itertools.count()

        def work() -> None:
            while (j := next(counter)) < ranges:
                kernel(bounds[j], bounds[j + 1], *args)

        futures = [pool.submit(self._observed, work) for _ in range(min(self.n_threads, ranges) - 1)]
        try:
            self._observed(work)
        finally:
            for future in futures:
                future.result()

    def _observed(self, work: Callable[[], None]) -> None:
        if self._observer is None:
            work()
            return
        self._observer.enter()
        try:
            work()
        finally:
            self._observer.leave()

    def split(self, indptr: np.ndarray) -> np.ndarray:
        """Bounds of ranges of compressed rows (``indptr``) by their work; one range if it is small."""
        work = indptr + np.arange(len(indptr))
        bounds = np.searchsorted(work, self._cuts(int(work[-1]))[1:-1])
        return np.unique(np.concatenate([[0], bounds, [len(indptr) - 1]]))

    def even(self, n: int) -> np.ndarray:
        """Bounds that divide ``range(n)``; one range if n is small."""
        return self._cuts(n)

    def _cuts(self, work: int) -> np.ndarray:
        """Where to cut so much work: large ranges first, small ones at the end, where threads would wait for the last of them.

        A range costs a turn of the interpreter lock, for which others wait: on 16 threads that is tens of microseconds.
        """
        if self.n_threads == 1 or work < max(self._small, 1):
            return np.array([0, work])
        sizes = np.repeat(np.array(SHARES) * work / self.n_threads, self.n_threads)
        ends = np.cumsum(np.maximum(sizes, min(LEAST, self._small)))
        return np.unique(np.concatenate([[0], ends[ends < work], [work]]).astype(np.int64))

    def singly(self, n: int, work: int) -> np.ndarray:
        """Bounds that put each of n large tasks in a range of its own; one range if ``work``, their total, is small."""
        return np.array([0, n]) if self.n_threads == 1 or work < self._small else np.arange(n + 1)

    def chunks(self, n: int, chunk: Callable[[int, int], Any], size: int = CHUNK) -> list[Any]:
        """Results of ``chunk(start, stop)`` for consecutive ranges of ``range(n)`` of ``size`` rows, in order."""
        bounds = np.append(np.arange(0, max(n, 1), size), n)
        results: list[Any] = [None] * (len(bounds) - 1)

        def run_chunks(start: int, stop: int) -> None:
            for j in range(start, stop):
                results[j] = chunk(int(bounds[j]), int(bounds[j + 1]))

        self.run(run_chunks, range(len(bounds)))
        return results

    def sum(self, n: int, term: Callable[[int, int], np.ndarray]) -> np.ndarray:
        """Sum of ``term(start, stop)`` over the ranges of :meth:`chunks`, added in order."""
        total, *terms = self.chunks(n, term)
        for value in terms:
            total = total + value
        return self.group.total(total)

    def total(self, partial_sums: np.ndarray) -> np.ndarray:
        """Sums of ranges of rows (the first axis), added in order, over the whole group."""
        return self.group.total(partial_sums.sum(axis=0))

    def partial_totals(self, partial_sums: np.ndarray) -> np.ndarray:
        """Sums of ranges of rows for a kernel that adds them itself: those given, or the group's total as a single range."""
        return partial_sums if self.group.size == 1 else self.total(partial_sums)[None]

    def alone(self) -> Workers:
        """The same threads for rows that every process of the group holds: their sums are complete already."""
        workers = copy.copy(self)
        workers.group = ALONE
        return workers


SERIAL = Workers(1)


def thread_count(n_threads: int | None) -> int:
    """``n_threads``, checked, or one per available core if it is None."""
    if n_threads is not None:
        return check.integer("n_threads", n_threads, low=1, high=MOST_THREADS)
    try:
        return max(1, len(os.sched_getaffinity(0)))
    except AttributeError:  # not on this platform
        return os.cpu_count() or 1
