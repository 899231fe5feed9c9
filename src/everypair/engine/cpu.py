"""``CpuEngine``: the engine that runs a fit on CPU threads."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from everypair.engine.engine import OPPOSITE, SIDES, Engine
from everypair.engine.feedback import Feedback
from everypair.engine.lazy_vectors import LazyVectors
from everypair.engine.objective import Objective, ObjectiveValue, or_one
from everypair.engine.rotation import in_turn, is_singular, spread_order, swept_by_rows
from everypair.engine.tower import Tower, common_rotations
from everypair.runtime.numerics import Values
from everypair.runtime.parallel import Workers

MOST_UNROTATED = 2  # dimensions for which lazy vectors still pay: bias and constant of a factorization machine


class CpuEngine(Engine):
    """NumPy arrays, with kernels that threads run on ranges of rows.

    Parameters
    ----------
    feedback : Feedback
    towers : mapping of Tower
        The bound towers of "context" and "item", with their start values.
    alpha0 : float
        Weight of an unobserved pair.
    dtype : numpy dtype
    workers : Workers
    rotate : bool
        Whether :meth:`turn` rotates.
    by_dimension : bool
        Whether the solver alternates between the sides dimension by dimension (``order="dimension"``).
    """

    def __init__(
        self,
        feedback: Feedback,
        towers: Mapping[str, Tower],
        alpha0: float,
        dtype: np.dtype,
        workers: Workers,
        rotate: bool = True,
        by_dimension: bool = False,
    ) -> None:
        super().__init__(feedback, towers, alpha0, dtype)
        self.workers, self.by_dimension = workers, by_dimension
        self._workers = {"context": workers, "item": workers.alone()}  # contexts may be divided among processes, items are not
        self.objective = Objective(feedback, alpha0, dtype, workers, listed=not towers["context"].capabilities.all_combinations)
        common = common_rotations([tower.capabilities.rotations for tower in towers.values()])
        self._rotations = [slice(*dims) for dims in common] if rotate else []
        self._by_rows = all(swept_by_rows(tower) for tower in towers.values())
        self._weights: dict[str, Values] = {
            "context": or_one(feedback.context_weight),
            "item": or_one(feedback.item_weight),
        }

    @property
    def finite(self) -> bool:
        return self.objective.finite

    def place(self, side: str) -> None:
        tower = self.towers[side]
        if self._lazy(tower):
            self.objective.vectors[side] = LazyVectors(tower, self._workers[side])
            return
        vectors = tower.vectors(self._workers[side])
        vectors.conform(self.dtype)
        if not tower.capabilities.free_rows:
            vectors.own([parameter.value for parameter in tower.parameters.values()])
        self.objective.vectors[side] = vectors

    def _lazy(self, tower: Tower) -> bool:
        """Whether vectors are computed when needed, not stored: if rotation makes J diagonal except for few dimensions, so that a
        step on one needs few others, or if steps need no vectors."""
        rotated = sum(dims.stop - dims.start for dims in self._rotations)
        nearly_diagonal = tower.n_dims - rotated <= MOST_UNROTATED
        can = tower.capabilities
        by_levels = can.by_levels and not self.by_dimension and not self.workers.group.divided
        return can.lazy and not can.free_rows and (nearly_diagonal or by_levels)

    def update_gram(self, side: str) -> None:
        vectors = self.objective.vectors[side]
        self.objective.grams[side] = self.towers[side].gram(vectors, self._weights[side], self._workers[side])

    def sweep(self, side: str) -> None:
        self.towers[side].sweep(self.objective.side(side))
        if self.towers[side].capabilities.free_rows:
            self.place(side)

    def step(self, side: str, block: int | str) -> None:
        view, vectors, J = self.objective.side(side), self.objective.vectors[side], self.objective.grams[side]
        self.towers[side].step(view, block)
        for f in sorted(view.moved):  # O(|C| K) for each dimension that moved, as in Algorithm 2
            J[f] = J[:, f] = vectors.gram_row(f, self._weights[side], self._workers[side])

    def rescore(self) -> None:
        self.objective.rescore()

    def value(self) -> ObjectiveValue:
        group, l2 = self.workers.group, 0.0
        for tower in self.towers.values():
            if not group.divided:
                l2 += tower.l2()
                continue
            apart = np.sum([(0.0, 0.0), *(parameter.l2_apart() for parameter in tower.parameters.values())], axis=0)
            l2 += float(group.total(apart[:1])[0]) + float(apart[1])
        return self.objective.value(l2)

    @property
    def size(self) -> float:
        return self.objective.size

    def agreed(self, decision: bool) -> bool:
        return self.workers.group.agreed(decision)

    def turn(self, side: str, epoch: int = 1) -> None:
        """Rotate both towers by the eigenvectors of the other side's Gram.

        Where both sides are swept row by row, only in some epochs, see :mod:`everypair.engine.rotation`.

        Each range of dimensions that both towers can rotate is rotated separately. Without L2, ranges with a nearly singular Gram
        are left out: a dimension that holds only rounding errors would give steps of noise divided by noise.
        """
        if self._by_rows and not in_turn(epoch):
            return
        other, grams = OPPOSITE[side], self.objective.grams
        for at in self._rotations:
            values, Q = np.linalg.eigh(grams[other][at, at])
            if self._by_rows:
                order = spread_order(len(values))
                values, Q = values[order], np.ascontiguousarray(Q[:, order])
            if self._unregularized and is_singular(values, self.dtype):
                continue
            self._rotate(at, Q)
            norms = np.maximum(values, 0.0)
            if not isinstance(self.objective.vectors[other], LazyVectors):  # stored vectors were rotated with rounding errors
                norms = self._norms(other)[at]
            if self._unregularized and is_singular(norms, self.dtype):
                self._rotate(at, Q.T)
                continue
            J = grams[other].copy()
            J[at] = Q.T @ J[at]
            J[:, at] = J[at].T
            J[at, at] = np.diag(norms)
            grams[other] = J

    def _rotate(self, at: slice, Q: np.ndarray) -> None:
        for side in SIDES:
            tower = self.towers[side]
            tower.rotate(at, Q, self._workers[side])
            if tower.capabilities.free_rows:
                self.place(side)
            else:
                self.objective.vectors[side].rotate(at, Q, self._workers[side])

    @property
    def _unregularized(self) -> bool:
        """Whether parameters have no L2. Features without support do not count: frequency scaling gives them none, and they are
        zero."""
        free = [parameter for parameter in self.parameters.values() if not parameter.fixed]
        return any(part.strength == 0.0 for parameter in free for part in parameter.parts)

    def _norms(self, side: str) -> np.ndarray:
        """Squared norms of the dimensions of a side."""
        return self.towers[side].norms(self.objective.vectors[side], self._weights[side], self._workers[side])
