"""``Linear``: features times weights, ``phi(c) = x_c W`` (Section 5.2.1, MF with side information; Algorithm 3)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable

import numpy as np

from everypair.columns.features import Features, feature_weights, require_squares
from everypair.columns.fields import OneHotField, OperatorField
from everypair.columns.history_field import HistoryField
from everypair.columns.table import Rows
from everypair.engine.binding import BindContext
from everypair.engine.blocks import OTHER, Block, FieldBlock, LevelBlock
from everypair.engine.contribution import Contribution
from everypair.engine.level_parts import Coded, LevelParts
from everypair.engine.parameter import Parameter
from everypair.engine.summed_vectors import SummedVectors
from everypair.engine.tower import Capabilities, Tower
from everypair.engine.vectors import PANEL_ROWS, RangeVectors, Vectors, turn
from everypair.engine.view import View
from everypair.kernels.simd import LANES
from everypair.runtime import validation as check
from everypair.runtime.cached import cached_property
from everypair.runtime.parallel import Workers
from everypair.towers.steps.dispatch import Solver, step_linear_stage
from everypair.towers.steps.one_hot import Stage, add_rows, columns_of, separately, spread_runs, stages


class FeatureTower(Tower):
    """A tower over features, with a matrix W of factors, stored by dimension (k x p)."""

    columns: tuple[str, ...]
    features: Features
    needs_squares = False
    _W: Parameter

    def read(self, binding: BindContext) -> tuple[str, dict[str, np.ndarray]]:
        """Read the features of the rows; returns a name for them, and the weight of each feature in the loss, by field."""
        self.columns = self.columns or tuple(binding.rows.columns)
        self.features = binding.rows.features(self.columns)
        if binding.regularization.by_weight or self.needs_squares:
            require_squares(self.features)
        by_weight = binding.regularization.by_weight and binding.stored is None
        self.features.divide(binding.group)
        weights = feature_weights(self.features, binding.weight, by_weight)
        if by_weight:
            fields = self.features.fields
            weights = {name: w if fields[name].local else binding.group.total(w) for name, w in weights.items()}
        return "+".join(self.features.widths), weights

    def rows_apart(self, binding: BindContext) -> np.ndarray | bool:
        """Which features no other member of the group has."""
        fields = self.features.fields.values()
        return binding.group.divided and np.repeat([f.local for f in fields], [f.shape[1] for f in fields])

    @abstractmethod
    def evaluate_features(self, features: Features, workers: Workers) -> np.ndarray:
        """phi by dimension (K x n) of rows with these features."""

    def evaluate(self, rows: Rows, workers: Workers) -> Vectors:
        return Vectors(dims=self.evaluate_features(self._features_of(rows), workers))

    def _features_of(self, rows: Rows) -> Features:
        if rows is self.rows:
            return self.features
        features = rows.features(self.columns)
        if features.widths != self.features.widths:
            raise ValueError(f"rows must have the fields trained on, {self.features.widths}, got {features.widths}.")
        return features

    @property
    def capabilities(self) -> Capabilities:
        return super().capabilities._replace(
            rotations=() if self._W.fixed else ((0, len(self._W.value)),),
            lazy=all(field.has_rows for field in self.features.fields.values()),
            divided=self._stored,
            replicated=self._stored,
        )

    @property
    def _stored(self) -> bool:
        """Whether no field is an operator, whose products cannot be told apart by rows."""
        return not any(isinstance(field, OperatorField) for field in self.features.fields.values())

    def range_vectors(self, first: int, last: int) -> RangeVectors:
        return self._rows_times(self._W.value[first:last].T.copy())

    def fill_panel(self, first: int, last: int, out: np.ndarray, workers: Workers) -> bool:
        histories = [(field, at) for field, at in columns_of(self.features) if isinstance(field, HistoryField)]
        if out.shape[1] != LANES or not histories:
            return False
        W = np.zeros((self.features.n_features, LANES), out.dtype)
        W[:, : last - first] = self._W.value[first:last].T
        others = [stage for stage in self._stages if not isinstance(stage.fields[0][0], HistoryField)]

        def some(start: int, stop: int) -> None:
            out[start:stop] = 0.0
            for stage in others:
                add_rows(stage, start, stop, W, out[start:stop])

        workers.chunks(len(out), some, PANEL_ROWS)
        for field, at in histories:  # along their sequences, which are better not cut into ranges
            field.add_panel(W[at], out, workers)
        return True

    def range_products(self, factor: np.ndarray) -> RangeVectors:
        return self._rows_times(np.ascontiguousarray(self._W.value.T @ factor[: len(self._W.value)]))

    def _rows_times(self, W: np.ndarray) -> RangeVectors:
        """A function from a range of rows to ``X W``."""

        def vectors(start: int, stop: int) -> np.ndarray:
            out = np.zeros((stop - start, W.shape[1]), W.dtype)
            for stage in self._stages:
                add_rows(stage, start, stop, W, out)
            return out

        return vectors

    @cached_property
    def level_parts(self) -> LevelParts | None:  # type: ignore[override]
        fields = list(self.features.fields.values())
        if not all(isinstance(field, OneHotField) for field in fields):
            return None
        return LevelParts.of([Coded(field.codes, field.shape[1]) for field in fields])  # type: ignore[attr-defined]

    def part_tables(self, first: int, last: int) -> list[np.ndarray]:
        assert self.level_parts is not None
        return self.level_parts.tables(self._W.value[first:last].T)

    def summed_vectors(self, workers: Workers) -> SummedVectors | None:
        return None if self.level_parts is None else SummedVectors(self.level_parts, self._W.value.T, workers)

    def rotate(self, at: slice, Q: np.ndarray, workers: Workers) -> None:
        turn(self._W.value[at], Q, workers)

    def combination(self, coefficients: np.ndarray, workers: Workers) -> np.ndarray:
        w = (coefficients[: len(self._W.value)] @ self._W.value).astype(self._W.value.dtype)
        if self.level_parts is not None:
            out = np.zeros(self.rows.n, w.dtype)
            self.level_parts.add_sums(w, out, workers)
            return out
        return project(self._stages, w[None], workers)[0]

    def factor(self, f: int, features: Features, workers: Workers) -> np.ndarray:
        """``X w_f``: one dimension of the factors."""
        return project(self.plan(features), self._W.value[f : f + 1], workers)[0]

    def factor_contributions(self, features: Features, psi: np.ndarray) -> list[Contribution]:
        """``x_l <w_l, psi>`` of a single row: a summand per feature, or per field where a row has many features."""
        terms: list[Contribution] = []
        for (name, field), (_, at) in zip(features.fields.items(), columns_of(features), strict=True):
            index, x = field.entries(0)
            amounts = x * (psi @ self._W.value[:, at.start + index].astype(np.float64))
            if field.few_features:
                by_feature = zip(index.tolist(), amounts.tolist(), strict=True)
                terms += [Contribution((name,), feature, amount) for feature, amount in by_feature]
            else:
                terms.append(Contribution((name,), None, float(amounts.sum())))
        return terms

    def describe_fields(self, parameter: Parameter, partner: str, dimension: int, bias: int | None = None) -> list[Block]:
        """A block for the weights of each field: of levels, if a row has at most one feature, of value 1."""
        blocks: list[Block] = []
        for field, at in columns_of(self.features):
            place = {"start": at.start, "dimension": dimension, "bias": bias}
            if isinstance(field, OneHotField):
                blocks.append(LevelBlock(parameter, field, partner, **place))
            else:
                blocks.append(FieldBlock(parameter, field, partner, **place))
        return [] if parameter.fixed else blocks

    def plan(self, features: Features) -> list[Stage]:
        """The stages in which products with the features are computed; planned once for the rows of the fit, not for others."""
        return self._stages if features is self.features else separately(features)

    @cached_property
    def _stages(self) -> list[Stage]:
        """The fields, grouped and ordered as they are stepped on."""
        return stages(self.features)

    def _solver(self, workers: Workers) -> Solver:
        return Solver(self.settings.step_size, self.settings.field_solver, workers)


class Linear(FeatureTower):
    """A vector of weights per feature.

    For each dimension f, the derivatives ``g_c, h_c`` with respect to ``phi_f(c)`` are computed once, and sweeping the features
    takes only these two vectors: O(k |S| + k^2 |C| + k Nz(X)) in total, instead of the paper's O(k^2 Nz(X)).

    Parameters
    ----------
    factors : int
        Number of dimensions.
    *columns : str
        The fields of features; by default all columns, or one feature per row if there are no columns. A column of levels is a
        one-hot field.
    name : str, optional
        Name of the parameter; by default the columns, joined by "+".
    """

    moves_as_parameters = True

    def __init__(self, factors: int, *columns: str, name: str | None = None) -> None:
        self.factors = self.n_dims = check.integer("factors", factors, low=1)
        self.columns, self.name = check_columns(columns), name

    def build(self, binding: BindContext) -> None:
        name, weights = self.read(binding)
        name = self.name or name
        shape = self.features.n_features, self.n_dims
        W = binding.normal(shape, self.n_dims, transposed=True, name=name, keys=self.features.keys)
        self._W = binding.parameter(name, W, weights, transposed=True)
        self._W.local = self.rows_apart(binding)
        self.parameters[name] = self._W

    def evaluate_features(self, features: Features, workers: Workers) -> np.ndarray:
        return project(self.plan(features), self._W.value, workers)

    def contributions(self, rows: Rows, psi: np.ndarray) -> list[Contribution]:
        return self.factor_contributions(self._features_of(rows), psi)

    def dimensions(self, rows: Rows, workers: Workers) -> Callable[[int], np.ndarray]:
        features = self._features_of(rows)
        return lambda f: self.factor(f, features, workers)

    @property
    def blocks(self) -> range:
        return range(0 if self._W.fixed else self.n_dims)

    def describe_blocks(self) -> list[Block] | None:
        return self.describe_fields(self._W, OTHER, dimension=0)

    def sweep(self, view: View) -> None:
        """Sixteen dimensions at a time where the view can."""
        if not view.sweep_panels(self.describe_blocks(), self.settings):
            super().sweep(view)

    def step(self, view: View, block: int) -> None:
        """Step on all fields in one dimension, given its slopes; then move ``phi_f``."""
        g, h = view.slopes(block)
        delta = np.zeros_like(g)
        for stage in self._stages:
            step_linear_stage(stage, self._W.value[block], self._W.penalty, g, h, delta, self._solver(view.workers))
        view.move(block, delta)


def check_columns(columns: tuple[str, ...]) -> tuple[str, ...]:
    for column in columns:
        if not isinstance(column, str):
            raise TypeError(f"columns must be names, as separate arguments, got {column!r} of type {type(column).__name__}.")
    return columns


def project(plan: list[Stage], W: np.ndarray, workers: Workers, out: np.ndarray | None = None) -> np.ndarray:
    """``X W`` by dimension: (K x p) weights give (K x n) vectors.

    Fields are always added in their order, whether rows lie in runs or not, so that equal rows have vectors with equal bits.
    """
    first, *others = plan
    out = np.empty((len(W), first.fields[0][0].shape[0]), W.dtype) if out is None else out
    if first.runs is not None:
        spread_runs(first, W, out, workers)
    else:
        out[:] = 0.0
        others = plan
    for stage in others:
        for field, at in stage.fields:
            field.add_products(W[:, at], out, workers)
    return out
