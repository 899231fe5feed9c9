"""Sparse features: products with a matrix, and coordinate steps on its columns (Section 5.2 of the paper).

A matrix is given by its compressed rows or its compressed columns, whichever the loop follows.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from everypair.kernels.jit import fill, kernel, leaf, pick
from everypair.kernels.machine_state import G_F, G_Q, H_FF, H_FQ, H_QQ, MOVE_F, MOVE_Q, PHI, moved_gradients
from everypair.kernels.newton import newton
from everypair.kernels.pairs import CACHE_ROWS
from everypair.runtime.numerics import Values


class SparseRows(NamedTuple):
    """Compressed rows of a sparse matrix, or of its transpose; ``values`` is 1.0 where all entries are ones."""

    indptr: np.ndarray
    indices: np.ndarray
    values: Values


@leaf
def multiply(start, stop, matrix, v, out):
    """``out = X v`` from compressed rows, or ``X' v`` from compressed columns."""
    indptr, indices, values = matrix
    for r in range(start, stop):
        total = np.float64(0.0)
        for p in range(indptr[r], indptr[r + 1]):
            total += pick(values, p) * np.float64(v[indices[p]])
        out[r] = total


@leaf
def add_products(start, stop, matrix, W, out):
    """``out[f] += X W[f]`` for dimensions ``start:stop``, from compressed rows."""
    indptr, indices, values = matrix
    for f in range(start, stop):
        v, sums = W[f], out[f]
        for r in range(len(sums)):
            total = np.float64(0.0)
            for p in range(indptr[r], indptr[r + 1]):
                total += pick(values, p) * np.float64(v[indices[p]])
            sums[r] += out.dtype.type(total)


@leaf
def multiply_squared(start, stop, matrix, v, out):
    """As :func:`multiply` for the matrix of squared entries."""
    indptr, indices, values = matrix
    for r in range(start, stop):
        total = np.float64(0.0)
        for p in range(indptr[r], indptr[r + 1]):
            x = np.float64(pick(values, p))
            total += x * x * v[indices[p]]
        out[r] = total


@leaf
def step_linear(start, stop, columns, penalty, eta, w, g, h, delta):
    """Exact steps on the weights ``w_l`` of one dimension, one feature after the other (MFSI).

    ``w_l -= (sum x g + lambda w) / (sum x^2 h + lambda)``; ``g`` follows (``g_c += x h step``) and ``delta`` sums the changes of
    ``phi_f``. Threads may take different features if these share no row.
    """
    indptr, rows, values = columns
    for j in range(start, stop):
        gradient = np.float64(0.0)
        curvature = np.float64(0.0)
        for p in range(indptr[j], indptr[j + 1]):
            c = rows[p]
            x = np.float64(pick(values, p))
            gradient += x * g[c]
            curvature += x * x * h[c]
        step = newton(w, j, gradient, curvature, pick(penalty, j), eta)
        for p in range(indptr[j], indptr[j + 1]):
            c = rows[p]
            u = pick(values, p) * step
            g[c] += h[c] * u
            delta[c] += u


@leaf
def _move_row(state, c, u, v):
    """``phi_f(c) += u`` and ``phi_q(c) += v`` in a state (rows, 8)."""
    g_f, g_q, h_ff, h_fq, h_qq = state[c, G_F], state[c, G_Q], state[c, H_FF], state[c, H_FQ], state[c, H_QQ]
    state[c, G_F], state[c, G_Q] = moved_gradients(g_f, g_q, h_ff, h_fq, h_qq, u, v)
    state[c, PHI] += u
    state[c, MOVE_F] += u
    state[c, MOVE_Q] += v


@leaf
def step_machine(start, stop, columns, settings, w, state):
    """As :func:`step_linear` for a factorization machine, where ``w_lf`` moves dimension f and the bias dimension q.

    Its derivative is ``x (1, D)`` with ``D = phi_f(c) - x w_lf`` (Section 5.2.2). ``state`` is (rows, 8), see
    :mod:`everypair.kernels.machine_state`, and follows the steps.
    """
    indptr, rows, values = columns
    penalty, eta, tiny = settings
    for j in range(start, stop):
        gradient = np.float64(0.0)
        curvature = np.float64(0.0)
        size = np.float64(0.0)
        before = np.float64(w[j])
        for p in range(indptr[j], indptr[j + 1]):
            c = rows[p]
            x = np.float64(pick(values, p))
            d = state[c, PHI] - x * before
            gradient += x * (state[c, G_F] + d * state[c, G_Q])
            straight = state[c, H_FF] + d * d * state[c, H_QQ]
            mixed = 2.0 * d * state[c, H_FQ]
            curvature += x * x * (straight + mixed)
            size += x * x * (straight + abs(mixed))
        if curvature <= tiny * size:
            gradient, curvature = 0.0, 0.0
        step = newton(w, j, gradient, curvature, pick(penalty, j), eta)
        for p in range(indptr[j], indptr[j + 1]):
            c = rows[p]
            x = np.float64(pick(values, p))
            u = x * step
            _move_row(state, c, u, (state[c, PHI] - x * before) * u)


@leaf
def gather_levels(start, stop, indptr, rows, g, h, level_g, level_h):
    """Gradient and curvature of a level: the sums over its rows."""
    for j in range(start, stop):
        gradient = np.float64(0.0)
        curvature = np.float64(0.0)
        for p in range(indptr[j], indptr[j + 1]):
            gradient += g[rows[p]]
            curvature += h[rows[p]]
        level_g[j] = gradient
        level_h[j] = curvature


@leaf
def gather_states(start, stop, indptr, rows, state, level_state):
    """As :func:`gather_levels` for two dimensions: the gradients and curvatures of a state."""
    for j in range(start, stop):
        for p in range(indptr[j], indptr[j + 1]):
            for k in range(G_F, H_QQ + 1):
                level_state[j, k] += state[rows[p], k]


@leaf
def scale_slopes(start, stop, factor, g, h, scaled_g, scaled_h):
    """Gradient and curvature where the vector moves ``factor`` times as far."""
    for c in range(start, stop):
        scaled_g[c] = factor[c] * g[c]
        scaled_h[c] = factor[c] * factor[c] * h[c]


@kernel
def add_half_squares(start, stop, dims, out):
    """``out += sum_f dims[f]^2 / 2`` for columns ``start:stop``, in the order of f wherever a range begins."""
    total = np.empty(min(CACHE_ROWS, stop - start), np.float64)
    for first in range(start, stop, CACHE_ROWS):
        last = min(first + CACHE_ROWS, stop)
        fill(total, 0.0)
        for f in range(len(dims)):
            row = dims[f, first:last]
            for c in range(len(row)):
                total[c] += np.float64(row[c]) * np.float64(row[c])
        for c in range(last - first):
            out[first + c] += 0.5 * total[c]
