"""Several categorical context variables (Section 5.3): what PARAFAC and Tucker share.

A mode is a variable with one row of parameters per level. Seen from a mode, the loss is again a quadratic in each level's
vector: gradients and curvatures of a level are sums over the contexts it occurs in. With ``complete`` contexts, all
combinations of levels count, also those never listed: the implicit part then has a closed form per mode and the listed
contexts contribute their explicit part only.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from everypair import validation as check
from everypair.feedback import Values
from everypair.kernels.columns import gather_levels
from everypair.kernels.order import grouped
from everypair.objective import Side, tiny
from everypair.parallel import SERIAL, Workers
from everypair.towers.base import Tower
from everypair.towers.embedding import Embedding
from everypair.vectors import Vectors


class Levels:
    """Which level each context has, and the contexts of each level."""

    def __init__(self, level: np.ndarray, n_levels: int) -> None:
        self.level = level
        self.indptr, self.rows = grouped(level, n_levels, np.int64)


class ModeView:
    """The loss as one mode sees it: a :class:`~everypair.objective.Side` whose rows are the mode's levels.

    Dimension e of a level moves the vector of each of its contexts along a tangent that the tower knows; ``implicit`` is the
    closed form of the implicit part for complete contexts (``alpha0`` times a matrix; every level has the same), or None.
    """

    def __init__(self, tower: ModeTower, mode: int, side: Side, implicit: np.ndarray | None) -> None:
        self._tower, self._mode, self._side, self._implicit = tower, mode, side, implicit
        self.workers = side.workers
        self._tangent = np.empty(0)

    def slopes(self, e: int) -> tuple[np.ndarray, np.ndarray]:
        levels = self._tower.levels[self._mode]
        self._tangent = self._tower.tangent(self._mode, e, self.workers)
        g, h, scale = self._tower.tangent_slopes(self._side, e, self._tangent)
        level_g = np.empty(len(levels.indptr) - 1, np.float64)
        level_h = np.empty_like(level_g)
        self.workers.run(
            gather_levels, self.workers.split(levels.indptr), levels.indptr, levels.rows, scale, g, h, level_g, level_h
        )  # fmt: skip
        if self._implicit is not None:
            row = self._implicit[e]
            size = np.abs(level_h) + row[e]
            level_g += self._tower.modes[self._mode].vectors().rows @ row
            level_h += row[e]
            lost = level_h <= tiny(g.dtype) * size
            level_g[lost] = level_h[lost] = 0.0
        return level_g, level_h

    def move(self, e: int, delta: np.ndarray) -> None:
        """Along the tangent of the last :meth:`slopes`."""
        self._tower.tangent_move(self._side, e, self._tangent, delta[self._tower.levels[self._mode].level])


class ModeTower(Tower):
    """A tower over contexts that are combinations of levels; subclasses say how the modes' vectors combine."""

    def __init__(self, modes: Sequence[Embedding], contexts: np.ndarray, complete: bool) -> None:
        self.modes = list(modes)
        sizes = [len(mode.vectors().rows) for mode in modes]
        self.levels = [Levels(np.ascontiguousarray(contexts[:, j]), n) for j, n in enumerate(sizes)]
        self.complete = complete
        self.parameters = {letter: p for mode in modes for letter, p in mode.parameters.items()}

    @abstractmethod
    def tangent(self, mode: int, e: int, workers: Workers) -> np.ndarray:
        """How each context's vector moves with dimension e of a mode."""

    @abstractmethod
    def tangent_slopes(self, side: Side, e: int, tangent: np.ndarray) -> tuple[np.ndarray, np.ndarray, Values]:
        """Slopes of the contexts along a tangent, and how far a context moves with its level (a scale)."""

    @abstractmethod
    def tangent_move(self, side: Side, e: int, tangent: np.ndarray, delta: np.ndarray) -> None:
        """Move each context by its level's ``delta`` along a tangent."""

    @abstractmethod
    def implicit_matrix(self, mode: int, J: np.ndarray) -> np.ndarray:
        """The implicit part of a level of this mode over complete contexts: ``u' (matrix) u``, without alpha0."""

    @abstractmethod
    def complete_gram(self) -> np.ndarray:
        """J of all combinations of levels, in closed form."""

    def vectors(self, workers: Workers = SERIAL) -> Vectors:
        return self.combine([levels.level for levels in self.levels], workers)

    def vectors_of(self, name: str, rows: Any) -> np.ndarray:
        rows = check_levels(name, rows, [len(table) for table in self.tables()])
        return self.combine(list(rows.T), SERIAL).rows

    def lookup(self) -> Callable[[np.ndarray], np.ndarray]:
        return lambda index: self.combine([levels.level[index] for levels in self.levels], SERIAL).rows

    @abstractmethod
    def combine(self, levels: Sequence[np.ndarray], workers: Workers) -> Vectors:
        """phi of contexts given by their level in each mode."""

    @property
    def blocks(self) -> Sequence[Any]:
        return [j for j, mode in enumerate(self.modes) if mode.blocks]

    def step(self, side: Side, block: Any) -> None:
        """All dimensions of one mode."""
        implicit = side.alpha0 * self.implicit_matrix(block, side.gram) if self.complete else None
        view = ModeView(self, block, side, implicit)
        for e in self.modes[block].blocks:
            self.modes[block].step(view, e)  # type: ignore[arg-type]

    def gram(self, vectors: Vectors, weight: Values, workers: Workers) -> np.ndarray:
        return self.complete_gram() if self.complete else vectors.gram(weight, workers)

    def norms(self, vectors: Vectors, weight: Values, workers: Workers) -> np.ndarray:
        return np.maximum(np.diag(self.complete_gram()), 0.0) if self.complete else vectors.norms(weight, workers)

    def tables(self) -> list[np.ndarray]:
        """The modes' vectors, one row per level."""
        return [mode.vectors().rows for mode in self.modes]

    def mode_gram(self, j: int) -> np.ndarray:
        """``sum over levels of u u'``."""
        u = self.modes[j].vectors().rows.astype(np.float64)
        return u.T @ u


def mode_letters(n: int) -> list[str]:
    """The letters of the context variables: U, V as in the paper, U1, U2, ... for more of them."""
    return ["U", "V"] if n == 2 else [f"U{j + 1}" for j in range(n)]


def check_levels(name: str, contexts: Any, sizes: Sequence[int] | None) -> np.ndarray:
    """``contexts`` as an array of levels (n_contexts x n_variables), each below its variable's size."""
    contexts = check.indices(name, contexts, None, ndim=2)
    if contexts.shape[1] < 2 or (sizes is not None and contexts.shape[1] != len(sizes)):
        expected = "two or more" if sizes is None else str(len(sizes))
        raise ValueError(f"{name} must have {expected} columns, one per context variable, got shape {contexts.shape}.")
    for j, size in enumerate(sizes or ()):
        check.indices(f"{name}[:, {j}]", contexts[:, j], size)
    return contexts
