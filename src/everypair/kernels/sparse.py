"""Sparse features: products with a matrix, and coordinate steps on its columns (Section 5.2 of the paper).

A matrix is given by its compressed rows or its compressed columns, whichever the loop follows; ``values`` may be the scalar
one.
"""

from __future__ import annotations

import numpy as np

from everypair.kernels.jit import fill, kernel, leaf, pick
from everypair.kernels.pairs import AT_ONCE, G_F, G_Q, H_FF, H_FQ, H_QQ, MOVE_F, MOVE_Q, PHI


@leaf
def multiply(start, stop, indptr, indices, values, v, out):
    """``out = X v`` from compressed rows, or ``X' v`` from compressed columns."""
    for r in range(start, stop):
        total = np.float64(0.0)
        for p in range(indptr[r], indptr[r + 1]):
            total += pick(values, p) * np.float64(v[indices[p]])
        out[r] = total


@leaf
def add_products(start, stop, indptr, indices, values, W, out):
    """``out[f] += X W[f]`` for dimensions ``start:stop``, from compressed rows."""
    for f in range(start, stop):
        v, sums = W[f], out[f]
        for r in range(len(sums)):
            total = np.float64(0.0)
            for p in range(indptr[r], indptr[r + 1]):
                total += pick(values, p) * np.float64(v[indices[p]])
            sums[r] += out.dtype.type(total)


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
def newton(w, j, gradient, curvature, l2, eta):
    """The step on one weight that minimises ``2 gradient t + curvature t^2 + l2 (w + t)^2``, times ``eta``; a weight that nothing
    depends on becomes zero. Returns how far it went."""
    before = np.float64(w[j])
    if curvature + l2 > 0.0:
        w[j] = before - eta * (gradient + l2 * before) / (curvature + l2)
    else:
        w[j] = 0.0
    return np.float64(w[j]) - before


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
        step = newton(w, j, gradient, curvature, pick(penalty, j), eta)
        for p in range(indptr[j], indptr[j + 1]):
            c = rows[p]
            u = pick(values, p) * step
            g[c] += h[c] * u
            delta[c] += u


@leaf
def _advance(state, c, u, v):
    """``phi_f(c) += u`` and ``phi_q(c) += v``."""
    state[c, G_F] += state[c, H_FF] * u + state[c, H_FQ] * v
    state[c, G_Q] += state[c, H_FQ] * u + state[c, H_QQ] * v
    state[c, PHI] += u
    state[c, MOVE_F] += u
    state[c, MOVE_Q] += v


@leaf
def step_machine(start, stop, indptr, rows, values, penalty, eta, tiny, w, state):
    """As :func:`step_linear` for a factorization machine, where ``w_lf`` moves dimension f and the bias dimension q.

    Its derivative is ``x (1, D)`` with ``D = phi_f(c) - x w_lf`` (Section 5.2.2). ``state`` (see :mod:`everypair.kernels.pairs`)
    follows the steps.
    """
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
            _advance(state, c, u, (state[c, PHI] - x * before) * u)


@leaf
def gather_levels(start, stop, indptr, rows, g, h, level_g, level_h):
    """Gradient and curvature of a level: the sums of those of its rows."""
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
    """``out += sum_f dims[f]^2 / 2`` for columns ``start:stop``, in the order of f whatever the columns beside them."""
    total = np.empty(min(AT_ONCE, stop - start), np.float64)
    for first in range(start, stop, AT_ONCE):
        last = min(first + AT_ONCE, stop)
        fill(total, 0.0)
        for f in range(len(dims)):
            row = dims[f, first:last]
            for c in range(len(row)):
                total[c] += np.float64(row[c]) * np.float64(row[c])
        for c in range(last - first):
            out[first + c] += 0.5 * total[c]
