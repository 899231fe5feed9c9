"""The search for the best items on a GPU, for :func:`everypair.ranking.rank.rank`."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from everypair.gpu.topn import ExcludedItems, GpuTopN, ItemTable

SearchRows = Callable[[int, int, np.ndarray, np.ndarray], None]


def search_on_gpu(
    phi: np.ndarray,
    table: ItemTable,
    n: int,
    exclude: Callable[[int, int], ExcludedItems] | None,
    allowed: np.ndarray | None,
    otherwise: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]],
) -> SearchRows:
    """A function ``search_rows(start, stop, ids, best)`` that writes the best items of a range of rows.

    Parameters
    ----------
    phi : array
        The vectors of all rows.
    table : ItemTable
    n : int
    exclude : callable, optional
        Returns the items that are not ranked in a range of rows.
    allowed : array of booleans, optional
        Whether each item may be ranked in any row.
    otherwise : callable
        The lists of a few rows, which have too many equal scores.
    """
    among = None if allowed is None else np.flatnonzero(allowed)
    search = GpuTopN(table if among is None else table.among(among), n)
    names = place = None
    if among is not None:
        assert allowed is not None
        names = np.append(among, -1)
        place = np.append(np.where(allowed, np.cumsum(allowed) - 1, -1), -1)

    def search_rows(start: int, stop: int, ids: np.ndarray, best: np.ndarray) -> None:
        codes, best[:], left = search.lists(phi[start:stop], None if exclude is None else exclude(start, stop), place)
        ids[:] = codes if names is None else names[codes]
        if len(left):
            ids[left], best[left] = otherwise(start + left)

    return search_rows
