"""The sweep of a side's features in panels of sixteen dimensions: the outer loop, and the state that its stages share.

Dimension by dimension, every pass over the rows and pairs does the arithmetic of one dimension and waits for memory. A panel does
that of sixteen with the same reads: a level's vector meets sums of sixteen numbers and matrices of sixteen by sixteen in registers.
The order of steps is panel, field, level, dimension; each is the exact minimum of its coordinate
(:mod:`everypair.kernels.panel_levels`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from everypair.engine.binding import StepSettings
from everypair.engine.blocks import OTHER, SUM, Block, FieldBlock, LevelBlock
from everypair.engine.level_parts import FEWEST_ROWS
from everypair.engine.panel_cells import level_stages
from everypair.engine.panel_fields import FieldStage
from everypair.engine.panel_sources import PanelSources
from everypair.engine.panel_stages import LevelStage, PanelViews, SideRows, has_levels, n_levels, rows_of_levels
from everypair.engine.vectors import Vectors
from everypair.kernels.jit import slice_of
from everypair.kernels.newton import SweepSettings
from everypair.kernels.pairs import Observed
from everypair.kernels.panel_levels import PanelData, PanelGram
from everypair.kernels.panel_simd import PanelPairs, RowState
from everypair.kernels.simd import LANES
from everypair.runtime.numerics import Values, lost_decrease, tiny
from everypair.runtime.parallel import Workers


class SideVectors(NamedTuple):
    """Vectors of both sides, and the Gram of the other."""

    own: Vectors
    other: Vectors
    J: np.ndarray


class PanelPlan:
    """The stages in which the blocks of a side are swept: made once for a fit."""

    def __init__(self, blocks: Sequence[Block], rows: SideRows, dtype: np.dtype, workers: Workers) -> None:
        self.first, self.last, self.bias = _range_of(blocks)
        self.rows, self.dtype, self.workers = rows, dtype, workers
        self.stages: list[Any] = []
        self.blocks: list[LevelBlock | FieldBlock] = []
        levels: list[LevelBlock] = []
        for block in blocks:
            assert isinstance(block, LevelBlock | FieldBlock)
            self.blocks.append(block)
            if isinstance(block, LevelBlock):
                levels.append(block)
                continue
            self.stages += level_stages(levels, rows, dtype, workers)
            self.stages.append((LevelStage if has_levels(block) else FieldStage)(block, rows, dtype, workers))
            levels = []
        self.stages += level_stages(levels, rows, dtype, workers)
        if len(self.blocks) == 1 and has_levels(self.blocks[0]) and rows.indptr[-1] >= FEWEST_ROWS:
            self.bias = None  # a row has one feature: there are no pairwise terms, but kernels with them are compiled already

    def sweep(
        self, observed: Observed, weight: Values, vectors: SideVectors, settings: StepSettings, row_sizes: np.ndarray | None
    ) -> None:
        """Every block once. Scores follow, and ``vectors.own``; ``row_sizes`` are the sizes of what rows' gradients are made of,
        where parameters have no L2."""
        own, other, J = vectors
        q, dtype, workers = self.bias, self.dtype, self.workers
        of = {id(block): self._settings(block, settings, row_sizes) for stage in self.stages for block in stage.blocks}
        pairs = _weighted(observed, dtype)
        weight = np.atleast_1d(np.asarray(weight, dtype))
        before = phi_q = t = psi_q = None
        if q is not None:
            before, psi_q = own.dim(q), _constant(np.ascontiguousarray(other.dim(q), dtype))
            phi_q, t = before.copy(), np.empty(self.rows.n, dtype)
            own.combine(J[q], t, workers)
        sources = PanelSources(self.stages, self.rows, own, other, observed.indices)
        for first in range(self.first, self.last, LANES):
            last = min(first + LANES, self.last)
            rest = self._rest(own, J, first, last)
            state = RowState(weight, int(len(weight) > 1), rest, LANES if len(rest) > LANES else 0, phi_q, t)
            gram = _panel_gram(J, first, last, q, rest if len(rest) == LANES else np.zeros(LANES))
            self._sweep_panel((first, last), sources, pairs, psi_q, state, gram, of)
        own.release()
        if q is not None and phi_q is not None:
            own.advance(q, phi_q - before, workers)

    def _sweep_panel(
        self,
        panel: tuple[int, int],
        sources: PanelSources,
        pairs: PanelPairs,
        psi_q: np.ndarray | None,
        state: RowState,
        gram: PanelGram,
        settings: dict[int, SweepSettings],
    ) -> None:
        """All stages in some of the dimensions. The tables of levels, which may be large, end with it."""
        (first, last), kind = panel, (self.bias is not None, self.rows.by_event)
        tables = [[_table(block, first, last) for block in stage.blocks] for stage in self.stages]
        of_stages = [stage.table(of_stage) for stage, of_stage in zip(self.stages, tables, strict=True)]
        sources.begin(first, last, of_stages, self.workers)
        for number, stage in enumerate(self.stages):
            views = PanelViews(*(PanelData(pairs, of_view, state, *kind) for of_view in sources.views(number, psi_q)))
            stage.sweep(views, gram, tables[number], [settings[id(block)] for block in stage.blocks])
            sources.moved(number, stage.table(tables[number]))
            for block, W in zip(stage.blocks, tables[number], strict=True):
                _rows_of(block, first, last)[...] = W[:, : last - first]
        sources.end(first, last)

    def _settings(self, block: LevelBlock | FieldBlock, settings: StepSettings, row_sizes: np.ndarray | None) -> SweepSettings:
        penalty = _penalty(block)
        lost: Values = 0.0
        if row_sizes is not None and has_levels(block):
            sums = _sums(block, row_sizes)
            if not self.rows.replicated:  # sizes of rows are complete, sums over them are not
                sums = self.rows.group_of(block).total(sums)
            lost = np.where(penalty == 0.0, lost_decrease(self.dtype) * sums, 0.0)
        return SweepSettings(penalty, settings.step_size, tiny(self.dtype), lost, 0.0)

    def _rest(self, own: Vectors, J: np.ndarray, first: int, last: int) -> np.ndarray:
        """``J phi`` in these dimensions without their own share and that of the bias dimension: one vector if it is the same for
        all rows, else one for each, end to end."""
        beside = J[first:last].copy()
        beside[:, first:last] = 0.0
        if self.bias is not None:
            beside[:, self.bias] = 0.0
        constant = np.zeros(LANES)
        for f in np.flatnonzero(beside.any(axis=0)).tolist():
            if not self.first <= f < self.last and len(phi := own.dim(f)) and np.all(phi == phi[0]):
                constant[: last - first] += beside[:, f] * float(phi[0])
                beside[:, f] = 0.0
        if not beside.any():
            return constant.astype(self.dtype)
        out = np.empty((self.rows.n, LANES), self.dtype)
        out[:] = constant
        product = own.range_products(np.ascontiguousarray(beside.T, self.dtype))

        def some(start: int, stop: int) -> None:
            out[start:stop, : last - first] += product(start, stop)

        self.workers.chunks(self.rows.n, some)
        return out.reshape(-1)


def _constant(psi_q: np.ndarray) -> np.ndarray:
    """One number in place of an array of equal ones."""
    return psi_q[:1] if len(psi_q) and np.all(psi_q == psi_q[0]) else psi_q


def lacks_l2(block: LevelBlock | FieldBlock, n_rows: int) -> bool:
    """Whether a level has rows, but no L2."""
    if not has_levels(block) or not np.any(_penalty(block) == 0.0):
        return False
    bounds, _ = rows_of_levels(block, n_rows)
    return bool(np.any((_penalty(block) == 0.0) & (np.diff(bounds) > 0)))


def can_sweep(blocks: Sequence[Block] | None, settings: StepSettings) -> bool:
    """Whether panels can sweep these blocks: vectors and weights in the same dimensions, that meet the other side's vectors alone
    or, in a factorization machine, also the sum over the row's other features."""
    if not blocks or settings.block_size != 1 or settings.field_solver == "cd":
        return False
    for block in blocks:
        if not isinstance(block, LevelBlock | FieldBlock) or block.partner not in (OTHER, SUM):
            return False
        if block.parameter.by_row.ndim != 2:
            return False
    return len({_shape(block) for block in blocks}) == 1  # type: ignore[arg-type]


