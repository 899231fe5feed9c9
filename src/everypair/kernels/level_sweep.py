"""The sweep of free vectors that many contexts share: the modes of a tensor (Section 5.3), or an embedding of a column.

Each level is its own least-squares problem, as each row is in :mod:`everypair.kernels.row_sweep`, with other vectors for its pairs:
moving the level's vector by t moves the score of (c, i) by ``<t, x>``, where ``x = D_c psi(i)``. For PARAFAC ``D_c`` is diagonal,
the product of the other modes' vectors; for Tucker it is the core, contracted with them.
"""

from __future__ import annotations

import numpy as np

from everypair.kernels.jit import fill, kernel, leaf, pick
from everypair.kernels.row_sweep import RUN
from everypair.kernels.simd import LANES, accumulate, descend, steps, update


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
def _flush(part, out):
    """``out += part``, and the part begins anew."""
    for f in range(len(part)):
        row, added = out[f], part[f]
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
    """What belongs to sixteen dimensions of ``M``: its diagonal, its block without it, and the product with w without it."""
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
def _square_of_context(table, inner, code, weight, M):
    """``M += weight D J D'``: J follows at the end where D is diagonal, ``inner`` holds the product where it is not."""
    if table.ndim == 2:
        _add_square(weight, table[code], M)
    else:
        _add_multiple(weight, inner[code], M)


@kernel
def sweep(
    start, stop, groups, contexts, indptr, indices, a, a_step, b, b_step, scores, psi, table, inner, codes,
    weight, J, shared, penalty, eta, tiny, W,
):  # fmt: skip
    """Coordinate descent on the vectors ``start:stop`` of ``W``, sixteen dimensions at a time.

    Level l has the contexts ``contexts[groups[l]:groups[l + 1]]``. The implicit part of its loss is ``w' J w`` if ``shared``, and
    the sum of ``weight_c w' D_c J D_c' w`` over its contexts if not. Vectors are padded with zeros to whole blocks.
    """
    longest = 0
    for level in range(start, stop):
        n = 0
        for g in range(groups[level], groups[level + 1]):
            n += indptr[contexts[g] + 1] - indptr[contexts[g]]
        longest = max(longest, n)
    k, dtype = W.shape[1], psi.dtype
    code, item, position = np.empty(longest, np.int64), np.empty(longest, indices.dtype), np.empty(longest, np.int64)
    own_a, own_b = np.empty(longest if a_step else 1, dtype), np.empty(longest if b_step else 1, dtype)
    own_scores, tile = np.empty(longest, dtype), np.empty((longest, LANES), dtype)
    if longest:
        own_a[0], own_b[0] = a[0], b[0]
    each = np.arange(longest)
    M, part = np.empty((k, k), np.float64), np.zeros((k, k), dtype)  # runs of contexts in the data's own precision
    block, rest, delta = np.empty((LANES + 1, LANES), dtype), np.empty(LANES, dtype), np.empty(LANES, dtype)
    total = np.empty((LANES + 1, LANES), np.float64)
    if shared:
        _copy(J, M)
    for level in range(start, stop):
        n = 0
        if not shared:
            fill(M, 0.0)
        for g in range(groups[level], groups[level + 1]):
            c = contexts[g]
            if not shared:
                _square_of_context(table, inner, codes[c], dtype.type(pick(weight, c)), part)
                if (g + 1 - groups[level]) % RUN == 0:
                    _flush(part, M)
            for p in range(indptr[c], indptr[c + 1]):
                code[n], item[n], position[n], own_scores[n] = codes[c], indices[p], p, scores[p]
                if a_step:
                    own_a[n] = a[p]
                if b_step:
                    own_b[n] = b[p]
                n += 1
        if not shared:
            _flush(part, M)
            if table.ndim == 2:
                _times(J, M)
        w, l2 = W[level], pick(penalty, level)
        for first in range(0, k, LANES):
            _products(n, code, item, table, psi, first, tile)
            _implicit_block(M, w, first, block, rest)
            if n <= RUN:
                descend(
                    each, tile, 0, n, 0, own_scores, own_a, a_step, own_b, b_step,
                    block, True, rest, 0, 1.0, l2, eta, tiny, w, first, delta, 0,
                )  # fmt: skip
            else:
                fill(total, 0.0)
                for run in range(0, n, RUN):
                    accumulate(each, tile, run, min(run + RUN, n), 0, own_scores, own_a, a_step, own_b, b_step, total)
                steps(total, block, True, rest, 0, 1.0, l2, eta, tiny, w, first, delta, 0)
            update(each, tile, 0, n, 0, own_scores, delta, 0)
        for p in range(n):
            scores[position[p]] = own_scores[p]
