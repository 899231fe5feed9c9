r"""Tucker decomposition (Section 5.3.2).

.. math:: \phi_f(c_1, c_2, \ldots) = \sum_{f_1, f_2, \ldots} B_{f_1 f_2 \ldots f} \, u_{c_1 f_1} v_{c_2 f_2} \cdots
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from typing import Any

import numpy as np

from everypair.features import Field
from everypair.feedback import Values
from everypair.objective import Side
from everypair.parallel import Workers
from everypair.towers.base import Parameter
from everypair.towers.embedding import Embedding
from everypair.towers.fields import Solver, step_linear
from everypair.towers.modes import ModeTower
from everypair.vectors import Vectors


class Core(ModeTower):
    """Modes joined by a free core tensor B (k1 x k2 x ... x K).

    Dimension e of a mode moves all K dimensions of phi. The core itself is a linear tower: phi is linear in the features
    ``kron(u, v, ...)``, and a slice ``B[..., f]`` holds their weights in dimension f.
    """

    def __init__(
        self,
        letter: str,
        B: np.ndarray,
        penalty: Values,
        modes: Sequence[Embedding],
        contexts: np.ndarray,
        complete: bool,
        step_size: float = 1.0,
        field_solver: str = "block",
    ) -> None:
        super().__init__(modes, contexts, complete)
        self._B = Parameter(B, penalty)
        self.parameters = {letter: self._B, **self.parameters}
        self.n_dims = B.shape[-1]
        self.step_size, self.field_solver = step_size, field_solver

    def combine(self, levels: Sequence[np.ndarray], workers: Workers) -> Vectors:
        return Vectors(rows=KronField(self.tables(), levels).contract(self._B.value, workers))

    def _kron(self, modes: Sequence[int]) -> KronField:
        """The features ``kron(u, v, ...)`` of the listed contexts, over some of the modes."""
        tables = self.tables()
        return KronField([tables[j] for j in modes], [self.levels[j].level for j in modes])

    # a mode's dimension e moves phi(c) along the core's slice, contracted with the other modes

    def tangent(self, mode: int, e: int, workers: Workers) -> np.ndarray:
        others = [j for j in range(len(self.modes)) if j != mode]
        return self._kron(others).contract(np.take(self._B.value, e, axis=mode), workers)

    def tangent_slopes(self, side: Side, e: int, tangent: np.ndarray) -> tuple[np.ndarray, np.ndarray, Values]:
        return *side.slopes_along(tangent), 1.0

    def tangent_move(self, side: Side, e: int, tangent: np.ndarray, delta: np.ndarray) -> None:
        side.move_along(tangent, delta.astype(self._B.value.dtype))

    # the core's own steps

    @property
    def blocks(self) -> Sequence[Any]:
        return [*super().blocks, *([] if self._B.fixed else ["core"])]

    def step(self, side: Side, block: Any) -> None:
        if block == "core":
            self._step_core(side)
        else:
            super().step(side, block)

    def _step_core(self, side: Side) -> None:
        solver = Solver(self.step_size, self.field_solver, side.workers)
        listed = self._kron(range(len(self.modes)))
        unlisted = self._stand_ins() if self.complete else None
        field = listed if unlisted is None else StackedField(listed, unlisted)
        for f in range(self.n_dims):
            g, h = (x.astype(np.float64) for x in side.slopes(f))
            if unlisted is not None:
                product = self._B.value.astype(np.float64) @ side.gram[f]
                g = np.append(g, side.alpha0 * unlisted.multiply(product.ravel(), side.workers))
                h = np.append(h, np.full(unlisted.shape[0], side.alpha0 * side.gram[f, f]))
            delta = np.zeros_like(g)
            w = self._B.value[..., f].astype(np.float64).ravel()
            step_linear(field, w, self._B.penalty, g, h, delta, solver)
            self._B.value[..., f] = w.reshape(self._B.value.shape[:-1])
            side.move(f, delta[: listed.shape[0]].astype(self._B.value.dtype))

    def _stand_ins(self) -> KronField:
        """A few contexts with the same Gram as all combinations of levels: the implicit part of the core's steps.

        ``kron(J_C1, J_C2) = sum over rows of kron(R1, R2) kron(R1, R2)'`` for any square roots ``R' R = J``.
        """
        roots = []
        for j in range(len(self.modes)):
            values, Q = np.linalg.eigh(self.mode_gram(j))
            roots.append(np.sqrt(np.maximum(values, 0.0))[:, None] * Q.T)
        grid = np.indices([len(root) for root in roots]).reshape(len(roots), -1)
        return KronField(roots, list(grid))

    # implicit part over all combinations of levels

    def implicit_matrix(self, mode: int, J: np.ndarray) -> np.ndarray:
        """``sum B[e, f2, f] B[e', f2', f'] J_C2[f2, f2'] J_I[f, f']`` for dimensions e, e' of the mode."""
        left = self._B.value.astype(np.float64)
        right = np.tensordot(left, J, (-1, 0))
        for j in range(len(self.modes)):
            if j != mode:
                right = _apply_to_axis(self.mode_gram(j), right, j)
        axes = [axis for axis in range(left.ndim) if axis != mode]
        return np.tensordot(left, right, (axes, axes))

    def complete_gram(self) -> np.ndarray:
        """``J_C = B' kron(J_C1, J_C2, ...) B``."""
        B = turned = self._B.value.astype(np.float64)
        for j in range(len(self.modes)):
            turned = _apply_to_axis(self.mode_gram(j), turned, j)
        axes = list(range(len(self.modes)))
        return np.tensordot(B, turned, (axes, axes))

    # the rotation of the item's dimensions: the core turns along

    @property
    def rotatable(self) -> int:
        return 0 if self._B.fixed else self.n_dims

    def rotate(self, Q: np.ndarray, vectors: Vectors, workers: Workers) -> None:
        self._B.value[...] = self._B.value @ Q.astype(self._B.value.dtype)
        vectors.rotate(Q, workers)


class KronField(Field):
    """The dense features ``kron(u[c1], v[c2], ...)`` of contexts, never stored."""

    one_hot = False
    makes_columns = True

    def __init__(self, tables: Sequence[np.ndarray], levels: Sequence[np.ndarray]) -> None:
        self._tables, self._levels = tables, levels
        self.shape = (len(levels[0]), int(np.prod([table.shape[1] for table in tables])))

    def contract(self, tensor: np.ndarray, workers: Workers, tables: Sequence[np.ndarray] | None = None) -> np.ndarray:
        """The leading axes of ``tensor``, one for each variable, times the contexts' vectors: (n, remaining axes)."""
        tables = self._tables if tables is None else tables
        out = np.empty((self.shape[0], *tensor.shape[len(tables) :]), tensor.dtype)

        def some(start: int, stop: int) -> None:
            first, *others = [table[level[start:stop]] for table, level in zip(tables, self._levels, strict=True)]
            x = (first @ tensor.reshape(len(tensor), -1)).reshape(len(first), *tensor.shape[1:])
            for v in others:
                x = np.einsum("ce,ce...->c...", v, x)
            out[start:stop] = x

        workers.chunks(self.shape[0], some)
        return out

    def _scatter(self, z: np.ndarray, workers: Workers, tables: Sequence[np.ndarray]) -> np.ndarray:
        """``sum_c z_c kron(u, v, ...)``."""

        def term(start: int, stop: int) -> np.ndarray:
            parts = [table[level[start:stop]].astype(np.float64) for table, level in zip(tables, self._levels, strict=True)]
            *before, last = [z[start:stop, None], *parts]
            return (reduce(_row_kron, before).T @ last).ravel()

        return workers.sum(self.shape[0], term).astype(z.dtype)

    def multiply(self, v: np.ndarray, workers: Workers) -> np.ndarray:
        return self.contract(self._shaped(v), workers)

    def multiply_transposed(self, z: np.ndarray, workers: Workers) -> np.ndarray:
        return self._scatter(z, workers, self._tables)

    def multiply_squared(self, v: np.ndarray, workers: Workers) -> np.ndarray:
        return self.contract(self._shaped(v), workers, [np.square(table) for table in self._tables])

    def multiply_squared_transposed(self, z: np.ndarray, workers: Workers) -> np.ndarray:
        return self._scatter(z, workers, [np.square(table) for table in self._tables])

    def iterate_columns(self) -> Iterator[np.ndarray]:
        """The columns as dense vectors, in order."""
        parts = [table[level] for table, level in zip(self._tables, self._levels, strict=True)]
        for entry in np.ndindex(*[table.shape[1] for table in self._tables]):
            yield np.multiply.reduce([part[:, e] for part, e in zip(parts, entry, strict=True)]).astype(np.float64)

    def _shaped(self, v: np.ndarray) -> np.ndarray:
        return v.reshape([table.shape[1] for table in self._tables])


class StackedField(Field):
    """The rows of one field followed by those of another."""

    one_hot = False
    makes_columns = True

    def __init__(self, top: KronField, bottom: KronField) -> None:
        self._parts = (top, bottom)
        self.shape = (top.shape[0] + bottom.shape[0], top.shape[1])

    def multiply(self, v: np.ndarray, workers: Workers) -> np.ndarray:
        return np.concatenate([part.multiply(v, workers) for part in self._parts])

    def multiply_squared(self, v: np.ndarray, workers: Workers) -> np.ndarray:
        return np.concatenate([part.multiply_squared(v, workers) for part in self._parts])

    def multiply_transposed(self, z: np.ndarray, workers: Workers) -> np.ndarray:
        top, bottom, n = *self._parts, self._parts[0].shape[0]
        return top.multiply_transposed(z[:n], workers) + bottom.multiply_transposed(z[n:], workers)

    def multiply_squared_transposed(self, z: np.ndarray, workers: Workers) -> np.ndarray:
        top, bottom, n = *self._parts, self._parts[0].shape[0]
        return top.multiply_squared_transposed(z[:n], workers) + bottom.multiply_squared_transposed(z[n:], workers)

    def iterate_columns(self) -> Iterator[np.ndarray]:
        for columns in zip(*(part.iterate_columns() for part in self._parts), strict=True):
            yield np.concatenate(columns)


def _row_kron(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return (x[:, :, None] * y[:, None, :]).reshape(len(x), -1)


def _apply_to_axis(matrix: np.ndarray, tensor: np.ndarray, axis: int) -> np.ndarray:
    return np.moveaxis(np.tensordot(matrix, tensor, (1, axis)), 0, axis)
