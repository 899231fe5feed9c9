"""The best n items of each row of scores; ties go to the smaller item."""

from __future__ import annotations

import numpy as np

from everypair.kernels.jit import kernel


@kernel
def worse(s, i, t, j):
    """Whether item i with score s is ranked after item j with score t."""
    return s < t or (s == t and i > j)


@kernel
def sift_down(best, ids, size):
    """Restore a heap, the worst item at its root, of which only the root is out of place."""
    at = 0
    s, i = best[0], ids[0]
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        if child + 1 < size and worse(best[child + 1], ids[child + 1], best[child], ids[child]):
            child += 1
        if not worse(best[child], ids[child], s, i):
            break
        best[at], ids[at] = best[child], ids[child]
        at = child
    best[at], ids[at] = s, i


@kernel
def top_n(start, stop, scores, ids, best):
    """Fill ``ids`` and ``best`` (n per row, best first); ``-inf`` and NaN are never taken.

    The n best so far are a heap, the worst of them at its root; at the end it is taken apart from the worst to the best.
    """
    n = ids.shape[1]
    for r in range(start, stop):
        heap, items, size = best[r], ids[r], 0
        for i in range(scores.shape[1]):
            s = scores[r, i]
            if not s > -np.inf:
                continue
            if size < n:
                at = size
                while at > 0 and worse(s, i, heap[(at - 1) // 2], items[(at - 1) // 2]):
                    heap[at], items[at] = heap[(at - 1) // 2], items[(at - 1) // 2]
                    at = (at - 1) // 2
                heap[at], items[at] = s, i
                size += 1
            elif s > heap[0]:
                heap[0], items[0] = s, i
                sift_down(heap, items, n)
        for last in range(size - 1, 0, -1):
            s, i = heap[0], items[0]
            heap[0], items[0] = heap[last], items[last]
            heap[last], items[last] = s, i
            sift_down(heap, items, last)


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
