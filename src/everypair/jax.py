"""Towers that are given by a formula and differentiated by JAX: ``pip install "everypair[jax]"``."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np

try:
    import jax
except ImportError as error:  # pragma: no cover
    raise ImportError('everypair.jax needs JAX: pip install "everypair[jax]"') from error

from everypair.columns.table import Rows
from everypair.engine.binding import BindContext
from everypair.towers.smooth import Arrays, Coordinates, Derivatives, Smooth


class Differentiable(Smooth):
    """A :class:`~everypair.towers.Smooth` tower that is given by its formula alone.

    Define ``n_dims``, ``start``, ``coordinates``, and :meth:`formula` instead of ``phi`` and ``derivatives``. First and second
    derivatives come from compiled forward differentiation. Steps are those of a nonlinear formula: halved until the loss falls.

    Examples
    --------
    The influence of a gap in time fades at a speed that is learned:

    >>> import jax.numpy as jnp, numpy as np, everypair as ep
    >>> from everypair.jax import Differentiable
    >>> from everypair.towers import Coordinates
    >>> class Fading(Differentiable):
    ...     n_dims = 2
    ...     def start(self, rows, normal):
    ...         return {"speed": np.zeros(2)}
    ...     def coordinates(self, p, rows):
    ...         return [Coordinates("speed", 0), Coordinates("speed", 1)]
    ...     def formula(self, p, rows):
    ...         return jnp.exp(-jnp.exp(p["speed"]) * rows.values("gap")[:, None])
    >>> ep.testing.check_tower(Fading(), {"gap": [0.1, 2.0, 0.5, 1.0]})
    """

    @abstractmethod
    def formula(self, p: dict[str, Any], rows: Rows) -> Any:
        """The vectors of rows (n x K), computed with ``jax.numpy``; ``p`` holds JAX arrays."""

    def build(self, binding: BindContext) -> None:
        self._compiled: dict[str, Callable[..., Any]] = {}  # functions for the rows of the fit, by parameter; "" is the formula
        super().build(binding)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_compiled": {}}  # compiled functions cannot be pickled

    def phi(self, p: Arrays, rows: Rows) -> np.ndarray:
        with jax.enable_x64(True):
            if rows is not self.rows:
                return np.array(self.formula(_arrays(p), rows))
            if "" not in self._compiled:
                self._compiled[""] = jax.jit(lambda arrays: self.formula(arrays, rows))
            return np.array(self._compiled[""](_arrays(p)))

    def derivatives(self, p: Arrays, rows: Rows, at: Coordinates) -> Derivatives:
        entries = np.zeros_like(p[at.name])
        entries[at.index] = 1.0  # no row depends on two of them: one direction gives all derivatives
        with jax.enable_x64(True):
            if at.name not in self._compiled:
                self._compiled[at.name] = jax.jit(self._along(at.name))
            first, second = self._compiled[at.name](_arrays(p), entries)
            return Derivatives(np.array(first), np.array(second))

    def _along(self, name: str) -> Callable[..., Any]:
        """A function for the first and second derivative along a direction of one parameter."""

        def both(arrays: dict[str, Any], entries: Any) -> tuple[Any, Any]:
            def first(value: Any) -> Any:
                return jax.jvp(lambda value: self.formula({**arrays, name: value}, self.rows), (value,), (entries,))[1]

            return jax.jvp(first, (arrays[name],), (entries,))

        return both


def _arrays(p: Arrays) -> dict[str, Any]:
    return {name: jax.numpy.asarray(value) for name, value in p.items()}
