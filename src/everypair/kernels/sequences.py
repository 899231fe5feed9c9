"""Histories as running sums along sequences of events: products in O(events), and block steps on the weights of a history.

Sequences lie end to end in ``items``: sequence s holds the positions ``bounds[s]:bounds[s + 1]``. The history of a row is the first
events of a sequence, or the last few of those; X has a row for each, with the decayed and scaled number of times each item occurs.
Along a sequence ``X v`` is a running sum (see :func:`run_on`): an event enters, fades with every later one and, where only the
``last`` events count, leaves.

Kernels that take :class:`Sequences` need rows in the order of sequences, so that the data of a sequence stay in the cache. Ranges
of sequences have sums by item of their own, which are added in order, so that bits do not depend on the number of threads.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from everypair.kernels.jit import fill, fused, inlined, kernel, leaf, pick
from everypair.kernels.machine_state import G_F, G_Q, H_FF, H_FQ, H_QQ, PHI, move_rows
from everypair.kernels.row_vectors import add_multiple
from everypair.runtime.numerics import Values


class Sequences(NamedTuple):
    """Rows in the order of sequences: those of sequence s are ``rows[s]:rows[s + 1]``.

    The history of row c is the first ``count[c]`` events of its sequence, never fewer from row to row. Range j has the sequences
    ``ranges[j]:ranges[j + 1]``.
    """

    ranges: np.ndarray
    bounds: np.ndarray
    rows: np.ndarray
    count: np.ndarray
    items: np.ndarray


class RunningSum(NamedTuple):
    """How events add up to the entries of X, or to their squares.

    The event at position p enters with the factor ``enter[p]`` and leaves with ``leave[p]``; ``scale`` is the factor of a history
    of which 0, 1, 2, ... events count.
    """

    decay: float
    last: int
    enter: Values
    leave: Values
    scale: np.ndarray


class HistorySums(NamedTuple):
    """The running sums of entries and of their squares; ``last`` is the same."""

    entries: RunningSum
    squares: RunningSum


class Line(NamedTuple):
    """The move of each row along a direction in a factorization machine: ``phi_f += t u``, ``phi_q += t p + t^2 r``."""

    u: np.ndarray
    p: np.ndarray
    r: np.ndarray


# The arithmetic of all running sums: R = decay R + enter v - leave v. Loops have the branch that says whether an event leaves: Numba
# counts references to the arrays that a function with a branch takes, which makes such a loop five times as slow.


@inlined
def enter(x, p, value):
    """The change by an event that enters at position p."""
    return pick(x.enter, p) * value


@inlined
def leave(x, p, value, change):
    """The change less what the event at position p takes with it."""
    return fused(-pick(x.leave, p), value, change)


@inlined
def run_on(x, total, change):
    """The sum after the change."""
    return fused(x.decay, total, change)


# rows in any order


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
            total = run_on(x, total, change)
            out[begin + n] = total


@kernel
def running_transposed(start, stop, bounds, x, z):
    """The transpose of :func:`running`, in place: the share of the event at each position in all later sums.

    Not :func:`backward`: sums by item follow in another order, and differences that are nothing but rounding become zero.
    """
    for s in range(start, stop):
        total = np.float64(0.0)
        for p in range(bounds[s + 1] - 1, bounds[s] - 1, -1):
            total = x.decay * total + z[p]
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
    decay, last = x.decay, x.last
    total = np.zeros(W.shape[1], np.float64)
    gone = decay**last
    sequence, p, first = -1, 0, 0  # the sum is over items[first:p]
    for r in range(start, stop):
        if begin[r] != sequence or end[r] < p:
            fill(total, 0.0)
            sequence, first = begin[r], max(begin[r], end[r] - last)
            p = first
        while p < end[r]:
            entering = W[items[p]]
            if p - last >= first:
                _next_vector(decay, total, entering, gone, W[items[p - last]])
            else:
                _next_vector(decay, total, entering, 0.0, entering)
            p += 1
        add_multiple(x.scale[min(end[r] - begin[r], last)], total, out[r - start])


@kernel
def square_coefficients(bounds, items, n_items, x, enter, leave):
    """Fill in ``enter`` and ``leave`` of the running sum of squared entries, given the running sum x of entries.

    An item of weight y that occurs again goes from ``y^2`` to ``(y + 1)^2``, one that loses an event of weight w from ``y^2``
    to ``(y - w)^2``. Returns whether any item occurred again while it counted.
    """
    weight = np.zeros(n_items, np.float64)
    when = np.zeros(n_items, np.int64)
    decay, last = x.decay, x.last
    gone = decay**last
    again = False
    for s in range(len(bounds) - 1):
        for p in range(bounds[s], bounds[s + 1]):
            item = items[p]
            y = weight[item] * decay ** (p - when[item])
            if y > 0.0:
                again = True
            enter[p] = 1.0 + 2.0 * y
            weight[item], when[item] = y + 1.0, p
            q = p - last
            if q >= bounds[s]:
                item = items[q]
                y = weight[item] * decay ** (p - when[item])
                leave[q] = gone * (2.0 * y - gone)
                left = y - gone
                weight[item], when[item] = left if left > 1e-9 * y else 0.0, p
        for p in range(bounds[s], bounds[s + 1]):
            weight[items[p]] = 0.0
    return again


# rows in the order of sequences


@leaf
def of_sequence(sequences, s):
    """Where a sequence begins, its items as far as any row counts them, and the number of events in the history of each row."""
    lo, hi, begin = sequences.rows[s], sequences.rows[s + 1], sequences.bounds[s]
    count = sequences.count[lo:hi]
    end = begin + (count[-1] if hi > lo else np.uint32(0))
    return begin, sequences.items[begin:end], count


@leaf
def longest(sequences, j):
    """The most rows and the most events of a sequence in range j."""
    rows, events = 0, 0
    for s in range(sequences.ranges[j], sequences.ranges[j + 1]):
        rows = max(rows, sequences.rows[s + 1] - sequences.rows[s])
        events = max(events, sequences.bounds[s + 1] - sequences.bounds[s])
    return rows, events


@leaf
def forward(sequences, x, s, v, out):
    """``out = X v`` for the rows of sequence s, the first of which is ``out[0]``."""
    begin, items, count = of_sequence(sequences, s)
    total = np.float64(0.0)
    done = 0
    for c in range(len(count)):
        for n in range(done, count[c]):
            change = enter(x, begin + n, v[items[n]])
            if n >= x.last:
                change = leave(x, begin + n - x.last, v[items[n - x.last]], change)
            total = run_on(x, total, change)
        done = count[c]
        out[c] = total * x.scale[min(count[c], x.last)]


@leaf
def backward(sequences, x, s, z, adjoint, out):
    """``out += X' z`` for the rows of sequence s, the first of which is ``z[0]``: the transpose of :func:`forward`.

    ``adjoint[n]`` is the derivative with respect to the running sum after event n.
    """
    begin, items, count = of_sequence(sequences, s)
    total = np.float64(0.0)
    c, end = len(count), len(items)
    for n in range(end - 1, -1, -1):
        more = np.float64(0.0)
        while c > 0 and count[c - 1] > n:
            c -= 1
            more += z[c] * x.scale[min(count[c], x.last)]
        total = run_on(x, total, more)
        adjoint[n] = total
        share = enter(x, begin + n, total)
        if n < end - x.last:
            share = leave(x, begin + n, adjoint[n + x.last], share)
        out[items[n]] += share


# Entries and squares at once: two sums that do not wait for each other. The numbers of an item or an event lie side by side, at
# 2 i and at 2 i + 1.


@leaf
def forward_both(sequences, sums, s, v, out, out2):
    """:func:`forward` for entries and for squares: ``out = X v[0::2]``, ``out2 = X^2 v[1::2]``."""
    x, x2 = sums
    begin, items, count = of_sequence(sequences, s)
    total, total2 = np.float64(0.0), np.float64(0.0)
    done = 0
    for c in range(len(count)):
        for n in range(done, count[c]):
            i = items[n]
            change, change2 = enter(x, begin + n, v[2 * i]), enter(x2, begin + n, v[2 * i + 1])
            if n >= x.last:
                i = items[n - x.last]
                change = leave(x, begin + n - x.last, v[2 * i], change)
                change2 = leave(x2, begin + n - x.last, v[2 * i + 1], change2)
            total, total2 = run_on(x, total, change), run_on(x2, total2, change2)
        done = count[c]
        out[c] = total * x.scale[min(count[c], x.last)]
        out2[c] = total2 * x2.scale[min(count[c], x.last)]


@leaf
def backward_both(sequences, sums, s, z, z2, adjoint, out):
    """:func:`backward` for entries and for squares: ``out[0::2] += X' z``, ``out[1::2] += (X^2)' z2``."""
    x, x2 = sums
    begin, items, count = of_sequence(sequences, s)
    total, total2 = np.float64(0.0), np.float64(0.0)
    c, end = len(count), len(items)
    for n in range(end - 1, -1, -1):
        more, more2 = np.float64(0.0), np.float64(0.0)
        while c > 0 and count[c - 1] > n:
            c -= 1
            more += z[c] * x.scale[min(count[c], x.last)]
            more2 += z2[c] * x2.scale[min(count[c], x.last)]
        total, total2 = run_on(x, total, more), run_on(x2, total2, more2)
        adjoint[2 * n], adjoint[2 * n + 1] = total, total2
        share, share2 = enter(x, begin + n, total), enter(x2, begin + n, total2)
        if n < end - x.last:
            share = leave(x, begin + n, adjoint[2 * (n + x.last)], share)
            share2 = leave(x2, begin + n, adjoint[2 * (n + x.last) + 1], share2)
        i = items[n]
        out[2 * i] += share
        out[2 * i + 1] += share2


@leaf
def add_product(start, stop, sequences, x, v, out):
    """``out += X v``."""
    for j in range(start, stop):
        rows, _ = longest(sequences, j)
        u = np.empty(rows)
        for s in range(sequences.ranges[j], sequences.ranges[j + 1]):
            total = out[sequences.rows[s] : sequences.rows[s + 1]]
            forward(sequences, x, s, v, u)
            for c in range(len(total)):
                total[c] += out.dtype.type(u[c])


@leaf
def linear_gradient(start, stop, sequences, sums, g, h, out):
    """``X' g`` and ``(X^2)' h``."""
    for j in range(start, stop):
        fill(out[j], 0.0)
        _, events = longest(sequences, j)
        adjoint = np.empty(2 * events)
        for s in range(sequences.ranges[j], sequences.ranges[j + 1]):
            lo, hi = sequences.rows[s], sequences.rows[s + 1]
            backward_both(sequences, sums, s, g[lo:hi], h[lo:hi], adjoint, out[j])


@leaf
def linear_product(start, stop, sequences, x, h, d, out):
    """``X' diag(h) X d``."""
    for j in range(start, stop):
        fill(out[j], 0.0)
        rows, events = longest(sequences, j)
        u, adjoint = np.empty(rows), np.empty(events)
        for s in range(sequences.ranges[j], sequences.ranges[j + 1]):
            hs = h[sequences.rows[s] : sequences.rows[s + 1]]
            forward(sequences, x, s, d, u)
            for c in range(len(hs)):
                u[c] *= hs[c]
            backward(sequences, x, s, u, adjoint, out[j])


