r"""Steps on the weights of one-hot fields, in the order of the rows.

A row has one level of a field, ``codes[c]``, or none: then its code is the number of levels, one past the last. Passes follow the
rows and add each row's terms to the sums of its level, instead of visiting the rows of one level after the other. Ranges of rows
have sums of their own, which are added in order, so that bits do not depend on the number of threads.

Where rows lie in *runs* that share their levels (the events of a user, one after the other: her id, age and country), a step on
any of those fields moves all rows of a run alike. In a linear tower :math:`\phi_f` moves by :math:`U` in all of them; in a
factorization machine, with :math:`p(c)` the difference of :math:`\phi_f(c)` to that of the first row, before the steps,

.. math:: \phi_f(c) \mathrel{+}= U, \qquad \phi_q(c) \mathrel{+}= U p(c) + V

So the loss of a run is a polynomial whose coefficients are a few sums over its rows, and a step on such a field costs as much
as there are runs.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from everypair.kernels.jit import fill, kernel, leaf, pick
from everypair.kernels.machine_state import G_F, G_Q, H_FF, H_FQ, H_QQ, MOVE_F, MOVE_Q, PHI, move_rows, moved_gradients
from everypair.kernels.newton import newton
from everypair.kernels.pairs import CACHE_ROWS
from everypair.kernels.permute import gather

MOMENTS = 9  # sums over a run: g_f; g_q times 1, p; h_ff; h_fq times 1, p; h_qq times 1, p, p^2


class MachineRuns(NamedTuple):
    """Runs of rows in a factorization machine: their nine sums, ``phi_f`` of their first rows before the steps, and U and V."""

    moments: np.ndarray
    base: np.ndarray
    U: np.ndarray
    V: np.ndarray


@leaf
def add_products(start, stop, codes, W, out):
    """``out[f] += X W[f]`` for rows ``start:stop``; ``W`` has a zero past the last level."""
    for first in range(start, stop, CACHE_ROWS):
        last = min(first + CACHE_ROWS, stop)
        code = codes[first:last]
        for f in range(len(W)):
            w, sums = W[f], out[f][first:last]
            for c in range(len(code)):
                sums[c] += w[code[c]]


@kernel
def spread_runs(start, stop, bounds, table, out):
    """``out[f] = table[f]`` of the run, for all rows of runs ``start:stop``."""
    for f in range(len(table)):
        row, values = out[f], table[f]
        for r in range(start, stop):
            row[bounds[r] : bounds[r + 1]] = values[r]


@kernel
def add_at(start, stop, bounds, codes, z, sums):
    """Sums of ``z`` by level, for each range of rows."""
    for j in range(start, stop):
        code, values, total = codes[bounds[j] : bounds[j + 1]], z[bounds[j] : bounds[j + 1]], sums[j]
        for c in range(len(code)):
            total[code[c]] += values[c]


# linear towers: g and h of each row, and delta, the sum of the moves of phi_f


@leaf
def linear_runs(start, stop, bounds, g, h, sums):
    """Gradient and curvature of runs: sums over their rows."""
    for r in range(start, stop):
        gs, hs = g[bounds[r] : bounds[r + 1]], h[bounds[r] : bounds[r + 1]]
        gradient = np.float64(0.0)
        curvature = np.float64(0.0)
        for c in range(len(gs)):
            gradient += gs[c]
            curvature += hs[c]
        sums[r, 0] = gradient
        sums[r, 1] = curvature


@kernel
def step_linear_runs(codes, penalty, eta, sums, U, w, total):
    """Exact steps on the weights of a field that is constant in runs; ``U`` sums the moves of each run."""
    fill(total, 0.0)
    for r in range(len(codes)):
        total[codes[r], 0] += sums[r, 0] + sums[r, 1] * U[r]
        total[codes[r], 1] += sums[r, 1]
    for j in range(len(w)):
        total[j, 0] = newton(w, j, total[j, 0], total[j, 1], pick(penalty, j), eta)
    total[len(w), 0] = 0.0
    for r in range(len(codes)):
        U[r] += total[codes[r], 0]


@leaf
def advance_linear_runs(start, stop, bounds, U, g, h, delta):
    """``phi_f += U`` of the run."""
    for r in range(start, stop):
        gs, hs, moved = g[bounds[r] : bounds[r + 1]], h[bounds[r] : bounds[r + 1]], delta[bounds[r] : bounds[r + 1]]
        u = U[r]
        for c in range(len(gs)):
            gs[c] += hs[c] * u
            moved[c] += u


@kernel
def linear_sums(start, stop, bounds, codes, g, h, sums):
    """Gradient and curvature by level, for each range of rows."""
    for j in range(start, stop):
        code, gs, hs = codes[bounds[j] : bounds[j + 1]], g[bounds[j] : bounds[j + 1]], h[bounds[j] : bounds[j + 1]]
        total = sums[j]
        fill(total, 0.0)
        for c in range(len(code)):
            total[code[c], 0] += gs[c]
            total[code[c], 1] += hs[c]


@kernel
def linear_steps(start, stop, sums, penalty, eta, w, step):
    """``w -= (gradient + lambda w) / (curvature + lambda)`` for levels ``start:stop``, from the sums of ranges of rows."""
    for j in range(start, stop):
        gradient = np.float64(0.0)
        curvature = np.float64(0.0)
        for r in range(len(sums)):
            gradient += sums[r, j, 0]
            curvature += sums[r, j, 1]
        step[j] = newton(w, j, gradient, curvature, pick(penalty, j), eta)
    if stop == len(w):
        step[stop] = 0.0


@leaf
def advance_linear(start, stop, codes, step, g, h, delta):
    """``phi_f += step`` of the level."""
    u = np.empty(CACHE_ROWS)
    for lo in range(start, stop, CACHE_ROWS):
        hi = min(lo + CACHE_ROWS, stop)
        gs, hs, moved = g[lo:hi], h[lo:hi], delta[lo:hi]
        gather(codes[lo:hi], step, u)
        for c in range(len(gs)):
            gs[c] += hs[c] * u[c]
            moved[c] += u[c]


# factorization machines: ``state`` is (8, rows), see everypair.kernels.machine_state


@leaf
def machine_runs(start, stop, bounds, state, moments):
    """The nine sums of each run."""
    for r in range(start, stop):
        lo, hi = bounds[r], bounds[r + 1]
        g_f, g_q, phi = state[G_F][lo:hi], state[G_Q][lo:hi], state[PHI][lo:hi]
        h_ff, h_fq, h_qq = state[H_FF][lo:hi], state[H_FQ][lo:hi], state[H_QQ][lo:hi]
        base = np.float64(phi[0])
        f, q, pq = np.float64(0.0), np.float64(0.0), np.float64(0.0)
        ff, fq, pfq = np.float64(0.0), np.float64(0.0), np.float64(0.0)
        qq, pqq, ppqq = np.float64(0.0), np.float64(0.0), np.float64(0.0)
        for c in range(len(phi)):
            p = phi[c] - base
            f += g_f[c]
            q += g_q[c]
            pq += p * g_q[c]
            ff += h_ff[c]
            fq += h_fq[c]
            pfq += p * h_fq[c]
            qq += h_qq[c]
            pqq += p * h_qq[c]
            ppqq += p * p * h_qq[c]
        m = moments[r]
        m[0], m[1], m[2], m[3], m[4], m[5], m[6], m[7], m[8] = f, q, pq, ff, fq, pfq, qq, pqq, ppqq


@kernel
def step_machine_runs(codes, settings, runs, w, total):
    """Exact steps on the factors of a field that is constant in runs.

    The derivative of a row's vector is ``(1, D)`` with ``D = phi_f - w = p + e``: see
    :func:`everypair.kernels.sparse.step_machine`.
    """
    penalty, eta, tiny = settings
    moments, base, U, V = runs
    n = len(w)
    fill(total, 0.0)
    for r in range(len(codes)):
        j = codes[r]
        if j < n:
            f, q, pq, ff, fq, pfq, qq, pqq, ppqq = moments[r]
            u, v = U[r], V[r]
            e = base[r] + u - w[j]
            straight = ff + max(ppqq + 2.0 * e * pqq + e * e * qq, 0.0)
            mixed = 2.0 * (pfq + e * fq)
            if straight + mixed > tiny * (straight + abs(mixed)):
                total[j, 0] += f + pq + e * q + u * (ff + 2.0 * pfq + e * fq + ppqq + e * pqq) + v * (fq + pqq + e * qq)
                total[j, 1] += straight + mixed
    for j in range(n):
        before = np.float64(w[j])
        total[j, 0] = newton(w, j, total[j, 0], total[j, 1], pick(penalty, j), eta)
        total[j, 1] = before
    for r in range(len(codes)):
        j = codes[r]
        if j < n:
            V[r] += (base[r] + U[r] - total[j, 1]) * total[j, 0]
            U[r] += total[j, 0]


@leaf
def advance_machine_runs(start, stop, bounds, runs, state):
    """``phi_f += U`` and ``phi_q += U p + V`` of the run."""
    base, U, V = runs.base, runs.U, runs.V
    for r in range(start, stop):
        lo, hi = bounds[r], bounds[r + 1]
        g_f, g_q, phi = state[G_F][lo:hi], state[G_Q][lo:hi], state[PHI][lo:hi]
        moved_f, moved_q = state[MOVE_F][lo:hi], state[MOVE_Q][lo:hi]
        h_ff, h_fq, h_qq = state[H_FF][lo:hi], state[H_FQ][lo:hi], state[H_QQ][lo:hi]
        u, first = U[r], base[r]
        rest = V[r]
        for c in range(len(phi)):
            v = u * (phi[c] - first) + rest
            g_f[c], g_q[c] = moved_gradients(g_f[c], g_q[c], h_ff[c], h_fq[c], h_qq[c], u, v)
            phi[c] += u
            moved_f[c] += u
            moved_q[c] += v


@leaf
def machine_sums(start, stop, bounds, codes, w, tiny, state, sums):
    """Gradient and curvature by level, for each range of rows; ``w`` has a zero past the last level.

    Where the curvature of a row is lost in rounding, its gradient is zero, too.
    """
    gradient, curvature, weight = np.empty(CACHE_ROWS), np.empty(CACHE_ROWS), np.empty(CACHE_ROWS, w.dtype)
    for j in range(start, stop):
        total = sums[j]
        fill(total, 0.0)
        for lo in range(bounds[j], bounds[j + 1], CACHE_ROWS):
            hi = min(lo + CACHE_ROWS, bounds[j + 1])
            code = codes[lo:hi]
            g_f, g_q, phi = state[G_F][lo:hi], state[G_Q][lo:hi], state[PHI][lo:hi]
            h_ff, h_fq, h_qq = state[H_FF][lo:hi], state[H_FQ][lo:hi], state[H_QQ][lo:hi]
            gather(code, w, weight)
            for c in range(len(code)):
                d = np.float64(phi[c]) - weight[c]
                straight = h_ff[c] + d * d * h_qq[c]
                mixed = 2.0 * d * h_fq[c]
                kept = straight + mixed > tiny * (straight + abs(mixed))
                gradient[c] = g_f[c] + d * g_q[c] if kept else 0.0
                curvature[c] = straight + mixed if kept else 0.0
            for c in range(len(code)):
                total[code[c], 0] += gradient[c]
                total[code[c], 1] += curvature[c]


@leaf
def advance_machine(start, stop, codes, before, step, last, state):
    """``phi_f += step`` and ``phi_q += (phi_f - before) step`` of the level; ``last`` as for ``move_rows``."""
    us, vs, weight = np.empty(CACHE_ROWS), np.empty(CACHE_ROWS), np.empty(CACHE_ROWS, before.dtype)
    for lo in range(start, stop, CACHE_ROWS):
        hi = min(lo + CACHE_ROWS, stop)
        code, phi = codes[lo:hi], state[PHI][lo:hi]
        gather(code, step, us)
        gather(code, before, weight)
        for c in range(len(code)):
            vs[c] = (phi[c] - weight[c]) * us[c]
        move_rows(lo, hi, us, vs, last, state)
