"""The best items of many rows: scored in chunks, what is not to be recommended left out, exact."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from everypair.kernels.topn import only, top_n, without
from everypair.parallel import Workers, one_blas_thread
from everypair.progress import Progress

SCORES_AT_ONCE = 2_000_000  # scores that a thread holds

Score = Callable[[int, int], np.ndarray]


class Lists(NamedTuple):
    """A list of items for each row: ``items[begin:end]``."""

    begin: np.ndarray
    end: np.ndarray
    items: np.ndarray


def rank(
    score: Score, n_rows: int, n_items: int, n: int, workers: Workers, exclude: Lists | None = None, candidates: Lists | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """The n items with the highest scores in each row, best first; ties go to the smaller item.

    Parameters
    ----------
    score : callable
        From a range of rows to an array with a row for each, and a score for each item, which is written to.
    exclude, candidates : Lists, optional
        Items of each row not to be ranked; the only ones to be ranked.

    Returns
    -------
    (ids, scores) : arrays of shape (n_rows, n)
        Filled up with -1 and ``-inf`` where there are fewer than n items.
    """
    step = max(1, SCORES_AT_ONCE // max(n_items, 1))  # fixed: products of matrices may depend on it
    ids = np.full((n_rows, n), -1, np.int64)
    best = np.full((n_rows, n), -np.inf, score(0, 0).dtype)

    def some(first: int, last: int) -> None:
        for start in range(first * step, min(last * step, n_rows), step):
            stop = min(start + step, n_rows)
            scores = score(start, stop)
            if candidates is not None:
                only(scores, candidates.begin[start:stop], candidates.end[start:stop], candidates.items)
            if exclude is not None:
                without(scores, exclude.begin[start:stop], exclude.end[start:stop], exclude.items)
            top_n(0, len(scores), scores, ids[start:stop], best[start:stop])
            progress.advance(stop - start)

    with one_blas_thread(), Progress(n_rows, "ranking", unit="row") as progress:
        workers.run(some, range(-(-n_rows // step) + 1))
    return ids, best
