"""``Modes``, the base class of towers that multiply other towers, :class:`Product` and :class:`Core` (Section 5.3).

The multiplied towers are called *modes*. In the vectors of one mode the loss is again a quadratic: moving them moves the joint
vectors along a tangent that depends on the other modes.

With ``combinations="all"``, the contexts are all combinations of the modes' levels, including those not listed. The implicit part
of the loss then has a closed form for each mode, and the listed contexts contribute only their explicit part.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from everypair.columns.table import NewLevels, Rows
from everypair.engine.binding import BindContext
from everypair.engine.blocks import Block, LevelBlock, Table, joined
from everypair.engine.tower import Tower, check_towers
from everypair.engine.vectors import Vectors
from everypair.engine.view import View
from everypair.runtime import validation as check
from everypair.runtime.numerics import Values
from everypair.runtime.parallel import Workers
from everypair.runtime.wording import setting
from everypair.towers.embedding import Embedding
from everypair.towers.lookup import Lookup

COMBINATIONS = ("observed", "all")


class Modes(Tower):
    """A tower of several modes; subclasses define how their vectors are multiplied."""

    modes: tuple[Lookup, ...]  # the towers, if combinations="all"

    def __init__(self, *towers: Tower, combinations: str = "observed") -> None:
        check_towers(type(self).__name__, towers)
        self.towers = towers
        self.combinations = check.choice("combinations", combinations, COMBINATIONS)
        self.complete = combinations == "all"

    def build(self, binding: BindContext) -> None:
        if not self.complete:
            self.bind_parts(binding)
            return
        modes = [self._over_levels(tower) for tower in self.towers]
        _check_complete(binding, [mode.column for mode in modes])
        sizes = [binding.rows.levels(mode.column).n for mode in modes]
        self.n_combinations = float(np.prod([float(size) for size in sizes]))
        total = binding.per_combination * self.n_combinations
        part = binding.part()
        self.modes = self.towers = tuple(mode.bind_complete(part, total / size) for mode, size in zip(modes, sizes, strict=True))

    def _over_levels(self, tower: Tower) -> Lookup:
        if isinstance(tower, Embedding) and tower.column is not None:
            return tower.over_levels()
        if isinstance(tower, Lookup):
            return tower
        raise ValueError(
            f"with {setting('combinations', 'all')}, every tower of the {type(self).__name__} must be a Lookup or an Embedding of "
            f"a column, got "
            f"{tower!r}."
        )

    @abstractmethod
    def view_of(self, mode: int, view: View) -> View:
        """The view of a mode, over the same rows."""

    @abstractmethod
    def implicit_matrix(self, mode: int, J: np.ndarray) -> np.ndarray:
        """The matrix M of the implicit part ``u' M u`` of a level of this mode, over all combinations and without alpha0."""

    @abstractmethod
    def complete_gram(self) -> np.ndarray:
        """J of all combinations of levels, in closed form."""

    @property
    def blocks(self) -> Sequence[Any]:
        return [("mode", j) for j, tower in enumerate(self.towers) if tower.blocks]

    def step(self, view: View, block: Any) -> None:
        """All parameters of one mode."""
        _, j = block
        implicit = None
        if self.complete:
            alpha0, J = view.implicit()
            implicit = alpha0 * self.implicit_matrix(j, J)
        described = self._describe_mode(j)
        if described and view.sweep_levels(described[0], self.settings, implicit):
            return
        mode_view = self.view_of(j, view)
        if self.complete:
            self.modes[j].sweep_by_dimension(mode_view, implicit)
        else:
            self.towers[j].sweep(mode_view)

    def describe_blocks(self) -> list[Block] | None:
        return joined(self._describe_mode(j) for j in range(len(self.towers)))

    def _describe_mode(self, mode: int) -> list[LevelBlock] | None:
        """The block of a mode that is a single table; None for other modes."""
        match self.towers[mode].describe_blocks():
            case []:
                return []
            case [LevelBlock(partner="other") as block]:
                return [self.block_of_mode(mode, block)]
        return None

    def tables_without(self, mode: int | None) -> tuple[Callable[[Workers], Table], ...]:
        """For each other mode, a function that returns its current vectors, and the number of each row's vector."""
        others = [tower for j, tower in enumerate(self.towers) if j != mode]
        return tuple(partial(table_of, tower, self.rows) for tower in others)

    @abstractmethod
    def block_of_mode(self, mode: int, block: LevelBlock) -> LevelBlock:
        """The block of a mode as part of this tower, given its description as a separate tower."""

    def gram(self, vectors: Vectors, weight: Values, workers: Workers) -> np.ndarray:
        return self.complete_gram() if self.complete else vectors.gram(weight, workers)

    def total_weight(self, weight: np.ndarray) -> float:
        return self.n_combinations if self.complete else super().total_weight(weight)

    def norms(self, vectors: Vectors, weight: Values, workers: Workers) -> np.ndarray:
        return np.maximum(np.diag(self.complete_gram()), 0.0) if self.complete else vectors.norms(weight, workers)


def table_of(tower: Tower, rows: Rows, workers: Workers) -> tuple[np.ndarray, np.ndarray]:
    """The distinct vectors of a mode, and the number of each row's vector."""
    if isinstance(tower, Lookup):
        levels = rows.levels(tower.column)
        if not isinstance(levels, NewLevels):
            return levels.padded(tower.table()), levels.codes
    return tower.evaluate(rows, workers).rows, np.arange(rows.n)


def _check_complete(binding: BindContext, columns: list[str]) -> None:
    every = setting("combinations", "all")
    if not (binding.whole and binding.side == "context"):
        raise ValueError(
            f"{every} is only for the whole context side: this tower cannot be part of another tower, or describe items."
        )
    twice = sorted({column for column in columns if columns.count(column) > 1})
    if twice:
        raise ValueError(f"with {every}, towers must be of different columns, got {twice[0]!r} twice.")
    if binding.weighted:
        raise ValueError(
            f"{every} cannot be used with context weights (context_weight, or merged contexts): contexts that are not "
            f"listed would have none. Use {setting('combinations', 'observed')}, or feedback without context weights."
        )
    contexts = np.stack([binding.rows.levels(column).codes for column in columns], axis=1)
    check.refuse(f"with {every}, a level", contexts < 0, contexts, "not be missing")
    rows, counts = np.unique(contexts, axis=0, return_counts=True)
    if len(rows) < len(contexts):
        which = int(np.argmax(counts > 1))
        places = np.flatnonzero((contexts == rows[which]).all(axis=1))[:2].tolist()
        raise ValueError(
            f"{every} needs each combination listed at most once; {tuple(rows[which].tolist())} is at rows {places[0]} "
            f"and {places[1]} of contexts. Move their feedback to one row."
        )
