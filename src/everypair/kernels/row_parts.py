"""Passes over rows whose vectors are sums of parts from tables that stay in the cache: no vector is stored, and few are read."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from everypair.kernels.jit import leaf, pick


class RowParts(NamedTuple):
    """Row r has the vector ``table0[codes0[r]] + table1[codes1[r]] + table2[codes2[r]]``.

    Three parts always, so that kernels are compiled once: those that are not there have one code, a step of 0, and zeros.
    """

    codes0: np.ndarray
    table0: np.ndarray
    codes1: np.ndarray
    step1: int
    table1: np.ndarray
    codes2: np.ndarray
    step2: int
    table2: np.ndarray


@leaf
def _sum_parts(parts, r, out):
    a, b, c = (
        parts.table0[parts.codes0[r]],
        parts.table1[parts.codes1[r * parts.step1]],
        parts.table2[parts.codes2[r * parts.step2]],
    )
    for f in range(len(out)):
        out[f] = a[f] + b[f] + c[f]


@leaf
def add_numbers(start, stop, codes, numbers, out):
    """``out += numbers[codes]`` for rows ``start:stop``: what a part adds to one dimension."""
    for r in range(start, stop):
        out[r] += numbers[codes[r]]


@leaf
def add_half_norms(start, stop, parts, out):
    """``out += |vector|^2 / 2`` for rows ``start:stop``."""
    vector = np.empty(parts.table0.shape[1], parts.table0.dtype)
    for r in range(start, stop):
        _sum_parts(parts, r, vector)
        total = np.float64(0.0)
        for f in range(len(vector)):
            total += np.float64(vector[f]) * vector[f]
        out[r] += 0.5 * total


@leaf
def score(start, stop, indptr, indices, psi, parts, scores):
    """``scores[p] = <vector(c), psi(i)>`` for the pairs of rows ``start:stop``, in the first dimensions of ``psi``."""
    k = parts.table0.shape[1]
    vector = np.empty(k, parts.table0.dtype)
    for r in range(start, stop):
        _sum_parts(parts, r, vector)
        for p in range(indptr[r], indptr[r + 1]):
            row, total = psi[indices[p], :k], vector.dtype.type(0.0)
            for f in range(len(vector)):
                total += vector[f] * row[f]
            scores[p] = total


@leaf
def add_to_scores(start, stop, indptr, indices, psi_f, phi_f, scores):
    """``scores[p] += phi_f[c] psi_f[i]``: not within :func:`score`, whose inner loop would take six times as long."""
    for r in range(start, stop):
        for p in range(indptr[r], indptr[r + 1]):
            scores[p] += phi_f[r] * psi_f[indices[p]]


@leaf
def sum_vectors(start, stop, codes, first, other_codes, table, weight, out):
    """``out[codes[r] - first] += weight_r table[other_codes[r]]`` in the first columns, for rows ``start:stop``."""
    for r in range(start, stop):
        m = np.float64(pick(weight, r))
        row, total = table[other_codes[r]], out[codes[r] - first]
        for f in range(len(row)):
            total[f] += m * row[f]


@leaf
def sum_numbers(start, stop, codes, first, numbers, weight, out):
    """``out[codes[r] - first] += weight_r numbers[:, r]`` in the last columns, for rows ``start:stop``."""
    at = out.shape[1] - len(numbers)
    for r in range(start, stop):
        m, total = np.float64(pick(weight, r)), out[codes[r] - first, at:]
        for j in range(len(numbers)):
            total[j] += m * numbers[j, r]
