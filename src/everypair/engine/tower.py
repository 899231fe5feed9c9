"""``Tower``, the base class of one side of a k-separable model: ``phi(c; theta)`` and the steps on its parameters."""

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
from everypair.engine.level_parts import LevelParts
from everypair.engine.parameter import Parameter
from everypair.engine.summed_vectors import SummedVectors
from everypair.engine.vectors import RangeVectors, Vectors
from everypair.engine.view import View
from everypair.runtime.numerics import Values
from everypair.runtime.parallel import SERIAL, Workers


class Capabilities(NamedTuple):
    """What a bound tower can do beyond its four abstract methods. Engines read it; errors name the tower that cannot.

    Attributes
    ----------
    by_dimension : bool
        It can be swept dimension by dimension, alternating with the other side (``order="dimension"``).
    rotations : tuple of (int, int)
        Ranges of dimensions that :meth:`Tower.rotate` can multiply by an orthogonal matrix, if the other side rotates too.
    free_rows : bool
        Its vectors are the parameter array itself, not a copy.
    lazy : bool
        It computes vectors of ranges of rows (:meth:`Tower.range_vectors`) and single dimensions (:meth:`Tower.dimensions`) without
        computing all others, so that its vectors need not be stored.
    kept : tuple of int
        Dimensions that are stored nevertheless, since computing them takes all others; ``range_vectors`` does not fill them.
    by_levels : bool
        All its steps are on vectors of levels, one level at a time, and need no vectors of its rows.
    all_combinations : bool
        It represents all combinations of levels, more rows than are listed.
    divided : bool
        Its rows can be divided among a group: sums over them that it makes itself are totals of the group.
    replicated : bool
        Each member of a group can have all its rows, with some of their pairs: it asks a view for ``slopes`` alone, or describes
        its blocks.
    """

    by_dimension: bool = False
    rotations: tuple[tuple[int, int], ...] = ()
    free_rows: bool = False
    lazy: bool = False
    kept: tuple[int, ...] = ()
    by_levels: bool = False
    all_combinations: bool = False
    divided: bool = False
    replicated: bool = False


