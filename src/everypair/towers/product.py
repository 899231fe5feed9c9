"""``Product``: towers multiplied elementwise, PARAFAC (Section 5.3.1), ``phi_f(c1, c2, ...) = u_{c1,f} v_{c2,f} ...``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, reduce

import numpy as np

from everypair.columns.table import Rows
from everypair.engine.blocks import PRODUCT, LevelBlock
from everypair.engine.dimensions import product_kinds
from everypair.engine.tower import Capabilities, Tower, check_same_dims
from everypair.engine.vectors import RangeVectors, Vectors
from everypair.engine.view import DerivedView, View
from everypair.kernels.machine_state import G_F, G_Q, H_FF, H_FQ, H_QQ, PHI
from everypair.kernels.sparse import scale_slopes
from everypair.runtime.parallel import Workers
from everypair.towers.multiplicative import Modes


class Product(Modes):
    """The elementwise product of towers: for each mode, the item vectors are psi times the product of the other modes.

    It cannot be rotated, since a rotation would mix the dimensions of its modes.

    Parameters
    ----------
    *towers : Tower
        All with the same number of dimensions: embeddings of columns for PARAFAC, or anything else.
    combinations : {"observed", "all"}
        The contexts are those listed, or all combinations of levels, which are not enumerated. With "all", each tower must be an
        :class:`Embedding` of a column, or a :class:`Lookup`.
    """

    def __init__(self, *towers: Tower, combinations: str = "observed") -> None:
        super().__init__(*towers, combinations=combinations)
        self.n_dims = check_same_dims("Product", towers)

    def evaluate(self, rows: Rows, workers: Workers) -> Vectors:
        return Vectors.of_dimensions(self.dimensions(rows, workers), self.n_dims)

    def dimensions(self, rows: Rows, workers: Workers) -> Callable[[int], np.ndarray]:
        return _product([tower.dimensions(rows, workers) for tower in self.towers])

    def vectors_by_row(self) -> Callable[[np.ndarray], np.ndarray]:
        modes = [tower.vectors_by_row() for tower in self.towers]
        return lambda index: reduce(np.multiply, (phi(index) for phi in modes))

    def view_of(self, mode: int, view: View) -> View:
        others = [tower for j, tower in enumerate(self.towers) if j != mode]
        return ScaledView(view, others, self.rows) if others else view

    @property
    def capabilities(self) -> Capabilities:
        """Without rotations."""
        modes = [tower.capabilities for tower in self.towers]
        return super().capabilities._replace(
            lazy=all(mode.lazy and not mode.kept for mode in modes),
            by_levels=all(mode.by_levels for mode in modes),
            all_combinations=self.complete,
            divided=not self.complete and all(mode.divided for mode in modes),
            replicated=not self.complete and all(mode.replicated and not mode.kept for mode in modes),
        )

    def range_vectors(self, first: int, last: int) -> RangeVectors:
        modes = [tower.range_vectors(first, last) for tower in self.towers]
        return lambda start, stop: reduce(np.multiply, (mode(start, stop) for mode in modes))

    def block_of_mode(self, mode: int, block: LevelBlock) -> LevelBlock:
        return block._replace(partner=PRODUCT, modes=self.tables_without(mode))

    def implicit_matrix(self, mode: int, J: np.ndarray) -> np.ndarray:
        """``J_I * J_C2 * ...`` elementwise, over the other modes."""
        grams = [tower.level_gram() for j, tower in enumerate(self.modes) if j != mode]
        return np.multiply.reduce([J, *grams])

    def complete_gram(self) -> np.ndarray:
        """``J_C = J_C1 * J_C2 * ...`` elementwise."""
        return np.multiply.reduce([mode.level_gram() for mode in self.modes])

    @property
    def degree(self) -> int:
        return sum(tower.degree for tower in self.towers)

    @property
    def terms(self) -> int:
        return int(np.prod([tower.terms for tower in self.towers]))

    @property
    def dimension_kinds(self) -> tuple[str, ...]:
        return product_kinds([tower.dimension_kinds for tower in self.towers])


class ScaledView(DerivedView):
    """The view of a mode: when its dimension f moves by delta, ``phi_f`` moves by delta times the product of the others."""

    def __init__(self, view: View, others: Sequence[Tower], rows: Rows) -> None:
        super().__init__(view)
        factor = _product([tower.dimensions(rows, view.workers) for tower in others])
        self._factor = lru_cache(2)(factor)  # used by slopes, and again by the move

    def slopes(self, f: int) -> tuple[np.ndarray, np.ndarray]:
        g, h = self._view.slopes(f)
        scaled = np.empty_like(g), np.empty_like(h)
        self.workers.run(scale_slopes, self.workers.even(self.n_rows), self._factor(f), g, h, *scaled)
        return scaled

    def move(self, f: int, delta: np.ndarray) -> None:
        self._view.move(f, delta * self._factor(f))

    def slopes_along(self, tangent: np.ndarray, at: int = 0) -> tuple[np.ndarray, np.ndarray]:
        return self._view.slopes_along(self._scaled(tangent, at), at)

    def move_along(self, tangent: np.ndarray, delta: np.ndarray, at: int = 0) -> None:
        self._view.move_along(self._scaled(tangent, at), delta, at)

    def slopes_pair(self, f: int, q: int, phi: np.ndarray) -> np.ndarray:
        state = self._view.slopes_pair(f, q, phi)
        x, y = self._factor(f), self._factor(q)
        for column, scale in {G_F: x, G_Q: y, H_FF: x * x, H_FQ: x * y, H_QQ: y * y}.items():
            state[:, column] *= scale
        state[:, PHI] = phi
        return state

    def move_pair(self, f: int, q: int, delta_f: np.ndarray, delta_q: np.ndarray) -> None:
        self._view.move_pair(f, q, delta_f * self._factor(f), delta_q * self._factor(q))

    def _scaled(self, tangent: np.ndarray, at: int) -> np.ndarray:
        factors = [self._factor(at + f) for f in range(tangent.shape[1])]
        return tangent * np.stack(factors, axis=1)


def _product(factors: list[Callable[[int], np.ndarray]]) -> Callable[[int], np.ndarray]:
    return lambda f: np.ascontiguousarray(reduce(np.multiply, (phi(f) for phi in factors)))
