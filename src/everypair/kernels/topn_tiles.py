"""The best items of many rows, by tiles of scores: what may still be one of them is kept aside, the rest is never looked at again.

A tile holds the scores of some rows and of some items, off by rounding. Each row has a list of candidates (``items`` and their
scores, ``values``; ``sizes`` of them) and a bound, ``least``: an item whose score in a tile is below it is not one of the n best.
The bound rises whenever a list is cut. All scores in lists and tiles are off by less than half of the row's ``slack``.
"""

from __future__ import annotations

import numpy as np

from everypair.kernels.jit import kernel
from everypair.kernels.masks import BITS, count, lowest, reaching
from everypair.kernels.topn import inner, largest, smallest

ROUNDS = 24  # of bisection, at most, for the n-th largest
START = np.int64(0)  # a plain 0 is compiled for on its own
SPARE = 8  # one in so many more than n may stay in a list that is cut


@kernel
def fill_up(values, size):
    """``-inf`` after the first ``size`` entries of a list, up to the next multiple of 64: where that is."""
    stop = (size + BITS - 1) // BITS * BITS
    for j in range(size, stop):
        values[j] = -np.inf
    return stop


@kernel
def count_reaching(values, stop, least):
    """How many of the first entries of a list reach a bound, up to a multiple of 64."""
    found = 0
    for at in range(0, stop, BITS):
        found += count(reaching(values, at, least))
    return found


@kernel
def low_nth(values, size, n, most):
    """A number that at least n of the values reach, and no more than ``most`` if bisection finds one soon."""
    stop, low, high = fill_up(values, size), smallest(values[:size]), largest(values[:size])
    for _ in range(ROUNDS):
        middle = values.dtype.type(low + (high - low) / 2)
        found = count_reaching(values, stop, middle)
        if found < n:
            high = middle
            continue
        low = middle
        if found <= most:
            break
    return low


@kernel
def take(values, items, at, least, kept, kept_items, size):
    """Append the entries from ``at`` on that reach ``least`` to a list, until it is full: where that was, and its size.

    Also onto itself, from its front.
    """
    room = len(kept) - BITS
    while at + BITS <= len(values) and size <= room:
        mask = reaching(values, at, least)
        while mask:
            j = at + lowest(mask)
            kept[size], kept_items[size] = values[j], items[j]
            size += 1
            mask &= mask - np.uint64(1)
        at += BITS
    if at + BITS > len(values):
        while at < len(values) and size < len(kept):
            if values[at] >= least:
                kept[size], kept_items[size] = values[at], items[at]
                size += 1
            at += 1
    return at, size


@kernel
def cut(values, items, size, n, most, slack):
    """Leave those that may be among the n best, of more than n: the bound, and how many they are."""
    bound = low_nth(values, size, n, most) - slack
    least = values.dtype.type(max(bound, np.finfo(values.dtype).min))
    return least, take(values[:size], items, START, least, values, items, START)[1]


@kernel
def in_order(values, items, size, phi, psi, best, best_items):
    """The items of a list by :func:`inner`, best first, ties in the order of items: how many have a score above ``-inf``."""
    for j in range(size):
        values[j] = inner(phi, psi[items[j]])
    stop, found = fill_up(values, size), 0
    for j in range(size):
        best_items[j] = -1
    for j in range(size):
        if not values[j] > -np.inf:
            continue
        at = count_reaching(values, stop, values[j]) - 1
        while best_items[at] >= 0:  # an equal one
            at -= 1
        best[at], best_items[at] = values[j], items[j]
        found += 1
    for j in range(1, found):
        s, i, at = best[j], best_items[j], j
        while at > 0 and best[at - 1] == s and best_items[at - 1] > i:
            best_items[at] = best_items[at - 1]
            at -= 1
        best_items[at] = i
    return found


@kernel
def settle(values, items, size, n, slack, phi, psi, best, best_items):
    """Leave the n best by :func:`inner` itself: for lists in which too many are within the slack of each other."""
    size = min(n, in_order(values, items, size, phi, psi, best, best_items))
    for j in range(size):
        values[j], items[j] = best[j], best_items[j]
    bound = best[n - 1] - slack if size == n else -np.inf
    return values.dtype.type(max(bound, np.finfo(values.dtype).min)), size


@kernel
def search(tile, active, order, first, out, out_end, left_out, n, slack, phi, psi, least, values, items, sizes):
    """Take what counts of a tile into the lists of the rows ``active``: entry j is item ``order[j]``.

    ``left_out[out[r]:out_end[r]]`` are the places in the order, from the tile's ``first`` place on and rising, of items that row r
    leaves out; ``out`` is moved on.
    """
    room = values.shape[1] - BITS
    best, best_items = np.empty(values.shape[1], values.dtype), np.empty(values.shape[1], items.dtype)
    for a in range(len(active)):
        r, row = active[a], tile[a]
        while out[r] < out_end[r] and left_out[out[r]] < first + len(order):
            row[left_out[out[r]] - first] = -np.inf
            out[r] += 1
        bound, size, at = least[r], sizes[r], START
        while True:
            at, size = take(row, order, at, bound, values[r], items[r], size)
            if at == len(row):
                break
            bound, size = cut(values[r], items[r], size, n, n + n // SPARE, slack[r])
            if size > room:
                bound, size = settle(values[r], items[r], size, n, slack[r], phi[r], psi, best, best_items)
        least[r], sizes[r] = bound, size


@kernel
def still_open(active, vectors, norms, largest, enough, slack, least, values, items, sizes, n):
    """Leave the rows for which an item of norm ``largest`` may still count, and their ``vectors``; how many they are.

    ``|<phi, psi>| <= |phi| |psi|``. Lists of ``enough`` items are cut first, as the bound rises by it.
    """
    kept = 0
    for a in range(len(active)):
        r = active[a]
        if sizes[r] >= enough:
            least[r], sizes[r] = cut(values[r], items[r], sizes[r], n, n + n // SPARE, slack[r])
        if norms[r] * largest + slack[r] < least[r]:
            continue
        if kept < a:
            active[kept] = r
            for f in range(vectors.shape[1]):
                vectors[kept, f] = vectors[a, f]
        kept += 1
    return kept


@kernel
def finish(values, items, sizes, slack, phi, psi, ids, best):
    """The n best of each list, best first, by :func:`inner`; ties go to the smaller item."""
    n = ids.shape[1]
    ordered, ordered_items = np.empty(values.shape[1], values.dtype), np.empty(values.shape[1], items.dtype)
    for r in range(len(phi)):
        size = sizes[r]
        if size > n:
            _, size = cut(values[r], items[r], size, n, n, slack[r])
        size = min(n, in_order(values[r], items[r], size, phi[r], psi, ordered, ordered_items))
        for j in range(size):
            ids[r, j], best[r, j] = ordered_items[j], ordered[j]
