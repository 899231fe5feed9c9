"""Sparse features: products with a matrix, and coordinate steps on its columns (Section 5.2 of the paper).

A matrix is given by its compressed rows or its compressed columns, whichever the loop follows; ``values`` may be the scalar
one.
"""

from __future__ import annotations

import numpy as np

from everypair.kernels.jit import leaf, pick


@leaf
def multiply(start, stop, indptr, indices, values, v, out):
    """``out = X v`` from compressed rows, or ``X' v`` from compressed columns."""
    for r in range(start, stop):
        total = np.float64(0.0)
        for p in range(indptr[r], indptr[r + 1]):
            total += pick(values, p) * np.float64(v[indices[p]])
        out[r] = total


@leaf
def multiply_squared(start, stop, indptr, indices, values, v, out):
    """As :func:`multiply` for the matrix of squared entries."""
    for r in range(start, stop):
        total = np.float64(0.0)
        for p in range(indptr[r], indptr[r + 1]):
            x = np.float64(pick(values, p))
            total += x * x * v[indices[p]]
        out[r] = total


@leaf
def step_linear(start, stop, indptr, rows, values, penalty, eta, w, g, h, delta):
    """Exact steps on the weights ``w_l`` of one dimension, one feature after the other (MFSI).

    ``w_l -= (sum x g + lambda w) / (sum x^2 h + lambda)``; ``g`` follows (``g_c += x h step``) and ``delta`` collects the
    change of ``phi_f``. Features that share no row may be given to different threads.
    """
    for j in range(start, stop):
        gradient = np.float64(0.0)
        curvature = np.float64(0.0)
        for p in range(indptr[j], indptr[j + 1]):
            c = rows[p]
            x = np.float64(pick(values, p))
            gradient += x * g[c]
            curvature += x * x * h[c]
        l2 = pick(penalty, j)
        before = np.float64(w[j])
        if curvature + l2 > 0.0:
            w[j] = before - eta * (gradient + l2 * before) / (curvature + l2)
        else:
            w[j] = 0.0
        step = np.float64(w[j]) - before
        for p in range(indptr[j], indptr[j + 1]):
            c = rows[p]
            u = pick(values, p) * step
            g[c] += h[c] * u
            delta[c] += u


@leaf
def step_machine(
    start, stop, indptr, rows, values, penalty, eta, tiny, w, phi, g_f, g_q, h_ff, h_fq, h_qq, delta_f, delta_q
):  # fmt: skip
    """As :func:`step_linear` for a factorization machine, where ``w_lf`` moves dimension f and the bias dimension q.

    Its derivative is ``x (1, D)`` with ``D = phi_f(c) - x w_lf`` (Section 5.2.2); ``phi`` is ``phi_f`` at the start of the
    dimension, ``phi + delta_f`` its present value.
    """
    for j in range(start, stop):
        gradient = np.float64(0.0)
        curvature = np.float64(0.0)
        size = np.float64(0.0)
        before = np.float64(w[j])
        for p in range(indptr[j], indptr[j + 1]):
            c = rows[p]
            x = np.float64(pick(values, p))
            d = np.float64(phi[c]) + delta_f[c] - x * before
            gradient += x * (g_f[c] + d * g_q[c])
            straight = h_ff[c] + d * d * h_qq[c]
            mixed = 2.0 * d * h_fq[c]
            curvature += x * x * (straight + mixed)
            size += x * x * (straight + abs(mixed))
        if curvature <= tiny * size:
            gradient, curvature = 0.0, 0.0
        l2 = pick(penalty, j)
        if curvature + l2 > 0.0:
            w[j] = before - eta * (gradient + l2 * before) / (curvature + l2)
        else:
            w[j] = 0.0
        step = np.float64(w[j]) - before
        for p in range(indptr[j], indptr[j + 1]):
            c = rows[p]
            x = np.float64(pick(values, p))
            d = np.float64(phi[c]) + delta_f[c] - x * before
            u = x * step
            v = d * u
            g_f[c] += h_ff[c] * u + h_fq[c] * v
            g_q[c] += h_fq[c] * u + h_qq[c] * v
            delta_f[c] += u
            delta_q[c] += v


@leaf
def gather_levels(start, stop, indptr, rows, scale, g, h, level_g, level_h):
    """Gradient and curvature of a level from those of its rows, where the row moves ``scale`` times as far."""
    for j in range(start, stop):
        gradient = np.float64(0.0)
        curvature = np.float64(0.0)
        for p in range(indptr[j], indptr[j + 1]):
            c = rows[p]
            x = np.float64(pick(scale, c))
            gradient += x * g[c]
            curvature += x * x * h[c]
        level_g[j] = gradient
        level_h[j] = curvature
