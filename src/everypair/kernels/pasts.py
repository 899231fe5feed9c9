"""Block steps on a history, sequence by sequence: what a sequence needs stays in the cache.

Sequence s has the events ``bounds[s]:bounds[s + 1]`` and the rows ``rows[s]:rows[s + 1]``, whose pasts are its first ``count``
events, never fewer from row to row. ``x`` and ``x2`` are what running sums need to know, for entries and for their
squares: ``(decay, last, enter, leave)`` as in :mod:`everypair.kernels.history`, and the scale of each row.

Ranges of sequences (``ranges``) keep sums by item of their own, to be added in order, so that the number of threads does not
matter.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from everypair.kernels.jit import fill, leaf, pick
from everypair.kernels.levels import move_machine
from everypair.kernels.pairs import G_F, G_Q, H_FF, H_FQ, H_QQ, PHI


class Pasts(NamedTuple):
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
def forward(pasts, x, s, v, worth, out):
    """``out = X v`` for the rows of sequence s, the first of which is ``out[0]``; ``worth`` has room for its sums.

    ``worth[n]`` is the sum over the first n events, the last of which is the latest.
    """
    begin, items, count, scale = of_sequence(pasts, x, s)
    total = np.float64(0.0)
    worth[0] = 0.0
    for n in range(len(items)):
        change = pick(x.enter, begin + n) * v[items[n]]
        if n >= x.last:
            change -= pick(x.leave, begin + n - x.last) * v[items[n - x.last]]
        total = x.decay * total + change
        worth[n + 1] = total
    for c in range(len(count)):
        out[c] = worth[count[c]] * scale[c]


@leaf
def backward(pasts, x, s, z, worth, out):
    """``out += X' z`` for the rows of sequence s, the first of which is ``z[0]``: what :func:`forward` does, transposed."""
    begin, items, count, scale = of_sequence(pasts, x, s)
    fill(worth[: len(items) + 1], 0.0)
    for c in range(len(count)):
        worth[count[c]] += z[c] * scale[c]
    total = np.float64(0.0)
    for n in range(len(items), 0, -1):
        total = x.decay * total + worth[n]
        worth[n] = total
    for n in range(len(items)):
        whole = pick(x.enter, begin + n) * worth[n + 1]
        if n + x.last < len(items):
            whole = difference(whole, pick(x.leave, begin + n) * worth[n + 1 + x.last])
        out[items[n]] += whole


@leaf
def forward_both(pasts, x, x2, s, v, worth, out, out2):
    """:func:`forward` for entries and for squares at once: ``out = X v[:, 0]``, ``out2 = X^2 v[:, 1]``."""
    begin, items, count, scale = of_sequence(pasts, x, s)
    _, _, _, scale2 = of_sequence(pasts, x2, s)
    total, total2 = np.float64(0.0), np.float64(0.0)
    worth[0, 0] = worth[0, 1] = 0.0
    stay = min(x.last, len(items))
    for n in range(stay):
        total = x.decay * total + pick(x.enter, begin + n) * v[items[n], 0]
        total2 = x2.decay * total2 + pick(x2.enter, begin + n) * v[items[n], 1]
        worth[n + 1, 0] = total
        worth[n + 1, 1] = total2
    later, left, after = items[stay:], items[: len(items) - stay], worth[stay + 1 :]
    for n in range(len(later)):
        i, k = later[n], left[n]
        change = pick(x.enter, begin + stay + n) * v[i, 0] - pick(x.leave, begin + n) * v[k, 0]
        change2 = pick(x2.enter, begin + stay + n) * v[i, 1] - pick(x2.leave, begin + n) * v[k, 1]
        total = x.decay * total + change
        total2 = x2.decay * total2 + change2
        after[n, 0] = total
        after[n, 1] = total2
    for c in range(len(count)):
        out[c] = worth[count[c], 0] * scale[c]
        out2[c] = worth[count[c], 1] * scale2[c]


