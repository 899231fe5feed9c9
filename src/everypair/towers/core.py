r"""``Core``: towers joined by a core tensor, Tucker decomposition (Section 5.3.2).

.. math:: \phi_f(c_1, c_2, \ldots) = \sum_{f_1, f_2, \ldots} B_{f_1 f_2 \ldots f} \, u_{c_1 f_1} v_{c_2 f_2} \cdots
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np

from everypair.columns.table import Rows
from everypair.engine.binding import BindContext
from everypair.engine.blocks import CORE, Block, CoreBlock, LevelBlock
from everypair.engine.parameter import Parameter
from everypair.engine.tower import Capabilities, Tower
from everypair.engine.vectors import RangeVectors, Vectors
from everypair.engine.view import DerivedView, View
from everypair.runtime import validation as check
from everypair.runtime.cached import cached_property
from everypair.runtime.parallel import SERIAL, Workers
from everypair.towers.kron import KronField, StackedField
from everypair.towers.lookup import Lookup
from everypair.towers.multiplicative import Modes, table_of
from everypair.towers.steps.dispatch import Solver, step_linear


class Core(Modes):
    """Modes joined by a free core tensor B (k1 x k2 x ... x K).

    Dimension e of a mode affects all K dimensions of phi. Steps on the core are those of a linear tower: phi is linear in the
    features ``kron(u, v, ...)``, and the slice ``B[..., f]`` holds their weights in dimension f.

    Parameters
    ----------
    *towers : Tower
        Their numbers of dimensions may differ.
    factors : int
        Number of dimensions K of phi.
    combinations : {"observed", "all"}
        As for :class:`Product`.
    name : str
        Name of the parameter B.
    """

    _B: Parameter

    def __init__(self, *towers: Tower, factors: int, combinations: str = "observed", name: str = "core") -> None:
        super().__init__(*towers, combinations=combinations)
        self.factors = self.n_dims = check.integer("factors", factors, low=1)
        self.name = name

    def build(self, binding: BindContext) -> None:
        super().build(binding)
        shape = (*(tower.n_dims for tower in self.towers), self.n_dims)
        observed, unobserved = binding.group.total(np.array([binding.observed.sum(), binding.unobserved.sum()], np.float64))
        implicit = binding.per_combination * self.n_combinations if self.complete else unobserved
        B = binding.normal(shape, int(np.prod(shape)), name=self.name)
        self._B = binding.parameter(self.name, B, float(observed + implicit))
        self.parameters[self.name] = self._B

    def evaluate(self, rows: Rows, workers: Workers) -> Vectors:
        return Vectors(rows=self._kron(rows, self.towers, workers).contract(self._B.value, workers))

    @property
    def capabilities(self) -> Capabilities:
        """The core is rotated with the items. With three or more modes, each step needs all dimensions of all rows."""
        return super().capabilities._replace(
            rotations=() if self._B.fixed else ((0, self.n_dims),),
            lazy=len(self.towers) <= 2 and all(isinstance(tower, Lookup) for tower in self.towers),
            all_combinations=self.complete,
            divided=not self.complete and all(tower.capabilities.divided for tower in self.towers),
        )

    def range_vectors(self, first: int, last: int) -> RangeVectors:
        modes = [table_of(tower, self.rows, SERIAL) for tower in self.towers]
        B = np.ascontiguousarray(self._B.value[..., first:last])
        (table, codes), *others = modes
        if others and 2 * len(table) * B.shape[1] <= self.rows.n:  # the first mode once per level: at most half the size of phi
            by_level = KronField([table], [np.arange(len(table))]).contract(B, SERIAL)
            return lambda start, stop: _kron_of_range(others, start, stop).contract(by_level, SERIAL, which=codes[start:stop])
        return lambda start, stop: _kron_of_range(modes, start, stop).contract(B, SERIAL)

    def dimensions(self, rows: Rows, workers: Workers) -> Callable[[int], np.ndarray]:
        kron = self._kron(rows, self.towers, workers)
        return lambda f: kron.contract(np.ascontiguousarray(self._B.value[..., f]), workers)

    def vectors_by_row(self) -> Callable[[np.ndarray], np.ndarray]:
        modes = [tower.vectors_by_row() for tower in self.towers]

        def phi(index: np.ndarray) -> np.ndarray:
            rows = np.arange(len(index))
            return KronField([mode(index) for mode in modes], [rows] * len(modes)).contract(self._B.value, SERIAL)

        return phi

    def _kron(self, rows: Rows, towers: Sequence[Tower], workers: Workers) -> KronField:
        """The features ``kron(u, v, ...)`` of rows, over these modes."""
        return KronField(*zip(*(table_of(tower, rows, workers) for tower in towers), strict=True))

    def view_of(self, mode: int, view: View) -> View:
        return TangentView(view, self, mode)

    def block_of_mode(self, mode: int, block: LevelBlock) -> LevelBlock:
        def core() -> np.ndarray:
            axes = [axis for axis in range(self._B.value.ndim - 1) if axis != mode]
            return np.transpose(self._B.value, (*axes, mode, self._B.value.ndim - 1))

        return block._replace(partner=CORE, modes=self.tables_without(mode), core=core)

    def describe_blocks(self) -> list[Block] | None:
        modes = super().describe_blocks()
        return None if modes is None else [*modes, *([] if self._B.fixed else [CoreBlock(self._B, self.tables_without(None))])]

    # steps on the core

    @property
    def blocks(self) -> Sequence[Any]:
        return [*super().blocks, *([] if self._B.fixed else ["core"])]

    def step(self, view: View, block: Any) -> None:
        if block == "core":
            self._step_core(view)
        else:
            super().step(view, block)

    def _step_core(self, view: View) -> None:
        solver = Solver(self.settings.step_size, self.settings.field_solver, view.workers)
        listed = self._kron(self.rows, self.towers, view.workers)
        pseudo = self._pseudo_contexts() if self.complete else None
        field = listed if pseudo is None else StackedField(listed, pseudo)
        for f in range(self.n_dims):
            g, h = (x.astype(np.float64) for x in view.slopes(f))
            if pseudo is not None:
                alpha0, J = view.implicit()
                product = self._B.value.astype(np.float64) @ J[f]
                g = np.append(g, alpha0 * pseudo.multiply(product.ravel(), view.workers))
                h = np.append(h, np.full(pseudo.shape[0], alpha0 * J[f, f]))
            delta = np.zeros_like(g)
            w = self._B.value[..., f].astype(np.float64).ravel()
            step_linear(field, w, self._B.penalty, g, h, delta, solver)
            self._B.value[..., f] = w.reshape(self._B.value.shape[:-1])
            view.move(f, delta[: listed.shape[0]].astype(self._B.value.dtype))

    def _pseudo_contexts(self) -> KronField:
        """Few contexts with the same Gram as all combinations of levels, for the implicit part of steps on the core.

        ``kron(J_C1, J_C2) = sum over rows of kron(R1, R2) kron(R1, R2)'`` for any square roots ``R' R = J``.
        """
        roots = []
        for j in range(len(self.modes)):
            values, Q = np.linalg.eigh(self.modes[j].level_gram())
            roots.append(np.sqrt(np.maximum(values, 0.0))[:, None] * Q.T)
        grid = np.indices([len(root) for root in roots]).reshape(len(roots), -1)
        return KronField(roots, list(grid))

    # the implicit part over all combinations of levels

    def implicit_matrix(self, mode: int, J: np.ndarray) -> np.ndarray:
        """``sum B[e, f2, f] B[e', f2', f'] J_C2[f2, f2'] J_I[f, f']`` for dimensions e, e' of the mode."""
        left = self._B.value.astype(np.float64)
        right = np.tensordot(left, J, (-1, 0))
        for j in range(len(self.modes)):
            if j != mode:
                right = _apply_to_axis(self.modes[j].level_gram(), right, j)
        axes = [axis for axis in range(left.ndim) if axis != mode]
        return np.tensordot(left, right, (axes, axes))

    def complete_gram(self) -> np.ndarray:
        """``J_C = B' kron(J_C1, J_C2, ...) B``."""
        B = product = self._B.value.astype(np.float64)
        for j in range(len(self.modes)):
            product = _apply_to_axis(self.modes[j].level_gram(), product, j)
        axes = list(range(len(self.modes)))
        return np.tensordot(B, product, (axes, axes))

    def rotate(self, at: slice, Q: np.ndarray, workers: Workers) -> None:
        self._B.value[..., at] = self._B.value[..., at] @ Q.astype(self._B.value.dtype)

    @property
    def degree(self) -> int:
        return 1 + sum(tower.degree for tower in self.towers)

    @property
    def terms(self) -> int:
        return int(np.prod([tower.n_dims * tower.terms for tower in self.towers]))


class TangentView(DerivedView):
    """The view of a mode: its dimension e moves phi(c) along slice e of the core, contracted with the other modes."""

    def __init__(self, view: View, core: Core, mode: int) -> None:
        super().__init__(view)
        self._core, self._mode = core, mode
        self._towers = [tower for j, tower in enumerate(core.towers) if j != mode]
        self._tangent: tuple[int, np.ndarray] = (-1, np.empty(0))

    @cached_property
    def _others(self) -> KronField | None:
        return self._core._kron(self._core.rows, self._towers, self.workers) if self._towers else None

    def track(self, f: int) -> None:
        """No effect: dimensions of the mode are not dimensions of phi."""

    def slopes(self, f: int) -> tuple[np.ndarray, np.ndarray]:
        return self._view.slopes_along(self._of_dimension(f))

    def move(self, f: int, delta: np.ndarray) -> None:
        self._view.move_along(self._of_dimension(f), delta)

    def slopes_along(self, tangent: np.ndarray, at: int = 0) -> tuple[np.ndarray, np.ndarray]:
        return self._view.slopes_along(self._joint(tangent, at))

    def move_along(self, tangent: np.ndarray, delta: np.ndarray, at: int = 0) -> None:
        self._view.move_along(self._joint(tangent, at), delta)

    def _of_dimension(self, e: int) -> np.ndarray:
        if self._tangent[0] != e:
            B = np.take(self._core._B.value, e, axis=self._mode)
            if self._others is None:
                tangent = np.broadcast_to(B, (self.n_rows, len(B))).copy()
            else:
                tangent = self._others.contract(B, self.workers)
            self._tangent = e, tangent
        return self._tangent[1]

    def _joint(self, tangent: np.ndarray, at: int) -> np.ndarray:
        """The tangent of phi if the mode's dimensions from ``at`` on move along ``tangent``."""
        return reduce(np.add, (self._of_dimension(at + e) * tangent[:, e : e + 1] for e in range(tangent.shape[1])))


def _kron_of_range(modes: list[tuple[np.ndarray, np.ndarray]], start: int, stop: int) -> KronField:
    """The features of contexts ``start:stop``."""
    return KronField(*zip(*((table, codes[start:stop]) for table, codes in modes), strict=True))


def _apply_to_axis(matrix: np.ndarray, tensor: np.ndarray, axis: int) -> np.ndarray:
    return np.moveaxis(np.tensordot(matrix, tensor, (1, axis)), 0, axis)
