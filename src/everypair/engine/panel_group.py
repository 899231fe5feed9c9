"""Steps of a panel on levels whose rows, or the pairs of these, are divided among a group: the moments of each level are totals."""

from __future__ import annotations

import numpy as np

from everypair.kernels import packing
from everypair.kernels import panel_levels as kernels
from everypair.kernels.newton import SweepSettings
from everypair.kernels.panel_levels import GroupPieces, PanelData, PanelGram, Visits
from everypair.kernels.panel_simd import Moves
from everypair.kernels.simd import LANES
from everypair.runtime.group import Group
from everypair.runtime.parallel import Workers

LEVELS_PER_ROUND = 32_768  # levels whose moments a group adds up at a time
_ROW, _COLUMN = np.triu_indices(LANES)


def _rows(start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
    return np.repeat(np.arange(start, stop), LANES), np.tile(np.arange(LANES), stop - start)


_LINEAR = [_rows(kernels.PAIRS, kernels.PAIRS + 1), (kernels.PAIRS + 1 + _ROW, _COLUMN), _rows(kernels.FIRST, kernels.SHIFTS)]
_PAIRWISE = [*_LINEAR, _rows(kernels.ROWS, kernels.ROWS + 1), (kernels.ROWS + 1 + _ROW, _COLUMN)]


def _joined(parts: list[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """The moments that a step needs, of matrices the upper half."""
    return np.concatenate([row for row, _ in parts]), np.concatenate([column for _, column in parts])


LINEAR, PAIRWISE = _joined(_LINEAR), _joined(_PAIRWISE)


def step_divided(
    group: Group,
    pieces: GroupPieces,
    visits: Visits,
    data: PanelData,
    gram: PanelGram,
    settings: SweepSettings,
    W: np.ndarray,
    moves: Moves,
    workers: Workers,
) -> None:
    """The steps of all levels, each of which has pieces; scores and rows do not follow yet."""
    needed = PAIRWISE if data.pairwise else LINEAR
    for first in range(0, len(W), LEVELS_PER_ROUND):
        last = min(first + LEVELS_PER_ROUND, len(W))
        lo, hi = pieces.bounds[first], pieces.bounds[last]
        here = GroupPieces(np.arange(first, last), pieces.bounds[first : last + 1] - lo, pieces.group[lo:hi], pieces.part[lo:hi])
        moments = np.empty((hi - lo, kernels.SIZE, LANES))
        workers.run(kernels.sum_pieces, range(hi - lo + 1), here, visits, data, moves.base, False, moments)
        n = last - first
        packed, totals = np.empty((n, len(needed[0]))), np.zeros((n, kernels.SIZE, LANES))
        workers.run(packing.pack, workers.even(n), here.bounds, moments, *needed, packed)
        workers.run(packing.unpack, workers.even(n), group.total(packed), *needed, totals)
        kernels.step_long(here._replace(bounds=np.arange(n + 1)), totals, gram, settings, W, moves)
