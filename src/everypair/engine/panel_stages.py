"""The stages of a panel sweep that are exact by coordinate: one-hot fields (several that share a pass are in
:mod:`everypair.engine.panel_cells`)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from everypair.columns.fields import OneHotField, SparseField
from everypair.columns.table import Levels
from everypair.engine.blocks import FieldBlock, LevelBlock
from everypair.engine.panel_group import step_divided
from everypair.kernels import panel_levels as kernels
from everypair.kernels.newton import SweepSettings
from everypair.kernels.panel_levels import GroupPieces, PanelData, PanelGram, Visits
from everypair.kernels.panel_simd import EventLevels, Moves, PairVisits, RowVisits
from everypair.kernels.row_sweep import SHARED
from everypair.kernels.simd import LANES
from everypair.runtime.group import ALONE, Group
from everypair.runtime.numerics import Values
from everypair.runtime.parallel import Workers


class SideRows(NamedTuple):
    """Which pairs the rows of a side have: ``indptr``, and whether row c has the pair c and no other; and the members of the group
    among whom rows are divided or, if these are ``replicated``, the pairs of each row."""

    indptr: np.ndarray
    by_event: bool
    group: Group = ALONE
    replicated: bool = False

    def group_of(self, block: LevelBlock | FieldBlock) -> Group:
        """The members among whom the sums of a block's levels are divided."""
        field = block.field if isinstance(block, FieldBlock) else block.levels
        return ALONE if not self.replicated and (field is None or field.local) else self.group

    @property
    def n(self) -> int:
        return len(self.indptr) - 1


class PanelViews(NamedTuple):
    """The data of a panel for sums over the visits of a stage, and for what follows in the order of the rows; the same unless
    vectors are sums of parts."""

    visits: PanelData
    rows: PanelData


