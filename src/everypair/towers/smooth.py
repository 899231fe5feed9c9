r"""Towers given by a formula and its derivatives: Algorithm 1 for any :math:`\phi(c; \theta)`.

A parameter :math:`\theta` moves the vectors of the rows it touches. With :math:`g_c` and :math:`A_c` the half gradient and half
curvature of the loss in the vector of row c (what a :class:`~everypair.view.View` gives),

.. math::

    \tfrac12 L' = \sum_c \langle g_c, \phi'(c) \rangle + \lambda \theta, \qquad
    \tfrac12 L'' = \sum_c \phi'(c)' A_c \, \phi'(c) + \langle g_c, \phi''(c) \rangle + \lambda

and the step is :math:`-\eta L' / L''`. Where :math:`\phi` is linear in :math:`\theta` this is exact. Elsewhere :math:`L''` may not
be positive: the term with :math:`\phi''` is then left out (Gauss-Newton), and in any case the step is halved until the loss, which
is known exactly for any move of the vectors, falls.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from everypair.objective import tiny
from everypair.parallel import SERIAL, Workers
from everypair.rows import Rows
from everypair.towers.base import Tower
from everypair.towers.site import Site
from everypair.vectors import Vectors
from everypair.view import View

Arrays = dict[str, np.ndarray]
HALVINGS = 30


class Coordinates(NamedTuple):
    """Entries of a parameter that are stepped on together: no row depends on two of them.

    Attributes
    ----------
    name : str
        The parameter.
    index : tuple or int
        Which of its entries, as in ``p[name][index]``: a single one, or a vector of them.
    entry : array of integers, optional
        For each row, the position in that vector of the entry it depends on; -1: on none. None: every row depends on the (single)
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
        In the dimensions from ``start`` on; those outside do not move. ``second`` None: zero, ``phi`` is linear in the entry.
    start : int
    """

    first: np.ndarray
    second: np.ndarray | None = None
    start: int = 0


class Smooth(Tower):
    """Base class of a tower given by a formula. Write four methods, and ``n_dims``; the steps are taken for you.

    ``p`` is a dict of arrays by name: the parameters. ``rows`` holds what is known of the rows: ``rows.n``, and by column
    ``rows.values(name)`` (numbers), ``rows.levels(name)`` (``codes`` and ``n``) or ``rows.features([name])``.

    ``name``, if it is not None, is put before the names of the parameters: needed if a model has two such towers.

    :func:`everypair.testing.check_tower` compares the derivatives with differences of ``phi``, and more.
    """

    name: str | None = None

    @abstractmethod
    def start(self, rows: Rows, normal: Callable[[tuple[int, ...]], np.ndarray]) -> Arrays:
        """Start values of the parameters; ``normal(shape)`` gives random ones of a size that suits a vector."""

    @abstractmethod
    def phi(self, p: Arrays, rows: Rows) -> np.ndarray:
        """The vectors of rows (n x K)."""

    @abstractmethod
    def coordinates(self, p: Arrays, rows: Rows) -> Iterable[Coordinates]:
        """All entries of all parameters, in the order of a sweep."""

    @abstractmethod
    def derivatives(self, p: Arrays, rows: Rows, at: Coordinates) -> Derivatives:
        """How the vectors move with these entries."""

    # what the base class makes of them

    def _bind(self, site: Site) -> None:
        values = self.start(site.rows, lambda shape: site.normal(shape, self.n_dims))
        values = {name: np.array(value, site.start.dtype, ndmin=1) for name, value in values.items()}
        weights = {name: np.zeros(value.shape) for name, value in values.items()}
        self._coordinates = list(self.coordinates(values, site.rows))
        for at in self._coordinates:
            _check_coordinates(at, values, site.rows.n)
            weights[at.name][at.index] += np.reshape(_total(at, site.weight, values), np.shape(weights[at.name][at.index]))
        self._names = {name: name if self.name is None else f"{self.name}.{name}" for name in values}
        for name, value in values.items():
            self.parameters[self._names[name]] = site.parameter(self._names[name], value, weights[name], site.rows.name)

    @property
    def _p(self) -> Arrays:
        return {name: self.parameters[full].value for name, full in self._names.items()}

    def evaluate(self, rows: Rows, workers: Workers) -> Vectors:
        phi = np.asarray(self.phi(self._p, rows))
        if phi.shape != (rows.n, self.n_dims):
            raise ValueError(f"phi of {type(self).__name__} must have shape {(rows.n, self.n_dims)}, got {phi.shape}.")
        return Vectors(rows=np.ascontiguousarray(phi, self._dtype))

    def lookup(self) -> Callable[[np.ndarray], np.ndarray]:
        if not self.rows.has_rows:
            return super().lookup()
        return lambda index: self.evaluate(self.rows.take(index), SERIAL).rows

    @property
    def _dtype(self) -> np.dtype:
        return next(iter(self.parameters.values())).value.dtype

    @property
    def blocks(self) -> Sequence[Any]:
        free = {name for name, full in self._names.items() if not self.parameters[full].fixed}
        return [("entries", j) for j, at in enumerate(self._coordinates) if at.name in free]

    def step(self, view: View, block: Any) -> None:
        at = self._coordinates[block[1]]
        p, parameter = self._p, self.parameters[self._names[at.name]]
        theta = np.ravel(p[at.name][at.index]).astype(np.float64)
        l2 = np.ravel(np.broadcast_to(parameter.penalty, parameter.value.shape)[at.index]).astype(np.float64)
        d = self.derivatives(p, self.rows, at)
        first = np.ascontiguousarray(d.first, view.dtype)
        g, h = view.slopes_along(first, d.start)
        slope, curvature = _total(at, g, p) + l2 * theta, _total(at, h, p) + l2
        supported = curvature > 0.0
        if d.second is None:
            newton = np.divide(slope, curvature, out=np.zeros_like(theta), where=supported)
            target = np.where(supported, theta - self.settings.step_size * newton, 0.0).astype(self._dtype)
            self._set(at, target)
            view.move_along(first, _spread(at, target - theta, view.n_rows).astype(view.dtype), d.start)
            return
        bend, _ = view.slopes_along(np.ascontiguousarray(d.second, view.dtype), d.start)
        newton = curvature + _total(at, bend, p)
        size = curvature + _total(at, np.abs(bend), p)
        curvature = np.where(newton > tiny(view.dtype) * size, newton, curvature)
        step = np.divide(-self.settings.step_size * slope, curvature, out=np.zeros_like(theta), where=curvature > 0.0)
        self._step_down(view, at, slice(d.start, d.start + first.shape[1]), theta, step, l2)

    def _step_down(self, view: View, at: Coordinates, dims: slice, theta: np.ndarray, step: np.ndarray, l2: np.ndarray) -> None:
        """Take the steps, each halved until its part of the loss falls; none if that does not help."""
        before = self._some(dims)
        for trial in range(HALVINGS + 1):
            target = (theta + step).astype(self._dtype)
            self._set(at, target)
            moved = self._some(dims) - before
            g, h = view.slopes_along(moved, dims.start)
            change = _total(at, 2.0 * g.astype(np.float64) + h, self._p) + l2 * (
                np.square(target, dtype=np.float64) - theta * theta
            )
            worse = ~(change <= 0.0) & (step != 0.0)
            if not worse.any():
                view.move_along(moved, np.ones(view.n_rows, view.dtype), dims.start)
                return
            step = np.where(worse, 0.5 * step if trial < HALVINGS - 1 else 0.0, step)
        raise AssertionError("a step of zero raised the loss")

    def _some(self, dims: slice) -> np.ndarray:
        return np.ascontiguousarray(self.evaluate(self.rows, SERIAL).rows[:, dims])

    def _set(self, at: Coordinates, values: np.ndarray) -> None:
        array = self.parameters[self._names[at.name]].value
        array[at.index] = values.reshape(np.shape(array[at.index]))


def _check_coordinates(at: Coordinates, p: Arrays, n: int) -> None:
    if at.name not in p:
        raise ValueError(f"coordinates names the parameter {at.name!r}; start made {', '.join(map(repr, p))}.")
    size = int(np.size(p[at.name][at.index]))
    if at.entry is None and size != 1:
        raise ValueError(f"coordinates: {at.name}[{at.index!r}] has {size} entries: say which of them each row depends on (entry).")
    if at.entry is not None and (np.shape(at.entry) != (n,) or at.entry.max(initial=-1) >= size or at.entry.min(initial=0) < -1):
        raise ValueError(f"coordinates: entry of {at.name}[{at.index!r}] must hold {n} integers from -1 to {size - 1}.")


def _total(at: Coordinates, per_row: np.ndarray, p: Arrays) -> np.ndarray:
    """Sums over the rows of each entry."""
    n = int(np.size(p[at.name][at.index]))
    if at.entry is None:
        return np.array([np.sum(per_row, dtype=np.float64)])
    touched = at.entry >= 0
    return np.bincount(at.entry[touched], per_row[touched], n)


def _spread(at: Coordinates, values: np.ndarray, n: int) -> np.ndarray:
    """To each row the value of its entry."""
    if at.entry is None:
        return np.broadcast_to(values, n)
    return np.where(at.entry >= 0, values[np.maximum(at.entry, 0)], 0.0)
