"""The sweep of a tower whose rows are free vectors (MF): every row is its own least-squares problem."""

from __future__ import annotations

import numpy as np

from everypair.kernels.jit import fill, kernel, leaf, part, pick
from everypair.kernels.simd import LANES, accumulate, descend, steps, update

RUN = 2048  # pairs summed in the data's own precision before they are added up in float64
SHARED = 8 * RUN  # pairs of a row beyond which threads share it, in pieces of this size


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


@kernel
def sweep(
    start, stop, indptr, indices, a, a_step, b, b_step, scores, psi,
    J, coupled, rest, rest_step, weight, penalty, eta, tiny, w, stride, first,
):  # fmt: skip
    """Coordinate descent on sixteen dimensions of rows ``start:stop``, one after the other (Algorithm 2, inner loop).

    One pass over the row's pairs sums the gradients g and the block G = sum a psi psi' of their curvature; the steps run on these
    alone; a second pass moves the scores. ``psi`` holds these dimensions of the other side, ``J`` what belongs to them in its Gram,
    ``w`` all rows one after the other. What :func:`steps_plain` calls ``rest`` is there for each row where ``rest_step`` is not 0.

    The steps of a row wait for one another, so the scores of the row before are moved meanwhile. Rows of more than SHARED pairs are
    left out.
    """
    total = np.empty((LANES + 1, LANES), np.float64)
    delta = np.zeros(2 * LANES, psi.dtype)  # of this row and of the one before, in turn
    at = 0
    before_lo = before_hi = indptr[start]
    for c in range(start, stop):
        lo, hi = indptr[c], indptr[c + 1]
        if hi - lo > SHARED:
            continue
        m, l2 = pick(weight, c), pick(penalty, c)
        if hi - lo <= RUN:
            descend(
                indices, psi, lo, hi, 0, scores, a, a_step, b, b_step,
                J, coupled, rest, c * rest_step, m, l2, eta, tiny, w, c * stride + first, delta, at,
            )  # fmt: skip
        else:
            fill(total, 0.0)
            for run in range(lo, hi, RUN):
                accumulate(indices, psi, run, min(run + RUN, hi), 0, scores, a, a_step, b, b_step, total)
            steps(total, J, coupled, rest, c * rest_step, m, l2, eta, tiny, w, c * stride + first, delta, at)
        at = LANES - at
        update(indices, psi, before_lo, before_hi, 0, scores, delta, at)
        before_lo, before_hi = lo, hi
    update(indices, psi, before_lo, before_hi, 0, scores, delta, LANES - at)


@kernel
def sum_pieces(start, stop, lo, hi, indices, a, a_step, b, b_step, scores, psi, totals):
    """The sums of :func:`accumulate_plain` for pieces of long rows: piece p has the pairs ``lo[p]:hi[p]``."""
    for p in range(start, stop):
        total = totals[p]
        fill(total, 0.0)
        for run in range(lo[p], hi[p], RUN):
            accumulate(indices, psi, run, min(run + RUN, hi[p]), 0, scores, a, a_step, b, b_step, total)


@kernel
def step_long(
    start, stop, rows, pieces, totals, J, coupled, rest, rest_step, weight, penalty, eta, tiny, w, stride, first, delta
):  # fmt: skip
    """The steps of long rows: ``rows[r]`` has the pieces ``pieces[r]:pieces[r + 1]``, added up in their order."""
    for r in range(start, stop):
        total = totals[pieces[r]]
        for p in range(pieces[r] + 1, pieces[r + 1]):
            total += totals[p]
        c = rows[r]
        m, l2 = pick(weight, c), pick(penalty, c)
        steps(total, J, coupled, rest, c * rest_step, m, l2, eta, tiny, w, c * stride + first, delta, r * LANES)


@kernel
def move_pieces(start, stop, lo, hi, row, indices, psi, scores, delta):
    """Scores after the steps of long rows, by pieces."""
    for p in range(start, stop):
        update(indices, psi, lo[p], hi[p], 0, scores, delta, row[p] * LANES)


@kernel
def score(start, stop, indptr, indices, phi, origin, psi, scores):
    """``scores[p] = <phi(c), psi(i)>``; ``phi`` has rows ``origin:`` one after the other, in whole blocks of sixteen."""
    k = psi.shape[1]
    for c in range(start, stop):
        lo, hi = indptr[c], indptr[c + 1]
        for p in range(lo, hi):
            scores[p] = 0.0
        for first in range(0, k, LANES):
            update(indices, psi, lo, hi, first, scores, phi, (c - origin) * k + first)


@leaf
def add_squares(start, stop, rows, weight, total):
    """``total[f] += sum_c weight_c rows[c, f]^2``."""
    for c in range(start, stop):
        for f in range(rows.shape[1]):
            total[f] += pick(weight, c) * (np.float64(rows[c, f]) * rows[c, f])


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
