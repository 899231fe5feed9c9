"""The best items of many rows, by tiles of scores: each row keeps a list of candidates, and all other scores are read once.

A tile holds the approximate scores of a range of rows and a range of items. Each row has a list of candidates and a bound,
``least``: an item whose score in a tile is below it is not one of the n best. The bound rises whenever a list is cut. Scores in
lists and tiles differ from :func:`~everypair.kernels.topn.inner` by less than half of the row's ``slack``, by rounding.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from everypair.kernels.jit import kernel
from everypair.kernels.masks import BITS, count, lowest, reaching
from everypair.kernels.topn import inner, largest, smallest

ROUNDS = 24  # of bisection for the n-th largest, at most
START = np.int64(0)  # Numba compiles a version of its own for a literal 0
SPARE = 8  # a list that is cut may keep n / SPARE more than n


class Candidates(NamedTuple):
    """The list of each row: ``sizes`` scores and items, and the bound ``least``."""

    values: np.ndarray
    items: np.ndarray
    sizes: np.ndarray
    least: np.ndarray


class Excluded(NamedTuple):
    """The items that row r leaves out, as rising places in the order of items: ``places[begin[r]:end[r]]``."""

    begin: np.ndarray
    end: np.ndarray
    places: np.ndarray


class Query(NamedTuple):
    """The vectors of rows and of items, the slack of each row, and the number of items to find."""

    phi: np.ndarray
    psi: np.ndarray
    slack: np.ndarray
    n: int


@kernel
def fill_up(values, size):
    """Set entries after the first ``size`` of a list to ``-inf``, up to the next multiple of 64, which is returned."""
    stop = (size + BITS - 1) // BITS * BITS
    for j in range(size, stop):
        values[j] = -np.inf
    return stop


@kernel
def count_reaching(values, stop, least):
    """How many of the first ``stop`` entries of a list reach a bound; ``stop`` is a multiple of 64."""
    found = 0
    for at in range(0, stop, BITS):
        found += count(reaching(values, at, least))
    return found


@kernel
def low_nth(values, size, n, most):
    """A number that at least n of the values reach, and at most ``most`` if bisection finds one within ROUNDS."""
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
    """Append the entries from ``at`` on that reach ``least`` to a list, until it is full; returns the next place and the size.

    A list may be appended to itself, from its front.
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
    """Keep the entries that may be among the n best, of more than n; returns the bound and their number."""
    bound = low_nth(values, size, n, most) - slack
    least = values.dtype.type(max(bound, np.finfo(values.dtype).min))
    return least, take(values[:size], items, START, least, values, items, START)[1]


@kernel
def in_order(values, items, size, phi, psi, best, best_items):
    """Sort the items of a list by :func:`inner`, best first, ties in the order of items; returns the number above ``-inf``."""
    for j in range(size):
        values[j] = inner(phi, psi[items[j]])
    stop, found = fill_up(values, size), 0
    for j in range(size):
        best_items[j] = -1
    for j in range(size):
        if not values[j] > -np.inf:
            continue
        at = count_reaching(values, stop, values[j]) - 1
        while best_items[at] >= 0:  # taken by an equal one
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
def settle(candidates, r, size, query, best, best_items):
    """Keep the n best of row r by :func:`inner` itself: for lists in which too many are within the slack of each other."""
    values, items, n = candidates.values[r], candidates.items[r], query.n
    size = min(n, in_order(values, items, size, query.phi[r], query.psi, best, best_items))
    for j in range(size):
        values[j], items[j] = best[j], best_items[j]
    bound = best[n - 1] - query.slack[r] if size == n else -np.inf
    return values.dtype.type(max(bound, np.finfo(values.dtype).min)), size


@kernel
def search(tile, active, order, first, excluded, query, candidates):
    """Add the entries of a tile that reach the bounds to the lists of the rows ``active``: entry j is item ``order[j]``.

    The tile begins at place ``first`` of the order; ``excluded.begin`` is moved past its end.
    """
    values, items, sizes, least = candidates
    out, out_end, left_out = excluded
    n, slack = query.n, query.slack
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
                bound, size = settle(candidates, r, size, query, best, best_items)
        least[r], sizes[r] = bound, size


@kernel
def still_open(active, vectors, norms, largest, enough, query, candidates):
    """Keep the rows for which an item of norm ``largest`` may still count, and their ``vectors``; returns their number.

    ``|<phi, psi>| <= |phi| |psi|``. Lists of ``enough`` items are cut first, which raises their bounds.
    """
    values, items, sizes, least = candidates
    n, slack = query.n, query.slack
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
def finish(candidates, query, ids, best):
    """The n best of each list, best first, by :func:`inner`; ties go to the smaller item."""
    values, items, sizes = candidates.values, candidates.items, candidates.sizes
    phi, psi, slack, n = query
    ordered, ordered_items = np.empty(values.shape[1], values.dtype), np.empty(values.shape[1], items.dtype)
    for r in range(len(phi)):
        size = sizes[r]
        if size > n:
            _, size = cut(values[r], items[r], size, n, n, slack[r])
        size = min(n, in_order(values[r], items[r], size, phi[r], psi, ordered, ordered_items))
        for j in range(size):
            ids[r, j], best[r, j] = ordered_items[j], ordered[j]
