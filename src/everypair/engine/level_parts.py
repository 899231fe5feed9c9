"""Vectors of rows as sums of few: fields of levels next to each other are joined while their joint levels are few.

The fields of a side of events have far fewer levels than the side has rows. So its vectors need not be stored, nor gathered from
where they lie: a sum of two or three vectors from tables that stay in the cache takes less than one from memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from everypair.kernels import row_parts
from everypair.kernels.simd import LANES
from everypair.runtime.numerics import Values, aligned
from everypair.runtime.parallel import Workers

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
    its levels).

    ``nested``: the cells are the levels of the first field, and in each of them the others are constant, as attributes of users.
    """

    fields: tuple[int, ...]
    codes: np.ndarray
    n: int
    nested: bool = False


def join(fields: Sequence[Coded | None]) -> list[JointField]:
    """Fields with those next to them while joint levels are few, or those of the first; None is a field that cannot be joined."""
    found: list[JointField] = []
    for j, field in enumerate(fields):
        if field is None:
            found.append(JointField((j,), np.empty(0, np.uint32), 0))
            continue
        both = None
        if found and fields[found[-1].fields[0]] is not None:
            both = _combined(found[-1], j, field) or _nested(found[-1], j, fields)
        if both is not None:
            found[-1] = both
        else:
            found.append(JointField((j,), field.codes, field.n))
    return found


def _combined(cells: JointField, j: int, field: Coded) -> JointField | None:
    """The combinations of cells and levels of field j that occur, numbered; None if they are too many."""
    n = field.n + 1
    size, rows = (cells.n + 1) * n, len(field.codes)
    if cells.nested or size > 4 * rows:
        return None
    both = cells.codes.astype(np.int64) * n + field.codes
    there = np.zeros(size, bool)
    there[both] = True
    number = np.cumsum(there) - 1
    count = int(number[-1]) + 1
    if count * ROWS_PER_CELL > rows:
        return None
    return JointField((*cells.fields, j), number[both].astype(np.uint32), count)


def _nested(cells: JointField, j: int, fields: Sequence[Coded | None]) -> JointField | None:
    """The levels of a field with one more that is constant in them; None if it is not, or if cells of the others are too many."""
    field = fields[j]
    if field is None or (len(cells.fields) > 1 and not cells.nested):
        return None
    row = first_rows(cells.codes, cells.n)
    if row is None or not np.array_equal(field.codes[row][cells.codes], field.codes):
        return None
    members = (*cells.fields, j)
    inner, _ = distinct([fields[other].codes[row] for other in members[1:]])  # type: ignore[union-attr]
    return JointField(members, cells.codes, cells.n, True) if len(inner[0]) * ROWS_PER_CELL <= len(field.codes) else None


def first_rows(codes: np.ndarray, n: int) -> np.ndarray | None:
    """A row of each of n cells, the first there is (row 0 for cells without rows); None if there are rows without a cell."""
    if len(codes) == 0 or codes.max() >= n:
        return None
    first = np.zeros(n, np.int64)
    first[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)
    return first


def distinct(columns: Sequence[np.ndarray]) -> tuple[list[np.ndarray], np.ndarray]:
    """The combinations of entries that columns have, as columns, and which of them is in each row."""
    number = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        _, number = np.unique(number * (int(column.max(initial=0)) + 1) + column, return_inverse=True)
    first = first_rows(number, int(number.max(initial=-1)) + 1)
    assert first is not None
    return [column[first] for column in columns], number


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
        self._weights: tuple[Values, list[np.ndarray]] | None = None

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
        row = first_rows(joint.codes, joint.n)
        assert row is not None
        levels = [fields[j].codes[row] for j in joint.fields]
        if joint.nested:  # levels without rows are cells all the same
            levels[0] = np.arange(joint.n, dtype=np.uint32)
        return levels

    @property
    def codes(self) -> list[np.ndarray]:
        """The entry that each row has in the table of each part."""
        return [joint.codes for joint in self.joint]

    def tables(self, W: np.ndarray) -> list[np.ndarray]:
        """The vectors of the parts, with a zero for none, padded with zeros to a multiple of sixteen dimensions.

        ``W`` has a row for each level of all fields.
        """
        width = W.shape[1]
        return [self._table(number, W, -(-width // LANES) * LANES) for number in range(len(self.joint))]

    def add_sums(self, w: np.ndarray, out: np.ndarray, workers: Workers) -> None:
        """``out += sum w_l`` over the levels l of each row."""
        for number, codes in enumerate(self.codes):
            numbers = np.ascontiguousarray(self._table(number, w[:, None], 1)[:, 0])
            workers.run(row_parts.add_numbers, workers.even(len(out)), codes, numbers, out)

    def weights(self, weight: Values) -> list[np.ndarray]:
        """The sum of the weights of the rows of each entry of a table."""
        if self._weights is None or self._weights[0] is not weight:  # those of a fit, asked for again and again
            of_rows = None if np.ndim(weight) == 0 else np.asarray(weight)
            sums = [np.bincount(joint.codes, of_rows, joint.n + 1) for joint in self.joint]
            self._weights = weight, [total * (weight if of_rows is None else 1.0) for total in sums]
        return self._weights[1]

    def _table(self, number: int, W: np.ndarray, padded: int) -> np.ndarray:
        joint, width = self.joint[number], W.shape[1]
        out = aligned((joint.n + 1, padded), W.dtype)
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
