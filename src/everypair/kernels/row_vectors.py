"""Vectors of a range of rows from their features, all dimensions of a row at once: ``out += X[start:stop] W``.

``W`` has a row for each feature, so that a row of ``X`` adds up a few short, contiguous vectors.
"""

from __future__ import annotations

import numpy as np

from everypair.kernels.jit import fill, kernel, leaf, pick


@leaf
def _add(x, v, out):
    for f in range(len(out)):
        out[f] += x * v[f]


@kernel
def add_rows(start, stop, indptr, indices, values, W, out):
    """From compressed rows."""
    for r in range(start, stop):
        for p in range(indptr[r], indptr[r + 1]):
            _add(out.dtype.type(pick(values, p)), W[indices[p]], out[r - start])


@leaf
def add_levels(start, stop, codes, W, out):
    """From the level of each row; one past the last level is none."""
    for r in range(start, stop):
        if codes[r] < len(W):
            v, total = W[codes[r]], out[r - start]
            for f in range(len(total)):
                total[f] += v[f]


@leaf
def add_runs(start, stop, first, bounds, vectors, out):
    """From the vector of each run of rows; ``vectors[0]`` is that of run ``first``, which row ``start`` is in."""
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
    """``out += |vectors|^2 / 2`` for rows ``start:stop``, the first of which has the first vector."""
    for r in range(start, stop):
        total = np.float64(0.0)
        for x in vectors[r - start]:
            total += np.float64(x) * x
        out[r] += 0.5 * total


@leaf
def _run_on(total, decay, enters, gone, leaves):
    for f in range(len(total)):
        total[f] = decay * total[f] + (enters[f] - gone * leaves[f])


@kernel
def add_history(start, stop, items, begin, end, scale, decay, last, W, out):
    """From the past ``items[begin:end]`` of each row, or the last few of it, fading by ``decay``: a running sum of vectors.

    ``scale`` is that of a past of 0, 1, 2, ... events. The sum runs on from row to row while they follow each other in a sequence,
    and starts anew where they do not.
    """
    total = np.zeros(W.shape[1], np.float64)
    gone = decay**last
    sequence, p, first = -1, 0, 0  # the sum is over items[first:p]
    for r in range(start, stop):
        if begin[r] != sequence or end[r] < p:
            fill(total, 0.0)
            sequence, first = begin[r], max(begin[r], end[r] - last)
            p = first
        while p < end[r]:
            enters = W[items[p]]
            if p - last >= first:
                _run_on(total, decay, enters, gone, W[items[p - last]])
            else:
                _run_on(total, decay, enters, 0.0, enters)
            p += 1
        _add(scale[min(end[r] - begin[r], last)], total, out[r - start])
