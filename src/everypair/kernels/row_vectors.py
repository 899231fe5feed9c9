"""Vectors of a range of rows from their features, all dimensions of a row at once: ``out += X[start:stop] W``.

``W`` has a row for each feature, so that a row of ``X`` adds up a few short, contiguous vectors.
"""

from __future__ import annotations

import numpy as np

from everypair.kernels.jit import kernel, leaf, pick


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
            add_multiple(out.dtype.type(pick(values, p)), W[indices[p]], out[r - start])


@leaf
def add_levels(start, stop, codes, W, out):
    """From the level of each row; a code one past the last level means none."""
    for r in range(start, stop):
        if codes[r] < len(W):
            v, total = W[codes[r]], out[r - start]
            for f in range(len(total)):
                total[f] += v[f]


@leaf
def add_runs(start, stop, first, bounds, vectors, out):
    """From the vector of each run of rows; ``vectors[0]`` is that of run ``first``, the run of row ``start``."""
    r = start
    for v in vectors:
        first += 1
        while r < min(bounds[first], stop):
            total = out[r - start]
            for f in range(len(total)):
                total[f] += v[f]
            r += 1


@leaf
def add_half_norms(start, stop, vectors, out):
    """``out += |vectors|^2 / 2`` for rows ``start:stop``; ``vectors[0]`` belongs to row ``start``."""
    for r in range(start, stop):
        total = np.float64(0.0)
        for x in vectors[r - start]:
            total += np.float64(x) * x
        out[r] += 0.5 * total
