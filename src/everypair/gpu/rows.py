r"""``FreeRows``: a side whose vectors are the parameter itself, a row each (matrix factorization), on a device."""

from __future__ import annotations

from typing import Any

import numpy as np

from everypair.engine.parameter import Parameter
from everypair.gpu import linear
from everypair.gpu.backend import Backend
from everypair.gpu.pairs import THREADS, Numbers, Pairs
from everypair.gpu.side import PANEL, DeviceSide, OtherSide
from everypair.gpu.tasks import ADDERS, blocks
from everypair.runtime.numerics import lost_decrease, tiny


class FreeRows(DeviceSide):
    """A table of vectors that are the parameter itself.

    Parameters
    ----------
    backend : Backend
    parameter : Parameter
    side : {"context", "item"}
    eta : float
        The step size.
    """

    def __init__(self, backend: Backend, parameter: Parameter, side: str, eta: float) -> None:
        n, k = parameter.value.shape
        super().__init__(backend, side, n, k, eta)
        self._parameter = parameter
        self._penalty = Numbers(*backend.floats(parameter.penalty))
        self._kernels, self._products = backend.kernels("rows"), None
        self._lost = backend.floats(0.0)[0]
        self.unregularized = bool(np.any(np.asarray(parameter.penalty) == 0.0)) and not parameter.fixed

    def take_parameters(self) -> None:
        for rows in linear.segments(self.n, self.k):
            self.table[rows, : self.k] = self.backend.upload(self._parameter.value[rows])

    def bring_back(self) -> None:
        if not self._parameter.fixed:
            for rows in linear.segments(self.n, self.k):
                self._parameter.value[rows] = self.backend.download(self.table[rows, : self.k])

    def place(self) -> None:
        """Nothing: the vectors are the parameter."""

    def rotate(self, at: slice, Q: Any) -> None:
        linear.rotate(self.backend.xp, self.table[:-1], at, Q)

    def l2(self) -> Any:
        if self._parameter.fixed:
            return self.backend.xp.zeros((), np.float64)
        penalties = self.backend.xp.empty(self.n, np.float64)
        self._kernels.penalties_of_rows(blocks(self.n), THREADS, self.n, self.table, self.stride, *self._penalty, penalties)
        return penalties.sum()

    def sweep(self, pairs: Pairs, other: OtherSide) -> None:
        """Coordinate descent on all dimensions of all rows."""
        if self._parameter.fixed:
            return
        xp, table, own, scores = self.backend.xp, self.table, pairs.sides[self.side], pairs.scores(self.side)
        J, tasks, stride = other.J.astype(np.float32), own.tasks, table.shape[1]
        diagonal = xp.ascontiguousarray(xp.diagonal(J))
        coupled = pairs.alpha0 > 0.0 and not other.diagonal
        if coupled and self._products is None:
            self._products = xp.empty((self.n, PANEL), np.float32)
        products = self._products if coupled else self._lost
        lost = self._lost_decreases(pairs, J) if self.unregularized else self._lost
        kernels = self.backend.kernels("rows", WEIGHTED=own.a.step, UNREGULARIZED=int(self.unregularized))
        none, met = len(other.table) - 1, (own.indices, scores, other.table)
        for first in range(0, stride, PANEL):
            block = diagonal
            if coupled:
                columns = xp.ascontiguousarray(J[:, first : first + PANEL])
                xp.matmul(table[:-1], columns, out=products)
                block = columns[first : first + PANEL] - xp.diag(diagonal[first : first + PANEL])
            steps = (*own.weight, *self._penalty, lost, diagonal, block, products, int(coupled), self.eta, tiny(np.float32))
            place = (table, stride, none, first)
            kernels.sweep_rows(
                blocks(tasks.n), THREADS, tasks.n, tasks.tasks, *met, own.a.array, *own.b, *place, *steps, tasks.moments
            )
            if tasks.n_long:
                sums = (tasks.long, tasks.bounds, tasks.moments, own.a.array)
                kernels.step_long(tasks.n_long, ADDERS, *sums, *place, *steps, tasks.moves)
                moved = (tasks.n_pieces, tasks.tasks, tasks.owner)
                kernels.move_pieces(blocks(tasks.n_pieces), THREADS, *moved, *met, *place, tasks.moves)

    def _lost_decreases(self, pairs: Pairs, J: Any) -> Any:
        """For each row without L2, the decrease of the loss below which a step is rounding."""
        xp, own = self.backend.xp, pairs.sides[self.side]
        norms = xp.sqrt(xp.maximum(xp.diagonal(J), 0.0))
        implicit = own.weight.array * xp.square(xp.abs(self.table[:-1]) @ norms)
        size = self.backend.upload(pairs.sizes(self.side)) + implicit
        return xp.where(self._penalty.array == 0.0, lost_decrease(np.float32) * size, 0.0).astype(np.float32)
