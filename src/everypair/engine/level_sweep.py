"""Coordinate descent on the vectors of levels, a level at a time: see :mod:`everypair.kernels.level_sweep`."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from everypair.kernels.level_sweep import ContextMatrices, ImplicitLevels, LevelContexts, sweep
from everypair.kernels.newton import SweepSettings
from everypair.kernels.pairs import Observed
from everypair.kernels.simd import LANES, WeightedPairs
from everypair.runtime.numerics import Values
from everypair.runtime.parallel import Workers

LARGEST = 2**28  # bytes of matrices that are held at a time
LONGEST = 2**22  # pairs of a level
MATRIX_BATCH = 256  # matrices per product


class Partner(NamedTuple):
    """What the vector of a level meets: moving that of the level of c by t moves the score of (c, i) by ``<t, D_c psi(i)>``.

    ``observed`` are the pairs of the side, ``psi`` the other side's vectors, ``J`` its Gram and ``weight`` is alpha0 m_c. Without
    a ``table`` D_c is the identity. With one, and ``v = table[codes[c]]``, it is the diagonal matrix of v, or, if there is a
    ``core``, the matrix (own dimensions x those of psi) that is its product with v.
    """

    observed: Observed
    psi: np.ndarray
    J: np.ndarray
    weight: Values
    table: np.ndarray | None = None
    codes: np.ndarray | None = None
    core: np.ndarray | None = None


class _Some(NamedTuple):
    """The levels ``start:stop``, and D_c of their contexts: ``table[codes[c]]``."""

    start: int
    stop: int
    table: np.ndarray
    codes: np.ndarray


def sweep_levels(
    partner: Partner,
    groups: np.ndarray,
    contexts: np.ndarray,
    implicit: np.ndarray | None,
    settings: SweepSettings,
    W: np.ndarray,
    workers: Workers,
) -> bool:
    """All dimensions of the rows of ``W``, whose contexts are ``contexts[groups[l]:groups[l + 1]]``. Scores follow.

    ``implicit`` is the matrix of the implicit part where it is the same for all levels; else it is made of the contexts' own.
    False where what one level needs is too large to hold, its matrices or its pairs: nothing was done.
    """
    too_long = len(partner.observed.indices) > LONGEST and _longest(partner, groups, contexts) > LONGEST
    parts = None if too_long else _parts(partner, groups, contexts, W.dtype, workers)
    if parts is None:
        return False
    k, dtype, pairs = W.shape[1], W.dtype, partner.observed
    moving, psi = _padded(W, 1), _padded(partner.psi, 1)
    J, M = _padded(partner.J, 0, 1), _padded(partner.J if implicit is None else implicit, 0, 1)
    a, b = (np.asarray(np.atleast_1d(x), dtype) for x in (pairs.a, pairs.b))
    weighted = WeightedPairs(pairs.indices, pairs.scores, a, np.ndim(pairs.a), b, np.ndim(pairs.b), np.zeros(1, dtype), 0)
    for start, stop, table, codes in parts:
        inner = np.zeros((1, 1, 1), dtype)
        if implicit is None and table.ndim == 3:
            own = table.shape[1]
            inner = _in_chunks(lambda D: (D.astype(np.float64) @ J) @ np.swapaxes(D, 1, 2), table, (own, own), workers)
        workers.run(
            sweep, start + workers.split(groups[start : stop + 1] - groups[start]), LevelContexts(groups, contexts),
            pairs.indptr, weighted, psi, ContextMatrices(table, inner, codes),
            ImplicitLevels(partner.weight, M, implicit is not None), settings, moving,
        )  # fmt: skip
    W[...] = moving[:, :k]
    return True


def _longest(partner: Partner, groups: np.ndarray, contexts: np.ndarray) -> int:
    """The most pairs that a level has."""
    pairs = np.concatenate([[0], np.cumsum(np.diff(partner.observed.indptr)[contexts])])
    return int(np.diff(pairs[groups]).max(initial=0))


def _parts(partner: Partner, groups: np.ndarray, contexts: np.ndarray, dtype: np.dtype, workers: Workers) -> Iterator[_Some] | None:
    """All levels at once where D_c is diagonal or matrices are few; else as many as have few; None where one has too many."""
    n, core = len(groups) - 1, partner.core
    if partner.table is None or partner.codes is None:
        identity, n_rows = np.ones((1, partner.psi.shape[1]), dtype), len(partner.observed.indptr) - 1
        return iter([_Some(0, n, _padded(identity, 1), np.zeros(n_rows, np.int64))])
    if core is None:
        return iter([_Some(0, n, _padded(partner.table, 1), partner.codes)])
    core = _padded(core, 1, 2).astype(dtype)
    most = LARGEST // (core[0].nbytes + core.shape[1] ** 2 * dtype.itemsize)  # D_c, and D_c J D_c'
    bounds = [0, n]
    if len(_occurring(partner.codes, len(partner.table))) > most:
        if np.diff(groups).max(initial=0) > most:
            return None
        bounds = [0]
        while bounds[-1] < n:
            bounds.append(int(np.searchsorted(groups, groups[bounds[-1]] + most, "right")) - 1)
    parts = itertools.pairwise(bounds)
    return (_with_matrices(partner, core, lo, hi, contexts[groups[lo] : groups[hi]], workers) for lo, hi in parts)


def _with_matrices(partner: Partner, core: np.ndarray, start: int, stop: int, contexts: np.ndarray, workers: Workers) -> _Some:
    """Each matrix once: vectors of the other mode times the core."""
    assert partner.table is not None
    assert partner.codes is not None
    place = np.zeros(len(partner.table), np.int64)
    occurring = _occurring(partner.codes[contexts], len(partner.table))
    place[occurring] = np.arange(len(occurring))
    flat = core.reshape(len(core), -1)
    table = _in_chunks(lambda v: (v @ flat).reshape(-1, *core.shape[1:]), partner.table[occurring], core.shape[1:], workers)
    return _Some(start, stop, table, place[partner.codes])


def _occurring(codes: np.ndarray, n: int) -> np.ndarray:
    """The levels that occur; -1 is the last."""
    there = np.zeros(n, bool)
    there[codes] = True
    return np.flatnonzero(there)


def _in_chunks(
    function: Callable[[np.ndarray], np.ndarray], rows: np.ndarray, shape: tuple[int, ...], workers: Workers
) -> np.ndarray:
    """``function`` of the rows, in chunks, in their precision."""
    out = np.empty((len(rows), *shape), rows.dtype)

    def some(start: int, stop: int) -> None:
        for first in range(start, stop, MATRIX_BATCH):
            last = min(first + MATRIX_BATCH, stop)
            out[first:last] = function(rows[first:last])

    workers.chunks(len(rows), some)
    return out


def _padded(array: np.ndarray, *axes: int) -> np.ndarray:
    """A copy with zeros up to whole blocks along these axes."""
    return np.pad(array, [(0, -size % LANES if axis in axes else 0) for axis, size in enumerate(array.shape)])
