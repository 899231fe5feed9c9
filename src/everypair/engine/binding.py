"""What a tower is bound to: rows of data, their weights in the loss, and start values and L2 of its parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from everypair.columns.table import Rows
from everypair.engine.parameter import Parameter
from everypair.engine.regularization import Regularization
from everypair.runtime.numerics import Values, aligned

DRAW_CHUNK = 2**18  # random numbers drawn at once, in float64


class StepSettings(NamedTuple):
    """Step size eta, dimensions of a row solved together, and the solver ("block" or "cd") of fields with overlapping features."""

    step_size: float = 1.0
    block_size: int = 1
    field_solver: str = "block"


@dataclass
class Initializer:
    """Random start values N(0, std^2), the same for every dtype.

    By default they are small: the origin is not a minimum, and the first sweep moves away from it. Where a score multiplies three
    or more parameters, the origin is a local minimum (with L2), and ``std`` is such that scores start at magnitude one. With
    ``from_feedback``, start values are zero here, and :mod:`everypair.engine.initialization` sets them afterwards.
    """

    random: np.random.Generator
    dtype: np.dtype
    init_std: float | None
    degree: int = 2
    terms: int = 1
    from_feedback: bool = False

    def normal(self, shape: tuple[int, ...], factors: int, transposed: bool = False) -> np.ndarray:
        """Random numbers of this shape, drawn by chunks of rows; stored with the axes reversed if ``transposed``."""
        drawn = aligned(shape[::-1] if transposed else shape, self.dtype)
        if self.from_feedback:
            drawn[...] = 0.0
            return drawn
        if self.init_std is not None:
            std = self.init_std
        elif self.degree <= 2:
            std = 0.1 / float(factors) ** 0.5
        else:
            std = float(self.terms) ** (-0.5 / self.degree)
        by_row = drawn.T if transposed else drawn
        rows = max(1, DRAW_CHUNK // max(1, int(np.prod(shape[1:]))))
        for start in range(0, shape[0], rows):
            chunk = by_row[start : start + rows]
            chunk[...] = self.random.normal(0.0, std, chunk.shape)
        return drawn


@dataclass
class BindContext:
    """The argument of :meth:`everypair.towers.Tower.bind` and ``build``: the data and settings of one side of a fit.

    Attributes
    ----------
    side : {"context", "item"}
    rows : Rows
    observed, unobserved : arrays
        Weight of each row in the loss, for ``regularization_exponent``: its number of observed pairs, and ``alpha0 m_c sum_i n_i``.
    names : set of str
        Names of the model's parameters so far.
    whole : bool
        Whether the tower is a whole side, not part of another tower.
    stored : mapping of str to array, optional
        Parameters of an earlier fit, used instead of start values; in the shape of ``Parameter.value``.
    """

    side: str
    rows: Rows
    observed: np.ndarray
    unobserved: np.ndarray
    start: Initializer
    settings: StepSettings
    regularization: Regularization
    names: set[str]
    whole: bool = True
    weighted: bool = False  # the feedback has context weights m
    per_combination: float = 0.0  # alpha0 sum_i n_i: the weight of a combination of levels that is not listed
    stored: Mapping[str, np.ndarray] | None = None

    @property
    def dtype(self) -> np.dtype:
        """The dtype of parameters and vectors."""
        return self.start.dtype

    @property
    def weight(self) -> np.ndarray:
        return self.observed + self.unobserved

    def part(self) -> BindContext:
        """For binding a tower that is part of this one."""
        return replace(self, whole=False)

    def levels(self, column: str, unobserved: float | None = None) -> BindContext:
        """For binding a tower over the levels of a column; ``unobserved``: weight of each level, by default that of its rows."""
        levels = self.rows.levels(column)
        weight = levels.sum(self.unobserved) if unobserved is None else np.full(levels.n, unobserved)
        return replace(self, rows=levels.rows(column), observed=levels.sum(self.observed), unobserved=weight, whole=False)

    def parameter(
        self,
        name: str,
        value: np.ndarray,
        weight: Values | Mapping[str, np.ndarray],
        field: str | None = None,
        transposed: bool = False,
    ) -> Parameter:
        """A new parameter.

        Parameters
        ----------
        name : str
            Unique among all parameters of the model.
        value : array
            Start values.
        weight : number, array or mapping
            The weight of each entry in the loss, for ``regularization_exponent``: the sum of ``BindContext.weight`` over the rows
            that depend on it. By field, for a parameter that has a row for each feature.
        field : str, optional
            Another name by which ``regularization`` can refer to it.
        transposed : bool
            Stored as (dimensions, features), shown to users as (features, dimensions).
        """
        if name in self.names:
            raise ValueError(f"two towers have a parameter named {name!r}: give one of them another name, with name=...")
        self.names.add(name)
        parameter = Parameter(value if self.stored is None else self._stored(name, value), transposed=transposed)
        self.regularization.register(name, parameter, weight, field)
        return parameter

    def _stored(self, name: str, start: np.ndarray) -> np.ndarray:
        assert self.stored is not None
        if name not in self.stored:
            raise ValueError(f"the stored parameters do not include {name!r}: they are {', '.join(self.stored) or 'none'}.")
        value = self.stored[name]
        if value.shape != start.shape or value.dtype != start.dtype:
            raise ValueError(
                f"the stored parameter {name!r} must have shape {start.shape} and dtype {start.dtype}, got {value.shape} and "
                f"{value.dtype}."
            )
        return value

    def normal(self, shape: tuple[int, ...], factors: int, transposed: bool = False) -> np.ndarray:
        """Random start values of a parameter with this many factors; ``transposed``: stored with the axes reversed."""
        if self.stored is not None:
            return self.zeros(*(shape[::-1] if transposed else shape))
        return self.start.normal(shape, factors, transposed)

    def zeros(self, *shape: int) -> np.ndarray:
        if self.stored is not None:  # only the shape and dtype of start values are used
            return np.broadcast_to(self.dtype.type(0), shape)
        return np.zeros(shape, self.dtype)
