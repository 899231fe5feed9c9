"""The sweep of a tower whose rows are free vectors (MF): every row is its own least-squares problem."""

from __future__ import annotations

import numpy as np

from everypair.kernels.jit import kernel, leaf, part, pick
from everypair.kernels.simd import LANES, accumulate, update

RUN = 2048  # pairs summed in the data's own precision before they are added up in float64


@leaf
def _gather(indices, psi, first, last, tile):
    """``tile[j, p] = psi[indices[p], first + j]``, stored compactly with the row's own length as stride."""
    m = len(indices)
    for p in range(m):
        vector = psi[indices[p], first:last]
        for j in range(len(vector)):
            tile[j * m + p] = vector[j]


@leaf
def _finish(scores, x, delta):
    """Scores after a step along one gathered dimension."""
    step = x.dtype.type(delta)
    for p in range(len(scores)):
        scores[p] += step * x[p]


@leaf
def _product(gram, row, f):
    total = np.float64(0.0)
    for j in range(len(row)):
        total += gram[f, j] * row[j]
    return total


@kernel
def _longest(indptr, start, stop):
    longest = 0
    for c in range(start, stop):
        longest = max(longest, indptr[c + 1] - indptr[c])
    return longest


def padded(psi: np.ndarray) -> np.ndarray:
    """``psi`` with columns of zeros up to a multiple of 16."""
    missing = -psi.shape[1] % LANES
    return np.pad(psi, ((0, 0), (0, missing))) if missing else np.ascontiguousarray(psi)


@leaf
def _lengths(total, gram, first, width, implicit, l2, eta, tiny, length, slope):
    """``eta / (curvature + lambda)`` for the dimensions of a block (0: nothing depends on the dimension, not even L2).

    Where the curvature is lost in rounding, so is the gradient: ``slope`` is 0 and L2 alone counts.
    """
    for j in range(width):
        explicit = total[1 + j, j]
        added = implicit * gram[first + j, first + j]
        curvature = explicit + added
        slope[j] = 1.0
        if curvature <= tiny * (abs(explicit) + added):
            curvature = 0.0
            slope[j] = 0.0
        length[j] = eta / (curvature + l2) if curvature + l2 > 0.0 else 0.0


@leaf
def _steps(total, gram, diagonal, first, width, implicit, l2, length, slope, row, delta):
    """Coordinate steps inside a block; ``g += G[j] delta_j`` is exactly what a further pass over the pairs would give."""
    for j in range(width):
        f = first + j
        w = np.float64(row[f])
        product = gram[f, f] * w if diagonal else _product(gram, row, f)
        row[f] = w - length[j] * (slope[j] * (total[0, j] + implicit * product) + l2 * w) if length[j] > 0.0 else 0.0
        step = np.float64(row[f]) - w
        delta[j] = step
        for i in range(LANES):
            total[0, i] += total[1 + j, i] * step


@kernel
def sweep(
    start, stop, indptr, indices, a, a_step, b, b_step, scores, psi, gram, diagonal, weight, penalty, eta, tiny, W
):  # fmt: skip
    """Coordinate descent on rows ``start:stop`` of ``W``, one dimension after the other (Algorithm 2, inner loop).

    Sixteen dimensions at a time: one pass over the row's pairs sums their gradients g and the block G = sum a psi psi' of their
    curvature; the steps run on these alone; a second pass moves the scores. ``psi`` is padded with zeros to whole blocks.
    ``diagonal`` says that ``gram`` is (after the rotation), which drops the O(k) product per parameter.
    """
    k = W.shape[1]
    total = np.empty((LANES + 1, LANES), np.float64)  # g, then the rows of G
    length, slope = np.empty(LANES, np.float64), np.empty(LANES, np.float64)
    delta = np.empty(LANES, psi.dtype)
    for c in range(start, stop):
        lo, hi = indptr[c], indptr[c + 1]
        implicit = pick(weight, c)
        l2 = pick(penalty, c)
        row = W[c]
        for first in range(0, k, LANES):
            width = min(LANES, k - first)
            total[:] = 0.0
            for run in range(lo, hi, RUN):
                accumulate(indices, psi, run, min(run + RUN, hi), first, scores, a, a_step, b, b_step, total)
            delta[:] = 0.0
            _lengths(total, gram, first, width, implicit, l2, eta, tiny, length, slope)
            _steps(total, gram, diagonal, first, width, implicit, l2, length, slope, row, delta)
            update(indices, psi, lo, hi, first, scores, delta)


