"""Vectors of rows as sums of few: fields of levels next to each other are joined while their joint levels are few.

The fields of a side of events have far fewer levels than the side has rows. So its vectors need not be stored, nor gathered from
where they lie: a sum of two or three vectors from tables that stay in the cache takes less than one from memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from everypair.kernels.simd import LANES
from everypair.runtime.numerics import aligned

ROWS_PER_CELL = 256  # fewer, and steps on joint levels cost more than passes over the rows for each field
MOST = 3  # parts of a sum
ROWS_PER_LEVEL = 4  # fewer, and tables are no smaller than the vectors
FEWEST_ROWS = 100_000  # fewer, and their vectors fit into a cache, too; and no more kernels need be compiled


class Coded(NamedTuple):
    """A field of levels: the level of each row, and their number, which is the code of none."""

    codes: np.ndarray
    n: int


class JointField(NamedTuple):
    """Fields that are constant in cells: the numbers of the fields, the cell of each row, and the number of cells (for one field,
    its levels)."""

    fields: tuple[int, ...]
    codes: np.ndarray
    n: int


def join(fields: Sequence[Coded | None]) -> list[JointField]:
    """Fields with those next to them while joint levels are few; None is a field that cannot be joined."""
    found: list[JointField] = []
    for j, field in enumerate(fields):
        both = _joint(found[-1], field) if found and field is not None and fields[found[-1].fields[0]] is not None else None
        if both is not None:
            found[-1] = JointField((*found[-1].fields, j), *both)
        elif field is not None:
            found.append(JointField((j,), field.codes, field.n))
        else:
            found.append(JointField((j,), np.empty(0, np.uint32), 0))
    return found


def _joint(cells: JointField, field: Coded) -> tuple[np.ndarray, int] | None:
    """The combinations of cells and levels that occur, numbered; None if they are too many."""
    n = field.n + 1
    size, rows = (cells.n + 1) * n, len(field.codes)
    if size > 4 * rows:
        return None
    both = cells.codes.astype(np.int64) * n + field.codes
    there = np.zeros(size, bool)
    there[both] = True
    number = np.cumsum(there) - 1
    count = int(number[-1]) + 1
    return (number[both].astype(np.uint32), count) if count * ROWS_PER_CELL <= rows else None


class LevelParts:
    """The parts of the vectors of rows with these fields.

    Parameters
    ----------
    fields : sequence of Coded
    """

    def __init__(self, fields: Sequence[Coded]) -> None:
        self.joint = join(fields)
        self._starts = np.concatenate([[0], np.cumsum([field.n for field in fields])])
        self._of_cells = [self._by_cell(joint, fields) for joint in self.joint]

    @staticmethod
    def of(fields: Sequence[Coded]) -> LevelParts | None:
        """None where there are too many parts, or levels."""
        rows = len(fields[0].codes)
        if rows < FEWEST_ROWS or ROWS_PER_LEVEL * sum(field.n for field in fields) > rows:
            return None
        parts = LevelParts(fields)
        return parts if len(parts.joint) <= MOST else None

    @staticmethod
    def _by_cell(joint: JointField, fields: Sequence[Coded]) -> list[np.ndarray]:
        """The levels of each cell, by field."""
        if len(joint.fields) == 1:
            return []
        _, row = np.unique(joint.codes, return_index=True)
        return [fields[j].codes[row] for j in joint.fields]

    def tables(self, W: np.ndarray) -> list[np.ndarray]:
        """The vectors of the parts in up to sixteen dimensions, with a zero for none; ``W`` has a row for each level of all
        fields."""
        return [self._table(number, W) for number in range(len(self.joint))]

    def _table(self, number: int, W: np.ndarray) -> np.ndarray:
        joint, width = self.joint[number], W.shape[1]
        out = aligned((joint.n + 1, LANES), W.dtype)
        out[...] = 0.0
        of_fields = [W[self._starts[j] : self._starts[j + 1]] for j in joint.fields]
        if len(joint.fields) == 1:
            out[:-1, :width] = of_fields[0]
            return out
        for rows, levels in zip(of_fields, self._of_cells[number], strict=True):
            out[:-1, :width] += np.concatenate([rows, np.zeros((1, width), W.dtype)])[levels]
        return out


def interleaved(codes: Sequence[np.ndarray], tables: Sequence[np.ndarray]) -> list[Any]:
    """The arguments of :class:`~everypair.kernels.panel_simd.Parts`."""
    return [array for pair in zip(codes, tables, strict=True) for array in pair]
