"""Fields of features that are products of several towers' dimensions, of which :class:`Core` is a linear function."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce

import numpy as np

from everypair.columns.fields import Field
from everypair.kernels.order import grouped
from everypair.kernels.tensor import contract, gather
from everypair.runtime.cached import cached_property
from everypair.runtime.parallel import Workers


class KronField(Field):
    """The dense features ``kron(u[c1], v[c2], ...)`` of contexts, never stored."""

    one_hot = False
    makes_columns = True

    def __init__(self, tables: Sequence[np.ndarray], levels: Sequence[np.ndarray]) -> None:
        self._tables, self._levels = tables, levels
        self.shape = (len(levels[0]), int(np.prod([table.shape[1] for table in tables])))

    def contract(
        self, tensor: np.ndarray, workers: Workers, tables: Sequence[np.ndarray] | None = None, which: np.ndarray | None = None
    ) -> np.ndarray:
        """Contract the leading axes of ``tensor``, one per variable, with the contexts' vectors: (n, remaining axes).

        With ``which``, ``tensor`` is a stack of tensors, and context c uses ``tensor[which[c]]``. With a single tensor, the first
        axis is contracted once per level, unless there are more levels than contexts.
        """
        tables = self._tables if tables is None else tables
        n, last, several = self.shape[0], len(tables) - 1, which is not None
        stack: np.ndarray = np.ascontiguousarray(tensor if several else tensor[None])
        rest = stack.shape[1:]
        which = np.zeros(n, np.int64) if which is None else which
        for axis, (table, levels) in enumerate(zip(tables, self._levels, strict=True)):
            rest = rest[1:]
            width = int(np.prod(rest))
            stack = stack.reshape(len(stack), table.shape[1], width)
            by_level = axis == 0 and not several and len(table) < n
            m = len(table) if by_level else n
            out = np.empty((m, width), tensor.dtype)
            rows, of = (np.arange(m), np.zeros(m, np.int64)) if by_level else (levels, which)
            workers.run(contract, workers.even(m), table, rows, stack, of, out)
            stack, which = (out[levels] if axis == last else out, levels) if by_level else (out, np.arange(n))
        return stack.reshape(n, *rest)

    def _scatter(self, z: np.ndarray, workers: Workers, tables: Sequence[np.ndarray]) -> np.ndarray:
        """``sum_c z_c kron(u, v, ...)``; with two variables, first a sum for each level of one, then products with its vectors."""
        if len(tables) == 2:
            (first, second), (indptr, rows) = tables, self._by_first
            sums = np.empty((len(first), second.shape[1]), np.float64)
            workers.run(gather, workers.split(indptr), indptr, rows, z, second, self._levels[1], sums)
            total = workers.sum(len(first), lambda start, stop: first[start:stop].T.astype(np.float64) @ sums[start:stop])
            return total.ravel().astype(z.dtype)

        def term(start: int, stop: int) -> np.ndarray:
            modes = [table[level[start:stop]].astype(np.float64) for table, level in zip(tables, self._levels, strict=True)]
            *before, last = [z[start:stop, None], *modes]
            return (reduce(_row_kron, before).T @ last).ravel()

        return workers.sum(self.shape[0], term).astype(z.dtype)

    @cached_property
    def _by_first(self) -> tuple[np.ndarray, np.ndarray]:
        """The contexts of each level of the first variable."""
        levels, n = self._levels[0], len(self._tables[0])
        return grouped(np.where(levels < 0, n - 1, levels), n, np.int64)  # missing levels have the last vector, which is zero

    def multiply(self, v: np.ndarray, workers: Workers) -> np.ndarray:
        return self.contract(self._shaped(v), workers)

    def multiply_transposed(self, z: np.ndarray, workers: Workers) -> np.ndarray:
        return self._scatter(z, workers, self._tables)

    def multiply_squared(self, v: np.ndarray, workers: Workers) -> np.ndarray:
        return self.contract(self._shaped(v), workers, [np.square(table) for table in self._tables])

    def multiply_squared_transposed(self, z: np.ndarray, workers: Workers) -> np.ndarray:
        return self._scatter(z, workers, [np.square(table) for table in self._tables])

    def iterate_columns(self) -> Iterator[np.ndarray]:
        """The columns as dense vectors, in order."""
        modes = [table[level] for table, level in zip(self._tables, self._levels, strict=True)]
        for entry in np.ndindex(*[table.shape[1] for table in self._tables]):
            yield np.multiply.reduce([mode[:, e] for mode, e in zip(modes, entry, strict=True)]).astype(np.float64)

    def _shaped(self, v: np.ndarray) -> np.ndarray:
        return v.reshape([table.shape[1] for table in self._tables])


class StackedField(Field):
    """The rows of one field followed by those of another."""

    one_hot = False
    makes_columns = True

    def __init__(self, top: KronField, bottom: KronField) -> None:
        self._parts = (top, bottom)
        self.shape = (top.shape[0] + bottom.shape[0], top.shape[1])

    def multiply(self, v: np.ndarray, workers: Workers) -> np.ndarray:
        return np.concatenate([part.multiply(v, workers) for part in self._parts])

    def multiply_squared(self, v: np.ndarray, workers: Workers) -> np.ndarray:
        return np.concatenate([part.multiply_squared(v, workers) for part in self._parts])

    def multiply_transposed(self, z: np.ndarray, workers: Workers) -> np.ndarray:
        top, bottom, n = *self._parts, self._parts[0].shape[0]
        return top.multiply_transposed(z[:n], workers) + bottom.multiply_transposed(z[n:], workers)

    def multiply_squared_transposed(self, z: np.ndarray, workers: Workers) -> np.ndarray:
        top, bottom, n = *self._parts, self._parts[0].shape[0]
        return top.multiply_squared_transposed(z[:n], workers) + bottom.multiply_squared_transposed(z[n:], workers)

    def iterate_columns(self) -> Iterator[np.ndarray]:
        for columns in zip(*(part.iterate_columns() for part in self._parts), strict=True):
            yield np.concatenate(columns)


def _row_kron(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return (x[:, :, None] * y[:, None, :]).reshape(len(x), -1)
