"""``GpuTopN``: the best n items of many rows of products of vectors, on a GPU."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from everypair.gpu.backend import Backend

MOST = 512  # items of a list, at most
TILE = 2**26  # scores that are computed at a time: 256 MB
PAYS = 2**24  # scores below which the CPU is as fast
ROWS = 1_024  # rows below which it is
ROWS_AT_ONCE = 2**16  # that are searched in one call, before their lists are copied to the host


def pays(n_rows: int, n_items: int, n: int) -> bool:
    """Whether a GPU is faster than the CPU."""
    return n <= MOST and n_rows >= ROWS and n_rows * n_items >= PAYS


def fits(backend: Backend, psi: np.ndarray) -> bool:
    """Whether the device has room for the vectors of items (twice, when they are copied) and for a tile of scores."""
    with backend.active():
        return 4 * (3 * psi.size + TILE + 2 * ROWS_AT_ONCE * (psi.shape[1] + MOST)) <= backend.free_bytes


class ItemTable(NamedTuple):
    """The vectors of items on a device, and their largest absolute entry in each dimension."""

    backend: Backend
    psi: Any
    largest: Any

    @classmethod
    def of(cls, backend: Backend, psi: np.ndarray) -> ItemTable:
        with backend.active():
            table = backend.upload(np.ascontiguousarray(psi, np.float32))
            return cls(backend, table, backend.xp.abs(table).max(axis=0))

    def among(self, items: np.ndarray) -> ItemTable:
        """Of some of the items."""
        with self.backend.active():
            return self._replace(psi=self.backend.xp.ascontiguousarray(self.psi[self.backend.ints(items)]))


class ExcludedItems(NamedTuple):
    """Items of each row that are not ranked: ``items[begin[r]:end[r]]`` of row r, of which -1 is none."""

    begin: np.ndarray
    end: np.ndarray
    items: np.ndarray


class GpuTopN:
    """A search for the best n items of rows: products by tiles, and for the best of them exact scores, as on the CPU.

    Exact scores are sums in float64, rounded to float32, as those of the CPU: lists are the same but where the rounding of these
    sums decides.
    """

    def __init__(self, items: ItemTable, n: int) -> None:
        self._items, self._n = items, n
        self._threads = next(threads for threads in (256, 512, 1_024) if threads >= 2 * n)
        self._kernels = items.backend.kernels("topn", THREADS=self._threads)
        self.step = max(1, TILE // max(len(items.psi), 1))  # rows of a tile

    def __call__(self, phi: Any, slack: Any, excluded: tuple[Any, Any, Any], ids: Any, best: Any) -> np.ndarray:
        """Write the lists of these rows, all of them arrays on the device; returns the rows that are left to the caller."""
        backend, psi, n_items = self._items.backend, self._items.psi, len(self._items.psi)
        xp, n_rows = backend.xp, len(phi)
        left_over = xp.zeros(n_rows, np.int32)
        tile = xp.empty((min(self.step, n_rows), n_items), np.float32)
        begin, end, items = excluded
        for start in range(0, n_rows, self.step):
            rows = slice(start, min(start + self.step, n_rows))
            own = phi[rows]
            scores = tile[: len(own)]
            xp.matmul(own, psi.T, out=scores)
            seen, vectors, found = (
                (begin[rows], end[rows], items),
                (own, psi, psi.shape[1]),
                (ids[rows], best[rows], left_over[rows]),
            )
            ranked = (n_items, self._n, scores, slack[rows])
            self._kernels.best_of_rows(len(own), self._threads, *ranked, *seen, *vectors, *found)
        return np.flatnonzero(backend.download((left_over > 0) | ~xp.isfinite(slack)))  # products of others may overflow

    def lists(
        self, phi: np.ndarray, excluded: ExcludedItems | None = None, place: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Items and scores of the best of rows with these vectors, and the rows that are left to the caller.

        ``place``, if items are named otherwise than by their rows, has the row of each item (-1: none, also as its last entry).
        """
        backend = self._items.backend
        with backend.active():
            xp, n_rows = backend.xp, len(phi)
            ids, best = xp.empty((n_rows, self._n), np.int32), xp.empty((n_rows, self._n), np.float32)
            table = backend.upload(np.ascontiguousarray(phi, np.float32))
            left = self(table, slack(xp, table, self._items.largest), self._excluded(excluded, place, n_rows), ids, best)
            return backend.download(ids), backend.download(best), left

    def _excluded(self, excluded: ExcludedItems | None, place: np.ndarray | None, n_rows: int) -> tuple[Any, Any, Any]:
        """On the device, without what other rows exclude."""
        ints = self._items.backend.ints
        if excluded is None or not len(excluded.items):
            none = ints(np.zeros(n_rows))
            return none, none, ints(np.zeros(1))
        low, high = int(excluded.begin.min()), int(excluded.end.max())
        items = excluded.items[low:high]
        return ints(excluded.begin - low), ints(excluded.end - low), ints(np.append(items if place is None else place[items], -1))


def slack(xp: Any, phi: Any, largest: Any) -> Any:
    """Bounds on twice the rounding errors of products in float32.

    A sum of K products is off by less than K eps times the sum of their sizes, in any order.
    """
    return (4 * (phi.shape[1] + 2) * np.finfo(np.float32).eps * (xp.abs(phi) @ largest)).astype(np.float32)
