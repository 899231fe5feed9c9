"""``Embedding``: a free vector per row or level, ``phi(c) = w_c`` (Section 5.1, matrix factorization)."""

from __future__ import annotations

import copy
from collections.abc import Callable

import numpy as np

from everypair.columns.table import Rows
from everypair.engine.binding import BindContext
from everypair.engine.blocks import LevelBlock
from everypair.engine.contribution import Contribution
from everypair.engine.parameter import Parameter
from everypair.engine.tower import Capabilities, Tower
from everypair.engine.vectors import RangeVectors, Vectors
from everypair.engine.view import View
from everypair.runtime import validation as check
from everypair.runtime.numerics import Values
from everypair.runtime.parallel import Workers
from everypair.towers.lookup import Lookup


class Embedding(Tower):
    """A row of parameters for every context (item), or for every level of a column.

    Parameters
    ----------
    factors : int
        Number of dimensions.
    column : str, optional
        One vector per level of this column: ``Embedding(k, "user")`` is ``Lookup("user", Embedding(k))``. By default, one per
        context (item).
    name : str, optional
        Name of the parameter; by default the column, or "context" or "item".
    """

    moves_as_parameters = True
    _W: Parameter

    def __init__(self, factors: int, column: str | None = None, *, name: str | None = None) -> None:
        self.factors = self.n_dims = check.integer("factors", factors, low=1)
        self.column, self.name = column, name

    def bind(self, binding: BindContext) -> Tower:
        if self.column is None:
            return super().bind(binding)
        return self.over_levels().bind(binding)

    def over_levels(self) -> Lookup:
        """The equivalent :class:`Lookup`, for an embedding of a column."""
        assert self.column is not None
        table = copy.copy(self)
        table.column = None
        return Lookup(self.column, table)

    def build(self, binding: BindContext) -> None:
        name, weight = self.name or binding.rows.name, binding.weight
        W = binding.normal((len(weight), self.n_dims), self.n_dims, name=name, keys=binding.rows.keys)
        self._W = binding.parameter(name, W, weight[:, None], binding.rows.name)
        self._W.local = binding.group.divided
        self.parameters[name] = self._W

    def evaluate(self, rows: Rows, workers: Workers) -> Vectors:
        return Vectors(rows=rows.pick(self._W.value))

    def contributions(self, rows: Rows, psi: np.ndarray) -> list[Contribution]:
        index = rows.checked_index()
        row = 0 if isinstance(index, slice) else int(index[0])
        return [Contribution((rows.name,), row, float(self._W.value[row].astype(np.float64) @ psi))] if row >= 0 else []

    def dimensions(self, rows: Rows, workers: Workers) -> Callable[[int], np.ndarray]:
        return lambda f: rows.pick(self._W.value[:, f])

    @property
    def capabilities(self) -> Capabilities:
        rotations = () if self._W.fixed else ((0, self.n_dims),)
        return super().capabilities._replace(rotations=rotations, free_rows=True, lazy=True, divided=True, replicated=True)

    def range_vectors(self, first: int, last: int) -> RangeVectors:
        return lambda start, stop: self._W.value[start:stop, first:last].copy()

    def vectors_by_row(self) -> Callable[[np.ndarray], np.ndarray]:
        return lambda index: self._W.value[index]

    @property
    def blocks(self) -> range:
        return range(0 if self._W.fixed else self.n_dims)

    @property
    def _penalty(self) -> Values:
        penalty = self._W.penalty
        return float(penalty) if np.ndim(penalty) == 0 else np.ravel(penalty)

    def step(self, view: View, block: int) -> None:
        """``w_cf -= eta (g + lambda w) / (h + lambda)`` for one dimension of all rows."""
        w = self._W.value[:, block]
        g, h = view.slopes(block)
        denominator = h + self._penalty
        free = denominator > 0.0
        newton = (g + self._penalty * w) / np.where(free, denominator, 1.0)
        target = np.where(free, w - self.settings.step_size * newton, 0.0)
        delta = target.astype(w.dtype) - w
        view.move(block, delta)
        w += delta

    def sweep(self, view: View) -> None:
        """Row by row, where the view can: the same steps as dimension by dimension, in a cache-friendly order."""
        for block in self.describe_blocks() or ():
            if view.sweep_levels(block, self.settings):
                return
        super().sweep(view)

    def describe_blocks(self) -> list[LevelBlock] | None:
        if type(self).step is not Embedding.step:
            return None
        return [] if self._W.fixed else [LevelBlock(self._W)]

    def rotate(self, at: slice, Q: np.ndarray, workers: Workers) -> None:
        W, Q = self._W.value, Q.astype(self._W.value.dtype)

        def chunk(start: int, stop: int) -> None:
            W[start:stop, at] = W[start:stop, at] @ Q

        workers.chunks(len(W), chunk)

    @property
    def is_free_rows(self) -> bool:  # type: ignore[override]
        return type(self) is Embedding and self.column is None

    def row_embedding(self) -> Tower | None:
        return self if self.column is None else None
