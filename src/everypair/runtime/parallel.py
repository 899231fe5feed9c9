"""Threads for kernels: ranges of rows that touch nothing in common, run in any order, with the same bits.

Kernels release the interpreter lock, so plain threads suffice. No threading layer of Numba is involved: fits in several
threads or in forked processes are safe, and nothing has to be compiled twice.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np
from threadpoolctl import ThreadpoolController

SMALL = 20_000  # units of work (rows plus pairs) below which threads cost more than they bring
CHUNK = 2_048  # rows per range in matrix products: fixed, so that sums do not depend on the number of threads


class Workers:
    """``n_threads`` threads that share the ranges of a loop.

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

    def __init__(self, n_threads: int = 1, small: int = SMALL) -> None:
        self.n_threads, self._small = n_threads, small
        self._pool: ThreadPoolExecutor | None = None

    def __enter__(self) -> Workers:
        if self.n_threads > 1:
            self._pool = ThreadPoolExecutor(self.n_threads - 1, thread_name_prefix="everypair")
        return self

    def __exit__(self, *exc: object) -> None:
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None

    def run(self, kernel: Callable[..., Any], bounds: Any, *args: Any) -> None:
        """Call ``kernel(bounds[j], bounds[j + 1], *args)`` for every j."""
        ranges = len(bounds) - 1
        if self._pool is None or ranges == 1:
            kernel(bounds[0], bounds[-1], *args)
            return
        counter = itertools.count()

        def work() -> None:
            while (j := next(counter)) < ranges:
                kernel(bounds[j], bounds[j + 1], *args)

        futures = [self._pool.submit(work) for _ in range(min(self.n_threads, ranges) - 1)]
        try:
            work()
        finally:
            for future in futures:
                future.result()

    def split(self, indptr: np.ndarray) -> np.ndarray:
        """Bounds of ranges of rows with about equal work, given compressed rows; one range if there is little to do."""
        work = indptr + np.arange(len(indptr))
        ranges = 1 if self.n_threads == 1 or work[-1] < self._small else 8 * self.n_threads
        bounds = np.searchsorted(work, np.linspace(0, work[-1], ranges + 1)[1:-1])
        return np.unique(np.concatenate([[0], bounds, [len(indptr) - 1]]))

    def even(self, n: int) -> np.ndarray:
        """Bounds of equal ranges of ``range(n)``; one range if there is little to do."""
        ranges = 1 if self.n_threads == 1 or n < self._small else 4 * self.n_threads
        return np.linspace(0, n, ranges + 1).astype(np.int64)

    def singly(self, n: int, work: int) -> np.ndarray:
        """Bounds of ranges of one, for a few large pieces of ``work`` units together; one range if there is little to do."""
        return np.array([0, n]) if self.n_threads == 1 or work < self._small else np.arange(n + 1)

    def chunks(self, n: int, some: Callable[[int, int], Any]) -> list[Any]:
        """``some(start, stop)`` for ranges of ``range(n)`` of fixed size (products of matrices may depend on it), in order."""
        bounds = np.append(np.arange(0, max(n, 1), CHUNK), n)
        results: list[Any] = [None] * (len(bounds) - 1)

        def one(start: int, stop: int) -> None:
            for j in range(start, stop):
                results[j] = some(int(bounds[j]), int(bounds[j + 1]))

        self.run(one, range(len(bounds)))
        return results

    def sum(self, n: int, term: Callable[[int, int], np.ndarray]) -> np.ndarray:
        """Sum of ``term(start, stop)`` over fixed ranges of ``range(n)``, added in their order."""
        total, *terms = self.chunks(n, term)
        for value in terms:
            total = total + value
        return total


SERIAL = Workers(1)


def thread_count(n_threads: int | None) -> int:
    """The number of threads to use: as asked, or one per available core."""
    if n_threads is not None:
        return n_threads
    try:
        return max(1, len(os.sched_getaffinity(0)))
    except AttributeError:  # not on this platform
        return os.cpu_count() or 1


_lock = threading.Lock()
_users = 0
_limits: Any = None
_libraries: ThreadpoolController | None = None  # looking for them takes longer than a request


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Matrix products on one thread each while any fit runs: our own threads share the work, and the bits stay the same."""
    global _users, _limits, _libraries
    with _lock:
        if _users == 0:
            _libraries = _libraries or ThreadpoolController()
            _limits = _libraries.limit(limits=1)
        _users += 1
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if _users == 0:
                _limits.restore_original_limits()
