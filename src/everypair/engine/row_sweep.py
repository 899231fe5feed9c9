"""The sweep of a side whose rows are free vectors, and its scores: sixteen dimensions at a time, rows shared among threads.

The dimensions are the outer loop: sixteen of the other side fit into the cache of a core, or nearly, while rows stream past them
and the scores of the observed pairs are kept. Rows are independent of one another. A row too long for one thread is cut into pieces
of fixed size, whose sums are added up in their order: the bits do not depend on the number of threads.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from everypair.engine.vectors import Vectors
from everypair.kernels import packing, row_sweep
from everypair.kernels.newton import SweepSettings
from everypair.kernels.pairs import RowPairs
from everypair.kernels.simd import LANES, WeightedPairs
from everypair.runtime.group import ALONE, Group
from everypair.runtime.numerics import Values, aligned
from everypair.runtime.parallel import Workers

ROWS_PER_ROUND = 65_536  # rows of a side whose sums a group adds up at a time
_ROW, _COLUMN = np.triu_indices(LANES)
UPPER = np.concatenate([np.zeros(LANES, int), 1 + _ROW]), np.concatenate([np.arange(LANES), _COLUMN])  # gradient and upper half
FEW = 2_048  # rows whose vectors are computed, or padded, at a time


class RowSweep:
    """How the rows of a side are shared out.

    Parameters
    ----------
    indptr : array
        Compressed rows of observed pairs.
    workers : Workers
    group : Group
        The members among whom the pairs of each row are divided: then every row is a long one, with pieces everywhere.
    """

    def __init__(self, indptr: np.ndarray, workers: Workers, group: Group = ALONE) -> None:
        self._workers, self._group = workers, group
        lengths = np.diff(indptr)
        long = np.arange(len(lengths)) if group.divided else np.flatnonzero(lengths > row_sweep.SHARED)
        pieces = [np.arange(indptr[c], indptr[c + 1], row_sweep.SHARED) for c in long]
        bounds = np.concatenate([[0], np.cumsum([len(starts) for starts in pieces])]).astype(np.int64)
        row = np.repeat(np.arange(len(long)), np.diff(bounds))
        lo = np.concatenate([*pieces, np.empty(0, indptr.dtype)])
        self._pieces = row_sweep.Pieces(long, bounds, lo, np.minimum(lo + row_sweep.SHARED, indptr[1:][long[row]]), row)
        if group.divided:  # all rows are long, and their sums are made of some rows at a time
            return
        short = np.where(lengths > row_sweep.SHARED, 0, lengths)
        self._bounds = workers.split(np.concatenate([[0], np.cumsum(short)]))
        self._totals = np.empty((len(lo), LANES + 1, LANES))

    def __call__(
        self,
        pairs: RowPairs,
        other: Vectors,
        J: np.ndarray,
        weight: Values,
        settings: SweepSettings,
        W: np.ndarray,
    ) -> None:
        """Coordinate descent on all dimensions of the rows of ``W``; ``J`` is the other side's Gram, ``weight`` alpha0 m_c."""
        dtype, k = W.dtype, W.shape[1]
        moving = W if k % LANES == 0 else np.pad(W, ((0, 0), (0, -k % LANES)))
        alpha, b, against = (np.asarray(np.atleast_1d(x), dtype) for x in (pairs.alpha, pairs.b, pairs.other))
        apart = J - np.diag(np.diag(J))
        coupled = bool(np.any(weight)) and bool(np.any(apart))
        weighted = WeightedPairs(
            pairs.indices, pairs.scores, alpha, np.ndim(pairs.alpha), b, np.ndim(pairs.b), against, np.ndim(pairs.other)
        )
        n_long = len(self._pieces.rows)
        delta = np.empty(n_long * LANES, dtype)
        for first in range(0, k, LANES):
            stop = min(first + LANES, k)
            psi = other.panel(first, stop, self._workers)
            block, beside = _zeros(LANES + 1, dtype), _zeros(moving.shape[1] if coupled else 0, dtype)
            block[0, : stop - first] = np.diag(J)[first:stop]
            if coupled:
                block[1 : 1 + stop - first, : stop - first] = apart[first:stop, first:stop]
                beside[:k, : stop - first] = apart[:, first:stop]
            steps = (row_sweep.ImplicitBlock(weight, block, coupled, beside), settings, moving, first)
            if self._group.divided:
                self._run_divided(weighted, psi, steps, delta)
                continue
            self._run_pieces_and_rows(pairs.indptr, weighted, psi, steps)
            if n_long:
                row_sweep.step_long(0, n_long, self._pieces, self._totals, *steps, delta)
                pieces = range(len(self._pieces.lo) + 1)
                self._workers.run(row_sweep.move_pieces, pieces, self._pieces, weighted, psi, delta)
        if moving is not W:
            W[...] = moving[:, :k]

    def _run_divided(self, pairs: WeightedPairs, psi: np.ndarray, steps: Any, delta: np.ndarray) -> None:
        """The sums of some rows here, then those of the group, and their steps; then the scores of the pairs here."""
        pieces, run = self._pieces, self._workers.run
        for first in range(0, len(pieces.rows), ROWS_PER_ROUND):
            last = min(first + ROWS_PER_ROUND, len(pieces.rows))
            lo, hi = pieces.bounds[first], pieces.bounds[last]
            here = pieces._replace(lo=pieces.lo[lo:hi], hi=pieces.hi[lo:hi], row=pieces.row[lo:hi])
            sums = np.empty((hi - lo, LANES + 1, LANES))
            run(row_sweep.sum_pieces, range(hi - lo + 1), here, pairs, psi, steps[0].weight, sums)
            n, bounds = last - first, pieces.bounds[first : last + 1] - lo
            packed, totals = np.empty((n, len(UPPER[0]))), np.zeros((n, LANES + 1, LANES))
            run(packing.pack, self._workers.even(n), bounds, sums, *UPPER, packed)
            run(packing.unpack, self._workers.even(n), self._group.total(packed), *UPPER, totals)
            rows = pieces._replace(rows=pieces.rows[first:last], bounds=np.arange(n + 1))
            run(row_sweep.step_long, self._workers.even(n), rows, totals, *steps, delta[first * LANES :])
        run(row_sweep.move_pieces, range(len(pieces.lo) + 1), pieces, pairs, psi, delta)

    def _run_pieces_and_rows(self, indptr: np.ndarray, pairs: WeightedPairs, psi: np.ndarray, steps: Any) -> None:
        """Sums of the pieces of long rows, and all of the other rows: any task may run at any time."""
        n, bounds = len(self._pieces.lo), self._bounds

        def some(start: int, stop: int) -> None:
            if start < n:
                row_sweep.sum_pieces(start, min(stop, n), self._pieces, pairs, psi, steps[0].weight, self._totals)
            if stop > n:
                row_sweep.sweep(bounds[max(start - n, 0)], bounds[stop - n], indptr, pairs, psi, *steps)

        self._workers.run(some, range(n + len(bounds)))


