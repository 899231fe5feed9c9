"""The sweep of free vectors that many contexts share: the modes of a tensor (Section 5.3), or an embedding of a column.

Each level is its own least-squares problem, as each row is in :mod:`everypair.kernels.row_sweep`, with other vectors for its pairs:
moving the level's vector by t moves the score of (c, i) by ``<t, x>``, where ``x = D_c psi(i)``. For PARAFAC ``D_c`` is diagonal,
the product of the other modes' vectors; for Tucker it is the core, contracted with them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from everypair.kernels.jit import fill, kernel, leaf, pick
from everypair.kernels.row_sweep import RUN
from everypair.kernels.simd import (
    LANES,
    GramBlock,
    Moving,
    Offsets,
    RowSettings,
    WeightedPairs,
    accumulate,
    descend,
    steps,
    update,
)
from everypair.runtime.numerics import Values


class LevelContexts(NamedTuple):
    """The contexts of each level l: ``contexts[bounds[l]:bounds[l + 1]]``."""

    bounds: np.ndarray
    contexts: np.ndarray


class ContextMatrices(NamedTuple):
    """``D_c`` is ``table[codes[c]]``, a diagonal or a matrix; for matrices ``inner`` holds ``D J D'``."""

    table: np.ndarray
    inner: np.ndarray
    codes: np.ndarray


class ImplicitLevels(NamedTuple):
    """The implicit part of a level: ``w' J w`` if ``shared``, else the sum of ``weight_c w' D_c J D_c' w`` over its contexts."""

    weight: Values
    J: np.ndarray
    shared: bool


@leaf
def _add_square(weight, v, out):
    """``out += weight v v'``."""
    for f in range(len(v)):
        x = weight * v[f]
        row = out[f]
        for j in range(len(v)):
            row[j] += x * v[j]


@leaf
def _add_multiple(weight, matrix, out):
    for f in range(len(matrix)):
        row, added = out[f], matrix[f]
        for j in range(len(row)):
            row[j] += weight * added[j]


@leaf
def _copy(matrix, out):
    for f in range(len(matrix)):
        for j in range(matrix.shape[1]):
            out[f, j] = matrix[f, j]


@leaf
def _flush(partial, out):
    """``out += partial``, and ``partial`` becomes zero."""
    for f in range(len(partial)):
        row, added = out[f], partial[f]
        for j in range(len(row)):
            row[j] += np.float64(added[j])
            added[j] = 0.0


@leaf
def _times(matrix, out):
    """``out *= matrix``, elementwise."""
    for f in range(len(matrix)):
        row, factor = out[f], matrix[f]
        for j in range(len(row)):
            row[j] *= factor[j]


@leaf
def _products(n, codes, items, table, psi, first, tile):
    """``tile[p] = D psi(i)`` in sixteen dimensions: ``table`` holds diagonals, or matrices."""
    for p in range(n):
        out, vector = tile[p], psi[items[p]]
        if table.ndim == 2:
            scale = table[codes[p]]
            for j in range(LANES):
                out[j] = scale[first + j] * vector[first + j]
        else:
            matrix = table[codes[p]]
            for j in range(LANES):
                total = out.dtype.type(0.0)
                row = matrix[first + j]
                for f in range(len(vector)):
                    total += row[f] * vector[f]
                out[j] = total


@leaf
def _implicit_block(M, w, first, J, rest):
    """The :class:`~everypair.kernels.simd.GramBlock` of M for sixteen dimensions."""
    for j in range(LANES):
        total = np.float64(0.0)
        row = M[first + j]
        for f in range(len(row)):
            total += row[f] * w[f]
        rest[j] = total - row[first + j] * w[first + j]
        J[0, j] = row[first + j]
        for i in range(LANES):
            J[1 + j, i] = row[first + i]
        J[1 + j, j] = 0.0


