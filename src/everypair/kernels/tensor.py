"""Products of row vectors with tensors, row by row and in a fixed order: results do not depend on the batch."""

from __future__ import annotations

import numpy as np

from everypair.kernels.jit import fill, leaf


@leaf
def contract(start, stop, table, levels, tensor, which, out):
    """``out[c] = sum_e table[levels[c], e] tensor[which[c], e]``."""
    total = np.empty(tensor.shape[2], np.float64)
    for c in range(start, stop):
        x, matrix = table[levels[c]], tensor[which[c]]
        if len(total) == 1:  # this loop over e vectorises
            one = np.float64(0.0)
            for e in range(len(x)):
                one += np.float64(x[e]) * np.float64(matrix[e, 0])
            out[c, 0] = one
            continue
        fill(total, 0.0)
        for e in range(len(x)):
            for j in range(len(total)):
                total[j] += np.float64(x[e]) * np.float64(matrix[e, j])
        for j in range(len(total)):
            out[c, j] = total[j]


@leaf
def gather(start, stop, indptr, rows, z, table, levels, out):
    """``out[l] = sum z_c table[levels[c]]`` over the rows c of group l."""
    for group in range(start, stop):
        total = out[group]
        fill(total, 0.0)
        for p in range(indptr[group], indptr[group + 1]):
            c = rows[p]
            x, weight = table[levels[c]], np.float64(z[c])
            for e in range(len(x)):
                total[e] += weight * np.float64(x[e])