@leaf
def backward_both(pasts, x, x2, s, z, z2, worth, out):
    """:func:`backward` for entries and for squares at once: ``out[:, 0] += X' z``, ``out[:, 1] += (X^2)' z2``."""
    begin, items, count, scale = of_sequence(pasts, x, s)
    _, _, _, scale2 = of_sequence(pasts, x2, s)
    fill(worth[: len(items) + 1], 0.0)
    for c in range(len(count)):
        worth[count[c], 0] += z[c] * scale[c]
        worth[count[c], 1] += z2[c] * scale2[c]
    total, total2 = np.float64(0.0), np.float64(0.0)
    for n in range(len(items), 0, -1):
        total = x.decay * total + worth[n, 0]
        total2 = x2.decay * total2 + worth[n, 1]
        worth[n, 0] = total
        worth[n, 1] = total2
    leaving = len(items) - min(x.last, len(items))
    early, gone, late = worth[1:], worth[x.last + 1 :], items[leaving:]
    for n in range(leaving):
        i = items[n]
        out[i, 0] += difference(pick(x.enter, begin + n) * early[n, 0], pick(x.leave, begin + n) * gone[n, 0])
        out[i, 1] += difference(pick(x2.enter, begin + n) * early[n, 1], pick(x2.leave, begin + n) * gone[n, 1])
    early = worth[leaving + 1 :]
    for n in range(len(late)):
        out[late[n], 0] += pick(x.enter, begin + leaving + n) * early[n, 0]
        out[late[n], 1] += pick(x2.enter, begin + leaving + n) * early[n, 1]


@leaf
def of_sequence(pasts, x, s):
    """Where a sequence begins, the items of it that count for any row, and for each row its number of past events and its scale."""
    lo, hi, begin = pasts.rows[s], pasts.rows[s + 1], pasts.bounds[s]
    count = pasts.count[lo:hi]
    end = begin + (count[-1] if hi > lo else np.uint32(0))
    return begin, pasts.items[begin:end], count, x.scale[lo:hi]


@leaf
def difference(whole, less):
    """What is left of a difference of equal numbers is rounding."""
    rest = whole - less
    return rest if abs(rest) > 1e-13 * abs(whole) else 0.0


@leaf
def longest(pasts, j):
    """The most rows of a sequence in range j, and the room for its sums."""
    rows, positions = 0, 1
    for s in range(pasts.ranges[j], pasts.ranges[j + 1]):
        rows = max(rows, pasts.rows[s + 1] - pasts.rows[s])
        positions = max(positions, pasts.bounds[s + 1] - pasts.bounds[s] + 1)
    return rows, positions


@leaf
def linear_gradient(start, stop, pasts, x, x2, g, h, sums):
    """``X' g`` and ``(X^2)' h``."""
    for j in range(start, stop):
        sums[j] = 0.0
        _, positions = longest(pasts, j)
        worth = np.empty((positions, 2))
        for s in range(pasts.ranges[j], pasts.ranges[j + 1]):
            lo, hi = pasts.rows[s], pasts.rows[s + 1]
            backward_both(pasts, x, x2, s, g[lo:hi], h[lo:hi], worth, sums[j])


@leaf
def linear_product(start, stop, pasts, x, h, d, sums):
    """``X' diag(h) X d``."""
    for j in range(start, stop):
        sums[j] = 0.0
        rows, positions = longest(pasts, j)
        u, worth = np.empty(rows), np.empty(positions)
        for s in range(pasts.ranges[j], pasts.ranges[j + 1]):
            hs = h[pasts.rows[s] : pasts.rows[s + 1]]
            forward(pasts, x, s, d, worth, u)
            for c in range(len(hs)):
                u[c] *= hs[c]
            backward(pasts, x, s, u, worth, sums[j])


@leaf
def linear_advance(start, stop, pasts, x, d, g, h, delta):
    """``phi_f += X d``."""
    for j in range(start, stop):
        rows, positions = longest(pasts, j)
        u, worth = np.empty(rows), np.empty(positions)
        for s in range(pasts.ranges[j], pasts.ranges[j + 1]):
            lo, hi = pasts.rows[s], pasts.rows[s + 1]
            gs, hs, moved = g[lo:hi], h[lo:hi], delta[lo:hi]
            forward(pasts, x, s, d, worth, u)
            for c in range(len(gs)):
                gs[c] += hs[c] * u[c]
                moved[c] += u[c]


