"""The best items of many rows by inner products, some rows and some items at a time, without the items that cannot be among them.

Items come in the order of falling norms: the bound on what counts in a row rises early, and as ``|<phi, psi>| <= |phi| |psi|``
a row is done when the norms have fallen far enough. What is found is the same as without any of it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from everypair.kernels import topn_tiles
from everypair.kernels.masks import BITS

ROWS = 1_024  # of a tile, at most: with as many items as below, it stays in the cache
ITEMS = 512
FEW_ROWS = 128  # a tile with fewer rows is not worth its while
LENGTH = 8  # of a row's list of candidates, for each item asked for
ENOUGH = 2  # times n in a list: it is cut when a tile is done
CANDIDATES_AT_ONCE = 2_000_000  # that a thread holds
ROUNDING = 1 + 1e-6  # norms are rounded, too


def rows_at_once(n_rows: int, n_items: int, n: int, n_threads: int) -> int:
    """How many rows to search for together; 0 if tiles do not pay."""
    rows = min(ROWS, CANDIDATES_AT_ONCE // list_length(n), -(-n_rows // n_threads))
    return rows if rows >= FEW_ROWS and n_items < 2**31 else 0


def list_length(n: int) -> int:
    """Of a row's candidates: a multiple of the runs in which they are looked at."""
    return -(-LENGTH * n // BITS) * BITS + BITS


class Tiles:
    """A search for the n best items of many rows.

    Parameters
    ----------
    phi, psi : arrays of one type
        Vectors of rows and of items.
    order, norms : arrays
        Items by falling norm, those that may be ranked; their norms.
    n : int
    """

    def __init__(self, phi: np.ndarray, psi: np.ndarray, order: np.ndarray, norms: np.ndarray, n: int) -> None:
        self.phi, self.psi, self.n = phi, psi, n
        self.order, self.norms = order.astype(np.int32), norms * ROUNDING
        self._length = list_length(n)
        self._place = np.full(len(psi) + 1, -1)  # -1, which is no item, has none
        self._place[order] = np.arange(len(order))

    def best(self, start: int, stop: int, slack: np.ndarray, exclude: Any, ids: np.ndarray, best: np.ndarray) -> None:
        """The best of a range of rows; ``exclude`` are the lists of items that each leaves out."""
        phi, order = self.phi[start:stop], self.order
        (n_rows, k), dtype = phi.shape, phi.dtype
        norms = np.sqrt(np.einsum("rf,rf->r", phi, phi, dtype=np.float64))
        least = np.where(np.isnan(slack), np.nan, np.finfo(dtype).min).astype(dtype)
        lists = np.empty((n_rows, self._length), dtype), np.empty((n_rows, self._length), np.int32)
        candidates = topn_tiles.Candidates(*lists, np.zeros(n_rows, np.int64), least)
        out, left_out = self._places(exclude, n_rows)
        excluded = topn_tiles.Excluded(out[:-1].copy(), out[1:], left_out)
        query = topn_tiles.Query(phi, self.psi, slack, self.n)
        active, vectors = np.arange(n_rows), phi.copy()
        products, some = np.empty(n_rows * ITEMS, dtype), np.empty((ITEMS, k), dtype)
        for first in range(0, len(order), ITEMS):
            now = order[first : first + ITEMS]
            np.take(self.psi, now, axis=0, out=some[: len(now)], mode="clip")  # without a copy in between
            tile = products[: len(active) * len(now)].reshape(len(active), len(now))
            np.matmul(vectors[: len(active)], some[: len(now)].T, out=tile)
            topn_tiles.search(tile, active, now, first, excluded, query, candidates)
            if first + ITEMS < len(order):
                largest = self.norms[first + ITEMS]
                kept = topn_tiles.still_open(active, vectors, norms, largest, ENOUGH * self.n, query, candidates)
                active = active[:kept]
                if not kept:
                    break
        topn_tiles.finish(candidates, query, ids, best)

    def _places(self, exclude: Any, n_rows: int) -> tuple[np.ndarray, np.ndarray]:
        """Where in the order the items of lists are, rising in each row; and where in that each row begins."""
        if exclude is None:
            return np.zeros(n_rows + 1, np.int64), np.empty(0, np.int64)
        row, items = exclude.entries()
        place = self._place[items]
        keys = np.sort((row * len(self.psi) + place)[place >= 0])
        return np.searchsorted(keys, np.arange(n_rows + 1) * len(self.psi)), keys % len(self.psi)