@leaf
def linear_advance(start, stop, sequences, x, d, g, h, delta):
    """``phi_f += X d``."""
    for j in range(start, stop):
        rows, _ = longest(sequences, j)
        u = np.empty(rows)
        for s in range(sequences.ranges[j], sequences.ranges[j + 1]):
            lo, hi = sequences.rows[s], sequences.rows[s + 1]
            gs, hs, moved = g[lo:hi], h[lo:hi], delta[lo:hi]
            forward(sequences, x, s, d, u)
            for c in range(len(gs)):
                gs[c] += hs[c] * u[c]
                moved[c] += u[c]


@leaf
def machine_gradient(start, stop, sequences, sums, state, h, out, curvatures):
    """``X' (g_f + phi g_q)`` and ``(X^2)' g_q``; the curvature of each row, ``h = h_ff + 2 phi h_fq + phi^2 h_qq``, and
    ``(X^2)' h``."""
    for j in range(start, stop):
        fill(out[j], 0.0)
        fill(curvatures[j], 0.0)
        rows, events = longest(sequences, j)
        slope, adjoint, single = np.empty(rows), np.empty(2 * events), np.empty(events)
        for s in range(sequences.ranges[j], sequences.ranges[j + 1]):
            lo, hi = sequences.rows[s], sequences.rows[s + 1]
            g_f, g_q, phi = state[G_F][lo:hi], state[G_Q][lo:hi], state[PHI][lo:hi]
            h_ff, h_fq, h_qq, hs = state[H_FF][lo:hi], state[H_FQ][lo:hi], state[H_QQ][lo:hi], h[lo:hi]
            for c in range(len(phi)):
                slope[c] = g_f[c] + np.float64(phi[c]) * g_q[c]
                hs[c] = max(h_ff[c] + np.float64(phi[c]) * (2.0 * h_fq[c] + phi[c] * h_qq[c]), 0.0)
            backward_both(sequences, sums, s, slope, g_q, adjoint, out[j])
            backward(sequences, sums.squares, s, hs, single, curvatures[j])


