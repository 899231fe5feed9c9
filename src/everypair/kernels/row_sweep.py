"""The sweep of a side whose rows are free vectors (MF): every row is its own least-squares problem."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from everypair.kernels.jit import fill, kernel, leaf, pick, slice_of
from everypair.kernels.simd import (
    LANES,
    GramBlock,
    Moving,
    Offsets,
    RowSettings,
    accumulate,
    descend,
    product,
    steps,
    update,
)
from everypair.runtime.numerics import Values

RUN = 2048  # pairs summed in the precision of the data before they are added up in float64
SHARED = 8 * RUN  # pairs of a row beyond which threads share it, in pieces of this size


class ImplicitBlock(NamedTuple):
    """The implicit part of the loss in sixteen dimensions: ``weight`` is ``alpha0 m_c``, ``J`` the block of the other side's Gram.

    ``J`` and ``coupled`` are those of :class:`~everypair.kernels.simd.GramBlock`. ``beside`` has these columns of the Gram, without
    its diagonal, for all dimensions that a row is stored with; it is not read where they are zero.
    """

    weight: Values
    J: np.ndarray
    coupled: bool
    beside: np.ndarray


class Pieces(NamedTuple):
    """Long rows, cut into pieces: row ``rows[r]`` has the pieces ``bounds[r]:bounds[r + 1]``.

    Piece p has the pairs ``lo[p]:hi[p]`` and belongs to row ``rows[row[p]]``.
    """

    rows: np.ndarray
    bounds: np.ndarray
    lo: np.ndarray
    hi: np.ndarray
    row: np.ndarray


@leaf
def _gather(indices, psi, first, last, tile):
    """``tile[j, p] = psi[indices[p], first + j]``, stored with the number of pairs as stride."""
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
def sweep(start, stop, indptr, pairs, psi, implicit, settings, W, first):
    """Coordinate descent on sixteen dimensions of rows ``start:stop``, one after the other (Algorithm 2, inner loop).

    One pass over the row's pairs sums the gradients g and the block G = sum a psi psi' of their curvature; the steps run on these
    alone; a second pass moves the scores. ``psi`` holds these dimensions of the other side, ``W`` all dimensions of the rows.

    The steps of a row wait for one another, so the scores of the row before are moved meanwhile. Rows of more than SHARED pairs are
    left out.
    """
    weight, J, coupled, beside = implicit
    penalty, eta, tiny, lost, _ = settings
    stride = W.shape[1]
    gram = GramBlock(J, coupled, np.zeros(LANES, psi.dtype))
    total = np.empty((LANES + 1, LANES), np.float64)
    moving = Moving(W.reshape(-1), np.zeros(2 * LANES, psi.dtype))  # steps of this row and of the one before, in turn
    at = 0
    before_lo = before_hi = indptr[start]
    for c in range(start, stop):
        lo, hi = indptr[c], indptr[c + 1]
        if hi - lo > SHARED:
            continue
        l2, rounding = np.float64(pick(penalty, c)), np.float64(pick(lost, c))
        row = RowSettings(np.float64(pick(weight, c)), l2, eta, tiny, rounding)
        places = Offsets(0, 0, c * stride + first, at)
        if coupled:
            product(moving.w, c * stride, beside, gram.rest)
        if hi - lo <= RUN:
            descend(pairs, psi, lo, hi, gram, row, moving, places)
        else:
            fill(total, 0.0)
            for run in range(lo, hi, RUN):
                accumulate(pairs, psi, run, min(run + RUN, hi), 0, row.implicit, total)
            steps(total, gram, row, moving, places)
        at = LANES - at
        update(pairs.indices, psi, before_lo, before_hi, 0, pairs.scores, moving.delta, at)
        before_lo, before_hi = lo, hi
    update(pairs.indices, psi, before_lo, before_hi, 0, pairs.scores, moving.delta, LANES - at)


@kernel
def sum_pieces(start, stop, pieces, pairs, psi, weight, totals):
    """The sums of :func:`accumulate_plain` for pieces of long rows."""
    for p in range(start, stop):
        total, hi = totals[p], pieces.hi[p]
        share = np.float64(pick(weight, pieces.rows[pieces.row[p]]))
        fill(total, 0.0)
        for run in range(pieces.lo[p], hi, RUN):
            accumulate(pairs, psi, run, min(run + RUN, hi), 0, share, total)


@kernel
def step_long(start, stop, pieces, totals, implicit, settings, W, first, delta):
    """The steps of long rows, from the sums of their pieces, added up in order."""
    weight, J, coupled, beside = implicit
    penalty, eta, tiny, lost, _ = settings
    stride, moving = W.shape[1], Moving(W.reshape(-1), delta)
    gram = GramBlock(J, coupled, np.zeros(LANES, W.dtype))
    for r in range(start, stop):
        total = totals[pieces.bounds[r]]
        for p in range(pieces.bounds[r] + 1, pieces.bounds[r + 1]):
            total += totals[p]
        c = pieces.rows[r]
        l2, rounding = np.float64(pick(penalty, c)), np.float64(pick(lost, c))
        row = RowSettings(np.float64(pick(weight, c)), l2, eta, tiny, rounding)
        if coupled:
            product(moving.w, c * stride, beside, gram.rest)
        steps(total, gram, row, moving, Offsets(0, 0, c * stride + first, r * LANES))


@kernel
def move_pieces(start, stop, pieces, pairs, psi, delta):
    """Scores after the steps of long rows, by pieces."""
    for p in range(start, stop):
        update(pairs.indices, psi, pieces.lo[p], pieces.hi[p], 0, pairs.scores, delta, pieces.row[p] * LANES)


@kernel
def score(start, stop, indptr, indices, phi, origin, psi, scores):
    """``scores[p] = <phi(c), psi(i)>``; ``phi`` holds the rows from ``origin`` on, end to end, in whole blocks of sixteen."""
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
def sweep_blocks(start, stop, observed, psi, weight, gram, settings, block, W):
    """As :func:`sweep`, with ``block`` dimensions of a row solved together; ``gram`` is the other side's, whole."""
    indptr, indices, a, b, scores = observed
    penalty, eta, tiny, rounding, _ = settings
    k = W.shape[1]
    width = min(block, k)
    tile = np.empty(width * max(_longest(indptr, start, stop), 1), psi.dtype)
    H = np.empty((width, width), np.float64)
    g, curvature = np.empty(width, np.float64), np.empty(width, np.float64)
    dead, lost = np.empty(width, np.bool_), np.empty(width, np.bool_)
    for c in range(start, stop):
        lo, hi = indptr[c], indptr[c + 1]
        m = hi - lo
        row_a, row_b, row_scores = slice_of(a, lo, hi), slice_of(b, lo, hi), scores[lo:hi]
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
                curvature[j] = H[j, j]
            for j in range(n):
                for t in range(j):
                    if lost[j] or lost[t]:
                        H[j, t] = 0.0
            solve(H[:n, :n], g[:n], tiny)
            for j in range(n):
                before = np.float64(row[first + j])
                if g[j] * curvature[j] * g[j] < pick(rounding, c):
                    g[j] = 0.0
                row[first + j] = 0.0 if dead[j] else before - eta * g[j]
                _finish(row_scores, tile[j * m : (j + 1) * m], np.float64(row[first + j]) - before)
