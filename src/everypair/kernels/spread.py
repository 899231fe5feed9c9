"""Sums of vectors along the observed pairs."""

from __future__ import annotations

from everypair.kernels.jit import kernel, leaf, pick


@leaf
def _add(weight, vector, out):
    for f in range(len(out)):
        out[f] += weight * vector[f]


@kernel
def spread(start, stop, indptr, indices, weight, vectors, out):
    """``out[i] += sum of weight_p vectors[c]`` over the pairs p = (i, c) of rows ``start:stop``."""
    for i in range(start, stop):
        for p in range(indptr[i], indptr[i + 1]):
            _add(out.dtype.type(pick(weight, p)), vectors[indices[p]], out[i])
