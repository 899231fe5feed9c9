"""Linear in features: ``phi(c) = x_c W`` (Section 5.2.1, MF with side information; Algorithm 3)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from everypair.features import Features, Field, like
from everypair.feedback import Values
from everypair.objective import Side
from everypair.parallel import SERIAL, Workers
from everypair.towers.base import Parameter, Tower
from everypair.towers.fields import Solver, step_linear
from everypair.vectors import Vectors, turn


class FeatureTower(Tower):
    """A tower whose rows are described by features, with a matrix W of factors by dimension (k x p)."""

    features: Features
    _W: Parameter

    @abstractmethod
    def evaluate(self, features: Features, workers: Workers) -> np.ndarray:
        """phi by dimension (K x n) of rows with these features."""

    def vectors(self, workers: Workers = SERIAL) -> Vectors:
        return Vectors(dims=self.evaluate(self.features, workers))

    def vectors_of(self, name: str, rows: Any) -> np.ndarray:
        return Vectors(dims=self.evaluate(like(name, rows, self.features), SERIAL)).rows

    def lookup(self) -> Callable[[np.ndarray], np.ndarray]:
        if not self.features.has_rows:
            return super().lookup()
        return lambda index: self.vectors_of("rows", self.features.take(index))

    @property
    def rotatable(self) -> int:
        return 0 if self._W.fixed else len(self._W.value)

    def rotate(self, Q: np.ndarray, vectors: Vectors, workers: Workers) -> None:
        turn(self._W.value, Q, workers)
        vectors.rotate(Q, workers)


class Linear(FeatureTower):
    """A vector of weights per feature.

    Per dimension f the derivatives ``g_c, h_c`` with respect to ``phi_f(c)`` are computed once; the features are then swept on
    those two vectors alone: O(k |S| + k^2 |C| + k Nz(X)) in all, where the paper counts O(k^2 Nz(X)).
    """

    def __init__(
        self,
        letter: str,
        features: Features,
        W: np.ndarray,
        penalty: Values,
        step_size: float = 1.0,
        field_solver: str = "block",
    ) -> None:
        self.features = features
        self._W = Parameter(W.T.copy(order="C"), penalty, transposed=True)
        self.parameters = {letter: self._W}
        self.n_dims = W.shape[1]
        self.step_size, self.field_solver = step_size, field_solver

    def evaluate(self, features: Features, workers: Workers) -> np.ndarray:
        return project(features, self._W.value, workers)

    @property
    def blocks(self) -> range:
        return range(0 if self._W.fixed else self.n_dims)

    def step(self, side: Side, block: int) -> None:
        solver = Solver(self.step_size, self.field_solver, side.workers)
        step_dimension(side, block, self.features, self._W.value[block], self._W.penalty, solver)


def project(features: Features, W: np.ndarray, workers: Workers) -> np.ndarray:
    """``X W`` by dimension: (K x p) weights give (K x n) vectors."""
    out = np.zeros((len(W), features.n_rows), W.dtype)
    for f, w in enumerate(W):
        for field, at in columns_of(features):
            out[f] += field.multiply(w[at], workers)
    return out


def columns_of(features: Features) -> Iterator[tuple[Field, slice]]:
    """Each field with its place among all features."""
    start = 0
    for field in features.fields.values():
        yield field, slice(start, start + field.shape[1])
        start += field.shape[1]


def step_dimension(side: Side, f: int, features: Features, w: np.ndarray, penalty: Values, solver: Solver) -> None:
    """One dimension of a linear tower: all fields in turn, then the move of ``phi_f``."""
    g, h = side.slopes(f)
    delta = np.zeros_like(g)
    step_fields(features, w, penalty, g, h, delta, solver)
    side.move(f, delta)


def step_fields(
    features: Features, w: np.ndarray, penalty: Values, g: np.ndarray, h: np.ndarray, delta: np.ndarray, solver: Solver
) -> None:
    """The weights of all fields in one dimension, a field after the other."""
    for field, at in columns_of(features):
        step_linear(field, w[at], penalty_part(penalty, at), g, h, delta, solver)


def penalty_part(penalty: Values, at: slice) -> Values:
    return penalty if np.ndim(penalty) == 0 else penalty[at]  # type: ignore[index]
