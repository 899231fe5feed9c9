r"""``Machine``: one side of a factorization machine (Section 5.2.2).

.. math::

    \phi(c) = \bigl(x_c W,\; b + \langle x_c, \tilde w \rangle + \sum_{l < l'} \langle w_l, w_{l'} \rangle x_{cl} x_{cl'},\; 1\bigr)

with K = k + 2; the constant 1 of each side is at the bias dimension of the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from everypair.columns.features import Features
from everypair.columns.fields import OnesField
from everypair.columns.table import Rows
from everypair.engine.binding import BindContext
from everypair.engine.blocks import OTHER, SUM, Block, FieldBlock
from everypair.engine.contribution import EVERY_ITEM, FEATURES, ITEM, Contribution
from everypair.engine.dimensions import BIAS, CONSTANT, FACTOR
from everypair.engine.tower import Capabilities
from everypair.engine.vectors import RangeVectors
from everypair.engine.view import View
from everypair.kernels.machine_state import MOVE_F, MOVE_Q
from everypair.kernels.row_vectors import add_half_norms
from everypair.kernels.sparse import add_half_squares
from everypair.runtime import validation as check
from everypair.runtime.parallel import Workers
from everypair.towers.linear import FeatureTower, check_columns, project
from everypair.towers.steps.dispatch import Solver, step_linear, step_linear_stage, step_machine_stage
from everypair.towers.steps.one_hot import columns_of


class Machine(FeatureTower):
    """One side of a factorization machine: factors W, linear weights w, and on the context side the global bias b.

    It has ``factors + 2`` dimensions: the factors, a bias dimension (bias, linear and pairwise terms), and a constant 1. On the
    item side the 1 comes before the bias dimension, so that each side's bias is multiplied with the other's 1.

    Parameters
    ----------
    factors : int
    *columns : str
        The fields of features; by default all columns, or one feature per row if there are no columns.
    names : tuple of str, optional
        Names of bias (context side only), linear weights and factors.
    """

    needs_squares = True
    _settled, _cached_norms = False, None

    def __init__(self, factors: int, *columns: str, names: tuple[str, ...] | None = None) -> None:
        self.factors = check.integer("factors", factors, low=1)
        self.n_dims = self.factors + 2
        self.columns, self.names = check_columns(columns), names

    def build(self, binding: BindContext) -> None:
        k, bias = self.factors, binding.side == "context"
        name, weights = self.read(binding)
        names = self.names or ((f"{name} bias",) if bias else ()) + (f"{name} linear", name)
        if len(names) != 2 + bias:
            raise ValueError(f"names must name {'bias, ' if bias else ''}linear weights and factors, got {names!r}.")
        *global_bias, linear, factors = names
        self._q, self._one = (k, k + 1) if bias else (k + 1, k)
        W = binding.normal((self.features.n_features, k), k, transposed=True, name=factors, keys=self.features.keys)
        everyone = float(binding.group.total(np.array([binding.weight.sum()]))[0])
        self._b = binding.parameter(global_bias[0], binding.zeros(1), everyone) if bias else None
        self._w = binding.parameter(linear, binding.zeros(W.shape[1]), weights)
        self._W = binding.parameter(factors, W, weights, transposed=True)
        self._w.local = self._W.local = self.rows_apart(binding)
        self.parameters = {linear: self._w, factors: self._W}
        if self._b is not None:
            self.parameters = {global_bias[0]: self._b, **self.parameters}

    def evaluate_features(self, features: Features, workers: Workers) -> np.ndarray:
        k = self.factors
        out = np.empty((self.n_dims, features.n_rows), self._W.value.dtype)
        project(self.plan(features), self._W.value, workers, out[:k])
        out[self._one] = 1.0
        out[self._q] = self._linear_terms(features, workers)
        workers.run(add_half_squares, workers.even(features.n_rows), out[:k], out[self._q])
        return out

    def _bias_dimension(self, features: Features, workers: Workers) -> np.ndarray:
        """The bias dimension of all rows, without storing their factors."""
        if features is not self.features or not self.capabilities.lazy:
            return self.evaluate_features(features, workers)[self._q]
        summed = self.summed_vectors(workers)
        if summed is not None and self.level_parts is not None:
            out = np.full(self.rows.n, self._global_bias, self._W.value.dtype)
            self.level_parts.add_sums(self._w.value - 0.5 * self._norms(), out, workers)
            summed.add_half_norms(out)
            return out
        out, factors = self._linear_terms(features, workers), super().range_vectors(0, self.factors)

        def chunk(start: int, stop: int) -> None:
            add_half_norms(start, stop, factors(start, stop), out)

        workers.chunks(features.n_rows, chunk)
        return out

    def _linear_terms(self, features: Features, workers: Workers) -> np.ndarray:
        """Bias and linear terms, minus half the sum of squares of the pairwise terms.

        In each dimension, the sum over l < l' is half the difference between the square of the sum and the sum of squares.
        """
        out = np.full(features.n_rows, self._global_bias, self._W.value.dtype)
        norms = self._norms()
        for field, at in columns_of(features):
            out += field.multiply(self._w.value[at], workers)
            out -= 0.5 * field.multiply_squared(norms[at], workers)
        return out

    @property
    def capabilities(self) -> Capabilities:
        return super().capabilities._replace(by_dimension=True, kept=(self._q, self._one))  # linear weights are stepped on first

    def range_vectors(self, first: int, last: int) -> RangeVectors:
        if last <= self.factors:
            return super().range_vectors(first, last)
        k = min(last, self.factors)
        factors = super().range_vectors(first, k) if first < k else None

        def vectors(start: int, stop: int) -> np.ndarray:
            out = np.zeros((stop - start, last - first), self._W.value.dtype)
            if factors is not None:
                out[:, : k - first] = factors(start, stop)
            return out

        return vectors

    def dimensions(self, rows: Rows, workers: Workers) -> Callable[[int], np.ndarray]:
        features = self._features_of(rows)

        def phi(f: int) -> np.ndarray:
            if f < self.factors:
                return self.factor(f, features, workers)
            return np.ones(rows.n, self._W.value.dtype) if f == self._one else self._bias_dimension(features, workers)

        return phi

    def contributions(self, rows: Rows, psi: np.ndarray) -> list[Contribution]:
        """Of each feature through its factors; of the context's bias dimension; and of the item's bias dimension.

        The context's bias is the same for every item if the item side is a Machine, which has its constant 1 there.
        """
        features = self._features_of(rows)
        terms = self.factor_contributions(features, psi[: self.factors])
        kind = EVERY_ITEM if psi[self._q] == 1.0 else FEATURES
        terms.append(Contribution(tuple(features.fields), None, self._bias_of_row(features) * float(psi[self._q]), kind))
        terms.append(Contribution((), None, float(psi[self._one]), ITEM))
        return terms

    def _bias_of_row(self, features: Features) -> float:
        """Bias, linear and pairwise terms of a single row."""
        entries = [(at.start, *field.entries(0)) for field, at in columns_of(features)]
        index = np.concatenate([start + index for start, index, _ in entries])
        x = np.concatenate([values for *_, values in entries])
        xW = x * self._W.value[:, index].astype(np.float64)
        total = xW.sum(axis=1)
        linear = self._w.value[index].astype(np.float64) @ x
        return float(self._global_bias + linear + 0.5 * (total @ total - np.sum(xW * xW)))

    @property
    def _global_bias(self) -> float:
        return 0.0 if self._b is None else float(self._b.value[0])

    def _norms(self) -> np.ndarray:
        """The squared norm of each feature's factors, cached after :meth:`settle`."""
        if self._cached_norms is not None:
            return self._cached_norms
        norms = np.square(self._W.value).sum(axis=0)
        if self._settled:
            self._cached_norms = norms
        return norms

    def settle(self) -> None:
        self._settled, self._cached_norms = True, None

    @property
    def blocks(self) -> Sequence[int | str]:
        linear = ["linear"] if not self._w.fixed or (self._b is not None and not self._b.fixed) else []
        return [*linear, *range(0 if self._W.fixed else self.factors)]

    def describe_blocks(self) -> list[Block] | None:
        """Bias, linear weights and factors, in this order. Factors also interact with the other features of the row, and move the
        bias dimension through the pairwise terms."""
        linear = self.describe_fields(self._w, OTHER, dimension=self._q)
        if self._b is not None and not self._b.fixed:
            linear.insert(0, FieldBlock(self._b, OnesField(self.features.n_rows), OTHER, dimension=self._q))
        return [*linear, *self._describe_factors()]

    def sweep(self, view: View) -> None:
        """Bias and linear weights, then the factors: sixteen dimensions at a time where the view can."""
        linear = [block for block in self.blocks if block == "linear"]
        for block in linear:
            self.step(view, block)
        if not view.sweep_panels(self._describe_factors(), self.settings):
            for block in self.blocks[len(linear) :]:
                self.step(view, block)

    def _describe_factors(self) -> list[Block]:
        return self.describe_fields(self._W, SUM, dimension=0, bias=self._q)

    def step(self, view: View, block: int | str) -> None:
        if block == "linear":
            self._step_linear(view, self._solver(view.workers))
        else:
            self._step_factors(view, int(block), self._solver(view.workers))

    def _step_linear(self, view: View, solver: Solver) -> None:
        """b and w: linear in the bias dimension, where b is the weight of a feature that every row has."""
        g, h = view.slopes(self._q)
        delta = np.zeros_like(g)
        if self._b is not None and not self._b.fixed:
            step_linear(OnesField(len(g)), self._b.value, self._b.penalty, g, h, delta, solver)
        if not self._w.fixed:
            for stage in self._stages:
                step_linear_stage(stage, self._w.value, self._w.penalty, g, h, delta, solver)
        view.move(self._q, delta)

    def _step_factors(self, view: View, f: int, solver: Solver) -> None:
        """Dimension f of the factors, which also move the bias dimension through the pairwise terms."""
        view.track(self._q)
        phi = self.factor(f, self.features, view.workers) if view.own is None else view.own.dim(f)
        state = np.ascontiguousarray(view.slopes_pair(f, self._q, phi).T)
        for stage in self._stages:
            step_machine_stage(stage, self._W.value[f], self._W.penalty, state, solver)
        view.move_pair(f, self._q, state[MOVE_F], state[MOVE_Q])

    @property
    def dimension_kinds(self) -> tuple[str, ...]:
        return (FACTOR,) * self.factors + ((BIAS, CONSTANT) if self._q < self._one else (CONSTANT, BIAS))
