r"""Factorization machines (Section 5.2.2).

.. math::

    \phi(c) = \bigl(x_c W,\; b + \langle x_c, \tilde w \rangle + \sum_{l < l'} \langle w_l, w_{l'} \rangle x_{cl} x_{cl'},\; 1\bigr)

with K = k + 2; the other side has its constant 1 where this one has its bias dimension, and the other way round.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from everypair.features import Features, OnesField
from everypair.feedback import Values
from everypair.kernels.pairs import MOVE_F, MOVE_Q
from everypair.objective import Side
from everypair.parallel import Workers
from everypair.towers.base import Parameter
from everypair.towers.fields import Solver, step_linear, step_machine
from everypair.towers.linear import FeatureTower, columns_of, penalty_part, project, step_fields


class Machine(FeatureTower):
    """One side of a factorization machine: factors W, linear weights w, and on one of the sides the global bias b.

    ``bias_dim`` is the dimension of the side's own bias and pairwise terms, ``one_dim`` the constant that meets the other
    side's.
    """

    def __init__(
        self,
        letters: tuple[str, ...],
        features: Features,
        W: np.ndarray,
        penalties: dict[str, Values],
        bias_dim: int,
        one_dim: int,
        step_size: float = 1.0,
        field_solver: str = "block",
    ) -> None:
        self.features = features
        *bias, linear, factors = letters
        self._W = Parameter(W.T.copy(order="C"), penalties[factors], transposed=True)
        self._w = Parameter(np.zeros(len(W), W.dtype), penalties[linear])
        self._b = Parameter(np.zeros(1, W.dtype), penalties[bias[0]]) if bias else None
        self.parameters = {linear: self._w, factors: self._W}
        if self._b is not None:
            self.parameters = {bias[0]: self._b, **self.parameters}
        self.n_dims = W.shape[1] + 2
        self._q, self._one = bias_dim, one_dim
        self.step_size, self.field_solver = step_size, field_solver

    def evaluate(self, features: Features, workers: Workers) -> np.ndarray:
        k = self.n_dims - 2
        out = np.empty((self.n_dims, features.n_rows), self._W.value.dtype)
        out[:k] = project(features, self._W.value, workers)
        out[self._one] = 1.0
        out[self._q] = 0.0 if self._b is None else self._b.value[0]
        norms = np.square(self._W.value)
        for field, at in columns_of(features):
            out[self._q] += field.multiply(self._w.value[at], workers)
            # sum over l < l' = half of (square of the sum less the sum of squares), dimension by dimension
            out[self._q] -= 0.5 * field.multiply_squared(norms[:, at].sum(axis=0), workers)
        out[self._q] += 0.5 * np.einsum("fc,fc->c", out[:k], out[:k])
        return out

    @property
    def blocks(self) -> Sequence[int | str]:
        linear = ["linear"] if not self._w.fixed or (self._b is not None and not self._b.fixed) else []
        return [*linear, *range(0 if self._W.fixed else self.n_dims - 2)]

    def step(self, side: Side, block: int | str) -> None:
        solver = Solver(self.step_size, self.field_solver, side.workers)
        if block == "linear":
            self._step_linear(side, solver)
        else:
            self._step_factors(side, int(block), solver)

    def _step_linear(self, side: Side, solver: Solver) -> None:
        """b and w: linear in the bias dimension, b as the weight of a feature that every row has."""
        g, h = side.slopes(self._q)
        delta = np.zeros_like(g)
        if self._b is not None and not self._b.fixed:
            step_linear(OnesField(len(g)), self._b.value, self._b.penalty, g, h, delta, solver)
        if not self._w.fixed:
            step_fields(self.features, self._w.value, self._w.penalty, g, h, delta, solver)
        side.move(self._q, delta)

    def _step_factors(self, side: Side, f: int, solver: Solver) -> None:
        """Dimension f of the factors: each also moves the bias dimension through its pairwise terms."""
        side.track(self._q)
        state = side.slopes_pair(f, self._q)
        for field, at in columns_of(self.features):
            step_machine(field, self._W.value[f, at], penalty_part(self._W.penalty, at), state, solver)
        side.move_pair(f, self._q, state[:, MOVE_F].copy(), state[:, MOVE_Q].copy())
