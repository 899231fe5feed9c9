r"""``Smooth``: towers given by a formula and its derivatives, Algorithm 1 for any :math:`\phi(c; \theta)`.

A parameter :math:`\theta` moves the vectors of the rows that depend on it. With :math:`g_c` and :math:`A_c` half the gradient and
half the curvature of the loss in the vector of row c (from a :class:`~everypair.engine.view.View`),

.. math::

    \tfrac12 L' = \sum_c \langle g_c, \phi'(c) \rangle + \lambda \theta, \qquad
    \tfrac12 L'' = \sum_c \phi'(c)' A_c \, \phi'(c) + \langle g_c, \phi''(c) \rangle + \lambda

and the step is :math:`-\eta L' / L''`. If :math:`\phi` is linear in :math:`\theta`, this is exact. Otherwise, :math:`L''` may not
be positive: the term with :math:`\phi''` is then left out (Gauss-Newton). In any case the step is halved until the loss, which is
known exactly for any move of the vectors, decreases.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from everypair.columns.keys import Keys
from everypair.columns.table import Rows
from everypair.engine.binding import BindContext
from everypair.engine.tower import Tower
from everypair.engine.vectors import Vectors
from everypair.engine.view import View
from everypair.runtime import validation as check
from everypair.runtime.numerics import tiny
from everypair.runtime.parallel import SERIAL, Workers

Arrays = dict[str, np.ndarray]


class Normal(Protocol):
    """Random start values of a shape."""

    def __call__(self, shape: tuple[int, ...], keys: Keys | None = None) -> np.ndarray: ...


HALVINGS = 30


class Coordinates(NamedTuple):
    """Entries of a parameter that are stepped on together, since no row depends on two of them.

    Attributes
    ----------
    name : str
        Name of the parameter.
    index : tuple or int
        The entries are ``p[name][index]``: a number or a vector.
    entry : array of integers, optional
        For each row, the position in that vector of the entry it depends on, or -1 for none. None: every row depends on the single
        entry.
    """

    name: str
    index: Any
    entry: np.ndarray | None = None


class Derivatives(NamedTuple):
    """First and second derivative of each row's vector with respect to the entry it depends on.

    Attributes
    ----------
    first, second : arrays (n, width)
        In the dimensions from ``start`` on; other dimensions do not depend on it. ``second`` None: ``phi`` is linear in the entry.
    start : int
    """

    first: np.ndarray
    second: np.ndarray | None = None
    start: int = 0


class Smooth(Tower):
    """Base class of towers given by a formula: define ``n_dims`` and four methods; this class implements the steps.

    ``p`` is a dict of the parameters by name. ``rows`` gives the data: their number ``rows.n``, and the columns as
    ``rows.values(name)`` (numbers), ``rows.levels(name)`` (``codes`` and ``n``) or ``rows.features([name])``.

    ``name``, if not None, is a prefix of the names of the parameters: needed if a model has two such towers.

    :func:`everypair.testing.check_tower` compares the derivatives with differences of ``phi``, and more.
    """

    name: str | None = None

    @abstractmethod
    def start(self, rows: Rows, normal: Normal) -> Arrays:
        """Start values of the parameters; ``normal(shape)`` gives random values, scaled as those of an embedding.

        Other calls give other values. With ``normal(shape, keys)``, those of a row are functions of its key and not of its number:
        ``rows.levels("user").keys`` for a row of parameters per user.
        """

    @abstractmethod
    def phi(self, p: Arrays, rows: Rows) -> np.ndarray:
        """The vectors of rows (n x K)."""

    @abstractmethod
    def coordinates(self, p: Arrays, rows: Rows) -> Iterable[Coordinates]:
        """All entries of all parameters, in the order of a sweep."""

    @abstractmethod
    def derivatives(self, p: Arrays, rows: Rows, at: Coordinates) -> Derivatives:
        """Derivatives of the vectors with respect to these entries."""

    # implemented by this class

    def build(self, binding: BindContext) -> None:
        self._dtype = binding.dtype
        values = self._start_values(binding)
        self.coordinate_entries = [Entries(self, at, values, binding.rows.n) for at in self._listed(values, binding.rows)]
        weights = {name: np.zeros(value.shape) for name, value in values.items()}
        for entries in self.coordinate_entries:
            entries.put(weights, entries.get(weights) + entries.total(binding.weight))
        self._names = {name: name if self.name is None else f"{self.name}.{name}" for name in values}
        for name, value in values.items():
            self.parameters[self._names[name]] = binding.parameter(self._names[name], value, weights[name], binding.rows.name)

    def _start_values(self, binding: BindContext) -> Arrays:
        start = self.start(binding.rows, lambda shape, keys=None: binding.normal(shape, self.n_dims, keys=keys))
        if not isinstance(start, Mapping):
            raise TypeError(f"{type(self).__name__}.start must return a dict of arrays, got {type(start).__name__}.")
        values = {name: np.array(value, binding.dtype, ndmin=1) for name, value in start.items()}
        for name, value in values.items():
            check.refuse(f"{type(self).__name__}.start: {name!r}", ~np.isfinite(value), value, "be finite")
        return values

    def _listed(self, values: Arrays, rows: Rows) -> list[Coordinates]:
        coordinates = self.coordinates(values, rows)
        listed: list[Any] = list(coordinates) if isinstance(coordinates, Iterable) else [coordinates]
        for at in listed:
            if not isinstance(at, Coordinates):
                raise TypeError(f"{type(self).__name__}.coordinates must yield Coordinates, got {at!r}.")
        return listed

    @property
    def parameter_values(self) -> Arrays:
        """The parameters by their names in ``start``."""
        return {name: self.parameters[full].value for name, full in self._names.items()}

    def evaluate(self, rows: Rows, workers: Workers) -> Vectors:
        phi = np.array(self.phi(self.parameter_values, rows), self._dtype, order="C")  # a copy: phi may return a parameter itself
        if phi.shape != (rows.n, self.n_dims):
            raise ValueError(f"phi of {type(self).__name__} must have shape {(rows.n, self.n_dims)}, got {phi.shape}.")
        return Vectors(rows=phi)

    @property
    def blocks(self) -> Sequence[Any]:
        free = {name for name, full in self._names.items() if not self.parameters[full].fixed}
        return [("entries", j) for j, entries in enumerate(self.coordinate_entries) if entries.at.name in free]

    def step(self, view: View, block: Any) -> None:
        entries = self.coordinate_entries[block[1]]
        p, parameter = self.parameter_values, self.parameters[self._names[entries.at.name]]
        theta = entries.get(p).astype(np.float64)
        l2 = entries.get({entries.at.name: np.broadcast_to(parameter.penalty, parameter.value.shape)}).astype(np.float64)
        d = self.checked(self.derivatives(p, self.rows, entries.at), entries.at)
        first = np.ascontiguousarray(d.first, view.dtype)
        g, h = view.slopes_along(first, d.start)
        slope, curvature = entries.total(g) + l2 * theta, entries.total(h) + l2
        supported = curvature > 0.0
        if d.second is None:
            newton = np.divide(slope, curvature, out=np.zeros_like(theta), where=supported)
            target = np.where(supported, theta - self.settings.step_size * newton, 0.0).astype(self._dtype)
            entries.put(p, target)
            view.move_along(first, entries.spread(target - theta, view.n_rows).astype(view.dtype), d.start)
            return
        bend, _ = view.slopes_along(np.ascontiguousarray(d.second, view.dtype), d.start)
        newton, size = curvature + entries.total(bend), curvature + entries.total(np.abs(bend))
        curvature = np.where(newton > tiny(view.dtype) * size, newton, curvature)
        step = np.divide(-self.settings.step_size * slope, curvature, out=np.zeros_like(theta), where=curvature > 0.0)
        self._step_down(view, entries, slice(d.start, d.start + first.shape[1]), theta, step, l2)

    def _step_down(self, view: View, entries: Entries, dims: slice, theta: np.ndarray, step: np.ndarray, l2: np.ndarray) -> None:
        """Take the steps, each halved until its part of the loss decreases; no step if that does not help.

        Where the change of the loss, or the move of the vectors, is lost in rounding, no step is taken: smaller ones are no better.
        """
        p, before = self.parameter_values, self._vectors_in(dims)
        for trial in range(HALVINGS + 1):
            target = (theta + step).astype(self._dtype)
            entries.put(p, target)
            moved = self._vectors_in(dims) - before
            g, h = (x.astype(np.float64) for x in view.slopes_along(moved, dims.start))
            squares = np.square(target, dtype=np.float64)
            change = entries.total(2.0 * g + h) + l2 * (squares - theta * theta)
            size = entries.total(np.abs(2.0 * g) + np.abs(h)) + l2 * (squares + theta * theta)
            worse = ~(change <= 0.0) & (step != 0.0)
            if not worse.any():
                view.move_along(moved, np.ones(view.n_rows, view.dtype), dims.start)
                return
            still = np.all(np.abs(moved) <= tiny(view.dtype) * np.abs(before), axis=1)
            lost = (np.abs(change) <= tiny(view.dtype) * size) | (entries.total(~still) == 0.0)
            hopeless = lost | (trial >= HALVINGS - 1)
            step = np.where(worse, np.where(hopeless, 0.0, 0.5 * step), step)
        raise AssertionError("a step of zero raised the loss")

    def checked(self, d: Any, at: Coordinates) -> Derivatives:
        """Check the shapes of derivatives, which kernels index without bounds checks."""
        what = f"{type(self).__name__}.derivatives by {at.name}[{at.index!r}]"
        if not isinstance(d, Derivatives):
            raise TypeError(f"{what} must be Derivatives, got {type(d).__name__}.")
        for kind, array in {"first": d.first, **({} if d.second is None else {"second": d.second})}.items():
            shape = np.shape(array)
            fits = len(shape) == 2 and shape[0] == self.rows.n and 0 <= d.start <= self.n_dims - shape[1]
            if not fits or shape != np.shape(d.first):
                raise ValueError(
                    f"{what}: {kind} must have a row for each of {self.rows.n} rows and fit into the {self.n_dims} dimensions from "
                    f"dimension {d.start} on, got shape {shape}."
                )
        return d

    def _vectors_in(self, dims: slice) -> np.ndarray:
        return np.ascontiguousarray(self.evaluate(self.rows, SERIAL).rows[:, dims])


class Entries:
    """The entries selected by :class:`Coordinates`, checked, with the rows that depend on each."""

    def __init__(self, tower: Smooth, at: Coordinates, p: Arrays, n_rows: int) -> None:
        what, which = f"{type(tower).__name__}.coordinates", f"{at.name}[{at.index!r}]"
        if at.name not in p:
            raise ValueError(f"{what} names the parameter {at.name!r}; start returned {', '.join(map(repr, p))}.")
        try:
            self.size = int(np.size(p[at.name][at.index]))
        except IndexError as error:
            raise ValueError(f"{what}: {which} does not exist: {error}.") from error
        if at.entry is None and self.size != 1:
            raise ValueError(f"{what}: {which} has {self.size} entries: set entry to the one that each row depends on.")
        if at.entry is not None:
            entry = np.asarray(at.entry)
            fits = entry.shape == (n_rows,) and entry.dtype.kind in "iu"
            if not fits or entry.max(initial=-1) >= self.size or entry.min(initial=0) < -1:
                raise ValueError(f"{what}: entry of {which} must hold {n_rows} integers from -1 to {self.size - 1}.")
            at = at._replace(entry=entry)
        self.at = at

    def get(self, p: Arrays) -> np.ndarray:
        return np.ravel(p[self.at.name][self.at.index])

    def put(self, p: Arrays, values: np.ndarray) -> None:
        array = p[self.at.name]
        array[self.at.index] = values.reshape(np.shape(array[self.at.index]))

    def total(self, per_row: np.ndarray) -> np.ndarray:
        """Sums over the rows of each entry."""
        if self.at.entry is None:
            return np.array([np.sum(per_row, dtype=np.float64)])
        return np.bincount(self.at.entry + 1, per_row, self.size + 1)[1:]

    def spread(self, values: np.ndarray, n_rows: int) -> np.ndarray:
        """For each row, the value of its entry; zero for rows that depend on none."""
        if self.at.entry is None:
            return np.broadcast_to(values, n_rows)
        return np.append(values, 0.0)[self.at.entry]
