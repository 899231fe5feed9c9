"""Towers multiplied with each other (Section 5.3): what :class:`Product` and :class:`Core` share.

Seen from one of them, a *mode*, the loss is again a quadratic in each row's vector: moving it moves the joint vector along a
tangent that the others determine.

With ``combinations="all"``, the contexts are all combinations of the modes' levels, also those never listed. The implicit part
of the loss then has a closed form for each mode, and the listed contexts contribute their explicit part only.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from everypair.columns.table import NewLevels, Rows
from everypair.engine.binding import BindContext
from everypair.engine.blocks import Block, LevelBlock, Table
from everypair.engine.tower import Tower, check_towers
from everypair.engine.vectors import Vectors
from everypair.engine.view import View
from everypair.runtime import validation as check
from everypair.runtime.numerics import Values
from everypair.runtime.parallel import Workers
from everypair.towers.embedding import Embedding
from everypair.towers.lookup import Lookup

COMBINATIONS = ("observed", "all")


class Modes(Tower):
    """A tower made of modes; subclasses say how their vectors combine."""

    modes: tuple[Lookup, ...]  # of complete contexts

    def __init__(self, *towers: Tower, combinations: str = "observed") -> None:
        check_towers(type(self).__name__, towers)
        self.towers = towers
        self.combinations = check.choice("combinations", combinations, COMBINATIONS)
        self.complete = combinations == "all"

    def build(self, site: BindContext) -> None:
        if not self.complete:
            self.bind_parts(site)
            return
        modes = [self._over_levels(tower) for tower in self.towers]
        _check_complete(site, [mode.column for mode in modes])
        sizes = [site.rows.levels(mode.column).n for mode in modes]
        self.n_combinations = float(np.prod([float(size) for size in sizes]))
        everything = site.per_combination * self.n_combinations
        weighed = zip(modes, sizes, strict=True)
        self.modes = self.towers = tuple(mode.bind_complete(site.part(), everything / size) for mode, size in weighed)

    def _over_levels(self, tower: Tower) -> Lookup:
        if isinstance(tower, Embedding) and tower.column is not None:
            return tower.over_levels()
        if isinstance(tower, Lookup):
            return tower
        raise ValueError(
            f"combinations='all' combines levels, so every tower of the {type(self).__name__} must be a Lookup or an Embedding of "
            f"a column, got {tower!r}."
        )

    @abstractmethod
    def view_of(self, mode: int, view: View) -> View:
        """The loss as a mode sees it, over the same rows."""

    @abstractmethod
    def implicit_matrix(self, mode: int, J: np.ndarray) -> np.ndarray:
        """The implicit part of a level of this mode over complete contexts: ``u' (matrix) u``, without alpha0."""

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
        seen = self.view_of(j, view)
        if self.complete:
            self.modes[j].sweep_by_dimension(seen, implicit)
        else:
            self.towers[j].sweep(seen)

    def describe_blocks(self) -> list[Block] | None:
        found: list[Block] = []
        for j in range(len(self.towers)):
            described = self._describe_mode(j)
            if described is None:
                return None
            found += described
        return found

    def _describe_mode(self, mode: int) -> list[LevelBlock] | None:
        """The block of a mode that is a table; None if it is something else."""
        match self.towers[mode].describe_blocks():
            case []:
                return []
            case [LevelBlock(partner="other") as block]:
                return [self.block_of_mode(mode, block)]
        return None

    def tables_without(self, mode: int | None) -> tuple[Callable[[Workers], Table], ...]:
        """For each mode but this: a function that gives its vectors as they are now, and which of them each row has."""
        others = [tower for j, tower in enumerate(self.towers) if j != mode]
        return tuple(partial(table_of, tower, self.rows) for tower in others)

    @abstractmethod
    def block_of_mode(self, mode: int, block: LevelBlock) -> LevelBlock:
        """The block of a mode, described on its own, as part of this tower."""

    def gram(self, vectors: Vectors, weight: Values, workers: Workers) -> np.ndarray:
        return self.complete_gram() if self.complete else vectors.gram(weight, workers)

    def total_weight(self, weight: np.ndarray) -> float:
        return self.n_combinations if self.complete else super().total_weight(weight)

    def norms(self, vectors: Vectors, weight: Values, workers: Workers) -> np.ndarray:
        return np.maximum(np.diag(self.complete_gram()), 0.0) if self.complete else vectors.norms(weight, workers)


def table_of(tower: Tower, rows: Rows, workers: Workers) -> tuple[np.ndarray, np.ndarray]:
    """The vectors of a mode, each once, and which of them each row has."""
    if isinstance(tower, Lookup):
        levels = rows.levels(tower.column)
        if not isinstance(levels, NewLevels):
            return levels.padded(tower.table()), levels.codes
    return tower.evaluate(rows, workers).rows, np.arange(rows.n)


def _check_complete(site: BindContext, columns: list[str]) -> None:
    if not (site.whole and site.side == "context"):
        raise ValueError(
            "combinations='all' is for the tower of all contexts: it cannot be part of another tower, or describe items."
        )
    twice = sorted({column for column in columns if columns.count(column) > 1})
    if twice:
        raise ValueError(f"combinations='all' combines each column with all others, so {twice[0]!r} cannot be there twice.")
    if site.weighted:
        raise ValueError(
            "combinations='all' does not go with context weights (context_weight, or merged contexts): most of its contexts are "
            "not listed and would have none. Use combinations='observed', or feedback without them."
        )
    contexts = np.stack([site.rows.levels(column).codes for column in columns], axis=1)
    check.refuse("with combinations='all', a level", contexts < 0, contexts, "not be missing")
    rows, counts = np.unique(contexts, axis=0, return_counts=True)
    if len(rows) < len(contexts):
        which = int(np.argmax(counts > 1))
        places = np.flatnonzero((contexts == rows[which]).all(axis=1))[:2].tolist()
        raise ValueError(
            f"combinations='all' needs each combination listed at most once; {tuple(rows[which].tolist())} is at rows {places[0]} "
            f"and {places[1]} of contexts. Give their feedback to one row."
        )
