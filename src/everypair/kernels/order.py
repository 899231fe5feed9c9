"""Counting sort and checks of order: compressed rows and columns in time proportional to the number of entries."""

from __future__ import annotations

import numpy as np

from everypair.kernels.jit import kernel


@kernel
def compress(keys, n):
    """Where the entries of each key begin once sorted: ``indptr`` of length n + 1."""
    indptr = np.zeros(n + 1, np.int64)
    for p in range(len(keys)):
        indptr[keys[p] + 1] += 1
    for r in range(n):
        indptr[r + 1] += indptr[r]
    return indptr


@kernel
def stable_order(keys, indptr, order, out):
    """``out`` lists the positions in ``order`` sorted by key, equal keys in the order given."""
    fill = indptr[:-1].copy()
    for p in range(len(order)):
        key = keys[order[p]]
        out[fill[key]] = order[p]
        fill[key] += 1


@kernel
def spread(keys, values, indptr, out):
    """``out`` lists the values sorted by key, equal keys in the order given."""
    fill = indptr[:-1].copy()
    for p in range(len(keys)):
        key = keys[p]
        out[fill[key]] = values[p]
        fill[key] += 1


@kernel
def transpose(indptr, indices, columns, rows, order):
    """From compressed rows to compressed columns: fill in the row of each entry, ascending, and its position before, in ``order``.

    ``columns`` holds where each column begins; ``order`` may be None.
    """
    fill = columns[:-1].copy()
    for r in range(len(indptr) - 1):
        for p in range(indptr[r], indptr[r + 1]):
            q = fill[indices[p]]
            fill[indices[p]] = q + 1
            rows[q] = r
            if order is not None:
                order[q] = p


@kernel
def ascending(first, second):
    """Whether pairs are sorted by their first entry, then by their second."""
    for p in range(1, len(first)):
        if first[p] < first[p - 1] or (first[p] == first[p - 1] and second[p] < second[p - 1]):
            return False
    return True


def grouped(keys: np.ndarray, n: int, dtype: type) -> tuple[np.ndarray, np.ndarray]:
    """Where the entries of each key begin, and the positions sorted by key, equal keys in the order given."""
    indptr = compress(keys, n)
    order = np.empty(len(keys), dtype)
    stable_order(keys, indptr, np.arange(len(keys), dtype=dtype), order)
    return indptr, order


@kernel
def strictly_ascending(indptr, indices):
    """Whether the indices of every row ascend without repeats."""
    for r in range(len(indptr) - 1):
        for p in range(indptr[r] + 1, indptr[r + 1]):
            if indices[p] <= indices[p - 1]:
                return False
    return True


@kernel
def first_duplicate(indptr, indices):
    """Position of the first pair that equals the one before it in its row; -1 if there is none."""
    for r in range(len(indptr) - 1):
        for p in range(indptr[r] + 1, indptr[r + 1]):
            if indices[p] == indices[p - 1]:
                return p
    return -1
