"""``Sum``: towers added elementwise, ``phi(c) = phi1(c) + phi2(c) + ...``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np

from everypair.columns.table import Rows
from everypair.engine.binding import BindContext
from everypair.engine.blocks import SUM, Block, FieldBlock, LevelBlock, joined
from everypair.engine.contribution import Contribution
from everypair.engine.dimensions import sum_kinds
from everypair.engine.tower import Capabilities, Tower, check_same_dims, check_towers, common_rotations
from everypair.engine.vectors import RangeVectors, Vectors
from everypair.engine.view import DerivedView, PartView, View
from everypair.runtime.parallel import Workers


class Sum(Tower):
    """The sum of towers with the same number of dimensions, such as a user's vector plus one of the user's history.

    Each part has the same view as the sum: the gradient is that at the sum, and moving a part moves the sum by the same amount.

    Parameters
    ----------
    *towers : Tower
    """

    def __init__(self, *towers: Tower) -> None:
        check_towers("Sum", towers)
        self.n_dims = check_same_dims("Sum", towers)
        self.towers = towers

    def build(self, binding: BindContext) -> None:
        self.bind_parts(binding)

    def evaluate(self, rows: Rows, workers: Workers) -> Vectors:
        return Vectors.of_dimensions(self.dimensions(rows, workers), self.n_dims)

    def dimensions(self, rows: Rows, workers: Workers) -> Callable[[int], np.ndarray]:
        parts = [tower.dimensions(rows, workers) for tower in self.towers]
        return lambda f: reduce(np.add, (phi(f) for phi in parts))

    def contributions(self, rows: Rows, psi: np.ndarray) -> list[Contribution]:
        return [term for tower in self.towers for term in tower.contributions(rows, psi)]

    @property
    def capabilities(self) -> Capabilities:
        parts = [tower.capabilities for tower in self.towers]
        return super().capabilities._replace(
            rotations=common_rotations([part.rotations for part in parts]),
            lazy=all(part.lazy for part in parts),
            kept=tuple(sorted({f for part in parts for f in part.kept})),
            divided=all(part.divided for part in parts),
            replicated=all(part.replicated and not part.kept for part in parts),
        )

    def range_vectors(self, first: int, last: int) -> RangeVectors:
        parts = [tower.range_vectors(first, last) for tower in self.towers]
        return lambda start, stop: reduce(np.add, (part(start, stop) for part in parts))

    def vectors_by_row(self) -> Callable[[np.ndarray], np.ndarray]:
        parts = [tower.vectors_by_row() for tower in self.towers]
        return lambda index: reduce(np.add, (phi(index) for phi in parts))

    @property
    def blocks(self) -> Sequence[Any]:
        """Dimension by dimension if all parts can, so that they share its slopes; otherwise part by part."""
        blocks = [list(tower.blocks) for tower in self.towers]
        if all(isinstance(block, int) for part in blocks for block in part):
            return sorted({block for part in blocks for block in part})
        return [("part", j) for j, part in enumerate(blocks) if part]

    def sweep(self, view: View) -> None:
        """Sixteen dimensions at a time where the view can."""
        if not view.sweep_panels(self.describe_blocks(), self.settings):
            super().sweep(view)

    def step(self, view: View, block: Any) -> None:
        if isinstance(block, tuple):
            self.towers[block[1]].sweep(PartView(view, alone=False))  # not view itself: view.own holds the vectors of the sum
            return
        shared = SharedView(view, block)
        for tower in self.towers:
            if block in tower.blocks:
                tower.step(shared, block)
        shared.finish()

    def describe_blocks(self) -> list[Block] | None:
        """The blocks of all parts. None if a part is a factorization machine: the description of its pairwise terms would include
        the vectors of the other parts."""
        blocks = joined(tower.describe_blocks() for tower in self.towers)
        pairwise = any(block.partner == SUM for block in blocks or () if isinstance(block, FieldBlock | LevelBlock))
        return None if pairwise else blocks

    def rotate(self, at: slice, Q: np.ndarray, workers: Workers) -> None:
        for tower in self.towers:
            tower.rotate(at, Q, workers)

    @property
    def dimension_kinds(self) -> tuple[str, ...]:
        return sum_kinds([tower.dimension_kinds for tower in self.towers])


class SharedView(DerivedView):
    """One dimension of a view, shared by several towers in turn: slopes are computed once, and updated after each move.

    The loss is quadratic in ``phi_f``: after ``phi_f += delta`` the gradient is ``g + h delta``, and the curvature is unchanged.
    The moves are passed on together, after the last tower, or when a tower needs slopes of more than this dimension.
    """

    def __init__(self, view: View, f: int) -> None:
        super().__init__(view)
        self._f = f
        self._slopes: tuple[np.ndarray, np.ndarray] | None = None
        self._moved: np.ndarray | None = None

    def slopes(self, f: int) -> tuple[np.ndarray, np.ndarray]:
        if f != self._f:
            self.finish()
            return self._view.slopes(f)
        if self._slopes is None:
            g, h = self._view.slopes(f)
            self._slopes = g.copy(), h.copy()
        g, h = self._slopes
        return g.copy(), h.copy()

    def move(self, f: int, delta: np.ndarray) -> None:
        if f != self._f or self._slopes is None:
            self.finish()
            self._view.move(f, delta)
            return
        g, h = self._slopes
        g += h * delta
        self._moved = delta.copy() if self._moved is None else self._moved + delta

    def finish(self) -> None:
        """Pass all moves so far on to the view."""
        if self._moved is not None:
            self._view.move(self._f, self._moved)
        self._slopes = self._moved = None

    def slopes_along(self, tangent: np.ndarray, at: int = 0) -> tuple[np.ndarray, np.ndarray]:
        self.finish()
        return self._view.slopes_along(tangent, at)

    def move_along(self, tangent: np.ndarray, delta: np.ndarray, at: int = 0) -> None:
        self._view.move_along(tangent, delta, at)

    def slopes_pair(self, f: int, q: int, phi: np.ndarray) -> np.ndarray:
        self.finish()
        return self._view.slopes_pair(f, q, phi)

    def move_pair(self, f: int, q: int, delta_f: np.ndarray, delta_q: np.ndarray) -> None:
        self._view.move_pair(f, q, delta_f, delta_q)
