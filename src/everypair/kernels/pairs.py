"""Passes over the observed pairs of one side: gradients, curvatures, scores and the loss.

Notation: row ``c`` of this side has the pairs ``indptr[c]:indptr[c + 1]``; ``indices`` names the row of the other side;
``a``, ``b`` are the weights of Lemma 1 (``a = alpha - alpha0 m n``, ``b = alpha y``); ``scores`` are kept in step with the
parameters; ``weight`` is ``alpha0 m_c``; ``product`` is ``(J phi(c))_f``.
"""

from __future__ import annotations

import numpy as np

from everypair.kernels.jit import leaf, pick

# The state of a row in a factorization machine, for a factor dimension f and the bias dimension q: half gradients, half
# curvatures, phi_f, and how far phi_f and phi_q have moved.
G_F, G_Q, H_FF, H_FQ, H_QQ, PHI, MOVE_F, MOVE_Q = range(8)


@leaf
def slopes(
    start, stop, indptr, indices, a, b, scores, psi, weight, product, curvature, tiny, g, h
):  # fmt: skip
    """Half the gradient and half the curvature of the loss with respect to ``phi_f(c)`` (Lemma 3).

    ``g_c = sum (a s - b) psi_f + alpha0 m_c (J phi)_f`` and ``h_c = sum a psi_f^2 + alpha0 m_c J_ff``.
    The curvature is never negative; where it is lost in rounding (``h <= tiny *`` size of its summands) the loss does
    not depend on ``phi_f(c)``, and both are zero.
    """
    for c in range(start, stop):
        gradient = np.float64(0.0)
        explicit = np.float64(0.0)
        size = np.float64(0.0)
        for p in range(indptr[c], indptr[c + 1]):
            d = np.float64(psi[indices[p]])
            ad = pick(a, p) * d * d
            gradient += (pick(a, p) * scores[p] - pick(b, p)) * d
            explicit += ad
            size += abs(ad)
        m = pick(weight, c)
        explicit += m * curvature
        size += m * curvature
        if explicit <= tiny * size:
            g[c] = 0.0
            h[c] = 0.0
        else:
            g[c] = gradient + m * pick(product, c)
            h[c] = explicit


@leaf
def slopes_pair(
    start, stop, indptr, indices, a, b, scores, psi_f, psi_q, weight, product_f, product_q,
    curvature_ff, curvature_fq, curvature_qq, tiny, phi, state,
):  # fmt: skip
    """As :func:`slopes` for two dimensions at once, with the curvature between them.

    Features visit rows in any order, and find all they need of a row in one place: a row of ``state``.
    """
    for c in range(start, stop):
        gf = np.float64(0.0)
        gq = np.float64(0.0)
        ff = np.float64(0.0)
        fq = np.float64(0.0)
        qq = np.float64(0.0)
        size_f = np.float64(0.0)
        size_q = np.float64(0.0)
        for p in range(indptr[c], indptr[c + 1]):
            df = np.float64(psi_f[indices[p]])
            dq = np.float64(psi_q[indices[p]])
            r = pick(a, p) * scores[p] - pick(b, p)
            gf += r * df
            gq += r * dq
            ff += pick(a, p) * df * df
            fq += pick(a, p) * df * dq
            qq += pick(a, p) * dq * dq
            size_f += abs(pick(a, p)) * df * df
            size_q += abs(pick(a, p)) * dq * dq
        m = pick(weight, c)
        ff += m * curvature_ff
        qq += m * curvature_qq
        lost_f = ff <= tiny * (size_f + m * curvature_ff)
        lost_q = qq <= tiny * (size_q + m * curvature_qq)
        state[c, G_F] = 0.0 if lost_f else gf + m * pick(product_f, c)
        state[c, G_Q] = 0.0 if lost_q else gq + m * pick(product_q, c)
        state[c, H_FF] = 0.0 if lost_f else ff
        state[c, H_FQ] = 0.0 if lost_f or lost_q else fq + m * curvature_fq
        state[c, H_QQ] = 0.0 if lost_q else qq
        state[c, PHI] = phi[c]
        state[c, MOVE_F] = 0.0
        state[c, MOVE_Q] = 0.0


@leaf
def slopes_along(start, stop, indptr, indices, a, b, scores, psi, tangent, tiny, along, g, h):
    """The explicit part of gradient and curvature along ``tangent[c]``, a direction in all dimensions.

    ``along[p] = <psi(i), tangent(c)>`` is kept for :func:`move_along`.
    """
    for c in range(start, stop):
        gradient = np.float64(0.0)
        explicit = np.float64(0.0)
        for p in range(indptr[c], indptr[c + 1]):
            i = indices[p]
            d = np.float64(0.0)
            size = np.float64(0.0)
            for f in range(tangent.shape[1]):
                term = np.float64(tangent[c, f]) * psi[i, f]
                d += term
                size += abs(term)
            if abs(d) <= tiny * size:
                d = 0.0
            along[p] = d
            gradient += (pick(a, p) * scores[p] - pick(b, p)) * d
            explicit += pick(a, p) * d * d
        g[c] = gradient
        h[c] = explicit


@leaf
def move(start, stop, indptr, indices, psi, delta, scores):
    """Scores after ``phi_f(c) += delta_c``."""
    for c in range(start, stop):
        for p in range(indptr[c], indptr[c + 1]):
            scores[p] += delta[c] * psi[indices[p]]


@leaf
def move_pair(start, stop, indptr, indices, psi_f, psi_q, delta_f, delta_q, scores):
    """Scores after ``phi_f(c) += delta_f`` and ``phi_q(c) += delta_q``."""
    for c in range(start, stop):
        for p in range(indptr[c], indptr[c + 1]):
            i = indices[p]
            scores[p] += delta_f[c] * psi_f[i] + delta_q[c] * psi_q[i]


@leaf
def move_along(start, stop, indptr, along, delta, scores):
    """Scores after ``phi(c) += delta_c tangent(c)``."""
    for c in range(start, stop):
        for p in range(indptr[c], indptr[c + 1]):
            scores[p] += delta[c] * along[p]


@leaf
def combine(start, stop, coefficients, dims, phi, out):
    """``out_c = sum over listed dims of coefficients[f] phi_f(c)``: one row of ``J phi``."""
    for c in range(start, stop):
        out[c] = coefficients[dims[0]] * phi[dims[0], c]
    for j in range(1, len(dims)):
        coefficient = coefficients[dims[j]]
        for c in range(start, stop):
            out[c] += coefficient * phi[dims[j], c]


@leaf
def score_pairs(start, stop, indptr, indices, phi, psi, scores):
    """``scores[p] = <phi(c), psi(i)>`` from scratch."""
    for c in range(start, stop):
        for p in range(indptr[c], indptr[c + 1]):
            i = indices[p]
            s = np.float64(0.0)
            for f in range(phi.shape[1]):
                s += np.float64(phi[c, f]) * psi[i, f]
            scores[p] = s


@leaf
def loss(start, stop, block, alpha, b, covered, scores, explicit, overlap):
    """Sums over blocks of pairs: ``alpha s^2 - 2 b s`` and ``m n s^2`` (what the Grams count although it was observed)."""
    for j in range(start, stop):
        fit = np.float64(0.0)
        seen = np.float64(0.0)
        for p in range(j * block, min((j + 1) * block, len(scores))):
            s = np.float64(scores[p])
            fit += (pick(alpha, p) * s - 2.0 * pick(b, p)) * s
            seen += pick(covered, p) * s * s
        explicit[j] = fit
        overlap[j] = seen