def _shape(block: LevelBlock | FieldBlock) -> tuple[int, int, int | None, str]:
    return block.dimension, block.parameter.by_row.shape[1], block.bias, block.partner


def _range_of(blocks: Sequence[Block]) -> tuple[int, int, int | None]:
    block = blocks[0]
    assert isinstance(block, LevelBlock | FieldBlock)
    first, k, bias, _ = _shape(block)
    return first, first + k, bias


def _size(block: LevelBlock | FieldBlock) -> int:
    if isinstance(block, FieldBlock):
        return block.field.shape[1]
    if block.levels is None:
        return len(block.parameter.by_row) - block.start
    return n_levels(block)


def _rows_of(block: LevelBlock | FieldBlock, first: int, last: int) -> np.ndarray:
    """The parameters of a block in dimensions ``first:last`` of phi."""
    rows = slice(block.start, block.start + _size(block))
    return block.parameter.by_row[rows, first - block.dimension : last - block.dimension]


def _table(block: LevelBlock | FieldBlock, first: int, last: int) -> np.ndarray:
    """A copy of these, padded with zeros to sixteen."""
    values = _rows_of(block, first, last)
    table = np.zeros((len(values), LANES), values.dtype)
    table[:, : last - first] = values
    return table


def _penalty(block: LevelBlock | FieldBlock) -> Values:
    penalty = block.parameter.penalty
    return float(penalty) if np.ndim(penalty) == 0 else slice_of(np.ravel(penalty), block.start, block.start + _size(block))


def _sums(block: LevelBlock | FieldBlock, of_rows: np.ndarray) -> np.ndarray:
    """Sums over the rows of each level."""
    bounds, members = rows_of_levels(block, len(of_rows))
    total = np.concatenate([[0.0], np.cumsum(of_rows[members], dtype=np.float64)])
    return total[bounds[1:]] - total[bounds[:-1]]


def _weighted(observed: Observed, dtype: np.dtype) -> PanelPairs:
    a, b = (np.asarray(np.atleast_1d(x), dtype) for x in (observed.a, observed.b))
    return PanelPairs(observed.indices, observed.scores, a, np.ndim(observed.a), b, np.ndim(observed.b))


def _panel_gram(J: np.ndarray, first: int, last: int, q: int | None, rest: np.ndarray) -> PanelGram:
    A, v = np.zeros((LANES, LANES)), np.zeros(LANES)
    A[: last - first, : last - first] = J[first:last, first:last]
    if q is None:
        return PanelGram(A, v, 0.0, rest.astype(np.float64))
    v[: last - first] = J[first:last, q]
    return PanelGram(A, v, float(J[q, q]), rest.astype(np.float64))
