"""Where the sweep of a panel takes vectors from: stored side by side for all rows, or sums of a few that stay in the cache."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from everypair.engine.level_parts import MOST, interleaved
from everypair.engine.panel_cells import OneHotStage
from everypair.engine.panel_stages import SideRows
from everypair.engine.vectors import Vectors
from everypair.kernels.panel_simd import PanelTables, Parts
from everypair.runtime.numerics import aligned
from everypair.runtime.parallel import Workers


class PanelSources:
    """The vectors of both sides in a panel, as each stage of a sweep needs them.

    Parameters
    ----------
    stages : sequence of stages
    rows : SideRows
    own, other : Vectors
    indices : array
        The other side's row of each pair.
    """

    def __init__(self, stages: Sequence[Any], rows: SideRows, own: Vectors, other: Vectors, indices: np.ndarray) -> None:
        self._stages, self._rows, self._own, self._other, self._indices = stages, rows, own, other, indices
        only_levels = all(isinstance(stage, OneHotStage) for stage in stages)
        parts = own.level_parts
        self._own_parts = (
            only_levels
            and rows.by_event
            and 1 < len(stages) <= MOST + 1
            and parts is not None
            and [len(joint.fields) for joint in parts.joint] == [len(stage.blocks) for stage in stages]
        )
        self._other_parts = only_levels and not rows.by_event and other.level_parts is not None

    def begin(self, first: int, last: int, tables: list[np.ndarray], workers: Workers) -> None:
        """Take the vectors of dimensions ``first:last``; ``tables`` are those of the stages."""
        self._tables = [_with_none(table) for table in tables] if self._own_parts else []
        self._F = None if self._own_parts else self._own.panel(first, last, workers)
        self._of_other = self._other.part_tables(first, last) if self._other_parts else []
        self._psi = None if self._other_parts else self._other.panel(first, last, workers)

    def views(self, number: int, psi_q: np.ndarray | None) -> tuple[PanelTables, PanelTables]:
        """For sums over the visits of a stage, and for what follows in the order of the rows."""
        step = 0 if psi_q is None or len(psi_q) == 1 else 1
        if not self._own_parts:
            tables = PanelTables(self._psi, psi_q, step, self._F, None, self._other_of(number))
            return tables, tables
        others = [j for j in range(len(self._stages)) if j != number]
        of_rows = [self._stages[j].codes for j in others]
        of_visits = [self._stages[number].visited(j, codes) for j, codes in zip(others, of_rows, strict=True)]
        of_others = [self._tables[j] for j in others]
        by_visit, by_row = (Parts(*interleaved(codes, of_others)) for codes in (of_visits, of_rows))
        return PanelTables(self._psi, psi_q, step, None, by_visit), PanelTables(self._psi, psi_q, step, None, by_row)

    def _other_of(self, number: int) -> Parts | None:
        parts = self._other.level_parts
        if not self._other_parts or parts is None:
            return None
        codes = [self._stages[number].visited_pairs(j, joint.codes, self._indices) for j, joint in enumerate(parts.joint)]
        return Parts(*interleaved(codes, self._of_other))

    def moved(self, number: int, table: np.ndarray) -> None:
        """Take the vectors of a stage after its steps."""
        if self._own_parts:
            self._tables[number][:-1] = table

    def end(self, first: int, last: int) -> None:
        """Hand the vectors of this side back."""
        if self._F is None:
            self._own.forget()
        else:
            self._own.replace(first, last, self._F)


def _with_none(table: np.ndarray) -> np.ndarray:
    out = aligned((len(table) + 1, table.shape[1]), table.dtype)
    out[:-1] = table
    out[-1] = 0.0
    return out
