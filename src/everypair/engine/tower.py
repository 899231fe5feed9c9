"""What a tower is: one side of a k-separable model, ``phi(c; theta)``, and the steps on its parameters."""

from __future__ import annotations

import copy
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from everypair.columns.table import Rows, rows_like
from everypair.engine.binding import BindContext, StepSettings
from everypair.engine.blocks import Block
from everypair.engine.contribution import Contribution
from everypair.engine.dimensions import FACTOR
from everypair.engine.parameter import Parameter
from everypair.engine.vectors import RangeVectors, Vectors
from everypair.engine.view import View
from everypair.runtime.numerics import Values
from everypair.runtime.parallel import SERIAL, Workers


class Capabilities(NamedTuple):
    """What a bound tower can do beyond its four methods. Engines read it, and refuse what a tower cannot, naming it.

    Attributes
    ----------
    by_dimension : bool
        It can be swept dimension by dimension, in turn with the other side (``order="dimension"``).
    rotations : tuple of (int, int)
        Ranges of dimensions that an orthogonal matrix may turn, by :meth:`Tower.rotate`, if the other side turns along.
    free_rows : bool
        Its vectors are the parameters themselves, not a copy.
    lazy : bool
        It computes vectors of ranges of rows (:meth:`Tower.range_vectors`) and single dimensions (:meth:`Tower.dimensions`) at the
        cost of just these, so that its vectors need not be held.
    kept : tuple of int
        Dimensions that are held all the same, since they take all others to compute; ``range_vectors`` leaves them out.
    by_levels : bool
        All its steps are on vectors of levels, a level at a time, and need no vectors of its rows.
    all_combinations : bool
        It stands for more rows than are listed: all combinations of levels.
    """

    by_dimension: bool = False
    rotations: tuple[tuple[int, int], ...] = ()
    free_rows: bool = False
    lazy: bool = False
    kept: tuple[int, ...] = ()
    by_levels: bool = False
    all_combinations: bool = False


