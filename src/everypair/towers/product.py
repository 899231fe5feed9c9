"""PARAFAC (Section 5.3.1): ``phi_f(c1, c2, ...) = u_{c1,f} v_{c2,f} ...``."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from everypair.feedback import Values
from everypair.objective import Side
from everypair.parallel import Workers
from everypair.towers.modes import ModeTower
from everypair.vectors import Vectors


class Product(ModeTower):
    """The elementwise product of the modes' vectors: a level of one mode sees ``v * psi`` as its item vectors.

    Turning the dimensions would mix the factors of the product, so this tower declines the rotation.
    """

    @property
    def n_dims(self) -> int:  # type: ignore[override]
        return self.modes[0].n_dims

    def combine(self, levels: Sequence[np.ndarray], workers: Workers) -> Vectors:
        out = np.ones((self.n_dims, len(levels[0])), self.tables()[0].dtype)
        for table, level in zip(self.tables(), levels, strict=True):
            for f in range(self.n_dims):
                out[f] *= table[:, f][level]
        return Vectors(dims=out)

    def tangent(self, mode: int, e: int, workers: Workers) -> np.ndarray:
        """``prod over the other modes of their u_e`` for each context: the derivative of ``phi_e``."""
        factors = [table[:, e][self.levels[j].level] for j, table in enumerate(self.tables()) if j != mode]
        return np.multiply.reduce(factors)

    def tangent_slopes(self, side: Side, e: int, tangent: np.ndarray) -> tuple[np.ndarray, np.ndarray, Values]:
        return *side.slopes(e), tangent

    def tangent_move(self, side: Side, e: int, tangent: np.ndarray, delta: np.ndarray) -> None:
        side.move(e, delta * tangent)

    def implicit_matrix(self, mode: int, J: np.ndarray) -> np.ndarray:
        """``J_I * J_C2 * ...`` elementwise, over the other modes."""
        grams = [self.mode_gram(j) for j in range(len(self.modes)) if j != mode]
        return np.multiply.reduce([J, *grams])

    def complete_gram(self) -> np.ndarray:
        """``J_C = J_C1 * J_C2 * ...`` elementwise."""
        return np.multiply.reduce([self.mode_gram(j) for j in range(len(self.modes))])
