"""Conventional coordinate descent for a factorization machine, over every pair, to compare iCD with (Section 6.3)."""

from __future__ import annotations

import numpy as np

from everypair.kernels.jit import leaf


@leaf
def derivative(x, own, w, pairwise):
    """The derivative of a row's scores by a weight, as (base, slope): ``base + slope * other`` for each entry of the other side."""
    return (x * (own - x * w), x) if pairwise else (x, 0.0 * x)


@leaf
def sweep(indptr, rows, values, penalty, w, own, other, pairwise, scores, weight, target):
    """Exact steps on the weights of one side's features in one dimension, one after another; returns the number of pairs visited.

    The derivative of the score of a pair by a weight of its row is ``x (own - x w + other)`` if ``pairwise``, else ``x``.
    ``scores``, ``weight`` (alpha, or alpha0) and ``target`` (alpha y) have a row per row of this side and an entry per row of the
    other; ``own`` and ``other`` are both sides' entries of the dimension.
    """
    n = scores.shape[1]
    visited = 0
    for j in range(len(w)):
        gradient = np.float64(0.0)
        curvature = np.float64(0.0)
        before = np.float64(w[j])
        for p in range(indptr[j], indptr[j + 1]):
            r = rows[p]
            x = values[p]
            base, slope = derivative(x, own[r], before, pairwise)
            for i in range(n):
                d = base + slope * other[i]
                gradient += (weight[r, i] * scores[r, i] - target[r, i]) * d
                curvature += weight[r, i] * d * d
        if curvature + penalty > 0.0:
            w[j] = before - (gradient + penalty * before) / (curvature + penalty)
        else:
            w[j] = 0.0
        step = np.float64(w[j]) - before
        for p in range(indptr[j], indptr[j + 1]):
            r = rows[p]
            x = values[p]
            base, slope = derivative(x, own[r], before, pairwise)
            for i in range(n):
                scores[r, i] += (base + slope * other[i]) * step
            if pairwise:
                own[r] += x * step
            visited += 2 * n
    return visited
