"""Copies from one order to another: of values, and of columns of vectors."""

from __future__ import annotations

from everypair.kernels.jit import kernel, leaf
from everypair.kernels.simd import LANES


@leaf
def gather(index, values, out):
    """``out[p] = values[index[p]]``."""
    for p in range(len(index)):
        out[p] = values[index[p]]


@leaf
def take(start, stop, order, values, out):
    """``out[p] = values[order[p]]`` for p in ``start:stop``."""
    gather(order[start:stop], values, out[start:stop])


@kernel
def put(start, stop, order, values, out):
    """``out[order[p]] = values[p]``; ``order`` has no repeats."""
    for p in range(start, stop):
        out[order[p]] = values[p]


@kernel
def take_columns(start, stop, rows, first, width, out):
    """``out[c, :width] = rows[c, first:first + width]``, and zeros in the other columns."""
    for c in range(start, stop):
        source, target = rows[c, first : first + width], out[c]
        if width == LANES:
            for f in range(LANES):
                target[f] = source[f]
        else:
            for f in range(width):
                target[f] = source[f]
            for f in range(width, len(target)):
                target[f] = 0.0
