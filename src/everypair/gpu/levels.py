"""One-hot fields of a side on a device: the level of each row, the rows of each level, and the vectors of the levels."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from everypair.columns.fields import OneHotField, OnesField, SparseField
from everypair.columns.table import Levels
from everypair.engine.blocks import OTHER, SUM, Block, FieldBlock, LevelBlock
from everypair.engine.tower import Tower
from everypair.gpu.backend import Backend
from everypair.gpu.tasks import cut
from everypair.kernels.jit import slice_of

NARROW = 16  # dimensions of a panel of fields, as on the CPU: part of the order of steps


class LevelCodes(NamedTuple):
    """The level of each row (n for none), the value of its feature, and the number of levels."""

    codes: np.ndarray
    values: Any
    n: int


def coded(block: Block, n_rows: int) -> LevelCodes | str:
    """The levels that a block's vectors belong to, or why a GPU cannot step on it."""
    levels = block.levels if isinstance(block, LevelBlock) else getattr(block, "field", None)
    if isinstance(block, LevelBlock) and levels is None:
        return LevelCodes(np.arange(n_rows), 1.0, n_rows)
    if isinstance(levels, Levels):
        return LevelCodes(np.where(levels.codes < 0, levels.n, levels.codes), 1.0, levels.n)
    if isinstance(levels, OneHotField):
        return LevelCodes(levels.codes.astype(np.int64), 1.0, levels.shape[1])
    if isinstance(levels, OnesField):
        return LevelCodes(np.zeros(n_rows, np.int64), 1.0, 1)
    if isinstance(levels, SparseField) and levels.one_hot:
        indptr, indices, values = levels.rows.arrays
        there = np.diff(indptr) > 0
        codes, x = np.full(n_rows, levels.shape[1]), np.zeros(n_rows)
        codes[there], x[there] = indices, values
        return LevelCodes(codes, 1.0 if np.ndim(values) == 0 else x, levels.shape[1])
    return "has fields of which a row may have several features"


class SideBlocks(NamedTuple):
    """The blocks of a side: factors, in the first k dimensions, and weights in the bias dimension, if there is one."""

    factors: list[LevelBlock | FieldBlock]
    weights: list[LevelBlock | FieldBlock]
    k: int
    bias: int | None


def side_blocks(tower: Tower, n_rows: int) -> SideBlocks | str:
    """The blocks of a tower if a GPU can step on them, or why it cannot."""
    described = tower.describe_blocks()
    if not described:
        return "is described by no blocks, or has fixed parameters"
    factors: list[LevelBlock | FieldBlock] = []
    weights: list[LevelBlock | FieldBlock] = []
    for block in described:
        if not isinstance(block, LevelBlock | FieldBlock) or block.partner not in (OTHER, SUM):
            return "multiplies factors"
        found = coded(block, n_rows)
        if isinstance(found, str):
            return found
        (factors if block.parameter.by_row.ndim == 2 else weights).append(block)
    if not factors:
        return "has no factors that are trained"
    shapes = {(block.dimension, block.parameter.by_row.shape[1], block.bias, block.partner) for block in factors}
    if len(shapes) > 1:
        return "has factors in different dimensions"
    ((first, k, bias, _),) = shapes
    if first != 0 or tower.n_dims != k + (0 if bias is None else 2) or any(block.dimension != bias for block in weights):
        return "has dimensions beside its factors"
    if any(parameter.fixed for parameter in tower.parameters.values()):
        return "has fixed parameters"
    if any(lacks_l2(block, n_rows) for block in [*factors, *weights]):
        return "has parameters without L2"
    return SideBlocks(factors, weights, k, bias)


def lacks_l2(block: LevelBlock | FieldBlock, n_rows: int) -> bool:
    """Whether a level has rows, but no L2."""
    found = coded(block, n_rows)
    assert not isinstance(found, str)
    penalty = np.broadcast_to(penalty_of(block, found.n), found.n)
    return bool(np.any((penalty == 0.0) & (np.bincount(found.codes, minlength=found.n + 1)[:-1] > 0)))


def penalty_of(block: LevelBlock | FieldBlock, n: int) -> Any:
    """The L2 of the levels of a block."""
    penalty = block.parameter.penalty
    return float(penalty) if np.ndim(penalty) == 0 else slice_of(np.ravel(penalty), block.start, block.start + n)


class LevelField:
    """The rows of each level of a field on a device, and its parameters: a row of ``W`` for each level, and one of zeros.

    Parameters
    ----------
    backend : Backend
    block : LevelBlock or FieldBlock
    n_rows : int
    stride : int
        Numbers of a row of W; 0 for weights, which are one number each.
    """

    def __init__(self, backend: Backend, block: LevelBlock | FieldBlock, n_rows: int, stride: int) -> None:
        found = coded(block, n_rows)
        assert not isinstance(found, str)
        xp, self.n = backend.xp, found.n
        self._backend, self._parameter, self._rows = backend, block.parameter, slice(block.start, block.start + found.n)
        self.codes, self.values = backend.ints(found.codes), backend.floats(found.values)
        order = np.argsort(found.codes, kind="stable")
        counts = np.bincount(found.codes, minlength=found.n + 1)
        self.bounds = np.concatenate([[0], np.cumsum(counts[: found.n])])
        self.members_host = order[: self.bounds[-1]]
        self.members = backend.ints(self.members_host)
        self.penalty = backend.floats(penalty_of(block, found.n))
        self.W = xp.zeros((found.n + 1, stride) if stride else found.n + 1, np.float32)
        self.delta = xp.zeros((found.n + 1, NARROW) if stride else found.n + 1, np.float32)
        self.along = xp.zeros(found.n + 1, np.float32)

    def take(self) -> None:
        """Copy the parameters from the host."""
        values = np.ascontiguousarray(self._parameter.by_row[self._rows])
        if self.W.ndim == 2:
            self.W[:-1, : values.shape[1]] = self._backend.upload(values)
        else:
            self.W[:-1] = self._backend.upload(values)

    def bring_back(self) -> None:
        """Copy the parameters to the host."""
        by_row = self._parameter.by_row
        own = self.W[:-1] if by_row.ndim == 1 else self.W[:-1, : by_row.shape[1]]
        by_row[self._rows] = self._backend.download(own)

    def pieces(self) -> tuple[Any, Any]:
        """The rows of all levels as tasks of warps, and where the pieces of each level begin."""
        found = cut(self.bounds, every=True)
        return self._backend.ints(found.tasks), self._backend.ints(found.bounds)
