"""The vectors of one side: phi of every context, or psi of every item."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from everypair.kernels.pairs import add_scaled, combine
from everypair.kernels.permute import take_columns
from everypair.kernels.row_sweep import add_squares
from everypair.kernels.simd import LANES
from everypair.runtime.numerics import Values, aligned
from everypair.runtime.parallel import Workers

PANEL_ROWS = 8_192  # rows of a panel that are computed at a time: fixed, because rounding depends on it

if TYPE_CHECKING:
    from everypair.engine.level_parts import LevelParts

RangeVectors = Callable[[int, int], np.ndarray]  # from a range of rows to their vectors


class Vectors:
    """The vectors of one side, as rows (n x K) or as dimensions (K x n); the other layout is made when asked for."""

    def __init__(self, *, rows: np.ndarray | None = None, dims: np.ndarray | None = None) -> None:
        self._rows, self._dims = rows, dims
        self._panel: np.ndarray | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows, and of dimensions."""
        if self._rows is not None:
            return self._rows.shape  # type: ignore[return-value]
        return self.dims.shape[::-1]  # type: ignore[return-value]

    @classmethod
    def of_dimensions(cls, phi: Callable[[int], np.ndarray], n_dims: int) -> Vectors:
        """From a function that gives one dimension at a time."""
        return cls(dims=np.stack([phi(f) for f in range(n_dims)]))

    @property
    def rows(self) -> np.ndarray:
        if self._rows is None:
            assert self._dims is not None
            self._rows = self._dims.T.copy(order="C")
        return self._rows

    @property
    def dims(self) -> np.ndarray:
        if self._dims is None:
            assert self._rows is not None
            self._dims = self._rows.T.copy(order="C")
        return self._dims

    def dim(self, f: int) -> np.ndarray:
        """One dimension of all rows."""
        return self.dims[f]

    def range_vectors(self, first: int, last: int) -> RangeVectors:
        """A function from a range of rows to their vectors, in dimensions ``first:last``."""
        if self._rows is not None:
            rows = self._rows
            return lambda start, stop: rows[start:stop, first:last]
        return lambda start, stop: self.dims[first:last, start:stop].T

    def range_products(self, factor: np.ndarray) -> RangeVectors:
        """The same for products of vectors with a matrix."""
        part, dims = self.range_vectors(0, self.shape[1]), np.flatnonzero(factor.any(axis=1))
        return lambda start, stop: part(start, stop)[:, dims] @ factor[dims]

    def advance(self, f: int, delta: np.ndarray, workers: Workers) -> None:
        """``phi_f += delta``."""
        workers.run(add_scaled, workers.even(len(delta)), 1.0, delta, self.dims[f])
        self.dims_changed()

    @property
    def level_parts(self) -> LevelParts | None:
        """How vectors that are not stored are sums of few; None where they are not."""
        return None

    def part_tables(self, first: int, last: int) -> list[np.ndarray]:
        """The vectors of these parts in dimensions ``first:last``."""
        raise NotImplementedError(f"{type(self).__name__} has no parts")

    def forget(self) -> None:
        """Parameters have changed: what was computed of them is out of date; nothing, where all is stored."""

    def replace(self, first: int, last: int, panel: np.ndarray) -> None:
        """Dimensions ``first:last`` become the columns of a panel: parameters have changed."""
        self.dims[first:last] = panel[:, : last - first].T
        self.dims_changed()

    def advance_along(self, at: int, tangent: np.ndarray, delta: np.ndarray, workers: Workers) -> None:
        """``phi(c) += delta_c tangent(c)`` in the dimensions from ``at`` on."""
        phi = self.dims[at : at + tangent.shape[1]]

        def some(start: int, stop: int) -> None:
            phi[:, start:stop] += tangent[start:stop].T * delta[start:stop]

        workers.chunks(len(delta), some)
        self.dims_changed()

    def score(self, indptr: np.ndarray, indices: np.ndarray, psi: np.ndarray, scores: np.ndarray, workers: Workers) -> bool:
        """Products with the vectors ``psi`` of partners, if that can be done without these vectors; whether it was."""
        return False

    def combine(self, coefficients: np.ndarray, out: np.ndarray, workers: Workers) -> None:
        """``out = sum_f coefficients[f] phi_f``: a row of ``J phi``."""
        dims = np.flatnonzero(coefficients)
        if len(dims) == 0:
            out[:] = 0.0
        else:
            workers.run(combine, workers.even(len(out)), coefficients, dims, self.dims, out)

    @property
    def has_rows(self) -> bool:
        """Whether ``rows`` are there without computing anything."""
        return self._rows is not None

    def panel(self, first: int, last: int, workers: Workers) -> np.ndarray:
        """Some of the dimensions of all vectors, side by side: (n x a multiple of 16), padded with zeros.

        Only good until the next one.
        """
        part, n, width = self.range_vectors(first, last), self.shape[0], -(-(last - first) // LANES) * LANES
        if self._panel is None or self._panel.shape != (n, width):
            self._panel = aligned((n, width), part(0, 0).dtype)
        out = self._panel
        if self._fill_panel(first, last, out, workers):
            return out
        if self._rows is not None:
            workers.run(take_columns, workers.even(n), self._rows, first, last - first, out)
            return out

        def some(start: int, stop: int) -> None:
            out[start:stop, : last - first] = part(start, stop)
            out[start:stop, last - first :] = 0.0

        workers.chunks(n, some, PANEL_ROWS)
        return out

    def release(self) -> None:
        """Free the room of :meth:`panel`, which may be that of sixteen dimensions of all rows."""
        self._panel = None

    def _fill_panel(self, first: int, last: int, out: np.ndarray, workers: Workers) -> bool:
        """Fill a panel in a way that is faster than by ranges of rows; whether there is one."""
        return False

    def dims_changed(self) -> None:
        """Say that ``dims`` was written to: ``rows`` is out of date."""
        self._rows = None

    def conform(self, dtype: np.dtype) -> None:
        """Rows and dimensions as kernels expect them: one after the other, in the precision of the fit."""
        if self._rows is not None:
            self._rows = np.ascontiguousarray(self._rows, dtype)
        if self._dims is not None:
            self._dims = np.ascontiguousarray(self._dims, dtype)

    def own(self, arrays: list[np.ndarray]) -> None:
        """Make copies of what is shared with other arrays, which may change on their own."""
        if self._rows is not None and any(np.may_share_memory(self._rows, array) for array in arrays):
            self._rows = self._rows.copy()
        if self._dims is not None and any(np.may_share_memory(self._dims, array) for array in arrays):
            self._dims = self._dims.copy()

    def become(self, rows: np.ndarray) -> None:
        """Show these rows from now on."""
        self._rows, self._dims = rows, None

    def rotate(self, at: slice, Q: np.ndarray, workers: Workers) -> None:
        """Turn some of the dimensions: ``phi Q``."""
        turn(self.dims[at], Q, workers)
        self.dims_changed()

    def gram(self, weight: Values, workers: Workers) -> np.ndarray:
        """``sum_c weight_c phi(c) phi(c)'``: sums of ranges of rows in the precision of the vectors, added up in float64."""
        n, n_dims = self.shape
        part = self.range_vectors(0, n_dims)
        root = None if np.ndim(weight) == 0 else np.sqrt(weight)

        def some(start: int, stop: int) -> np.ndarray:
            rows = part(start, stop)
            if root is not None:
                rows = rows * root[start:stop, None].astype(rows.dtype)
            return (rows.T @ rows).astype(np.float64)

        total = workers.sum(n, some)
        return weight * total if root is None else total

    def gram_row(self, f: int, weight: Values, workers: Workers) -> np.ndarray:
        """One row of the Gram."""
        return self._sum(lambda x, w: x @ (x[f] * w), weight, workers)

    def norms(self, weight: Values, workers: Workers) -> np.ndarray:
        """The diagonal of the Gram."""
        if self._rows is None:
            return self._sum(lambda x, w: np.sum(x * x * w, axis=1), weight, workers)
        rows = self._rows

        def some(start: int, stop: int) -> np.ndarray:
            total = np.zeros(rows.shape[1])
            add_squares(start, stop, rows, weight, total)
            return total

        return workers.sum(len(rows), some)

    def _sum(self, term: Any, weight: Values, workers: Workers) -> np.ndarray:
        """Sum of ``term(x, w)`` over ranges of rows, x being their vectors (K x rows)."""
        n, n_dims = self.shape
        part = self.range_vectors(0, n_dims)

        def some(start: int, stop: int) -> np.ndarray:
            w = weight if np.ndim(weight) == 0 else weight[start:stop]  # type: ignore[index]
            return term(part(start, stop).T.astype(np.float64), w)

        return workers.sum(n, some)


def turn(dims: np.ndarray, Q: np.ndarray, workers: Workers) -> None:
    """``dims = Q' dims``, in place: every column is a vector, and is turned."""
    Qt = Q.T.astype(dims.dtype)

    def some(start: int, stop: int) -> None:
        dims[:, start:stop] = Qt @ dims[:, start:stop]

    workers.chunks(dims.shape[1], some)
