"""The sweep of a tower whose rows are free vectors (MF): every row is its own least-squares problem."""

from __future__ import annotations

import numpy as np

from everypair.kernels.jit import kernel, leaf, part, pick

PANEL = 32  # dimensions gathered at a time: two cache lines of float32 per pair
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
def _pass(a, b, scores, before, delta, at):
    """One run of pairs: finish the previous dimension's move, then sum gradient, curvature and its size for this one."""
    zero = at.dtype.type(0)
    gradient, curvature, size = zero, zero, zero
    step = at.dtype.type(delta)
    for p in range(len(scores)):
        s = scores[p] + step * before[p]
        scores[p] = s
        d = at[p]
        wa = at.dtype.type(pick(a, p))
        ad = wa * d * d
        gradient += (wa * s - at.dtype.type(pick(b, p))) * d
        curvature += ad
        size += abs(ad)
    return gradient, curvature, size


@leaf
def _slope(a, b, scores, before, delta, at):
    """:func:`_pass` over a whole row: runs in the data's precision, their sums in float64."""
    gradient, curvature, size = np.float64(0.0), np.float64(0.0), np.float64(0.0)
    for i in range(0, len(scores), RUN):
        j = min(i + RUN, len(scores))
        g, h, z = _pass(part(a, i, j), part(b, i, j), scores[i:j], before[i:j], delta, at[i:j])
        gradient += g
        curvature += h
        size += z
    return gradient, curvature, size


@leaf
def _finish(scores, before, delta):
    step = before.dtype.type(delta)
    for p in range(len(scores)):
        scores[p] += step * before[p]


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


@kernel
def sweep(
    start, stop, indptr, indices, a, b, scores, psi, gram, diagonal, weight, penalty, eta, tiny, W
):  # fmt: skip
    """Coordinate descent on rows ``start:stop`` of ``W``, one dimension after the other (Algorithm 2, inner loop).

    ``diagonal`` says that ``gram`` is (after the rotation), which drops the O(k) product per parameter.
    """
    k = W.shape[1]
    tile = np.empty(min(k, PANEL) * max(_longest(indptr, start, stop), 1), psi.dtype)
    for c in range(start, stop):
        lo, hi = indptr[c], indptr[c + 1]
        m = hi - lo
        row_a, row_b, row_scores = part(a, lo, hi), part(b, lo, hi), scores[lo:hi]
        row = W[c]
        implicit = pick(weight, c)
        l2 = pick(penalty, c)
        for first in range(0, k, PANEL):
            last = min(first + PANEL, k)
            _gather(indices[lo:hi], psi, first, last, tile)
            delta = np.float64(0.0)
            before = tile[:m]
            for f in range(first, last):
                at = tile[(f - first) * m : (f - first + 1) * m]
                gradient, curvature, size = _slope(row_a, row_b, row_scores, before, delta, at)
                w = np.float64(row[f])
                product = gram[f, f] * w if diagonal else _product(gram, row, f)
                gradient += implicit * product
                curvature += implicit * gram[f, f]
                size += implicit * gram[f, f]
                if curvature <= tiny * size:
                    gradient, curvature = 0.0, 0.0
                if curvature + l2 > 0.0:
                    row[f] = w - eta * (gradient + l2 * w) / (curvature + l2)
                else:
                    row[f] = 0.0
                delta = np.float64(row[f]) - w
                before = at
            _finish(row_scores, before, delta)


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
    dead = np.empty(width, np.bool_)
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
                g[j] += implicit * _product(gram, row, first + j) + l2 * w
                for t in range(j + 1):
                    H[j, t] += implicit * gram[first + j, first + t]
                H[j, j] += l2
                dead[j] = H[j, j] <= 0.0
            solve(H[:n, :n], g[:n], tiny)
            for j in range(n):
                before = np.float64(row[first + j])
                row[first + j] = 0.0 if dead[j] else before - eta * g[j]
                _finish(row_scores, tile[j * m : (j + 1) * m], np.float64(row[first + j]) - before)
