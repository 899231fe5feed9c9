"""Where a tower is bound: its rows, their weight in the loss, and how its parameters start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from everypair.columns.table import Rows
from everypair.engine.parameter import Parameter
from everypair.engine.regularization import Regularization
from everypair.runtime.numerics import Values

DRAWN_AT_ONCE = 2**18  # random numbers, in float64


class StepSettings(NamedTuple):
    """How towers step: eta, dimensions of a row solved together, "block" or "cd" for overlapping features."""

    step_size: float = 1.0
    block_size: int = 1
    field_solver: str = "block"


@dataclass
class Initializer:
    """Random start values N(0, std), the same for every dtype.

    They are small, so that the first sweep decides: the origin is no minimum. Where three or more parameters are multiplied it is
    one (if there is L2), and ``std`` makes scores start at the size of one. Matrix factorization starts from the feedback, which is
    seen to later: see :mod:`everypair.engine.initialization`.
    """

    random: np.random.Generator
    dtype: np.dtype
    given: float | None  # the user's init_std
    degree: int = 2
    terms: int = 1
    later: bool = False

    def normal(self, shape: tuple[int, ...], factors: int, transposed: bool = False) -> np.ndarray:
        """Drawn in this shape, in chunks, which are the same numbers; stored with the axes in reverse if ``transposed``."""
        if self.later:
            return np.zeros(shape[::-1] if transposed else shape, self.dtype)
        if self.given is not None:
            std = self.given
        elif self.degree <= 2:
            std = 0.1 / float(factors) ** 0.5
        else:
            std = float(self.terms) ** (-0.5 / self.degree)
        drawn = np.empty(shape[::-1] if transposed else shape, self.dtype)
        by_row = drawn.T if transposed else drawn
        rows = max(1, DRAWN_AT_ONCE // max(1, int(np.prod(shape[1:]))))
        for start in range(0, shape[0], rows):
            part = by_row[start : start + rows]
            part[...] = self.random.normal(0.0, std, part.shape)
        return drawn


@dataclass
class BindContext:
    """What :meth:`everypair.towers.Tower.bind` is told.

    Attributes
    ----------
    side : {"context", "item"}
    rows : Rows
    observed, unobserved : arrays
        What each row weighs in the loss through observed pairs (their number) and through all others
        (``alpha0 m_c sum_i n_i``): for ``regularization_exponent``.
    names : set of str
        Parameters of the model so far.
    whole : bool
        Whether the tower is all of its side.
    stored : mapping of str to array, optional
        Parameters of a fit that was done before, as stored in memory: what they are instead of start values.
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
    weighted: bool = False  # rows have weights m of their own
    per_combination: float = 0.0  # alpha0 sum_i n_i: what a combination that is not listed weighs
    stored: Mapping[str, np.ndarray] | None = None

    @property
    def dtype(self) -> np.dtype:
        """Of parameters and vectors."""
        return self.start.dtype

    @property
    def weight(self) -> np.ndarray:
        return self.observed + self.unobserved

    def part(self) -> BindContext:
        """The site of a tower that this one is made of."""
        return replace(self, whole=False)

    def levels(self, column: str, unobserved: float | None = None) -> BindContext:
        """The site of a tower over the levels of a column; ``unobserved``: what each level weighs, if not what its rows do."""
        levels = self.rows.levels(column)
        rest = levels.sum(self.unobserved) if unobserved is None else np.full(levels.n, unobserved)
        return replace(self, rows=levels.rows(column), observed=levels.sum(self.observed), unobserved=rest, whole=False)

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
            Among all parameters of the model.
        value : array
            Start values.
        weight : number, array or mapping
            The weight of each entry in the loss (that of the rows it touches: see ``BindContext.weight``), for
            ``regularization_exponent``; by field, for a parameter that has a row for each feature.
        field : str, optional
            Another name that ``regularization`` may know it by.
        transposed : bool
            Stored as (dimensions, features), shown to users as (features, dimensions).
        """
        if name in self.names:
            raise ValueError(f"two towers have a parameter named {name!r}: give one of them another, with name=...")
        self.names.add(name)
        parameter = Parameter(value if self.stored is None else self._stored(name, value), transposed=transposed)
        self.regularization.ask(name, parameter, weight, field)
        return parameter

    def _stored(self, name: str, start: np.ndarray) -> np.ndarray:
        assert self.stored is not None
        if name not in self.stored:
            raise ValueError(f"there is no parameter {name!r} among those stored: {', '.join(self.stored) or 'none'}.")
        value = self.stored[name]
        if value.shape != start.shape or value.dtype != start.dtype:
            raise ValueError(
                f"the stored parameter {name!r} must be of shape {start.shape} and {start.dtype}, got {value.shape}, {value.dtype}."
            )
        return value

    def normal(self, shape: tuple[int, ...], factors: int, transposed: bool = False) -> np.ndarray:
        """Random start values for a parameter with this many factors; ``transposed``: drawn in this shape, stored in the other."""
        if self.stored is not None:
            return self.zeros(*(shape[::-1] if transposed else shape))
        return self.start.normal(shape, factors, transposed)

    def zeros(self, *shape: int) -> np.ndarray:
        if self.stored is not None:  # but for their shape, start values are not used
            return np.broadcast_to(self.dtype.type(0), shape)
        return np.zeros(shape, self.dtype)
