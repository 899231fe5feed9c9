r"""The stage of a panel sweep for a field whose features share rows: a block step on its weights in sixteen dimensions.

In a linear tower the loss is a quadratic in these weights, :math:`\Delta' (X' H X + \Lambda) \Delta + 2 \Delta' (X' g + \Lambda
w)` with the gradient g and the 16 x 16 curvature H of each row, and a few steps of conjugate gradients lower it. In a
factorization machine it is not: the direction comes from conjugate gradients on the problem that leaves products of features with
themselves in, and the length from the exact minimum of the loss along it, a polynomial of degree four
(:mod:`everypair.kernels.panel_rows`). The objective never rises.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np

from everypair.columns.fields import Field
from everypair.columns.history_field import HistoryField
from everypair.engine.blocks import FieldBlock
from everypair.engine.conjugate_gradients import conjugate_gradients, step_length
from everypair.engine.panel_stages import PanelViews, SideRows
from everypair.kernels import panel_sequences as kernels
from everypair.kernels.newton import SweepSettings
from everypair.kernels.panel_levels import PanelGram
from everypair.kernels.panel_rows import Path, RowGram
from everypair.kernels.panel_sequences import Direction, PanelHistory, PanelRows
from everypair.kernels.simd import LANES
from everypair.runtime.group import Group
from everypair.runtime.numerics import Values
from everypair.runtime.parallel import Workers

STEPS = 3  # of conjugate gradients: more are slower to the same objective (docs/log.md)
BEYOND = 0.6  # of the length of the last of them, along the direction that would be next
LINE_ROWS = 65_536  # rows per partial sum of a polynomial: fixed, so that it does not depend on the number of threads


class Slopes(NamedTuple):
    """Gradient, curvature and, for factorization machines, what squared entries take from the gradient: by feature."""

    slope: np.ndarray
    curvature: np.ndarray
    of_q: np.ndarray


class Products(ABC):
    """Products with a field in a panel, and what they meet in the rows."""

    def __init__(self, rows: PanelRows, workers: Workers) -> None:
        self.rows, self.workers = rows, workers
        self.pairwise = rows.data.tables.psi_q is not None

    @abstractmethod
    def slopes(self) -> Slopes:
        """Of all weights."""

    @abstractmethod
    def product(self, P: np.ndarray) -> np.ndarray:
        """``X' H X P``."""

    @abstractmethod
    def line(self, direction: Direction) -> np.ndarray:
        """The coefficients of the loss along a direction, for factorization machines."""

    @abstractmethod
    def advance(self, direction: Direction, length: float) -> None:
        """Move rows, scores and what follows from them."""


class HistoryProducts(Products):
    """By sequences: running sums of vectors."""

    def __init__(self, field: HistoryField, rows: PanelRows, workers: Workers) -> None:
        super().__init__(rows, workers)
        assert field.sequences is not None
        self._field, self._history = field, PanelHistory(field.sequences, field.sums)
        self._n, self._dtype = field.shape[1], rows.data.tables.F.dtype
        self._ranges = range(len(field.sequences.ranges))

    def _room(self, *shape: int) -> np.ndarray:
        return np.empty((len(self._ranges) - 1, *shape), self._dtype)

    def slopes(self) -> Slopes:
        slope, curvature, of_q = self._room(self._n, LANES), self._room(self._n, LANES), self._room(self._n)
        self._field.count_visits(3)
        self.workers.run(
            kernels.history_gradient, self._ranges, self._history, self.rows, slope, curvature, of_q
        )  # fmt: skip
        return Slopes(self._total(slope), self._total(curvature), self._total(of_q[:, :, None])[:, 0])

    def product(self, P: np.ndarray) -> np.ndarray:
        out = self._room(self._n, LANES)
        self._field.count_visits(2)
        self.workers.run(kernels.history_product, self._ranges, self._history, self.rows, P, out)
        return self._total(out)

    def line(self, direction: Direction) -> np.ndarray:
        coefficients = np.empty((len(self._ranges) - 1, 4))
        self._field.count_visits(3)
        self.workers.run(kernels.history_line, self._ranges, self._history, self.rows, direction, coefficients)
        return self.workers.total(coefficients)

    def advance(self, direction: Direction, length: float) -> None:
        self._field.count_visits(3)
        self.workers.run(kernels.history_advance, self._ranges, self._history, self.rows, direction, length)

    def _total(self, sums: np.ndarray) -> np.ndarray:
        out = np.empty(sums.shape[1:])
        self.workers.run(kernels.add_ranges, self.workers.even(self._n), sums, out)
        return out


