"""Rows of vectors times tensors, a row at a time and in one order: a row's result does not depend on the rows beside it."""

from __future__ import annotations

import numpy as np

from everypair.kernels.jit import leaf


@leaf
def contract(start, stop, table, levels, tensor, step, out):
    """``out[c] = sum_e table[levels[c], e] tensor[c * step, e]``: a part of the tensor for each row, or (step 0) one for all."""
    total = np.empty(tensor.shape[2], np.float64)
    for c in range(start, stop):
        x, part = table[levels[c]], tensor[c * step]
        total[:] = 0.0
        for e in range(len(x)):
            for j in range(len(total)):
                total[j] += np.float64(x[e]) * np.float64(part[e, j])
        for j in range(len(total)):
            out[c, j] = total[j]