class Tower(ABC):
    """One side of a model: parameters, the vectors they give, and steps on them.

    A tower is first a description, such as ``Embedding(16, "user")``: how many dimensions it has, and which columns of the data
    it reads. :meth:`bind` gives a copy of it that has rows and parameters, and the description can be used again.

    A tower knows no loss: it steps on its parameters given the derivatives of the loss with respect to its vectors, which it
    asks of a :class:`~everypair.engine.view.View`, and tells the view how its vectors moved.

    To write a tower, derive from :class:`~everypair.towers.Smooth`, which takes the steps for you; derive from this class for
    steps of your own. Either way, :func:`everypair.testing.check_tower` tells whether it is right.
    """

    n_dims: int
    towers: tuple[Tower, ...] = ()  # those it is made of

    # what a bound tower has
    rows: Rows
    settings: StepSettings
    parameters: dict[str, Parameter]

    def bind(self, site: BindContext) -> Tower:
        """A copy of this tower with rows and parameters."""
        bound = copy.copy(self)
        bound.rows, bound.settings, bound.parameters = site.rows, site.settings, {}
        bound.build(site)
        for part in bound.towers:
            bound.parameters.update(part.parameters)
        return bound

    @abstractmethod
    def build(self, site: BindContext) -> None:
        """Make ``parameters`` (with :meth:`BindContext.parameter <everypair.towers.BindContext.parameter>`), or bind its parts."""

    def bind_parts(self, site: BindContext) -> None:
        """Bind the towers it is made of, to the same rows."""
        self.towers = tuple(tower.bind(site.part()) for tower in self.towers)

    @abstractmethod
    def evaluate(self, rows: Rows, workers: Workers) -> Vectors:
        """``phi`` of rows: those of the fit, or others described in the same way."""

    @property
    @abstractmethod
    def blocks(self) -> Sequence[Any]:
        """The blocks of free parameters of a sweep, in order. An integer f is the block of dimension f."""

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(by_dimension=all(isinstance(block, int) for block in self.blocks))

    @abstractmethod
    def step(self, view: View, block: Any) -> None:
        """Lower the loss over one block of parameters."""

    def describe_blocks(self) -> Sequence[Block] | None:
        """The blocks of a sweep as data, for engines that step on them without this tower; None if only the tower knows them."""
        return None

    def sweep(self, view: View) -> None:
        """Every block once: the loop over the side's parameters in Algorithm 1."""
        for block in self.blocks:
            self.step(view, block)

    def vectors(self, workers: Workers = SERIAL) -> Vectors:
        """``phi`` of every row of the fit."""
        return self.evaluate(self.rows, workers)

    def vectors_of(self, argument: str, rows: Any) -> np.ndarray:
        """``phi`` of other rows than those trained on (n x K); ``argument`` is what messages call them."""
        return self.evaluate(rows_like(argument, rows, self.rows), SERIAL).rows

    def contributions(self, rows: Rows, psi: np.ndarray) -> list[Contribution]:
        """``<phi, psi>`` of a single row, taken apart: what each of its features brings, as far as they act on their own.

        By default one summand for all columns that the tower reads.
        """
        asked = Rows(rows.name, rows.n, rows.columns, rows.index, rows.size)  # to see what is read of it
        amount = float(self.evaluate(asked, SERIAL).rows[0].astype(np.float64) @ psi)
        columns = tuple(name for name in rows.columns if name in asked.used)
        return [Contribution(columns or (rows.name,), None, amount)]

    def dimensions(self, rows: Rows, workers: Workers) -> Callable[[int], np.ndarray]:
        """A function from f to ``phi_f`` of rows: one dimension at a time where the tower can."""
        dims = self.evaluate(rows, workers).dims
        return lambda f: dims[f]

    def range_vectors(self, first: int, last: int) -> RangeVectors:
        """A function from a range of rows of the fit to their ``phi`` in dimensions ``first:last``, with the present parameters;
        for a tower that is ``lazy``."""
        raise NotImplementedError(f"{type(self).__name__} computes all its vectors at once")

    def combination(self, coefficients: np.ndarray, workers: Workers) -> np.ndarray | None:
        """``sum_f coefficients[f] phi_f`` of the rows of the fit, without the dimensions that are ``kept``: where it costs no
        more than a single dimension."""
        return None

    def lookup(self) -> Callable[[np.ndarray], np.ndarray]:
        """A function from numbers of rows of the fit to their ``phi``: computed for them alone where the tower can."""
        if self.rows.has_rows:
            return lambda index: self.evaluate(self.rows.take(index), SERIAL).rows
        rows = self.vectors().rows
        return lambda index: rows[index]

    def settle(self) -> None:
        """Parameters do not change any more: what :meth:`evaluate` makes of all of them may be kept. Called again if they did."""
        for tower in self.towers:
            tower.settle()

    def gram(self, vectors: Vectors, weight: Values, workers: Workers) -> np.ndarray:
        """``J = sum_c weight_c phi(c) phi(c)'`` over all rows the tower stands for."""
        return vectors.gram(weight, workers)

    def total_weight(self, weight: np.ndarray) -> float:
        """The sum of the weights of all rows the tower stands for, given those of the listed ones."""
        return float(weight.sum())

    def norms(self, vectors: Vectors, weight: Values, workers: Workers) -> np.ndarray:
        """The diagonal of :meth:`gram`."""
        return vectors.norms(weight, workers)

    def rotate(self, at: slice, Q: np.ndarray, workers: Workers) -> None:
        """Turn the parameters such that these dimensions of ``phi`` become ``phi Q``."""
        raise NotImplementedError(f"{type(self).__name__} cannot be rotated")

    def l2(self) -> float:
        """``sum lambda_theta theta^2`` over the free parameters."""
        return sum(parameter.l2() for parameter in self.parameters.values())

    # how scores come to be, for start values: a score is a sum of products of parameters

    @property
    def degree(self) -> int:
        """How many parameters are multiplied in a term of ``phi_f``, at most."""
        return max((tower.degree for tower in self.towers), default=1)

    @property
    def terms(self) -> int:
        """How many such terms ``phi_f`` has (features, and parts that are added up, apart)."""
        return max((tower.terms for tower in self.towers), default=1)

    def __repr__(self) -> str:
        shown = []
        for name, argument in inspect.signature(type(self)).parameters.items():
            value: Any = getattr(self, name, argument.empty)
            if value is argument.empty or inspect.ismethod(value) or _same(value, argument.default):
                continue
            if argument.kind is argument.VAR_POSITIONAL:
                shown += map(repr, value)
            else:
                shown.append(f"{name}={value!r}" if argument.kind is argument.KEYWORD_ONLY else repr(value))
        return f"{type(self).__name__}({', '.join(shown)})"

    def walk(self) -> Iterator[Tower]:
        """This tower and all it is made of."""
        yield self
        for tower in self.towers:
            yield from tower.walk()

    # for requests: rows that were not in the fit, and rows that are compared with each other

    moves_as_parameters: bool = False  # phi of a row with a level is that level's parameters plus what they do not change

    @property
    def dimension_kinds(self) -> tuple[str, ...]:
        """FACTOR, BIAS or CONSTANT for each dimension of a bound tower, see :mod:`everypair.engine.dimensions`."""
        return (FACTOR,) * self.n_dims

    def row_embedding(self) -> Tower | None:
        """The part of it that has a vector for each row of the fit, and so none for other rows; None if no part does."""
        return next((own for tower in self.towers if (own := tower.row_embedding()) is not None), None)


def _same(value: Any, default: Any) -> bool:
    return value is default or (type(value) is type(default) and value == default)


def check_towers(name: str, towers: tuple[Any, ...]) -> None:
    """The arguments of a combinator."""
    if not towers:
        raise TypeError(f"{name} must be made of one or more towers, got none.")
    for tower in towers:
        if not isinstance(tower, Tower):
            raise TypeError(f"{name} must be made of towers, got {tower!r} of type {type(tower).__name__}.")


def check_same_dims(name: str, towers: tuple[Tower, ...]) -> int:
    """The common number of dimensions."""
    dims = [tower.n_dims for tower in towers]
    if len(set(dims)) > 1:
        raise ValueError(f"all towers of a {name} must have the same number of dimensions, got {dims}: {towers!r}.")
    return dims[0]


def common_rotations(rotations: Sequence[Sequence[tuple[int, int]]]) -> tuple[tuple[int, int], ...]:
    """The ranges that lie in a range of every list: what all of these towers can turn.

    >>> common_rotations([[(0, 4), (4, 8)], [(0, 8)]])
    ((0, 4), (4, 8))
    """
    common, *others = rotations
    for other in others:
        common = [(max(a, c), min(b, d)) for a, b in common for c, d in other if max(a, c) < min(b, d)]
    return tuple(common)
