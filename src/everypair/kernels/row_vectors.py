"""Vectors of a range of rows from their features, all dimensions of a row at once: ``out += X[start:stop] W``.

``W`` has a row for each feature, so that a row of ``X`` adds up a few short, contiguous vectors.
"""

from __future__ import annotations

import numpy as np

from everypair.kernels.jit import fill, kernel, leaf, pick
from everypair.kernels.simd import add_vector

RUN = 2048  # entries summed in the precision of the data before they are added up in float64


@leaf
def add_multiple(x, v, out):
    """``out += x v``."""
    for f in range(len(out)):
        out[f] += x * v[f]


@kernel
def add_rows(start, stop, matrix, W, out):
    """From compressed rows."""
    indptr, indices, values = matrix
    for r in range(start, stop):
        for p in range(indptr[r], indptr[r + 1]):
            add_vector(pick(values, p), W, indices[p], out, r - start)


@kernel
def multiply_columns(start, stop, matrix, Z, partial, out):
    """``out[l] = sum x Z[row]`` over compressed columns ``start:stop``: runs in the precision of Z, added up in float64.

    ``partial`` is room for a vector.
    """
    indptr, indices, values = matrix
    for column in range(start, stop):
        total = out[column]
        for lo in range(indptr[column], indptr[column + 1], RUN):
            fill(partial, 0.0)
            for p in range(lo, min(lo + RUN, indptr[column + 1])):
                add_vector(pick(values, p), Z, indices[p], partial, 0)
            for f in range(len(total)):
                total[f] += partial[0, f]


@leaf
def add_levels(start, stop, codes, W, out):
    """From the level of each row; a code one past the last level means none."""
    for r in range(start, stop):
        if codes[r] < len(W):
            add_vector(1.0, W, codes[r], out, r - start)


@leaf
def add_runs(start, stop, first, bounds, vectors, out):
    """From the vector of each run of rows; ``vectors[0]`` is that of run ``first``, the run of row ``start``."""
    r = start
    for i in range(len(vectors)):
        first += 1
        while r < min(bounds[first], stop):
            add_vector(1.0, vectors, i, out, r - start)
            r += 1


@leaf
def add_half_norms(start, stop, vectors, out):
    """``out += |vectors|^2 / 2`` for rows ``start:stop``; ``vectors[0]`` belongs to row ``start``."""
    for r in range(start, stop):
        total = np.float64(0.0)
        for x in vectors[r - start]:
            total += np.float64(x) * x
        out[r] += 0.5 * total
