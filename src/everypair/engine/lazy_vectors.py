"""Vectors that are computed when they are asked for: with a context for every event there are too many to hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from everypair.engine.level_parts import LevelParts
from everypair.engine.vectors import RangeVectors, Vectors
from everypair.kernels.pairs import add_scaled, combine_three
from everypair.runtime.numerics import Values
from everypair.runtime.parallel import Workers

if TYPE_CHECKING:
    from everypair.engine.tower import Tower


class LazyVectors(Vectors):
    """The vectors of a tower, a dimension or a range of rows at a time: never all of them at once.

    A sweep takes ``phi_f`` of one dimension after the other, which is a product of features and parameters; Grams and scores are
    made of ranges of rows. What would take all other dimensions to compute (the bias dimension of a factorization machine,
    ``capabilities.kept``) is kept, and follows the moves.
    """

    def __init__(self, tower: Tower, workers: Workers) -> None:
        super().__init__()
        self._tower, self._workers = tower, workers
        self.forget()
        self._kept = {f: self._compute(f) for f in tower.capabilities.kept}

    @property
    def shape(self) -> tuple[int, int]:
        return self._tower.rows.n, self._tower.n_dims

    def dim(self, f: int) -> np.ndarray:
        if f in self._kept:
            return self._kept[f]
        if self._last is None or self._last[0] != f:
            self._last = f, self._compute(f)
        return self._last[1]

    def _compute(self, f: int) -> np.ndarray:
        if self._dimension is None:
            self._dimension = self._tower.dimensions(self._tower.rows, self._workers)
        return self._dimension(f)

    def advance(self, f: int, delta: np.ndarray, workers: Workers) -> None:
        if f in self._kept:
            workers.run(add_scaled, workers.even(len(delta)), 1.0, delta, self._kept[f])
        self.forget()

    def forget(self) -> None:
        """Parameters have changed: what was computed of them is out of date, but for what is kept."""
        self._last: tuple[int, np.ndarray] | None = None  # the dimension asked for last
        self._dimension: Callable[[int], np.ndarray] | None = None  # may have tables of its own, made of parameters

    @property
    def level_parts(self) -> LevelParts | None:
        return self._tower.level_parts

    def part_tables(self, first: int, last: int) -> list[np.ndarray]:
        return self._tower.part_tables(first, last)

    def replace(self, first: int, last: int, panel: np.ndarray) -> None:
        """What is kept; the rest is computed from the parameters."""
        for f, phi in self._kept.items():
            if first <= f < last:
                phi[:] = panel[:, f - first]
        self.forget()

    def _fill_panel(self, first: int, last: int, out: np.ndarray, workers: Workers) -> bool:
        return not any(first <= f < last for f in self._kept) and self._tower.fill_panel(first, last, out, workers)

    def advance_along(self, at: int, tangent: np.ndarray, delta: np.ndarray, workers: Workers) -> None:
        for f, phi in self._kept.items():
            if at <= f < at + tangent.shape[1]:
                phi += tangent[:, f - at] * delta
        self.forget()

    def combine(self, coefficients: np.ndarray, out: np.ndarray, workers: Workers) -> None:
        """After the rotation J has few entries off its diagonal: few dimensions are asked for."""
        dims, ranges = np.flatnonzero(coefficients).tolist(), workers.even(len(out))
        if 0 < len(dims) <= 3:
            terms = [(coefficients[f], self.dim(f)) for f in dims]
            terms += [(0.0, terms[0][1])] * (3 - len(terms))
            workers.run(combine_three, ranges, *terms[0], *terms[1], *terms[2], out)
            return
        found = self._tower.combination(coefficients, workers)
        if found is None:
            out[:] = 0.0
        else:
            out[:], dims = found, [f for f in dims if f in self._kept]
        for f in dims:
            workers.run(add_scaled, ranges, coefficients[f], self.dim(f), out)

    def gram(self, weight: Values, workers: Workers) -> np.ndarray:
        summed, kept = self._tower.summed_vectors(workers), list(self._kept)
        if summed is None:
            return super().gram(weight, workers)
        dims = [f for f in range(self.shape[1]) if f not in self._kept] + kept
        J = np.empty((len(dims), len(dims)))
        J[np.ix_(dims, dims)] = summed.gram(list(self._kept.values()), weight)
        return J

    def score(self, indptr: np.ndarray, indices: np.ndarray, psi: np.ndarray, scores: np.ndarray, workers: Workers) -> bool:
        summed, kept = self._tower.summed_vectors(workers), list(self._kept)
        if summed is None or any(f < self.shape[1] - len(kept) for f in kept):
            return False
        summed.score(indptr, indices, psi, list(self._kept.values()), kept, scores)
        return True

    def rotate(self, at: slice, Q: np.ndarray, workers: Workers) -> None:
        """Nothing else to do: the parameters were turned."""
        self.forget()

    def range_vectors(self, first: int, last: int) -> RangeVectors:
        part = self._tower.range_vectors(first, last)
        kept = [(f - first, phi) for f, phi in self._kept.items() if first <= f < last]

        def some(start: int, stop: int) -> np.ndarray:
            out = part(start, stop)
            for column, phi in kept:
                out[:, column] = phi[start:stop]
            return out

        return some

    def range_products(self, factor: np.ndarray) -> RangeVectors:
        of_others = factor.copy()
        of_others[list(self._kept)] = 0.0
        part = self._tower.range_products(of_others)
        kept = [(factor[f], phi) for f, phi in self._kept.items() if factor[f].any()]

        def some(start: int, stop: int) -> np.ndarray:
            out = part(start, stop)
            for row, phi in kept:
                out += phi[start:stop, None] * row
            return out

        return some

    @property
    def rows(self) -> np.ndarray:
        """All of them, for who cannot do with less: not held."""
        return np.concatenate(self._workers.chunks(self.shape[0], self.range_vectors(0, self.shape[1])))

    @property
    def dims(self) -> np.ndarray:
        return np.ascontiguousarray(self.rows.T)
