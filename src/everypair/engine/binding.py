"""What a tower is bound to: rows of data, their weights in the loss, and start values and L2 of its parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from everypair.columns.keys import Keys
from everypair.columns.table import Rows
from everypair.engine.parameter import Parameter
from everypair.engine.regularization import Regularization
from everypair.engine.start_values import Stream
from everypair.runtime.group import ALONE, Group
from everypair.runtime.numerics import Values, aligned


class StepSettings(NamedTuple):
    """Step size eta, dimensions of a row solved together, and the solver ("block" or "cd") of fields with overlapping features."""

    step_size: float = 1.0
    block_size: int = 1
    field_solver: str = "block"


@dataclass
class Initializer:
    """Random start values N(0, std^2), the same for every dtype: a function of the seed, the parameter's name, the row's key and
    the dimension (:mod:`everypair.engine.start_values`).

    By default they are small: the origin is not a minimum, and the first sweep moves away from it. Where a score multiplies three
    or more parameters, the origin is a local minimum (with L2), and ``std`` is such that scores start at magnitude one. With
    ``from_feedback``, start values are zero here, and :mod:`everypair.engine.initialization` sets them afterwards.
    """

    seed: int
    dtype: np.dtype
    init_std: float | None
    degree: int = 2
    terms: int = 1
    from_feedback: bool = False
    unnamed: int = 0  # draws so far for which no name was given

    def normal(
        self,
        shape: tuple[int, ...],
        factors: int,
        transposed: bool = False,
        name: str | None = None,
        keys: Keys | Mapping[str, Keys] | None = None,
    ) -> np.ndarray:
        """Random numbers of this shape, stored with the axes reversed if ``transposed``; see :meth:`BindContext.normal`."""
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
        by_row = drawn.T if transposed else drawn.reshape(shape[0], int(np.prod(shape[1:])))
        by_field = keys if isinstance(keys, Mapping) else {"": range(shape[0]) if keys is None else keys}
        if sum(map(len, by_field.values())) != shape[0]:
            raise ValueError(f"start values of shape {shape} need {shape[0]:,} keys, got {sum(map(len, by_field.values())):,}.")
        start = 0
        for field, of_field in by_field.items():
            self._stream(name, field).fill(by_row[start : start + len(of_field)], of_field, std)
            start += len(of_field)
        self.unnamed += name is None
        return drawn

    def _stream(self, name: str | None, field: str) -> Stream:
        return Stream(self.seed, "unnamed", str(self.unnamed), field) if name is None else Stream(self.seed, "normal", name, field)


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
    group : Group
        The members among whom these rows are divided: sums over all rows are its totals.
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
    group: Group = ALONE

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
        group = ALONE if levels.local else self.group  # levels of several members have rows elsewhere, too
        weight = group.total(levels.sum(self.unobserved)) if unobserved is None else np.full(levels.n, unobserved)
        observed, rows = group.total(levels.sum(self.observed)), levels.rows(column)
        divided = self.group if levels.local else ALONE
        return replace(self, rows=rows, observed=observed, unobserved=weight, whole=False, group=divided)

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

    def normal(
        self,
        shape: tuple[int, ...],
        factors: int,
        transposed: bool = False,
        name: str | None = None,
        keys: Keys | Mapping[str, Keys] | None = None,
    ) -> np.ndarray:
        """Random start values of a parameter with this many factors.

        Parameters
        ----------
        shape : tuple of int
        factors : int
            They are scaled by it.
        transposed : bool
            Stored with the axes reversed.
        name : str, optional
            Of the parameter. Values are a function of it, of the row's key and of the dimension; other names give other values. By
            default, the number of calls without a name for this model so far.
        keys : array of uint64, range or mapping, optional
            Of the rows (``rows.keys``), by field for a parameter that has a row for each feature (``features.keys``). By default,
            the numbers of rows.
        """
        if self.stored is not None:
            return self.zeros(*(shape[::-1] if transposed else shape))
        return self.start.normal(shape, factors, transposed, name, keys)

    def zeros(self, *shape: int) -> np.ndarray:
        if self.stored is not None:  # only the shape and dtype of start values are used
            return np.broadcast_to(self.dtype.type(0), shape)
        return np.zeros(shape, self.dtype)
