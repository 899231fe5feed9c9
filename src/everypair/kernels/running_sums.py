"""Running sums along sequences: products with a history of any length in O(events).

Positions run along sequences laid end to end; sequence s holds the positions ``bounds[s]`` to ``bounds[s + 1]``. An event
``enter``s with some weight, fades by ``decay`` with every later event and, where only the ``last`` events count, ``leave``s.
"""

from __future__ import annotations

import numpy as np

from everypair.kernels.jit import fused, kernel, pick


@kernel
def running(start, stop, bounds, items, v, decay, last, enter, leave, out):
    """``out[p]``: the weighted sum of ``v`` over the items up to position p, ``R(p) = decay R(p - 1) + enter v - leave v``."""
    for s in range(start, stop):
        total = np.float64(0.0)
        for p in range(bounds[s], bounds[s + 1]):
            change = pick(enter, p) * v[items[p]]
            q = p - last
            if q >= bounds[s]:
                change = fused(-pick(leave, q), v[items[q]], change)
            total = fused(decay, total, change)
            out[p] = total


@kernel
def running_back(start, stop, bounds, decay, last, enter, leave, z):
    """The transposed of :func:`running`, in place: what the item of each position gets of what the sums are worth."""
    for s in range(start, stop):
        total = np.float64(0.0)
        for p in range(bounds[s + 1] - 1, bounds[s] - 1, -1):
            total = decay * total + z[p]
            z[p] = total
        for p in range(bounds[s], bounds[s + 1]):
            whole = pick(enter, p) * z[p]
            if p + last < bounds[s + 1]:
                rest = whole - pick(leave, p) * z[p + last]
                # what is left of a difference of equal numbers is rounding
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


@kernel
def square_coefficients(bounds, items, n_items, decay, last, enter, leave):
    """What events bring to the *squares* of their item's weight when they enter, and take when they leave.

    An item of weight x that is met again goes from ``x^2`` to ``(x + 1)^2``, one that loses an event of weight w from ``x^2``
    to ``(x - w)^2``. Returns whether any item was met again while it counted.
    """
    weight = np.zeros(n_items, np.float64)
    when = np.zeros(n_items, np.int64)
    gone = decay**last
    again = False
    for s in range(len(bounds) - 1):
        for p in range(bounds[s], bounds[s + 1]):
            item = items[p]
            x = weight[item] * decay ** (p - when[item])
            if x > 0.0:
                again = True
            enter[p] = 1.0 + 2.0 * x
            weight[item], when[item] = x + 1.0, p
            q = p - last
            if q >= bounds[s]:
                item = items[q]
                x = weight[item] * decay ** (p - when[item])
                leave[q] = gone * (2.0 * x - gone)
                left = x - gone
                weight[item], when[item] = left if left > 1e-9 * x else 0.0, p
        for p in range(bounds[s], bounds[s + 1]):
            weight[items[p]] = 0.0
    return again