@kernel
def solve(H, x, tiny):
    """Overwrite ``x`` with a solution of ``H x = rhs`` by Cholesky; ``H`` (overwritten) is positive semidefinite.

    A direction that depends on earlier ones (pivot lost in rounding) is held at zero: where ``rhs`` lies in the range of
    ``H``, as a gradient does, the rest is still an exact solution.
    """
    n = len(x)
    for j in range(n):
        before = H[j, j]
        pivot = before
        for t in range(j):
            pivot -= H[j, t] * H[j, t]
        if pivot <= tiny * before:
            for i in range(j, n):
                H[i, j] = 0.0
            continue
        root = np.sqrt(pivot)
        H[j, j] = root
        for i in range(j + 1, n):
            v = H[i, j]
            for t in range(j):
                v -= H[i, t] * H[j, t]
            H[i, j] = v / root
    for j in range(n):
        if H[j, j] == 0.0:
            x[j] = 0.0
            continue
        v = x[j]
        for t in range(j):
            v -= H[j, t] * x[t]
        x[j] = v / H[j, j]
    for jj in range(n):
        j = n - 1 - jj
        if H[j, j] == 0.0:
            continue
        v = x[j]
        for t in range(j + 1, n):
            v -= H[t, j] * x[t]
        x[j] = v / H[j, j]


@leaf
def _block(a, b, scores, tile, width, g, H):
    """Gradient and curvature matrix of the ``width`` gathered dimensions."""
    m = len(scores)
    for j in range(width):
        x = tile[j * m : (j + 1) * m]
        total = np.float64(0.0)
        for p in range(m):
            total += (pick(a, p) * scores[p] - pick(b, p)) * x[p]
        g[j] = total
        for t in range(j + 1):
            y = tile[t * m : (t + 1) * m]
            total = np.float64(0.0)
            for p in range(m):
                total += pick(a, p) * (np.float64(x[p]) * y[p])
            H[j, t] = total


@kernel
def sweep_blocks(
    start, stop, indptr, indices, a, b, scores, psi, gram, block, weight, penalty, eta, tiny, W
):  # fmt: skip
    """As :func:`sweep`, with ``block`` dimensions of a row solved together."""
    k = W.shape[1]
    width = min(block, k)
    tile = np.empty(width * max(_longest(indptr, start, stop), 1), psi.dtype)
    H = np.empty((width, width), np.float64)
    g = np.empty(width, np.float64)
    dead, lost = np.empty(width, np.bool_), np.empty(width, np.bool_)
    for c in range(start, stop):
        lo, hi = indptr[c], indptr[c + 1]
        m = hi - lo
        row_a, row_b, row_scores = part(a, lo, hi), part(b, lo, hi), scores[lo:hi]
        row = W[c]
        implicit = pick(weight, c)
        l2 = pick(penalty, c)
        for first in range(0, k, block):
            n = min(block, k - first)
            _gather(indices[lo:hi], psi, first, first + n, tile)
            _block(row_a, row_b, row_scores, tile, n, g, H)
            for j in range(n):
                w = np.float64(row[first + j])
                size = abs(H[j, j]) + implicit * gram[first + j, first + j]
                g[j] += implicit * _product(gram, row, first + j)
                for t in range(j + 1):
                    H[j, t] += implicit * gram[first + j, first + t]
                lost[j] = H[j, j] <= tiny * size
                if lost[j]:
                    g[j] = 0.0
                    H[j, j] = 0.0
                g[j] += l2 * w
                H[j, j] += l2
                dead[j] = H[j, j] <= 0.0
            for j in range(n):
                for t in range(j):
                    if lost[j] or lost[t]:
                        H[j, t] = 0.0
            solve(H[:n, :n], g[:n], tiny)
            for j in range(n):
                before = np.float64(row[first + j])
                row[first + j] = 0.0 if dead[j] else before - eta * g[j]
                _finish(row_scores, tile[j * m : (j + 1) * m], np.float64(row[first + j]) - before)
