"""Values from one order to another: of observed pairs, and of vectors."""

from __future__ import annotations

from everypair.kernels.jit import kernel
from everypair.kernels.simd import LANES


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


@kernel
def take_columns(start, stop, rows, first, width, out):
    """``out[c, :width] = rows[c, first:first + width]``, and zeros beside it."""
    for c in range(start, stop):
        given, made = rows[c, first : first + width], out[c]
        if width == LANES:
            for f in range(LANES):
                made[f] = given[f]
        else:
            for f in range(width):
                made[f] = given[f]
            for f in range(width, len(made)):
                made[f] = 0.0