class FieldProducts(Products):
    """By the products of any field, with a vector for each row."""

    def __init__(self, field: Field, rows: PanelRows, workers: Workers) -> None:
        super().__init__(rows, workers)
        self._field, self._dtype, self._n = field, rows.data.tables.F.dtype, field.shape[0]
        self._ranges = workers.split(rows.indptr)

    def slopes(self) -> Slopes:
        field, workers = self._field, self.workers
        slope, curvature = np.empty((self._n, LANES), self._dtype), np.empty((self._n, LANES), self._dtype)
        of_q = np.zeros(self._n, self._dtype)
        workers.run(kernels.row_gradients, self._ranges, self.rows, slope, curvature, of_q)
        of_features = field.panel_transposed(slope, workers)
        diagonal = field.panel_transposed(curvature, workers, squared=True) if field.has_squares else np.ones_like(of_features)
        squares = field.multiply_squared_transposed(of_q, workers).astype(np.float64) if self.pairwise else np.zeros(field.shape[1])
        return Slopes(of_features, diagonal, squares)

    def product(self, P: np.ndarray) -> np.ndarray:
        u = self._multiply(P)
        self.workers.run(kernels.row_products, self._ranges, self.rows, u)
        return self._field.panel_transposed(u, self.workers)

    def line(self, direction: Direction) -> np.ndarray:
        bounds = np.append(np.arange(0, max(self._n, 1), LINE_ROWS), self._n)
        coefficients, path = np.empty((len(bounds) - 1, 4)), self._path(direction)
        self.workers.run(kernels.row_line, range(len(bounds)), bounds, self.rows, path, coefficients)
        return self.workers.total(coefficients)

    def advance(self, direction: Direction, length: float) -> None:
        self.workers.run(kernels.row_advance, self._ranges, self.rows, self._path(direction), length)

    def _path(self, direction: Direction) -> Path:
        u = self._multiply(direction.delta)
        if not self.pairwise:
            return Path(u, *2 * [np.zeros(1, self._dtype)])
        squares = [self._field.multiply_squared(x.astype(self._dtype), self.workers) for x in direction.squares.T]
        return Path(u, *squares)

    def _multiply(self, P: np.ndarray) -> np.ndarray:
        u = np.zeros((self._n, LANES), self._dtype)
        self._field.add_panel(P, u, self.workers)
        return u


class TotalProducts(Products):
    """The products of a group, from those of its members."""

    def __init__(self, own: Products, group: Group) -> None:
        self._own, self._group, self.pairwise = own, group, own.pairwise

    def slopes(self) -> Slopes:
        slope, curvature, of_q = self._own.slopes()
        sums = self._group.total(np.concatenate([slope, curvature, of_q[:, None]], axis=1))
        return Slopes(sums[:, :LANES], sums[:, LANES : 2 * LANES], sums[:, -1])

    def product(self, P: np.ndarray) -> np.ndarray:
        return self._group.total(self._own.product(P))

    def line(self, direction: Direction) -> np.ndarray:
        return self._group.total(self._own.line(direction))

    def advance(self, direction: Direction, length: float) -> None:
        self._own.advance(direction, length)


