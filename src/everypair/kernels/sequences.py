"""Block steps on a history, sequence by sequence: what a sequence needs stays in the cache.

Sequence s has the events ``bounds[s]:bounds[s + 1]`` and the rows ``rows[s]:rows[s + 1]``, whose pasts are its first ``count``
events, never fewer from row to row. ``x`` and ``x2`` are what running sums need to know, for entries and for their
squares: ``(decay, last, enter, leave)`` as in :mod:`everypair.kernels.running_sums`, and the scale of a past of which 0, 1, 2, ...
events count.

Ranges of sequences (``ranges``) keep sums by item of their own, to be added in order, so that the number of threads does not
matter.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from everypair.kernels.jit import fill, fused, leaf, pick
from everypair.kernels.one_hot import move_machine
from everypair.kernels.pairs import G_F, G_Q, H_FF, H_FQ, H_QQ, PHI


class Sequences(NamedTuple):
    """The pasts of rows, sequence by sequence."""

    ranges: np.ndarray
    bounds: np.ndarray
    rows: np.ndarray
    count: np.ndarray
    items: np.ndarray


class Sums(NamedTuple):
    """How the past adds up, for entries or for their squares."""

    decay: float
    last: int
    enter: Any
    leave: Any
    scale: np.ndarray


@leaf
def forward(pasts, x, s, v, out):
    """``out = X v`` for the rows of sequence s, the first of which is ``out[0]``: a sum that runs along the events."""
    begin, items, count = of_sequence(pasts, s)
    total = np.float64(0.0)
    done = 0
    for c in range(len(count)):
        for n in range(done, count[c]):
            change = pick(x.enter, begin + n) * v[items[n]]
            if n >= x.last:
                change = fused(-pick(x.leave, begin + n - x.last), v[items[n - x.last]], change)
            total = fused(x.decay, total, change)
        done = count[c]
        out[c] = total * x.scale[min(count[c], x.last)]


@leaf
def backward(pasts, x, s, z, worth, out):
    """``out += X' z`` for the rows of sequence s, the first of which is ``z[0]``: what :func:`forward` does, transposed.

    ``worth[n]`` is what event n is worth to all rows that come after it, those that it has left by then included.
    """
    begin, items, count = of_sequence(pasts, s)
    total = np.float64(0.0)
    c, end = len(count), len(items)
    for n in range(end - 1, -1, -1):
        more = np.float64(0.0)
        while c > 0 and count[c - 1] > n:
            c -= 1
            more += z[c] * x.scale[min(count[c], x.last)]
        total = x.decay * total + more
        worth[n] = total
        whole = pick(x.enter, begin + n) * total
        if n < end - x.last:
            whole -= pick(x.leave, begin + n) * worth[n + x.last]
        out[items[n]] += whole


# Entries and squares at once; what belongs to an item or an event lies side by side: at 2 i and at 2 i + 1.


@leaf
def forward_both(pasts, x, x2, s, v, out, out2):
    """:func:`forward` for entries and for squares: ``out = X v[0::2]``, ``out2 = X^2 v[1::2]``."""
    begin, items, count = of_sequence(pasts, s)
    total, total2 = np.float64(0.0), np.float64(0.0)
    done = 0
    for c in range(len(count)):
        for n in range(done, count[c]):
            i = items[n]
            change = pick(x.enter, begin + n) * v[2 * i]
            change2 = pick(x2.enter, begin + n) * v[2 * i + 1]
            if n >= x.last:
                k = items[n - x.last]
                change = fused(-pick(x.leave, begin + n - x.last), v[2 * k], change)
                change2 = fused(-pick(x2.leave, begin + n - x.last), v[2 * k + 1], change2)
            total = fused(x.decay, total, change)
            total2 = fused(x2.decay, total2, change2)
        done = count[c]
        out[c] = total * x.scale[min(count[c], x.last)]
        out2[c] = total2 * x2.scale[min(count[c], x.last)]


@leaf
def backward_both(pasts, x, x2, s, z, z2, worth, out):
    """:func:`backward` for entries and for squares: ``out[0::2] += X' z``, ``out[1::2] += (X^2)' z2``."""
    begin, items, count = of_sequence(pasts, s)
    total, total2 = np.float64(0.0), np.float64(0.0)
    c, end = len(count), len(items)
    for n in range(end - 1, -1, -1):
        more, more2 = np.float64(0.0), np.float64(0.0)
        while c > 0 and count[c - 1] > n:
            c -= 1
            more += z[c] * x.scale[min(count[c], x.last)]
            more2 += z2[c] * x2.scale[min(count[c], x.last)]
        total = x.decay * total + more
        total2 = x2.decay * total2 + more2
        worth[2 * n] = total
        worth[2 * n + 1] = total2
        whole = pick(x.enter, begin + n) * total
        whole2 = pick(x2.enter, begin + n) * total2
        if n < end - x.last:
            whole -= pick(x.leave, begin + n) * worth[2 * (n + x.last)]
            whole2 -= pick(x2.leave, begin + n) * worth[2 * (n + x.last) + 1]
        i = items[n]
        out[2 * i] += whole
        out[2 * i + 1] += whole2


@leaf
def of_sequence(pasts, s):
    """Where a sequence begins, the items of it that count for any row, and for each row its number of past events."""
    lo, hi, begin = pasts.rows[s], pasts.rows[s + 1], pasts.bounds[s]
    count = pasts.count[lo:hi]
    end = begin + (count[-1] if hi > lo else np.uint32(0))
    return begin, pasts.items[begin:end], count


@leaf
def longest(pasts, j):
    """The most rows of a sequence in range j, and the most events."""
    rows, events = 0, 0
    for s in range(pasts.ranges[j], pasts.ranges[j + 1]):
        rows = max(rows, pasts.rows[s + 1] - pasts.rows[s])
        events = max(events, pasts.bounds[s + 1] - pasts.bounds[s])
    return rows, events


@leaf
def add_product(start, stop, pasts, x, v, out):
    """``out += X v``."""
    for j in range(start, stop):
        rows, _ = longest(pasts, j)
        u = np.empty(rows)
        for s in range(pasts.ranges[j], pasts.ranges[j + 1]):
            total = out[pasts.rows[s] : pasts.rows[s + 1]]
            forward(pasts, x, s, v, u)
            for c in range(len(total)):
                total[c] += out.dtype.type(u[c])


@leaf
def linear_gradient(start, stop, pasts, x, x2, g, h, sums):
    """``X' g`` and ``(X^2)' h``."""
    for j in range(start, stop):
        fill(sums[j], 0.0)
        _, events = longest(pasts, j)
        worth = np.empty(2 * events)
        for s in range(pasts.ranges[j], pasts.ranges[j + 1]):
            lo, hi = pasts.rows[s], pasts.rows[s + 1]
            backward_both(pasts, x, x2, s, g[lo:hi], h[lo:hi], worth, sums[j])


@leaf
def linear_product(start, stop, pasts, x, h, d, sums):
    """``X' diag(h) X d``."""
    for j in range(start, stop):
        fill(sums[j], 0.0)
        rows, events = longest(pasts, j)
        u, worth = np.empty(rows), np.empty(events)
        for s in range(pasts.ranges[j], pasts.ranges[j + 1]):
            hs = h[pasts.rows[s] : pasts.rows[s + 1]]
            forward(pasts, x, s, d, u)
            for c in range(len(hs)):
                u[c] *= hs[c]
            backward(pasts, x, s, u, worth, sums[j])


