"""``Constant``: a dimension that is always 1, the factor of a bias on the other side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from everypair.columns.table import Rows
from everypair.engine.binding import BindContext
from everypair.engine.blocks import Block
from everypair.engine.contribution import ITEM, Contribution
from everypair.engine.dimensions import CONSTANT
from everypair.engine.tower import Capabilities, Tower
from everypair.engine.vectors import RangeVectors, Vectors
from everypair.engine.view import View
from everypair.runtime.parallel import Workers


class Constant(Tower):
    """One dimension that is 1 for every row. It has no parameters.

    With an embedding of one dimension on the other side it makes a bias, here of items: ``Concat(Embedding(k), Constant())`` for
    contexts and ``Concat(Embedding(k), Embedding(1, name="bias"))`` for items.
    """

    n_dims = 1
    has_parameters = False

    @property
    def degree(self) -> int:
        return 0

    @property
    def blocks(self) -> Sequence[Any]:
        return ()

    def build(self, binding: BindContext) -> None:
        self._dtype = binding.dtype

    def evaluate(self, rows: Rows, workers: Workers) -> Vectors:
        return Vectors(dims=np.ones((1, rows.n), self._dtype))

    @property
    def capabilities(self) -> Capabilities:
        return super().capabilities._replace(lazy=True, divided=True, replicated=True)

    def range_vectors(self, first: int, last: int) -> RangeVectors:
        return lambda start, stop: np.ones((stop - start, last - first), self._dtype)

    def contributions(self, rows: Rows, psi: np.ndarray) -> list[Contribution]:
        return [Contribution((), None, float(psi[0]), ITEM)]

    def describe_blocks(self) -> list[Block] | None:
        return []

    def step(self, view: View, block: Any) -> None:
        raise AssertionError("a Constant has no parameters")

    @property
    def dimension_kinds(self) -> tuple[str, ...]:
        return (CONSTANT,)
