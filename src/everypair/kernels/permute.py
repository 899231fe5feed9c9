"""Values of the observed pairs, from one order to the other."""

from __future__ import annotations

from everypair.kernels.jit import kernel


@kernel
def take(start, stop, order, values, out):
    """``out[p] = values[order[p]]``."""
    for p in range(start, stop):
        out[p] = values[order[p]]


@kernel
def put(start, stop, order, values, out):
    """``out[order[p]] = values[p]``; no place is named twice."""
    for p in range(start, stop):
        out[order[p]] = values[p]
