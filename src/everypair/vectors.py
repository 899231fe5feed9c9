"""The vectors of one side: phi of every context, or psi of every item."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from everypair.feedback import Values
from everypair.parallel import Workers


class Vectors:
    """The vectors of one side, as rows (n x K) or as dimensions (K x n); the other layout is made when asked for."""

    def __init__(self, *, rows: np.ndarray | None = None, dims: np.ndarray | None = None) -> None:
        self._rows, self._dims = rows, dims

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

    def dims_changed(self) -> None:
        """Say that ``dims`` was written to: ``rows`` is out of date."""
        self._rows = None

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
        """``sum_c weight_c phi(c) phi(c)'`` in float64."""
        return self._sum(lambda x, w: (x * w) @ x.T, weight, workers)

    def gram_row(self, f: int, weight: Values, workers: Workers) -> np.ndarray:
        """One row of the Gram."""
        return self._sum(lambda x, w: x @ (x[f] * w), weight, workers)

    def norms(self, weight: Values, workers: Workers) -> np.ndarray:
        """The diagonal of the Gram."""
        return self._sum(lambda x, w: np.sum(x * x * w, axis=1), weight, workers)

    def _sum(self, term: Any, weight: Values, workers: Workers) -> np.ndarray:
        """Sum of ``term(x, w)`` over ranges of rows, x being their vectors (K x rows), from whichever layout there is."""
        by_rows = self._rows is not None
        n = len(self.rows) if by_rows else self.dims.shape[1]

        def some(start: int, stop: int) -> np.ndarray:
            x = self.rows[start:stop].T if by_rows else self.dims[:, start:stop]
            w = weight if np.ndim(weight) == 0 else weight[start:stop]  # type: ignore[index]
            return term(x.astype(np.float64), w)

        return workers.sum(n, some)


def turn(dims: np.ndarray, Q: np.ndarray, workers: Workers) -> None:
    """``dims = Q' dims``, in place: every column is a vector, and is turned."""
    Qt = Q.T.astype(dims.dtype)

    def some(start: int, stop: int) -> None:
        dims[:, start:stop] = Qt @ dims[:, start:stop]

    workers.chunks(dims.shape[1], some)
