"""Pruned top-n search by inner products, in tiles of rows and items.

Items are visited by falling norm. Since ``|<phi, psi>| <= |phi| |psi|``, a row is finished once the norms of the remaining items
are too small to reach its n-th best score. The result is the same as that of a search through all items.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from everypair.kernels import topn_tiles
from everypair.kernels.masks import BITS

ROWS, ITEMS = 1_024, 512  # most rows and items of a tile: it fits in the cache
FEW_ROWS = 128  # with fewer rows, a tile is slower than all scores at once
LENGTH = 8  # length of a row's list of candidates, as a multiple of n
ENOUGH = 2  # multiple of n from which a list is cut after a tile
CANDIDATES_AT_ONCE = 2_000_000  # most candidates that a thread holds
ROUNDING = 1 + 1e-6  # factor on norms, which are rounded


def rows_at_once(n_rows: int, n_items: int, n: int, n_threads: int) -> int:
    """The number of rows of a tile; 0 where tiles would be slower."""
    rows = min(ROWS, CANDIDATES_AT_ONCE // list_length(n), -(-n_rows // n_threads))
    return rows if rows >= FEW_ROWS and n_items < 2**31 else 0


def list_length(n: int) -> int:
    """The length of a row's list of candidates: a multiple of the ``BITS`` entries that kernels scan at a time."""
    return -(-LENGTH * n // BITS) * BITS + BITS


class TiledSearch:
    """The n best items of many rows, searched tile by tile.

    Parameters
    ----------
    phi, psi : arrays of the same dtype
        Vectors of rows and of items.
    order, norms : arrays
        The items that may be ranked, by falling norm; their norms.
    n : int
    """

    def __init__(self, phi: np.ndarray, psi: np.ndarray, order: np.ndarray, norms: np.ndarray, n: int) -> None:
        self.phi, self.psi, self.n = phi, psi, n
        self.order, self.norms = order.astype(np.int32), norms * ROUNDING
        self._length = list_length(n)
        self._place = np.full(len(psi) + 1, -1)  # the last entry is that of item -1, which pads lists
        self._place[order] = np.arange(len(order))

    def best(self, start: int, stop: int, slack: np.ndarray, exclude: Any, ids: np.ndarray, best: np.ndarray) -> None:
        """Write the best items of a range of rows, and their scores, to ``ids`` and ``best``; ``exclude``: lists of those rows."""
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
        products, item_vectors = np.empty(n_rows * ITEMS, dtype), np.empty((ITEMS, k), dtype)
        for first in range(0, len(order), ITEMS):
            now = order[first : first + ITEMS]
            np.take(self.psi, now, axis=0, out=item_vectors[: len(now)], mode="clip")  # "clip" avoids a buffer
            tile = products[: len(active) * len(now)].reshape(len(active), len(now))
            np.matmul(vectors[: len(active)], item_vectors[: len(now)].T, out=tile)
            topn_tiles.search(tile, active, now, first, excluded, query, candidates)
            if first + ITEMS < len(order):
                largest = self.norms[first + ITEMS]
                kept = topn_tiles.still_open(active, vectors, norms, largest, ENOUGH * self.n, query, candidates)
                active = active[:kept]
                if not kept:
                    break
        topn_tiles.finish(candidates, query, ids, best)

    def _places(self, exclude: Any, n_rows: int) -> tuple[np.ndarray, np.ndarray]:
        """Bounds of rows, and the positions in ``order`` of each row's excluded items, rising."""
        if exclude is None:
            return np.zeros(n_rows + 1, np.int64), np.empty(0, np.int64)
        row, items = exclude.entries()
        place = self._place[items]
        keys = np.sort((row * len(self.psi) + place)[place >= 0])
        return np.searchsorted(keys, np.arange(n_rows + 1) * len(self.psi)), keys % len(self.psi)
