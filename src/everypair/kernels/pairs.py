"""Passes over the observed pairs of one side: gradients, curvatures, scores and the loss.

Notation: row ``c`` of this side has the pairs ``indptr[c]:indptr[c + 1]``, and ``indices`` holds the other side's row of each.
``psi`` is the other side's vector in one dimension: an entry for each pair, or for each row of the other side where ``indices``
are given. ``a`` and ``b`` are the weights of Lemma 1 (``a = alpha - alpha0 m n``, ``b = alpha y``). ``scores`` follow every change
of the parameters.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from everypair.kernels.jit import kernel, leaf, pick, slice_of
from everypair.kernels.machine_state import G_F, G_Q, H_FF, H_FQ, H_QQ, MOVE_F, MOVE_Q, PHI
from everypair.kernels.permute import gather
from everypair.runtime.numerics import Values

CACHE_ROWS = 1_024  # rows whose numbers stay in the cache


class Observed(NamedTuple):
    """The observed pairs of one side: compressed rows, the weights of Lemma 1, and scores."""

    indptr: np.ndarray
    indices: np.ndarray
    a: Values
    b: Values
    scores: np.ndarray


class RowPairs(NamedTuple):
    """:class:`Observed` without a number a for each pair: ``a = alpha - weight_c other_i``, where ``weight`` is alpha0 m_c."""

    indptr: np.ndarray
    indices: np.ndarray
    alpha: Values
    other: Values
    b: Values
    scores: np.ndarray


class Implicit(NamedTuple):
    """The implicit part of the loss in one dimension f: ``alpha0 m_c``, ``(J phi(c))_f`` and ``J_ff``."""

    weight: Values
    product: Values
    J_ff: float


class ImplicitPair(NamedTuple):
    """:class:`Implicit` for two dimensions f and q."""

    weight: Values
    product_f: Values
    product_q: Values
    J_ff: float
    J_fq: float
    J_qq: float


@leaf
def slopes(start, stop, observed, psi, implicit, tiny, g, h):
    """Half the gradient and half the curvature of the loss with respect to ``phi_f(c)`` (Lemma 3).

    ``g_c = sum (a s - b) psi_f + alpha0 m_c (J phi)_f`` and ``h_c = sum a psi_f^2 + alpha0 m_c J_ff``.
    The curvature is never negative; where it is lost in rounding (``h <= tiny *`` size of its summands) the loss does
    not depend on ``phi_f(c)``, and both are zero.
    """
    indptr, a, b, scores = observed.indptr, observed.a, observed.b, observed.scores
    weight, product, curvature = implicit
    for c in range(start, stop):
        lo, hi = indptr[c], indptr[c + 1]
        weights, targets, score, d = slice_of(a, lo, hi), slice_of(b, lo, hi), scores[lo:hi], psi[lo:hi]
        gradient = np.float64(0.0)
        explicit = np.float64(0.0)
        size = np.float64(0.0)
        for p in range(len(d)):
            x = np.float64(d[p])
            ad = pick(weights, p) * x * x
            gradient += (pick(weights, p) * score[p] - pick(targets, p)) * x
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
def slopes_pair(start, stop, observed, psi_f, psi_q, implicit, tiny, phi, state):
    """As :func:`slopes` for two dimensions at once, with the curvature between them; ``state`` is (8, rows)."""
    indptr, a, b, scores = observed.indptr, observed.a, observed.b, observed.scores
    weight, product_f, product_q, curvature_ff, curvature_fq, curvature_qq = implicit
    for c in range(start, stop):
        lo, hi = indptr[c], indptr[c + 1]
        weights, targets, score = slice_of(a, lo, hi), slice_of(b, lo, hi), scores[lo:hi]
        d_f, d_q = psi_f[lo:hi], psi_q[lo:hi]
        gf = np.float64(0.0)
        gq = np.float64(0.0)
        ff = np.float64(0.0)
        fq = np.float64(0.0)
        qq = np.float64(0.0)
        size_f = np.float64(0.0)
        size_q = np.float64(0.0)
        for p in range(len(d_f)):
            df = np.float64(d_f[p])
            dq = np.float64(d_q[p])
            r = pick(weights, p) * score[p] - pick(targets, p)
            gf += r * df
            gq += r * dq
            ff += pick(weights, p) * df * df
            fq += pick(weights, p) * df * dq
            qq += pick(weights, p) * dq * dq
            size_f += abs(pick(weights, p)) * df * df
            size_q += abs(pick(weights, p)) * dq * dq
        m = pick(weight, c)
        ff += m * curvature_ff
        qq += m * curvature_qq
        lost_f = ff <= tiny * (size_f + m * curvature_ff)
        lost_q = qq <= tiny * (size_q + m * curvature_qq)
        state[G_F, c] = 0.0 if lost_f else gf + m * pick(product_f, c)
        state[G_Q, c] = 0.0 if lost_q else gq + m * pick(product_q, c)
        state[H_FF, c] = 0.0 if lost_f else ff
        state[H_FQ, c] = 0.0 if lost_f or lost_q else fq + m * curvature_fq
        state[H_QQ, c] = 0.0 if lost_q else qq
        state[PHI, c] = phi[c]
        state[MOVE_F, c] = 0.0
        state[MOVE_Q, c] = 0.0


# The same where row c has the pair c and no other: contexts that are events. A loop that looks up the other side's numbers does
# not vectorise, nor does one over many arrays; short loops over gathered numbers do.


@leaf
def slopes_by_event(start, stop, observed, psi, implicit, tiny, g, h):
    """:func:`slopes` for rows with one pair each."""
    d = np.empty(CACHE_ROWS)
    for lo in range(start, stop, CACHE_ROWS):
        hi = min(lo + CACHE_ROWS, stop)
        gather(observed.indices[lo:hi], psi, d)
        _slopes_by_event(lo, hi, observed, d, implicit, tiny, g[lo:hi], h[lo:hi])


@leaf
def slopes_pair_by_event(start, stop, observed, psi_f, psi_q, implicit, tiny, phi, state):
    """:func:`slopes_pair` for rows with one pair each."""
    weight, product_f, product_q, curvature_ff, curvature_fq, curvature_qq = implicit
    implicit_f, implicit_q = Implicit(weight, product_f, curvature_ff), Implicit(weight, product_q, curvature_qq)
    d_f, d_q = np.empty(CACHE_ROWS), np.empty(CACHE_ROWS)
    for lo in range(start, stop, CACHE_ROWS):
        hi = min(lo + CACHE_ROWS, stop)
        h_ff, h_fq, h_qq, now = state[H_FF][lo:hi], state[H_FQ][lo:hi], state[H_QQ][lo:hi], phi[lo:hi]
        gather(observed.indices[lo:hi], psi_f, d_f)
        gather(observed.indices[lo:hi], psi_q, d_q)
        _slopes_by_event(lo, hi, observed, d_f, implicit_f, tiny, state[G_F][lo:hi], h_ff)
        _slopes_by_event(lo, hi, observed, d_q, implicit_q, tiny, state[G_Q][lo:hi], h_qq)
        weights, shares = slice_of(observed.a, lo, hi), slice_of(weight, lo, hi)
        for c in range(len(h_fq)):
            mixed = pick(weights, c) * d_f[c] * d_q[c] + pick(shares, c) * curvature_fq
            h_fq[c] = mixed if h_ff[c] != 0.0 and h_qq[c] != 0.0 else 0.0
        kept, moved_f, moved_q = state[PHI][lo:hi], state[MOVE_F][lo:hi], state[MOVE_Q][lo:hi]
        for c in range(len(now)):
            kept[c] = now[c]
            moved_f[c] = 0.0
            moved_q[c] = 0.0


@leaf
def _slopes_by_event(lo, hi, observed, d, implicit, tiny, g, h):
    score, weights, targets = observed.scores[lo:hi], slice_of(observed.a, lo, hi), slice_of(observed.b, lo, hi)
    shares, products, curvature = slice_of(implicit.weight, lo, hi), slice_of(implicit.product, lo, hi), implicit.J_ff
    for c in range(len(g)):
        explicit = pick(weights, c) * d[c] * d[c]
        unobserved = pick(shares, c) * curvature
        kept = not explicit + unobserved <= tiny * (abs(explicit) + unobserved)
        gradient = (pick(weights, c) * score[c] - pick(targets, c)) * d[c] + pick(shares, c) * pick(products, c)
        g[c] = gradient if kept else 0.0
        h[c] = explicit + unobserved if kept else 0.0


@leaf
def slopes_along(start, stop, observed, psi, tangent, tiny, along, g, h):
    """The explicit part of gradient and curvature along ``tangent[c]``, a direction in all dimensions.

    ``along[p] = <psi(i), tangent(c)>`` is kept for :func:`move_along`.
    """
    indptr, indices, a, b, scores = observed
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
def explicit_weights(start, stop, indptr, indices, alpha, other, weight, out):
    """The weight a of each pair of rows ``start:stop``, for :class:`Observed`."""
    for c in range(start, stop):
        share = np.float64(pick(weight, c))
        for p in range(indptr[c], indptr[c + 1]):
            out[p] = pick(alpha, p) - share * pick(other, indices[p])


@leaf
def sizes(start, stop, pairs, weight, confidence, out):
    """``sum (|a s| + |b|)^2 / alpha`` of each row: the E of :func:`everypair.runtime.numerics.lost_decrease`."""
    indptr, indices, alpha, other, b, scores = pairs
    for c in range(start, stop):
        total = np.float64(0.0)
        share = np.float64(pick(weight, c))
        for p in range(indptr[c], indptr[c + 1]):
            a = pick(alpha, p) - share * pick(other, indices[p])
            x, certain = abs(a * np.float64(scores[p])) + abs(pick(b, p)), np.float64(pick(confidence, p))
            if certain > 0.0:
                total += x * x / certain
        out[c] = total


# Moves take arrays and no Observed: they do not depend on the weights, and would be compiled for each kind of them.


@leaf
def move(start, stop, indptr, psi, delta, scores):
    """Scores after ``phi_f(c) += delta_c``."""
    for c in range(start, stop):
        score, d, u = scores[indptr[c] : indptr[c + 1]], psi[indptr[c] : indptr[c + 1]], delta[c]
        for p in range(len(d)):
            score[p] += u * d[p]


@leaf
def move_pair(start, stop, indptr, psi_f, psi_q, delta_f, delta_q, scores):
    """Scores after ``phi_f(c) += delta_f`` and ``phi_q(c) += delta_q``."""
    for c in range(start, stop):
        lo, hi = indptr[c], indptr[c + 1]
        score, d_f, d_q, u, v = scores[lo:hi], psi_f[lo:hi], psi_q[lo:hi], delta_f[c], delta_q[c]
        for p in range(len(d_f)):
            score[p] += u * d_f[p] + v * d_q[p]


@leaf
def move_by_event(start, stop, indices, psi, delta, scores):
    """:func:`move` for rows with one pair each."""
    d = np.empty(CACHE_ROWS)
    for lo in range(start, stop, CACHE_ROWS):
        hi = min(lo + CACHE_ROWS, stop)
        score, moved = scores[lo:hi], delta[lo:hi]
        gather(indices[lo:hi], psi, d)
        for c in range(len(score)):
            score[c] += moved[c] * d[c]


@leaf
def move_pair_by_event(start, stop, indices, psi_f, psi_q, delta_f, delta_q, scores):
    """:func:`move_pair` for rows with one pair each."""
    d_f, d_q = np.empty(CACHE_ROWS), np.empty(CACHE_ROWS)
    for lo in range(start, stop, CACHE_ROWS):
        hi = min(lo + CACHE_ROWS, stop)
        score, moved_f, moved_q = scores[lo:hi], delta_f[lo:hi], delta_q[lo:hi]
        gather(indices[lo:hi], psi_f, d_f)
        gather(indices[lo:hi], psi_q, d_q)
        for c in range(len(score)):
            score[c] += moved_f[c] * d_f[c] + moved_q[c] * d_q[c]


@leaf
def move_along(start, stop, indptr, along, delta, scores):
    """Scores after ``phi(c) += delta_c tangent(c)``."""
    for c in range(start, stop):
        for p in range(indptr[c], indptr[c + 1]):
            scores[p] += delta[c] * along[p]


@leaf
def combine(start, stop, coefficients, dims, phi, out):
    """``out_c = sum over dims of coefficients[f] phi_f(c)``: one row of ``J phi``."""
    for lo in range(start, stop, CACHE_ROWS):
        hi = min(lo + CACHE_ROWS, stop)
        total = out[lo:hi]
        coefficient, row = coefficients[dims[0]], phi[dims[0]][lo:hi]
        for c in range(len(total)):
            total[c] = coefficient * row[c]
        for j in range(1, len(dims)):
            coefficient, row = coefficients[dims[j]], phi[dims[j]][lo:hi]
            for c in range(len(total)):
                total[c] += coefficient * row[c]


@kernel
def combine_three(start, stop, a, x, b, y, c, z, out):
    """``out = a x + b y + c z``; not reordered, so that results do not depend on where a range begins."""
    x, y, z, out = x[start:stop], y[start:stop], z[start:stop], out[start:stop]
    for j in range(len(out)):
        out[j] = a * x[j] + b * y[j] + c * z[j]


@kernel
def add_both(start, stop, a, x, b, y, out):
    """``out += a x + b y``."""
    x, y, out = x[start:stop], y[start:stop], out[start:stop]
    for j in range(len(out)):
        out[j] += a * x[j] + b * y[j]


@leaf
def add_scaled(start, stop, scale, x, out):
    """``out += scale x``."""
    x, out = x[start:stop], out[start:stop]
    for c in range(len(x)):
        out[c] += scale * x[c]


@leaf
def loss(start, stop, block, alpha, b, covered, indices, n, scores, explicit, overlap):
    """Sums over blocks of pairs: ``alpha s^2 - 2 b s``, and ``m n s^2`` (the observed pairs' share of the product of Grams).

    ``covered`` is m, or the part of it that a pair covers.
    """
    for j in range(start, stop):
        fit = np.float64(0.0)
        seen = np.float64(0.0)
        for p in range(j * block, min((j + 1) * block, len(scores))):
            s = np.float64(scores[p])
            fit += (pick(alpha, p) * s - 2.0 * pick(b, p)) * s
            seen += pick(covered, p) * pick(n, indices[p]) * s * s
        explicit[j] = fit
        overlap[j] = seen
