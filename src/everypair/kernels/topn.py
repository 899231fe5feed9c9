"""The best n items of each row of scores; ties go to the smaller item."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from everypair.kernels.jit import compiled, fill, kernel, leaf

BLOCK = 64  # scores per block, at most: most blocks hold none of the best
BLOCKS = 4  # blocks for each of the n items, at least


def of_numbers(function: Callable[..., Any]) -> Any:
    """Compile a function of scores that are never NaN."""
    return compiled(function, {"nnan", "nsz"})


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
def offer(s, i, best, ids, size):
    """Add an item to the n best so far, a heap with the worst at its root, if it is one of them; returns their number.

    ``-inf`` and NaN are never taken.
    """
    if not s > -np.inf:
        return size
    if size < len(ids):
        at = size
        while at > 0 and worse(s, i, best[(at - 1) // 2], ids[(at - 1) // 2]):
            best[at], ids[at] = best[(at - 1) // 2], ids[(at - 1) // 2]
            at = (at - 1) // 2
        best[at], ids[at] = s, i
        return size + 1
    if worse(best[0], ids[0], s, i):
        best[0], ids[0] = s, i
        sift_down(best, ids, size)
    return size


@kernel
def in_order(best, ids, size):
    """Sort a heap in place, best first."""
    for last in range(size - 1, 0, -1):
        s, i = best[0], ids[0]
        best[0], ids[0] = best[last], ids[last]
        best[last], ids[last] = s, i
        sift_down(best, ids, last)


@kernel
def top_n(start, stop, scores, ids, best):
    """Fill ``ids`` and ``best`` (n per row, best first) with the best of all items."""
    for r in range(start, stop):
        row, heap, items, size = scores[r], best[r], ids[r], 0
        least = scores.dtype.type(-np.inf)  # the lowest of the n best so far
        for i in range(len(row)):
            if row[i] >= least:
                size = offer(row[i], i, heap, items, size)
                if size == len(items):
                    least = heap[0]
        in_order(heap, items, size)


@of_numbers
def largest(scores):
    """The largest of finite scores and ``-inf``; vectorises."""
    found = scores[0]
    for score in scores:
        found = score if score > found else found
    return found


@of_numbers
def smallest(scores):
    """The smallest of finite scores; vectorises."""
    found = scores[0]
    for score in scores:
        found = score if score < found else found
    return found


@kernel
def nth_largest(values, n, heap):
    """The n-th largest value; ``-inf`` if there are fewer."""
    fill(heap[:n], -np.inf)
    for value in values:
        if value > heap[0]:
            at = 0
            while 2 * at + 1 < n:
                child = 2 * at + 1
                if child + 1 < n and heap[child + 1] < heap[child]:
                    child += 1
                if heap[child] >= value:
                    break
                heap[at] = heap[child]
                at = child
            heap[at] = value
    return heap[0]


@leaf
def inner(x, y):
    """``<x, y>`` in double precision, in an order that does not depend on the batch."""
    total = np.float64(0.0)
    for f in range(len(x)):
        total += np.float64(x[f]) * np.float64(y[f])
    return total


@kernel
def top_n_products(start, stop, scores, slack, phi, psi, ids, best):
    """As :func:`top_n` by ``<phi, psi>``, from which ``scores`` differ by less than half of each row's ``slack``.

    The n-th largest of the largest scores of blocks is no more than the n-th largest score. An item that is less by more than the
    slack cannot be one of the n best; the scores of the few others are computed anew.
    """
    n, n_items = ids.shape[1], scores.shape[1]
    width = max(1, min(BLOCK, n_items // (BLOCKS * n)))
    n_blocks = (n_items + width - 1) // width
    most = np.empty(n_blocks, scores.dtype)
    for r in range(start, stop):
        row, heap, items, size = scores[r], best[r], ids[r], 0
        for b in range(n_blocks):
            most[b] = largest(row[b * width : (b + 1) * width])
        least = scores.dtype.type(nth_largest(most, n, heap) - slack[r])
        fill(heap, -np.inf)
        for b in range(n_blocks):
            if most[b] < least or most[b] == -np.inf:
                continue
            for i in range(b * width, min((b + 1) * width, n_items)):
                if row[i] >= least and row[i] > -np.inf:
                    size = offer(scores.dtype.type(inner(phi[r], psi[i])), i, heap, items, size)
        in_order(heap, items, size)


@kernel
def top_n_listed(start, stop, lists, phi, psi, ids, best):
    """As :func:`top_n` by ``<phi, psi>``, of the items listed for each row."""
    begin, end, items = lists
    for r in range(start, stop):
        size = 0
        for p in range(begin[r], end[r]):
            size = offer(best.dtype.type(inner(phi[r], psi[items[p]])), items[p], best[r], ids[r], size)
        in_order(best[r], ids[r], size)


@kernel
def without(scores, lists):
    """``-inf`` for the items listed for each row; -1 is none."""
    begin, end, items = lists
    for r in range(len(begin)):
        for p in range(begin[r], end[r]):
            if items[p] >= 0:
                scores[r, items[p]] = -np.inf


@kernel
def only(scores, lists):
    """``-inf`` for all but the items listed for each row."""
    begin, end, items = lists
    for r in range(len(begin)):
        kept = np.empty(end[r] - begin[r], scores.dtype)
        for p in range(begin[r], end[r]):
            kept[p - begin[r]] = scores[r, items[p]]
        fill(scores[r], -np.inf)
        for p in range(begin[r], end[r]):
            scores[r, items[p]] = kept[p - begin[r]]