class Tower(ABC):
    """One side of a model: parameters, the vectors they give, and steps on them.

    A tower is first a description, such as ``Embedding(16, "user")``: its number of dimensions and the columns it reads.
    :meth:`bind` returns a copy with rows and parameters; the description can be bound again.

    A tower does not know the loss. It gets the derivatives of the loss with respect to its vectors from a
    :class:`~everypair.engine.view.View`, steps on its parameters, and reports to the view how its vectors moved.

    To write a tower, derive from :class:`~everypair.towers.Smooth`, which implements the steps; derive from this class for
    steps of your own. In both cases, test it with :func:`everypair.testing.check_tower`.
    """

    n_dims: int
    towers: tuple[Tower, ...] = ()  # its parts

    # set by bind
    rows: Rows
    settings: StepSettings
    parameters: dict[str, Parameter]

    def bind(self, binding: BindContext) -> Tower:
        """A copy of this tower with rows and parameters."""
        bound = copy.copy(self)
        bound.rows, bound.settings, bound.parameters = binding.rows, binding.settings, {}
        bound.build(binding)
        for part in bound.towers:
            bound.parameters.update(part.parameters)
        return bound

    @abstractmethod
    def build(self, binding: BindContext) -> None:
        """Make ``parameters`` (with :meth:`BindContext.parameter <everypair.towers.BindContext.parameter>`), or bind the parts."""

    def bind_parts(self, binding: BindContext) -> None:
        """Bind the parts, to the same rows."""
        self.towers = tuple(tower.bind(binding.part()) for tower in self.towers)

    @abstractmethod
    def evaluate(self, rows: Rows, workers: Workers) -> Vectors:
        """``phi`` of rows: those of the fit, or others with the same columns."""

    @property
    @abstractmethod
    def blocks(self) -> Sequence[Any]:
        """The blocks of free parameters, in the order of a sweep. An integer f is the block of dimension f."""

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(by_dimension=all(isinstance(block, int) for block in self.blocks))

    @abstractmethod
    def step(self, view: View, block: Any) -> None:
        """Lower the loss over one block of parameters."""

    def describe_blocks(self) -> Sequence[Block] | None:
        """The blocks of a sweep as data, for engines that step on them without this tower; None if they cannot be described."""
        return None

    def sweep(self, view: View) -> None:
        """Every block once: the loop over the side's parameters in Algorithm 1."""
        for block in self.blocks:
            self.step(view, block)

    def vectors(self, workers: Workers = SERIAL) -> Vectors:
        """``phi`` of every row of the fit."""
        return self.evaluate(self.rows, workers)

    def vectors_of(self, argument: str, rows: Any) -> np.ndarray:
        """``phi`` (n x K) of rows that need not be those of the fit; ``argument`` is their name in error messages."""
        return self.evaluate(rows_like(argument, rows, self.rows), SERIAL).rows

    def contributions(self, rows: Rows, psi: np.ndarray) -> list[Contribution]:
        """``<phi, psi>`` of a single row as a sum of contributions, one per feature where features do not interact.

        By default one summand for all columns that the tower reads.
        """
        tracked = Rows(rows.name, rows.n, rows.columns, rows.index, rows.size)  # a fresh copy, which records the columns it gives
        amount = float(self.evaluate(tracked, SERIAL).rows[0].astype(np.float64) @ psi)
        columns = tuple(name for name in rows.columns if name in tracked.used)
        return [Contribution(columns or (rows.name,), None, amount)]

    def dimensions(self, rows: Rows, workers: Workers) -> Callable[[int], np.ndarray]:
        """A function from f to ``phi_f`` of rows; towers override it where they can compute one dimension alone."""
        dims = self.evaluate(rows, workers).dims
        return lambda f: dims[f]

    def range_vectors(self, first: int, last: int) -> RangeVectors:
        """A function from a range of rows of the fit to their ``phi`` in dimensions ``first:last``, with the current parameters;
        for towers that are ``lazy``."""
        raise NotImplementedError(f"{type(self).__name__} computes all its vectors at once")

    def fill_panel(self, first: int, last: int, out: np.ndarray, workers: Workers) -> bool:
        """Write the vectors of all rows of the fit in dimensions ``first:last`` to ``out``, and zeros to the rest, where that is
        faster than by :meth:`range_vectors`; whether it was done."""
        return False

    def range_products(self, factor: np.ndarray) -> RangeVectors:
        """The same for the products of vectors with a matrix; towers override it where they can take a product of their parameters
        once, instead of one for each row."""
        part, dims = self.range_vectors(0, self.n_dims), np.flatnonzero(factor.any(axis=1))
        return lambda start, stop: part(start, stop)[:, dims] @ factor[dims]

    @property
    def level_parts(self) -> LevelParts | None:
        """How the vectors of rows are sums of few, in all dimensions that are not ``kept``; None where they are not."""
        return None

    def part_tables(self, first: int, last: int) -> list[np.ndarray]:
        """The vectors of these parts in dimensions ``first:last``, with the current parameters."""
        raise NotImplementedError(f"{type(self).__name__} has no parts")

    def summed_vectors(self, workers: Workers) -> SummedVectors | None:
        """These sums with the current parameters; None without parts."""
        return None

    def combination(self, coefficients: np.ndarray, workers: Workers) -> np.ndarray | None:
        """``sum_f coefficients[f] phi_f`` of the rows of the fit, without the dimensions that are ``kept``; None if that costs
        more than a single dimension."""
        return None

    def vectors_by_row(self) -> Callable[[np.ndarray], np.ndarray]:
        """A function from row numbers of the fit to their ``phi``, computed for these rows alone where the tower can."""
        if self.rows.has_rows:
            return lambda index: self.evaluate(self.rows.take(index), SERIAL).rows
        rows = self.vectors().rows
        return lambda index: rows[index]

    def settle(self) -> None:
        """Allow :meth:`evaluate` to cache: parameters will not change until the next call of this method."""
        for tower in self.towers:
            tower.settle()

    def gram(self, vectors: Vectors, weight: Values, workers: Workers) -> np.ndarray:
        """``J = sum_c weight_c phi(c) phi(c)'`` over all rows the tower represents."""
        return vectors.gram(weight, workers)

    def total_weight(self, weight: np.ndarray) -> float:
        """The sum of the weights of all rows the tower represents, given the weights of the listed rows."""
        return float(weight.sum())

    def norms(self, vectors: Vectors, weight: Values, workers: Workers) -> np.ndarray:
        """The diagonal of :meth:`gram`."""
        return vectors.norms(weight, workers)

    def rotate(self, at: slice, Q: np.ndarray, workers: Workers) -> None:
        """Change the parameters such that these dimensions of ``phi`` become ``phi Q``."""
        raise NotImplementedError(f"{type(self).__name__} cannot be rotated")

    def l2(self) -> float:
        """``sum lambda_theta theta^2`` over the free parameters."""
        return sum(parameter.l2() for parameter in self.parameters.values())

    # for the scale of start values: a score is a sum of products of parameters

    @property
    def degree(self) -> int:
        """The largest number of parameters multiplied in a term of ``phi_f``."""
        return max((tower.degree for tower in self.towers), default=1)

    @property
    def terms(self) -> int:
        """The number of such terms in ``phi_f``, not counting features and summands."""
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
        """This tower, its parts, their parts, and so on."""
        yield self
        for tower in self.towers:
            yield from tower.walk()

    # for requests: rows that were not in the fit, and rows that are compared with each other

    has_parameters: bool = True  # one without may be part of a model twice
    is_free_rows: bool = False  # a vector for each row, as in matrix factorization, whose start values come from the feedback
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
    """Check the arguments of a combinator."""
    if not towers:
        raise TypeError(f"{name} takes one or more towers, got none.")
    for tower in towers:
        if not isinstance(tower, Tower):
            raise TypeError(f"{name} takes towers, got {tower!r} of type {type(tower).__name__}.")


def check_same_dims(name: str, towers: tuple[Tower, ...]) -> int:
    """The common number of dimensions."""
    dims = [tower.n_dims for tower in towers]
    if len(set(dims)) > 1:
        raise ValueError(f"all towers of a {name} must have the same number of dimensions, got {dims}: {towers!r}.")
    return dims[0]


def common_rotations(rotations: Sequence[Sequence[tuple[int, int]]]) -> tuple[tuple[int, int], ...]:
    """The ranges that lie in a range of every list: what all of these towers can rotate.

    >>> common_rotations([[(0, 4), (4, 8)], [(0, 8)]])
    ((0, 4), (4, 8))
    """
    common, *others = rotations
    for other in others:
        common = [(max(a, c), min(b, d)) for a, b in common for c, d in other if max(a, c) < min(b, d)]
    return tuple(common)