def _zeros(n: int, dtype: np.dtype) -> np.ndarray:
    found = aligned((n, LANES), dtype)
    found[...] = 0.0
    return found


def score(indptr: np.ndarray, indices: np.ndarray, own: Vectors, other: Vectors, scores: np.ndarray, workers: Workers) -> None:
    """Scores of the observed pairs from scratch."""
    bounds, k = workers.split(indptr), own.shape[1]
    if k % LANES == 0 and own.has_rows and other.has_rows:
        workers.run(row_sweep.score, bounds, indptr, indices, own.rows.reshape(-1), 0, other.rows, scores)
        return
    psi = other.rows if k % LANES == 0 and other.has_rows else other.panel(0, k, workers)
    if own.score(indptr, indices, psi, scores, workers):
        return
    part = own.range_vectors(0, k)

    def some(start: int, stop: int) -> None:
        for first in range(start, stop, FEW):
            last = min(first + FEW, stop)
            phi = np.zeros((last - first, psi.shape[1]), psi.dtype)
            phi[:, :k] = part(first, last)
            row_sweep.score(first, last, indptr, indices, phi.reshape(-1), first, psi, scores)

    if own.has_rows:
        workers.run(some, bounds)
    else:  # what is computed may depend on where a range begins: always the same ranges
        workers.chunks(own.shape[0], some)
