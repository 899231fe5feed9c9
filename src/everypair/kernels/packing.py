"""The entries of small matrices that a group adds up, packed: of symmetric ones the upper half."""

from __future__ import annotations

from everypair.kernels.jit import kernel


@kernel
def pack(start, stop, bounds, sums, rows, columns, packed):
    """For groups ``start:stop``, the entries ``rows, columns`` of the matrices ``bounds[g]:bounds[g + 1]``, added in order."""
    for g in range(start, stop):
        out = packed[g]
        for j in range(len(rows)):
            out[j] = 0.0
        for p in range(bounds[g], bounds[g + 1]):
            matrix = sums[p]
            for j in range(len(rows)):
                out[j] += matrix[rows[j], columns[j]]


@kernel
def unpack(start, stop, packed, rows, columns, matrices):
    """The matrices ``start:stop`` with these entries; others stay as they are."""
    for g in range(start, stop):
        matrix, entries = matrices[g], packed[g]
        for j in range(len(rows)):
            matrix[rows[j], columns[j]] = entries[j]
