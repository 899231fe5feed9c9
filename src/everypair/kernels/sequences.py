"""Block steps on the weights of a history, for rows in the order of sequences: the data of a sequence stay in the cache.

X is the matrix of histories of :mod:`everypair.kernels.running_sums`. Ranges of sequences have sums by item of their own, which are
added in order, so that bits do not depend on the number of threads.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from everypair.kernels.jit import fill, leaf
from everypair.kernels.machine_state import G_F, G_Q, H_FF, H_FQ, H_QQ, PHI, move_rows
from everypair.kernels.running_sums import RunningSum, enter, leave, run_on, scale_at


class Sequences(NamedTuple):
    """Rows in the order of sequences: sequence s has the events ``bounds[s]:bounds[s + 1]`` and the rows ``rows[s]:rows[s + 1]``.

    The history of row c is the first ``count[c]`` events of its sequence, never fewer from row to row. Range j has the sequences
    ``ranges[j]:ranges[j + 1]``.
    """

    ranges: np.ndarray
    bounds: np.ndarray
    rows: np.ndarray
    count: np.ndarray
    items: np.ndarray


class HistorySums(NamedTuple):
    """The running sums of entries and of their squares; ``last`` is the same."""

    entries: RunningSum
    squares: RunningSum


class Line(NamedTuple):
    """The move of each row along a direction in a factorization machine: ``phi_f += t u``, ``phi_q += t p + t^2 r``."""

    u: np.ndarray
    p: np.ndarray
    r: np.ndarray


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
            total = run_on(x, begin + n, total, change)
        done = count[c]
        out[c] = total * x.scale[scale_at(x.decay, x.last, begin, count[c])]


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
            more += z[c] * x.scale[scale_at(x.decay, x.last, begin, count[c])]
        total = run_on(x, begin + n + 1, total, more)
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
            total, total2 = run_on(x, begin + n, total, change), run_on(x2, begin + n, total2, change2)
        done = count[c]
        out[c] = total * x.scale[scale_at(x.decay, x.last, begin, count[c])]
        out2[c] = total2 * x2.scale[scale_at(x2.decay, x.last, begin, count[c])]


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
            more += z[c] * x.scale[scale_at(x.decay, x.last, begin, count[c])]
            more2 += z2[c] * x2.scale[scale_at(x2.decay, x.last, begin, count[c])]
        total, total2 = run_on(x, begin + n + 1, total, more), run_on(x2, begin + n + 1, total2, more2)
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
