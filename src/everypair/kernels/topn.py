"""The best n items of each row of scores; ties go to the smaller item."""

from __future__ import annotations

import numpy as np

from everypair.kernels.jit import kernel


@kernel
def top_n(start, stop, scores, ids, best):
    """Fill ``ids`` and ``best`` (n per row, best first) by insertion; ``-inf`` scores are never taken."""
    n = ids.shape[1]
    for r in range(start, stop):
        taken = 0
        for i in range(scores.shape[1]):
            s = scores[r, i]
            if s == -np.inf or (taken == n and s <= best[r, n - 1]):
                continue
            at = min(taken, n - 1)
            while at > 0 and best[r, at - 1] < s:
                best[r, at] = best[r, at - 1]
                ids[r, at] = ids[r, at - 1]
                at -= 1
            best[r, at] = s
            ids[r, at] = i
            taken = min(taken + 1, n)


@kernel
def without(scores, begin, end, items):
    """``-inf`` for the items listed for each row."""
    for r in range(len(begin)):
        for p in range(begin[r], end[r]):
            scores[r, items[p]] = -np.inf


@kernel
def only(scores, begin, end, items):
    """``-inf`` for all but the items listed for each row."""
    for r in range(len(begin)):
        kept = np.empty(end[r] - begin[r], scores.dtype)
        for p in range(begin[r], end[r]):
            kept[p - begin[r]] = scores[r, items[p]]
        scores[r, :] = -np.inf
        for p in range(begin[r], end[r]):
            scores[r, items[p]] = kept[p - begin[r]]
