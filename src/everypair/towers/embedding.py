"""Free vectors: ``phi(c) = w_c`` (Section 5.1, matrix factorization)."""

from __future__ import annotations

from typing import Any

import numpy as np

from everypair import validation as check
from everypair.feedback import Values
from everypair.objective import Side
from everypair.parallel import SERIAL, Workers
from everypair.towers.base import Parameter, Tower
from everypair.vectors import Vectors


class Embedding(Tower):
    """A row of parameters for every row of the side; rows are independent problems."""

    def __init__(self, letter: str, W: np.ndarray, penalty: Values, step_size: float = 1.0, block_size: int = 1) -> None:
        self._W = Parameter(W, penalty if np.ndim(penalty) == 0 else penalty[:, None])  # type: ignore[index]
        self.parameters = {letter: self._W}
        self.n_dims = W.shape[1]
        self.step_size, self.block_size = step_size, block_size

    def vectors(self, workers: Workers = SERIAL) -> Vectors:
        return Vectors(rows=self._W.value)

    def vectors_of(self, name: str, rows: Any) -> np.ndarray:
        return self._W.value[check.indices(name, np.atleast_1d(check.array(name, rows)), len(self._W.value))]

    @property
    def blocks(self) -> range:
        return range(0 if self._W.fixed else self.n_dims)

    @property
    def _penalty(self) -> Values:
        penalty = self._W.penalty
        return float(penalty) if np.ndim(penalty) == 0 else np.ravel(penalty)

    def step(self, side: Side, block: int) -> None:
        """``w_cf -= eta (g + lambda w) / (h + lambda)`` for one dimension of all rows."""
        w = self._W.value[:, block]
        g, h = side.slopes(block)
        denominator = h + self._penalty
        free = denominator > 0.0
        target = np.where(free, w - self.step_size * (g + self._penalty * w) / np.where(free, denominator, 1.0), 0.0)
        delta = target.astype(w.dtype) - w
        side.move(block, delta)
        w += delta

    def sweep(self, side: Side) -> None:
        """All dimensions of a row before the next row: the same steps as by dimension, in an order that suits the cache."""
        if not self._W.fixed:
            side.sweep_rows(self._W.value, self._penalty, self.step_size, self.block_size)

    @property
    def rotatable(self) -> int:
        return 0 if self._W.fixed else self.n_dims

    def rotate(self, Q: np.ndarray, vectors: Vectors, workers: Workers) -> None:
        W, Q = self._W.value, Q.astype(self._W.value.dtype)

        def some(start: int, stop: int) -> None:
            W[start:stop] = W[start:stop] @ Q

        workers.chunks(len(W), some)
        vectors.changed("rows")