@leaf
def machine_line(start, stop, sequences, sums, state, d, dd, line, coefficients):
    """The :class:`Line` along ``d[0::2]``, where ``d[1::2]`` is w times that and ``dd`` its squares, and the loss along it.

    ``u = X d[0::2]``, ``p = phi_f u - X^2 d[1::2]``, ``2 r = u^2 - X^2 dd``; ``coefficients`` are those of t, ..., t^4 for each
    range. :func:`everypair.towers.steps.dispatch.step_machine` has the same polynomial for other fields, by products in the
    precision of the data: one function for both would change the bits of one.
    """
    for j in range(start, stop):
        rows, _ = longest(sequences, j)
        ud, wu, ru = np.empty(rows), np.empty(rows), np.empty(rows)
        c1, c2, c3, c4 = np.float64(0.0), np.float64(0.0), np.float64(0.0), np.float64(0.0)
        for s in range(sequences.ranges[j], sequences.ranges[j + 1]):
            lo, hi = sequences.rows[s], sequences.rows[s + 1]
            g_f, g_q, phi = state[G_F][lo:hi], state[G_Q][lo:hi], state[PHI][lo:hi]
            h_ff, h_fq, h_qq = state[H_FF][lo:hi], state[H_FQ][lo:hi], state[H_QQ][lo:hi]
            forward_both(sequences, sums, s, d, ud, wu)
            forward(sequences, sums.squares, s, dd, ru)
            us, ps, rs = line.u[lo:hi], line.p[lo:hi], line.r[lo:hi]
            for c in range(len(phi)):
                us[c] = ud[c]
                ps[c] = phi[c] * ud[c] - wu[c]
                rs[c] = 0.5 * (ud[c] * ud[c] - ru[c])
            for c in range(len(phi)):
                a, b, q = np.float64(us[c]), np.float64(ps[c]), np.float64(rs[c])
                c1 += 2.0 * (g_f[c] * a + g_q[c] * b)
                c2 += 2.0 * g_q[c] * q + h_ff[c] * a * a + 2.0 * h_fq[c] * a * b + h_qq[c] * b * b
                c3 += 2.0 * (h_fq[c] * a + h_qq[c] * b) * q
                c4 += h_qq[c] * q * q
        coefficients[j, 0], coefficients[j, 1], coefficients[j, 2], coefficients[j, 3] = c1, c2, c3, c4


@leaf
def machine_advance(start, stop, t, line, last, state):
    """The move t along a line, which is overwritten; ``last`` as for :func:`~everypair.kernels.machine_state.move_rows`."""
    us, ps, rs = line.u[start:stop], line.p[start:stop], line.r[start:stop]
    for c in range(len(us)):
        ps[c] = t * ps[c] + t * t * rs[c]
        us[c] = t * us[c]
    move_rows(start, stop, us, ps, last, state)