@leaf
def machine_gradient(start, stop, pasts, x, x2, state, sums, curvatures):
    """``X' (g_f + phi g_q)``, ``(X^2)' g_q``, and the curvatures by item, ``(X^2)' (h_ff + 2 phi h_fq + phi^2 h_qq)``."""
    for j in range(start, stop):
        sums[j] = 0.0
        curvatures[j] = 0.0
        rows, positions = longest(pasts, j)
        slope, curvature, worth = np.empty(rows), np.empty(rows), np.empty((positions, 2))
        single = np.empty(positions)
        for s in range(pasts.ranges[j], pasts.ranges[j + 1]):
            lo, hi = pasts.rows[s], pasts.rows[s + 1]
            g_f, g_q, phi = state[G_F][lo:hi], state[G_Q][lo:hi], state[PHI][lo:hi]
            h_ff, h_fq, h_qq = state[H_FF][lo:hi], state[H_FQ][lo:hi], state[H_QQ][lo:hi]
            for c in range(len(phi)):
                slope[c] = g_f[c] + np.float64(phi[c]) * g_q[c]
                curvature[c] = max(h_ff[c] + np.float64(phi[c]) * (2.0 * h_fq[c] + phi[c] * h_qq[c]), 0.0)
            backward_both(pasts, x, x2, s, slope, g_q, worth, sums[j])
            backward(pasts, x2, s, curvature, single, curvatures[j])


@leaf
def machine_product(start, stop, pasts, x, x2, state, d, sums):
    """The linearised curvature times ``d[:, 0]``: ``X' (z_f + phi z_q)`` and ``(X^2)' z_q``.

    With ``u = X d[:, 0]`` and ``d[:, 1] = w d[:, 0]``, z is the curvature of each row times ``(u, phi u - X^2 d[:, 1])``.
    """
    for j in range(start, stop):
        sums[j] = 0.0
        rows, positions = longest(pasts, j)
        u, v, worth = np.empty(rows), np.empty(rows), np.empty((positions, 2))
        for s in range(pasts.ranges[j], pasts.ranges[j + 1]):
            lo, hi = pasts.rows[s], pasts.rows[s + 1]
            phi, h_ff, h_fq, h_qq = state[PHI][lo:hi], state[H_FF][lo:hi], state[H_FQ][lo:hi], state[H_QQ][lo:hi]
            forward_both(pasts, x, x2, s, d, worth, u, v)
            for c in range(len(phi)):
                p = phi[c] * u[c] - v[c]
                z_q = h_fq[c] * u[c] + h_qq[c] * p
                u[c] = h_ff[c] * u[c] + h_fq[c] * p + phi[c] * z_q
                v[c] = z_q
            backward_both(pasts, x, x2, s, u, v, worth, sums[j])


@leaf
def machine_line(start, stop, pasts, x, x2, state, d, dd, u, p, r, coefficients):
    """Moves along ``d[:, 0]`` (``d`` as above, ``dd`` its squares): ``phi_f += t u``, ``phi_q += t p + t^2 r``; and for each
    range the loss as a polynomial in t."""
    for j in range(start, stop):
        rows, positions = longest(pasts, j)
        worth, single = np.empty((positions, 2)), np.empty(positions)
        ud, wu, ru = np.empty(rows), np.empty(rows), np.empty(rows)
        c1, c2, c3, c4 = np.float64(0.0), np.float64(0.0), np.float64(0.0), np.float64(0.0)
        for s in range(pasts.ranges[j], pasts.ranges[j + 1]):
            lo, hi = pasts.rows[s], pasts.rows[s + 1]
            g_f, g_q, phi = state[G_F][lo:hi], state[G_Q][lo:hi], state[PHI][lo:hi]
            h_ff, h_fq, h_qq = state[H_FF][lo:hi], state[H_FQ][lo:hi], state[H_QQ][lo:hi]
            forward_both(pasts, x, x2, s, d, worth, ud, wu)
            forward(pasts, x2, s, dd, single, ru)
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
    """``phi_f += t u`` and ``phi_q += t p + t^2 r``; ``last`` as for :func:`everypair.kernels.levels.move_machine`."""
    us, ps, rs = u[start:stop], p[start:stop], r[start:stop]
    for c in range(len(us)):
        ps[c] = t * ps[c] + t * t * rs[c]
        us[c] = t * us[c]
    move_machine(start, stop, us, ps, last, state)
