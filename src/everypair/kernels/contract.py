"""Rows of vectors times tensors, a row at a time and in one order: a row's result does not depend on the rows beside it."""

from __future__ import annotations

import numpy as np

from everypair.kernels.jit import leaf


@leaf
def contract_shared(start, stop, table, levels, tensor, out):
    """``out[c] = sum_e table[levels[c], e] tensor[e]``, for a tensor (k x rest) that all rows share."""
    total = np.empty(tensor.shape[1], np.float64)
    for c in range(start, stop):
        x = table[levels[c]]
        total[:] = 0.0
        for e in range(len(x)):
            for j in range(len(total)):
                total[j] += np.float64(x[e]) * np.float64(tensor[e, j])
        for j in range(len(total)):
            out[c, j] = total[j]


@leaf
def contract_own(start, stop, table, levels, tensor, out):
    """``out[c] = sum_e table[levels[c], e] tensor[c, e]``, for a tensor (n x k x rest) with a part for each row."""
    total = np.empty(tensor.shape[2], np.float64)
    for c in range(start, stop):
        x = table[levels[c]]
        total[:] = 0.0
        for e in range(len(x)):
            for j in range(len(total)):
                total[j] += np.float64(x[e]) * np.float64(tensor[c, e, j])
        for j in range(len(total)):
            out[c, j] = total[j]