class FieldStage:
    """A field whose features share rows, or have values: all of its weights in a panel are moved together."""

    def __init__(self, block: FieldBlock, rows: SideRows, dtype: np.dtype, workers: Workers) -> None:
        self.blocks: list[FieldBlock] = [block]
        self._field, self._rows, self._dtype, self._workers = block.field, rows, dtype, workers.alone()
        self._group = rows.group_of(block)

    def table(self, tables: list[np.ndarray]) -> np.ndarray:
        """The weights of the features."""
        return tables[0]

    def sweep(self, data: PanelViews, gram: PanelGram, tables: list[np.ndarray], settings: list[SweepSettings]) -> None:
        """Lower the loss over the weights ``tables[0]``."""
        (W,), (of_field,) = tables, settings
        rows = PanelRows(self._rows.indptr, data.rows, _row_gram(gram, self._dtype))
        penalty = of_field.penalty if np.ndim(of_field.penalty) == 0 else np.asarray(of_field.penalty)[:, None]
        products = self._products(rows, of_field.penalty)
        slopes, w = products.slopes(), W.astype(np.float64)
        gradient = slopes.slope - w * slopes.of_q[:, None] + penalty * w
        diagonal = np.maximum(slopes.curvature, 0.0) + penalty
        idle = (diagonal <= 0.0) & (w != 0.0)  # weights that the loss does not depend on would keep their random start values
        if idle.any():
            self._drop(products, np.where(idle, -w, 0.0), W)

        def apply(p: np.ndarray) -> tuple[np.ndarray, tuple[()]]:
            P = p.reshape(W.shape)
            return (products.product(P.astype(W.dtype)) + penalty * P).ravel(), ()

        beyond = BEYOND if products.pairwise else 0.0  # a step without a product, where the loss along the sum of all is known
        found = conjugate_gradients(apply, -gradient.ravel().astype(W.dtype), diagonal.ravel(), STEPS, beyond)
        if found is not None:
            self._take(products, found[0].reshape(W.shape).astype(np.float64), W, penalty, of_field.eta)

    def _drop(self, products: Products, delta: np.ndarray, W: np.ndarray) -> None:
        """Set weights to zero, unless that raises the loss: they may meet others in a factorization machine."""
        direction = _direction(delta, W)
        if not products.pairwise or products.line(direction).sum() <= 0.0:
            W += direction.delta
            products.advance(direction, 1.0)

    def _take(self, products: Products, delta: np.ndarray, W: np.ndarray, penalty: Values, eta: float) -> None:
        """Move along a direction: in a linear tower by the step size, in a factorization machine times the length that is best."""
        w, length, direction = W.astype(np.float64), eta, _direction(delta, W)
        if products.pairwise:
            of_all = np.broadcast_to(penalty, delta.shape)
            length *= step_length(products.line(direction), of_all.ravel(), w.ravel(), delta.ravel())
        W += (length * delta).astype(W.dtype)
        products.advance(direction, length)

    def _products(self, rows: PanelRows, penalty: Values) -> Products:
        own = self._own_products(rows, penalty)
        return TotalProducts(own, self._group) if self._group.divided else own

    def _own_products(self, rows: PanelRows, penalty: Values) -> Products:
        field = self._field
        if isinstance(field, HistoryField) and field.sequences is not None and np.all((penalty > 0.0) | field.unseen):
            return HistoryProducts(field, rows, self._workers)
        return FieldProducts(field, rows, self._workers)


def _direction(delta: np.ndarray, W: np.ndarray) -> Direction:
    return Direction(delta.astype(W.dtype), np.stack([(W * delta).sum(axis=1), (delta * delta).sum(axis=1)], axis=1))


def _row_gram(gram: PanelGram, dtype: np.dtype) -> RowGram:
    diagonal = np.diag(gram.A)
    beside = gram.A - np.diag(diagonal)
    return RowGram(np.vstack([diagonal, beside]).astype(dtype), bool(beside.any()), gram.v.astype(dtype), gram.J_qq)
