"""The stages of one-hot fields that share a pass over the rows: fields that are constant in few groups of rows, and a field with
others that are constant in each of its levels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from everypair.engine.blocks import LevelBlock
from everypair.engine.level_parts import Coded, distinct, first_rows, join
from everypair.engine.panel_stages import (
    Groups,
    GroupStage,
    LevelStage,
    PanelViews,
    SideRows,
    codes_of,
    event_levels,
    follow_events,
    n_levels,
    rows_of_levels,
)
from everypair.kernels import panel_cells, panel_levels
from everypair.kernels.newton import SweepSettings
from everypair.kernels.order import grouped
from everypair.kernels.panel_cells import Cells, NestedLevels
from everypair.kernels.panel_levels import SIZE, GroupPieces, PanelGram
from everypair.kernels.panel_simd import EventLevels, Moves
from everypair.kernels.row_sweep import SHARED
from everypair.kernels.simd import LANES
from everypair.runtime.parallel import Workers


class CellStage(GroupStage):
    """Several one-hot fields that are constant in each of a few groups of rows: two passes over the rows serve them all."""

    _events: EventLevels

    def __init__(self, blocks: Sequence[LevelBlock], cells: np.ndarray, rows: SideRows, dtype: np.dtype, workers: Workers) -> None:
        self.blocks, self._workers, self._dtype = list(blocks), workers, dtype
        self._n = int(cells.max(initial=0)) + 1
        bounds, members = grouped(cells, self._n, np.int64)
        self._events = EventLevels(cells.astype(np.uint32), np.ones(1, dtype), 0)
        self._groups = Groups(rows, bounds, members, dtype, workers, every=True)
        codes = [codes_of(block)[members[bounds[:-1]]] for block in blocks]
        self._codes = codes  # of the fields, by cell; the number of levels for none
        self._members = [_without_none(code, n_levels(block)) for code, block in zip(codes, blocks, strict=True)]

    def table(self, tables: list[np.ndarray]) -> np.ndarray:
        """The vectors of the cells: sums over the fields."""
        return _sums_of_levels(tables, self._codes, self._n, self._dtype)

    def sweep(self, data: PanelViews, gram: PanelGram, tables: list[np.ndarray], settings: list[SweepSettings]) -> None:
        """Steps on the vectors of all fields, one field after the other."""
        groups, run, bases = self._groups, self._workers.run, self.table(tables)
        tasks, of_pieces = range(groups.n_pieces + 1), np.empty((groups.n_pieces, SIZE, LANES))
        run(panel_levels.sum_pieces, tasks, groups.pieces, groups.visits, data.visits, bases, True, of_pieces)
        moments = np.empty((self._n, SIZE, LANES))
        panel_cells.gather_cells(groups.pieces, of_pieces, moments)
        cells = Cells(moments, bases.astype(np.float64), np.zeros((self._n, LANES)), np.zeros(self._n))
        for W, (bounds, members), of_field in zip(tables, self._members, settings, strict=True):
            panel_cells.step_cells(bounds, members, cells, gram, of_field, W)
        shifts = cells.shifts.astype(self._dtype)
        follow_events(self._events, data.rows, gram, Moves(bases, cells.moved.astype(self._dtype), shifts, shifts), self._workers)


class NestedStage(GroupStage):
    """A one-hot field and others that are constant in each of its levels, as users and their attributes: one pass over the rows
    serves all, and the others take the moments of cells.

    Parameters
    ----------
    blocks : sequence of LevelBlock
        The field whose levels these are, and the others.
    codes : array
        The level of each row; every row has one.
    rows : SideRows
    dtype : numpy dtype
    workers : Workers
    """

    _events: EventLevels

    def __init__(self, blocks: Sequence[LevelBlock], codes: np.ndarray, rows: SideRows, dtype: np.dtype, workers: Workers) -> None:
        self.blocks, self._workers, self._dtype = list(blocks), workers, dtype
        self._events = event_levels(blocks[0], rows.n, dtype)
        self._groups = groups = Groups(rows, *rows_of_levels(blocks[0], rows.n), dtype, workers)
        n, first = n_levels(blocks[0]), first_rows(codes, n_levels(blocks[0]))
        assert first is not None
        self._codes, cell = distinct([codes_of(block)[first] for block in blocks[1:]])  # of the other fields, by cell
        self._members = [_without_none(code, n_levels(block)) for code, block in zip(self._codes, blocks[1:], strict=True)]
        self._n_cells, self._n = len(self._codes[0]), n
        sizes = np.diff(groups.visits.row_bounds)
        self._nested, self._pieces = _pieces_of_cells(cell, self._n_cells, sizes)
        self._nested.long[groups.pieces.long] = np.arange(len(groups.pieces.long))
        work = np.concatenate([[0], np.cumsum(np.where(self._nested.long < 0, 2 * sizes, 0)[self._nested.level])])
        self._ranges = workers.split(work[self._nested.bounds])

    def table(self, tables: list[np.ndarray]) -> np.ndarray:
        """The vectors of the levels with those of their cells."""
        return tables[0] + self._of_cells(tables)[self._nested.cell]

    def _of_cells(self, tables: list[np.ndarray]) -> np.ndarray:
        return _sums_of_levels(tables[1:], self._codes, self._n_cells, self._dtype)

    def sweep(self, data: PanelViews, gram: PanelGram, tables: list[np.ndarray], settings: list[SweepSettings]) -> None:
        """Steps on the vectors of the levels, then on those of the other fields, one field after the other."""
        (W, *others), (of_levels, *of_others) = tables, settings
        groups, nested, pieces, run = self._groups, self._nested, self._pieces, self._workers.run
        vectors, base = self._of_cells(tables).astype(np.float64), self.table(tables)
        moves = Moves(base, np.zeros_like(W), np.zeros(self._n, W.dtype), np.zeros(self._n, W.dtype))
        of_long = np.empty((len(groups.pieces.long), SIZE, LANES))
        if groups.n_pieces:
            parts, tasks = np.empty((groups.n_pieces, SIZE, LANES)), range(groups.n_pieces + 1)
            run(panel_levels.sum_pieces, tasks, groups.pieces, groups.visits, data.visits, base, True, parts)
            panel_cells.total_long(groups.pieces, parts, of_long)
        of_pieces, moments = np.empty((len(pieces.group), SIZE, LANES)), np.empty((self._n_cells, SIZE, LANES))
        run(
            panel_cells.sweep_nested, self._ranges, nested, groups.visits, data.visits, gram, of_levels, vectors, W,
            moves, of_long, of_pieces,
        )  # fmt: skip
        panel_cells.gather_cells(pieces, of_pieces, moments)
        cells = Cells(moments, vectors, np.zeros((self._n_cells, LANES)), np.zeros(self._n_cells))
        for table, (bounds, members), of_field in zip(others, self._members, of_others, strict=True):
            panel_cells.step_cells(bounds, members, cells, gram, of_field, table)
        panel_cells.follow_cells(0, self._n, nested.cell, cells, W, moves)
        follow_events(self._events, data.rows, gram, moves, self._workers)


def _pieces_of_cells(cell: np.ndarray, n_cells: int, rows: np.ndarray) -> tuple[NestedLevels, GroupPieces]:
    """Levels in the order of their cells, in pieces of one cell with about SHARED rows: of fixed size, since sums depend on it."""
    bounds, levels = grouped(cell, n_cells, np.int64)
    before = np.concatenate([[0], np.cumsum(rows[levels])])
    part = (before[:-1] - before[bounds[cell[levels]]]) // SHARED  # of each level, within its cell
    of_level = cell[levels]
    starts = np.flatnonzero(np.append(True, (np.diff(of_level) != 0) | (np.diff(part) != 0)))
    group = of_level[starts]
    edges = np.searchsorted(group, np.arange(n_cells + 1))
    pieces = GroupPieces(np.arange(n_cells), edges, group, np.arange(len(group)) - edges[group])
    return NestedLevels(levels, np.append(starts, len(levels)), cell, np.full(len(cell), -1, np.int64)), pieces


def _sums_of_levels(tables: Sequence[np.ndarray], codes: Sequence[np.ndarray], n: int, dtype: np.dtype) -> np.ndarray:
    """The vectors of n cells: sums over fields with these codes, one past the last for none."""
    total = np.zeros((n, LANES), dtype)
    for W, of_field in zip(tables, codes, strict=True):
        total += np.concatenate([W, np.zeros((1, LANES), W.dtype)])[of_field]
    return total


OneHotStage = LevelStage | CellStage | NestedStage


def level_stages(blocks: Sequence[LevelBlock], rows: SideRows, dtype: np.dtype, workers: Workers) -> list[OneHotStage]:
    """Stages for one-hot fields, in their order: those of events next to each other share one where they can."""
    if not rows.by_event or rows.group.divided:
        return [LevelStage(block, rows, dtype, workers) for block in blocks]
    coded = [None if block.levels is None else Coded(codes_of(block), n_levels(block)) for block in blocks]
    found: list[OneHotStage] = []
    for joint in join(coded):
        members = [blocks[j] for j in joint.fields]
        if len(members) == 1:
            found.append(LevelStage(members[0], rows, dtype, workers))
        elif joint.nested:
            found.append(NestedStage(members, joint.codes, rows, dtype, workers))
        else:
            found.append(CellStage(members, joint.codes, rows, dtype, workers))
    return found


def _without_none(codes: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Cells by level, without those that have none."""
    bounds, members = grouped(codes, n + 1, np.int64)
    return bounds[: n + 1], members