@leaf
def linear_advance(start, stop, pasts, x, d, g, h, delta):
    """``phi_f += X d``."""
    for j in range(start, stop):
        rows, _ = longest(pasts, j)
        u = np.empty(rows)
        for s in range(pasts.ranges[j], pasts.ranges[j + 1]):
            lo, hi = pasts.rows[s], pasts.rows[s + 1]
            gs, hs, moved = g[lo:hi], h[lo:hi], delta[lo:hi]
            forward(pasts, x, s, d, u)
            for c in range(len(gs)):
                gs[c] += hs[c] * u[c]
                moved[c] += u[c]


@leaf
def machine_gradient(start, stop, pasts, x, x2, state, h, sums, curvatures):
    """``X' (g_f + phi g_q)`` and ``(X^2)' g_q``; the curvature of each row, ``h = h_ff + 2 phi h_fq + phi^2 h_qq``, and
    ``(X^2)' h``."""
    for j in range(start, stop):
        fill(sums[j], 0.0)
        fill(curvatures[j], 0.0)
        rows, events = longest(pasts, j)
        slope, worth, single = np.empty(rows), np.empty(2 * events), np.empty(events)
        for s in range(pasts.ranges[j], pasts.ranges[j + 1]):
            lo, hi = pasts.rows[s], pasts.rows[s + 1]
            g_f, g_q, phi = state[G_F][lo:hi], state[G_Q][lo:hi], state[PHI][lo:hi]
            h_ff, h_fq, h_qq, hs = state[H_FF][lo:hi], state[H_FQ][lo:hi], state[H_QQ][lo:hi], h[lo:hi]
            for c in range(len(phi)):
                slope[c] = g_f[c] + np.float64(phi[c]) * g_q[c]
                hs[c] = max(h_ff[c] + np.float64(phi[c]) * (2.0 * h_fq[c] + phi[c] * h_qq[c]), 0.0)
            backward_both(pasts, x, x2, s, slope, g_q, worth, sums[j])
            backward(pasts, x2, s, hs, single, curvatures[j])


@leaf
def machine_line(start, stop, pasts, x, x2, state, d, dd, u, p, r, coefficients):
    """Moves along ``d[0::2]`` (``d[1::2]`` is w times that, ``dd`` its squares): ``phi_f += t u``, ``phi_q += t p + t^2 r`` with
    ``u = X d[0::2]``, ``p = phi_f u - X^2 d[1::2]``, ``2 r = u^2 - X^2 dd``; and for each range the loss as a polynomial in t.
    """
    for j in range(start, stop):
        rows, _ = longest(pasts, j)
        ud, wu, ru = np.empty(rows), np.empty(rows), np.empty(rows)
        c1, c2, c3, c4 = np.float64(0.0), np.float64(0.0), np.float64(0.0), np.float64(0.0)
        for s in range(pasts.ranges[j], pasts.ranges[j + 1]):
            lo, hi = pasts.rows[s], pasts.rows[s + 1]
            g_f, g_q, phi = state[G_F][lo:hi], state[G_Q][lo:hi], state[PHI][lo:hi]
            h_ff, h_fq, h_qq = state[H_FF][lo:hi], state[H_FQ][lo:hi], state[H_QQ][lo:hi]
            forward_both(pasts, x, x2, s, d, ud, wu)
            forward(pasts, x2, s, dd, ru)
            us, ps, rs = u[lo:hi], p[lo:hi], r[lo:hi]
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
def machine_advance(start, stop, t, u, p, r, last, state):
    """``phi_f += t u`` and ``phi_q += t p + t^2 r``; ``last`` as for :func:`everypair.kernels.one_hot.move_machine`."""
    us, ps, rs = u[start:stop], p[start:stop], r[start:stop]
    for c in range(len(us)):
        ps[c] = t * ps[c] + t * t * rs[c]
        us[c] = t * us[c]
    move_machine(start, stop, us, ps, last, state)
