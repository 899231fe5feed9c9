r"""``Biases``: the bias dimension of a side of a factorization machine on a device, and the steps on its weights.

The dimension holds bias, linear and pairwise terms, and meets a 1 on the other side:

.. math:: \phi_q = b + \langle x, \tilde w \rangle + \tfrac12 \bigl(|F|^2 - \sum_l x_l^2 |w_l|^2\bigr), \qquad F = x W
"""

from __future__ import annotations

from typing import Any

import numpy as np

from everypair.gpu.backend import Backend
from everypair.gpu.levels import LevelField
from everypair.gpu.pairs import THREADS, PairsOfSide
from everypair.gpu.tasks import blocks

EACH = 256  # threads of a block that have a row each


class Biases:
    """Weights of a side, and the dimension that they are linear in.

    Parameters
    ----------
    backend : Backend
    weights : list of LevelField
        Bias and linear weights, in the order of their steps.
    n : int
        Number of rows.
    eta : float

    Attributes
    ----------
    of_rows : device array (n + 1)
        :math:`\\phi_q` of each row, and a zero.
    """

    def __init__(self, backend: Backend, weights: list[LevelField], n: int, eta: float) -> None:
        self.backend, self.weights, self._n, self._eta = backend, weights, n, eta
        self.of_rows = backend.xp.zeros(n + 1, np.float32)
        self._kernels = backend.kernels("biases")
        self._pieces = [field.pieces() for field in weights]

    def place(self, factors: list[LevelField], table: Any) -> None:
        """Compute the dimension of all rows, whose factors are in ``table``."""
        xp, n, kernels = self.backend.xp, self._n, self._kernels
        total, stride = xp.zeros(n, np.float64), table.shape[1]
        for field in self.weights:
            kernels.add_weights(
                -(-n // EACH), EACH, n, field.codes, *field.values, field.W, xp.zeros(field.n + 1, np.float32), total
            )
        if len(factors) > 1 or factors[0].values[1]:  # else a row is one feature: there are no pairs of them
            squares_of_rows, one = self.backend.kernels("rows").penalties_of_rows, self.backend.floats(1.0)  # with L2 of one
            for field in factors:
                squares = xp.zeros(field.n + 1, np.float64)
                squares_of_rows(blocks(field.n), THREADS, field.n, field.W, stride, *one, squares)
                no_weights = xp.zeros(field.n + 1, np.float32)
                kernels.add_weights(
                    -(-n // EACH), EACH, n, field.codes, *field.values, no_weights, squares.astype(np.float32), total
                )
            squares = xp.empty(n, np.float64)
            squares_of_rows(blocks(n), THREADS, n, table, stride, *one, squares)
            total += 0.5 * squares
        self.of_rows[:-1] = total

    def along(self, table: Any, J: Any, q: int, one: int) -> Any:
        """``t = (J phi)_q`` of each row, and a zero."""
        xp, stride = self.backend.xp, table.shape[1]
        t = table @ J[q, :stride].astype(np.float32) + J[q, q].astype(np.float32) * self.of_rows + J[q, one].astype(np.float32)
        t[-1] = 0.0
        return xp.ascontiguousarray(t)

    def sweep(self, own: PairsOfSide, scores: Any, t: Any, J_qq: float, by_event: bool) -> None:
        """Step on all weights; scores follow, and the dimension itself."""
        if not self.weights:
            return
        xp, n, tasks, kernels = self.backend.xp, self._n, own.tasks, self._kernels
        g, h, moved = xp.empty(n, np.float32), xp.empty(n, np.float32), xp.zeros(n, np.float32)
        if by_event:
            kernels.slopes_of_events(-(-n // EACH), EACH, n, scores, *own.a, *own.b, *own.weight, t, J_qq, g, h)
        else:
            slopes = xp.empty((tasks.n, 2), np.float64)
            kernels.slopes_of_tasks(blocks(tasks.n), THREADS, tasks.n, tasks.tasks, scores, *own.a, *own.b, slopes)
            sizes = (tasks.n, tasks.n_pieces, tasks.n_long)
            kernels.slopes_of_rows(
                -(-n // EACH), EACH, *sizes, tasks.tasks, tasks.long, tasks.bounds, slopes, *own.weight, t, J_qq, g, h
            )
        for field, pieces in zip(self.weights, self._pieces, strict=True):
            self._step(field, *pieces, g, h, moved)
        self.of_rows[:-1] += moved
        if by_event:
            scores += moved
        else:
            kernels.shift_scores(blocks(tasks.n), THREADS, tasks.n, tasks.tasks, moved, scores)

    def _step(self, field: LevelField, tasks: Any, bounds: Any, g: Any, h: Any, moved: Any) -> None:
        kernels, n = self._kernels, self._n
        sums = self.backend.xp.empty((len(tasks), 2), np.float64)
        kernels.sum_slopes(blocks(len(tasks)), THREADS, len(tasks), tasks, field.members, *field.values, g, h, sums)
        kernels.step_weights(blocks(field.n), THREADS, field.n, bounds, sums, *field.penalty, self._eta, field.W, field.delta)
        kernels.follow_weights(-(-n // EACH), EACH, n, field.codes, *field.values, field.delta, h, g, moved)

    def l2(self) -> Any:
        xp = self.backend.xp
        total = xp.zeros((), np.float64)
        for field in self.weights:
            total = total + (field.penalty[0].astype(np.float64) * xp.square(field.W[:-1].astype(np.float64))).sum()
        return total