class Groups:
    """Rows in groups, with their pairs: how their visits are shared out among threads.

    Parameters
    ----------
    rows : SideRows
    bounds, members : arrays
        Group g has the rows ``members[bounds[g]:bounds[g + 1]]``.
    dtype : numpy dtype
    workers : Workers
    values : number or array
        The feature value of each member.
    every : bool
        Whether groups of any size are cut into pieces, not only the long ones.
    """

    def __init__(
        self,
        rows: SideRows,
        bounds: np.ndarray,
        members: np.ndarray,
        dtype: np.dtype,
        workers: Workers,
        values: Values = 1.0,
        every: bool = False,
    ) -> None:
        self._visited: dict[int, np.ndarray] = {}
        x, x_step = np.atleast_1d(np.asarray(values, dtype)), np.ndim(values)
        pair_x = x
        members = np.ascontiguousarray(members, np.int32 if rows.n < 2**31 else np.int64)
        pair_bounds, pair_row, pair = bounds, members, members
        if not rows.by_event:
            lengths = np.diff(rows.indptr)[members]
            before = np.concatenate([[0], np.cumsum(lengths)])
            pair_bounds, pair_row = before[bounds], np.repeat(members, lengths)
            pair = np.arange(before[-1]) + np.repeat(rows.indptr[members] - before[:-1], lengths)
            pair = pair.astype(np.int32 if before[-1] < 2**31 else np.int64)
            pair_x = np.repeat(x, lengths) if x_step else x
        self.visits = Visits(
            PairVisits(pair_row, pair, pair_x, x_step),
            RowVisits(members, x, x_step),
            pair_bounds.astype(np.int64),
            bounds.astype(np.int64),
        )
        most = np.maximum(np.diff(pair_bounds), np.diff(bounds))
        long = np.arange(len(most)) if every else np.flatnonzero(most > SHARED)
        counts = np.maximum(-(-most[long] // SHARED), 1)
        edges = np.concatenate([[0], np.cumsum(counts)])
        part = np.arange(edges[-1]) - np.repeat(edges[:-1], counts)
        self.pieces = GroupPieces(long, edges, np.repeat(long, counts), part)
        work = np.where(most > SHARED, 0, np.diff(pair_bounds) + np.diff(bounds))
        self.ranges = workers.split(np.concatenate([[0], np.cumsum(work)]))

    def visited(self, key: int, codes: np.ndarray, indices: np.ndarray | None = None) -> np.ndarray:
        """``codes`` of rows in the order of the visits to them; with ``indices``, the other side's row of each pair, those of the
        other side's rows in the order of the visits to pairs. The same array for the same key."""
        if key not in self._visited:
            rows = self.visits.rows.row if indices is None else indices[self.visits.pairs.pair]
            follow = len(rows) == len(codes) and np.array_equal(rows, np.arange(len(rows)))
            self._visited[key] = codes if follow else codes[rows]
        return self._visited[key]

    @property
    def n_pieces(self) -> int:
        return len(self.pieces.group)

    def move(self, data: PanelData, gram: PanelGram, moves: Moves, workers: Workers) -> None:
        """Scores and rows of the groups that were cut, after their steps."""
        tasks = range(self.n_pieces + 1)
        workers.run(kernels.move_scores, tasks, self.pieces, self.visits, data, moves)
        workers.run(kernels.move_states, tasks, self.pieces, self.visits, data, gram, moves)


class GroupStage:
    """A stage that visits the rows of groups; on a side of events each row has a code, which names its group."""

    _groups: Groups
    _events: EventLevels | None

    @property
    def codes(self) -> np.ndarray:
        """The group of each row of a side of events."""
        assert self._events is not None
        return self._events.codes

    def visited(self, key: int, codes: np.ndarray) -> np.ndarray:
        """The codes of another field, number ``key``, in the order of the visits to rows."""
        return self._groups.visited(key, codes)


class LevelStage(GroupStage):
    """A one-hot field: every level is a row of matrix factorization over the rows that have it, with value one or any other."""

    def __init__(self, block: LevelBlock | FieldBlock, rows: SideRows, dtype: np.dtype, workers: Workers) -> None:
        self.blocks, self._workers = [block], workers
        self._group = rows.group_of(block)
        of_levels, divided = rows_of_levels(block, rows.n), self._group.divided
        self._groups = Groups(rows, *of_levels, dtype, workers, values_of(block), every=divided)
        self._events = event_levels(block, rows.n, dtype) if rows.by_event else None

    def visited_pairs(self, key: int, codes: np.ndarray, indices: np.ndarray) -> np.ndarray:
        """The codes of the other side's rows, number ``key``, in the order of the visits to pairs."""
        return self._groups.visited(key, codes, indices)

    def table(self, tables: list[np.ndarray]) -> np.ndarray:
        """The vectors of the levels."""
        return tables[0]

    def sweep(self, data: PanelViews, gram: PanelGram, tables: list[np.ndarray], settings: list[SweepSettings]) -> None:
        """Steps on the vectors ``tables[0]`` of the field's levels."""
        (W,), (of_field,), groups, run = tables, settings, self._groups, self._workers.run
        moves = Moves(W.copy(), np.zeros_like(W), np.zeros(len(W), W.dtype), np.zeros(len(W), W.dtype))
        if self._group.divided:
            step_divided(self._group, groups.pieces, groups.visits, data.visits, gram, of_field, W, moves, self._workers)
        elif groups.n_pieces:
            moments, tasks = np.empty((groups.n_pieces, kernels.SIZE, LANES)), range(groups.n_pieces + 1)
            run(kernels.sum_pieces, tasks, groups.pieces, groups.visits, data.visits, moves.base, False, moments)
            kernels.step_long(groups.pieces, moments, gram, of_field, W, moves)
        if groups.n_pieces and self._events is None:
            groups.move(data.visits, gram, moves, self._workers)
        if not self._group.divided:
            run(kernels.sweep, groups.ranges, groups.visits, data.visits, gram, of_field, self._events is not None, W, moves)
        if self._events is not None:
            follow_events(self._events, data.rows, gram, moves, self._workers)


def follow_events(events: EventLevels, data: PanelData, gram: PanelGram, moves: Moves, workers: Workers) -> None:
    """Scores and rows of a side of events after the steps of levels, or of cells."""
    moves = moves._replace(along=(moves.delta @ gram.v).astype(moves.delta.dtype))
    workers.run(kernels.follow_events, workers.even(len(events.codes)), events, data, gram, moves)


def rows_of_levels(block: LevelBlock | FieldBlock, n_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Where the rows of each level (or feature of a one-hot field) begin, and the rows, level by level."""
    levels = block.field if isinstance(block, FieldBlock) else block.levels
    if levels is None:
        return np.arange(n_rows + 1), np.arange(n_rows)
    if isinstance(levels, Levels):
        return levels.groups
    assert isinstance(levels, OneHotField | SparseField)
    return levels.columns.arrays.indptr, levels.columns.arrays.indices


def values_of(block: LevelBlock | FieldBlock) -> Values:
    """The feature values of these rows, or one for all."""
    if isinstance(block, LevelBlock):
        return 1.0
    assert isinstance(block.field, SparseField)
    return block.field.columns.arrays.values


def event_levels(block: LevelBlock | FieldBlock, n_rows: int, dtype: np.dtype) -> EventLevels:
    """The level of each row, and its feature value."""
    one = np.ones(1, dtype)
    if isinstance(block, LevelBlock):
        if block.levels is None:
            return EventLevels(np.arange(n_rows, dtype=np.int32 if n_rows < 2**31 else np.int64), one, 0)
        if isinstance(block.levels, OneHotField):
            return EventLevels(block.levels.codes, one, 0)
        return EventLevels(codes_of(block).astype(np.uint32), one, 0)
    assert isinstance(block.field, SparseField)
    indptr, indices, values = block.field.rows.arrays
    there = np.diff(indptr) > 0
    codes, x = np.full(n_rows, block.field.shape[1], np.uint32), np.zeros(n_rows, dtype)
    codes[there], x[there] = indices, values
    return EventLevels(codes, x, 1)


def has_levels(block: LevelBlock | FieldBlock) -> bool:
    """Whether no row has more than one feature, so that the features are levels."""
    return isinstance(block, LevelBlock) or (isinstance(block.field, SparseField) and block.field.one_hot)


def codes_of(block: LevelBlock) -> np.ndarray:
    """The level of each row, the number of levels for none."""
    levels = block.levels
    if isinstance(levels, OneHotField):
        return levels.codes.astype(np.int64)
    assert isinstance(levels, Levels)
    return np.where(levels.codes < 0, levels.n, levels.codes).astype(np.int64)


def n_levels(block: LevelBlock) -> int:
    """The number of levels of its column."""
    levels = block.levels
    assert levels is not None
    return levels.shape[1] if isinstance(levels, OneHotField) else levels.n