@leaf
def _implicit_size(M, w):
    """``(sum_f |w_f| sqrt(M_ff))^2``, of which ``w' M w`` may be a small part."""
    total = np.float64(0.0)
    for f in range(len(w)):
        total += abs(w[f]) * np.sqrt(max(M[f, f], 0.0))
    return total * total


@leaf
def _square_of_context(table, inner, code, weight, M):
    """``M += weight D J D'``; where D is diagonal, the factor J follows at the end."""
    if table.ndim == 2:
        _add_square(weight, table[code], M)
    else:
        _add_multiple(weight, inner[code], M)


@kernel
def sweep(start, stop, levels, indptr, pairs, psi, matrices, implicit, settings, W):
    """Coordinate descent on the vectors ``start:stop`` of ``W``, sixteen dimensions at a time.

    Vectors are padded with zeros to whole blocks.
    """
    bounds, contexts = levels
    indices, scores, a, a_step, b, b_step, nothing, _ = pairs
    table, inner, codes = matrices
    weight, J, shared = implicit
    penalty, eta, tiny, lost, lost_share = settings
    longest = 0
    for level in range(start, stop):
        n = 0
        for g in range(bounds[level], bounds[level + 1]):
            n += indptr[contexts[g] + 1] - indptr[contexts[g]]
        longest = max(longest, n)
    k, dtype = W.shape[1], psi.dtype
    code, item, position = np.empty(longest, np.int64), np.empty(longest, indices.dtype), np.empty(longest, np.int64)
    own_a, own_b = np.empty(longest if a_step else 1, dtype), np.empty(longest if b_step else 1, dtype)
    own_scores, tile = np.empty(longest, dtype), np.empty((longest, LANES), dtype)
    if longest:
        own_a[0], own_b[0] = a[0], b[0]
    own = WeightedPairs(np.arange(longest), own_scores, own_a, a_step, own_b, b_step, nothing, 0)  # of a level, gathered
    M, partial = np.empty((k, k), np.float64), np.zeros((k, k), dtype)  # runs of contexts are summed in the precision of the data
    block = GramBlock(np.empty((LANES + 1, LANES), dtype), True, np.empty(LANES, dtype))
    delta = np.empty(LANES, dtype)
    total = np.empty((LANES + 1, LANES), np.float64)
    if shared:
        _copy(J, M)
    for level in range(start, stop):
        n = 0
        if not shared:
            fill(M, 0.0)
        for g in range(bounds[level], bounds[level + 1]):
            c = contexts[g]
            if not shared:
                _square_of_context(table, inner, codes[c], dtype.type(pick(weight, c)), partial)
                if (g + 1 - bounds[level]) % RUN == 0:
                    _flush(partial, M)
            for p in range(indptr[c], indptr[c + 1]):
                code[n], item[n], position[n], own_scores[n] = codes[c], indices[p], p, scores[p]
                if a_step:
                    own_a[n] = a[p]
                if b_step:
                    own_b[n] = b[p]
                n += 1
        if not shared:
            _flush(partial, M)
            if table.ndim == 2:
                _times(J, M)
        w, l2, rounding = W[level], np.float64(pick(penalty, level)), np.float64(pick(lost, level))
        if l2 == 0.0:
            rounding += lost_share * _implicit_size(M, w)
        row, moving = RowSettings(1.0, l2, eta, tiny, rounding), Moving(w, delta)
        for first in range(0, k, LANES):
            _products(n, code, item, table, psi, first, tile)
            _implicit_block(M, w, first, block.J, block.rest)
            if n <= RUN:
                descend(own, tile, 0, n, block, row, moving, Offsets(0, 0, first, 0))
            else:
                fill(total, 0.0)
                for run in range(0, n, RUN):
                    accumulate(own, tile, run, min(run + RUN, n), 0, 0.0, total)
                steps(total, block, row, moving, Offsets(0, 0, first, 0))
            update(own.indices, tile, 0, n, 0, own_scores, delta, 0)
        for p in range(n):
            scores[position[p]] = own_scores[p]
