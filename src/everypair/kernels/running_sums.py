"""Running sums along sequences of events: products with the matrix X of histories in O(events), for rows in any order.

Sequences lie end to end in ``items``: sequence s holds the positions ``bounds[s]:bounds[s + 1]``. The history of a row is the first
events of a sequence, or the last few of those; X has a row for each, with the decayed and scaled number of times each item occurs.
Along a sequence ``X v`` is a running sum: an event enters, fades with every later one and, where only the ``last`` events count,
leaves. By how much it fades is the same for all events (their number counts), or differs (the time between them counts, too).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba.core import types
from numba.extending import overload

from everypair.kernels.jit import fill, fused, inlined, kernel, leaf, pick
from everypair.kernels.row_vectors import add_multiple
from everypair.runtime.numerics import Values


class RunningSum(NamedTuple):
    """How events add up to the entries of X, or to their squares.

    When the event at position p enters, with the factor ``enter[p]``, what came before fades by ``decay[p]`` (of which there is one
    more than of events); later it leaves with ``leave[p]``. ``scale`` is the factor of a history of which 0, 1, 2, ... events
    count, or, if ``decay`` is an array, of the one that ends before position 0, 1, 2, ...: see :func:`scale_at`.
    """

    decay: Values
    last: int
    enter: Values
    leave: Values
    scale: np.ndarray


# The arithmetic of all running sums: R = decay R + enter v - leave v. Whether an event leaves is decided in the loops: a function
# with that branch would take the arrays, and Numba would count references to them, which makes a loop five times as slow.


@inlined
def enter(x, p, value):
    """The change by an event that enters at position p."""
    return pick(x.enter, p) * value


@inlined
def leave(x, p, value, change):
    """The change less what the event at position p takes with it."""
    return fused(-pick(x.leave, p), value, change)


@inlined
def run_on(x, p, total, change):
    """The sum after the change at position p."""
    return fused(pick(x.decay, p), total, change)


def scale_at(decay, last, begin, count):
    """Where the factor of a history is: that of the first ``count`` events of a sequence that begins at ``begin``."""
    return min(count, last) if np.ndim(decay) == 0 else begin + count


@overload(scale_at, inline="always")
def _scale_at(decay, last, begin, count):  # pragma: no cover - runs inside the compiler
    if isinstance(decay, types.Array):
        return lambda decay, last, begin, count: begin + count
    return lambda decay, last, begin, count: min(count, last)


@kernel
def running(start, stop, bounds, items, x, v, out):
    """``out[p]``: the running sum of ``v`` over the items of a sequence up to position p."""
    for s in range(start, stop):
        begin, events = bounds[s], items[bounds[s] : bounds[s + 1]]
        total = np.float64(0.0)
        for n in range(len(events)):
            change = enter(x, begin + n, v[events[n]])
            if n >= x.last:
                change = leave(x, begin + n - x.last, v[events[n - x.last]], change)
            total = run_on(x, begin + n, total, change)
            out[begin + n] = total


@kernel
def running_transposed(start, stop, bounds, x, z):
    """The transpose of :func:`running`, in place: the share of the event at each position in all later sums.

    This is not :func:`~everypair.kernels.sequences.backward`: no sum is fused, and differences of equal numbers become zero, as the
    L2 weights of features depend on it.
    """
    for s in range(start, stop):
        total = np.float64(0.0)
        for p in range(bounds[s + 1] - 1, bounds[s] - 1, -1):
            total = pick(x.decay, p + 1) * total + z[p]
            z[p] = total
        for p in range(bounds[s], bounds[s + 1]):
            whole = pick(x.enter, p) * z[p]
            if p + x.last < bounds[s + 1]:
                rest = whole - pick(x.leave, p) * z[p + x.last]
                z[p] = rest if abs(rest) > 1e-13 * abs(whole) else 0.0
            else:
                z[p] = whole


@kernel
def add_at(position, values, scale, out):
    """``out[position] += values * scale``, leaving out negative positions."""
    for r in range(len(position)):
        if position[r] >= 0:
            out[position[r]] += np.float64(values[r]) * scale[r]


@kernel
def take_at(start, stop, position, source, scale, out):
    """``out = source[position] * scale``, zero at negative positions."""
    for r in range(start, stop):
        out[r] = source[position[r]] * scale[r] if position[r] >= 0 else 0.0


@leaf
def _next_vector(decay, total, entering, leave, leaving):
    """The next running sum of vectors. The compiler orders and fuses it as it likes: other bits than those of :func:`run_on`."""
    for f in range(len(total)):
        total[f] = decay * total[f] + (entering[f] - leave * leaving[f])


@kernel
def add_history(start, stop, items, begin, end, x, W, out):
    """``out += X[start:stop] W`` for rows with the histories ``items[begin:end]``: a running sum of vectors.

    The sum continues from row to row while they follow each other in a sequence, and starts anew where they do not.
    """
    last = x.last
    total = np.zeros(W.shape[1], np.float64)
    sequence, p, first = -1, 0, 0  # the sum is over items[first:p]
    for r in range(start, stop):
        if begin[r] != sequence or end[r] < p:
            fill(total, 0.0)
            sequence, first = begin[r], max(begin[r], end[r] - last)
            p = first
        while p < end[r]:
            entering = W[items[p]]
            if p - last >= first:
                _next_vector(pick(x.decay, p), total, entering, pick(x.leave, p - last), W[items[p - last]])
            else:
                _next_vector(pick(x.decay, p), total, entering, 0.0, entering)
            p += 1
        add_multiple(x.scale[scale_at(x.decay, last, begin[r], end[r] - begin[r])], total, out[r - start])


def faded(decay, clock, before, now):
    """By how much an event at position ``before`` has faded at position ``now``."""
    return decay ** (now - before) if clock is None else 2.0 ** (clock[before] - clock[now])


@overload(faded, inline="always")
def _faded(decay, clock, before, now):  # pragma: no cover - runs inside the compiler
    if isinstance(clock, types.Array):
        return lambda decay, clock, before, now: 2.0 ** (clock[before] - clock[now])
    return lambda decay, clock, before, now: decay ** (now - before)


@kernel
def square_coefficients(bounds, items, n_items, x, clock, enter, leave):
    """Fill in ``enter`` and ``leave`` of the running sum of squared entries, given the running sum x of entries.

    ``clock`` has the position of each event on a scale on which weights halve; None: they fade by ``x.decay`` with each event.

    An item of weight y that occurs again goes from ``y^2`` to ``(y + 1)^2``, one that loses an event of weight w from ``y^2``
    to ``(y - w)^2``. Returns whether any item occurred again while it counted.
    """
    weight = np.zeros(n_items, np.float64)
    when = np.zeros(n_items, np.int64)
    decay, last = x.decay, x.last
    again = False
    for s in range(len(bounds) - 1):
        for p in range(bounds[s], bounds[s + 1]):
            item = items[p]
            y = weight[item] * faded(decay, clock, when[item], p)
            if y > 0.0:
                again = True
            enter[p] = 1.0 + 2.0 * y
            weight[item], when[item] = y + 1.0, p
            q = p - last
            if q >= bounds[s]:
                item, gone = items[q], pick(x.leave, q)
                y = weight[item] * faded(decay, clock, when[item], p)
                leave[q] = gone * (2.0 * y - gone)
                left = y - gone
                weight[item], when[item] = left if left > 1e-9 * y else 0.0, p
        for p in range(bounds[s], bounds[s + 1]):
            weight[items[p]] = 0.0
    return again
