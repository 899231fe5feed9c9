"""Fields: blocks of feature columns, each a matrix or a linear operator, and products with them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np
import scipy.sparse as sp

from everypair.columns.keys import Keys, as_keys
from everypair.kernels import one_hot, row_vectors, sparse
from everypair.kernels.order import grouped
from everypair.kernels.permute import take
from everypair.runtime import validation as check
from everypair.runtime.cached import cached_property
from everypair.runtime.group import Group
from everypair.runtime.numerics import Values
from everypair.runtime.parallel import SERIAL, Workers

DENSE = 0.5  # share of non-zeros from which an array is stored densely
# Ranges of rows that have sums by level of their own: the most ranges, the fewest rows of a range, and the fewest rows per level.
RANGES = 16
RANGE = 8_192
LEVEL = 8
PANEL_ROWS = 8_192  # rows that are multiplied at a time: fixed, because rounding may depend on where a range begins


@runtime_checkable
class Operator(Protocol):
    """A field that is computed, not stored: products ``X v`` and ``X' z`` like those of ``scipy.sparse.linalg.LinearOperator``.

    An attribute ``squared``, an operator for the squared entries, is needed for factorization machines and for
    ``regularization_exponent``; without it the block solve has no preconditioner.
    """

    shape: tuple[int, int]

    def matvec(self, v: np.ndarray) -> np.ndarray: ...

    def rmatvec(self, z: np.ndarray) -> np.ndarray: ...


class Field:
    """A block X of feature columns, and products with it."""

    shape: tuple[int, int]
    one_hot: bool  # at most one feature in each row
    makes_columns = False  # whether :meth:`iterate_columns` is implemented
    has_rows = False  # whether :meth:`add_rows` is
    has_squares = True  # whether the products with squared entries are
    few_features = False  # whether a row has few features, which explanations list one by one
    local = False  # whether no other shard of the data has rows with these features
    _keys: Keys | None = None

    @property
    def keys(self) -> Keys:
        """What each feature is, wherever it is in the field; by default, its number."""
        return range(self.shape[1]) if self._keys is None else self._keys

    def keyed(self, keys: Any) -> Self:
        """The same field with a key for each feature: a hash of its id, of 64 bits."""
        other = copy.copy(self)
        other._keys = as_keys("keys", keys, self.shape[1])
        return other

    def divide(self, group: Group) -> None:
        """Decide for the group what depends on the rows of all its members; nothing by default."""

    def multiply(self, v: np.ndarray, workers: Workers) -> np.ndarray:
        """``X v``."""
        raise NotImplementedError

    def add_products(self, W: np.ndarray, out: np.ndarray, workers: Workers) -> None:
        """``out[f] += X W[f]`` for every dimension f."""
        for w, sums in zip(W, out, strict=True):
            sums += self.multiply(w, workers)

    def add_rows(self, start: int, stop: int, W: np.ndarray, out: np.ndarray) -> None:
        """``out += X[start:stop] W``: all dimensions of a range of rows; ``W`` has a row for each feature."""
        raise NotImplementedError

    def add_panel(self, W: np.ndarray, out: np.ndarray, workers: Workers) -> None:
        """``out += X W`` for all rows; ``W`` has a row for each feature."""
        if not self.has_rows:
            for f, w in enumerate(np.ascontiguousarray(W.T)):
                out[:, f] += self.multiply(w, workers)
            return
        workers.chunks(self.shape[0], lambda start, stop: self.add_rows(start, stop, W, out[start:stop]), PANEL_ROWS)

    def panel_transposed(self, Z: np.ndarray, workers: Workers, squared: bool = False) -> np.ndarray:
        """``X' Z`` in float64, or with the squares of the entries; ``Z`` has a row for each row of X."""
        multiply = self.multiply_squared_transposed if squared else self.multiply_transposed
        return np.stack([multiply(z, workers) for z in np.ascontiguousarray(Z.T)], axis=1).astype(np.float64)

    def multiply_transposed(self, z: np.ndarray, workers: Workers) -> np.ndarray:
        """``X' z``."""
        raise NotImplementedError

    def multiply_squared(self, v: np.ndarray, workers: Workers) -> np.ndarray:
        """``X^2 v``, with the squares of the entries."""
        raise NotImplementedError

    def multiply_squared_transposed(self, z: np.ndarray, workers: Workers) -> np.ndarray:
        """``(X^2)' z``, with the squares of the entries."""
        raise NotImplementedError

    def iterate_columns(self) -> Iterator[np.ndarray]:
        """The columns of X as dense vectors, in order."""
        raise NotImplementedError

    def toarray(self) -> np.ndarray:
        """X as a matrix."""
        raise NotImplementedError

    def entries(self, row: int) -> tuple[np.ndarray, np.ndarray]:
        """The non-zero features of a row, in order, and their values (float64)."""
        values = self.multiply_transposed(np.eye(1, self.shape[0], row)[0], SERIAL)
        there = np.flatnonzero(values)
        return there, values[there]

    def content(self) -> Iterator[Any]:
        """The content for a fingerprint: the arrays of the field or, if it has none, a product."""
        yield self.shape
        yield self.multiply(1.0 / np.arange(1, self.shape[1] + 1), SERIAL)


class Compressed:
    """Compressed rows (or columns) of a sparse matrix, and the ranges of them that threads work on."""

    def __init__(self, indptr: np.ndarray, indices: np.ndarray, values: Values) -> None:
        self.arrays = sparse.SparseRows(indptr.astype(np.int64), indices, values)
        self._ranges: dict[int, np.ndarray] = {}

    def ranges(self, workers: Workers) -> np.ndarray:
        if workers.n_threads not in self._ranges:
            self._ranges[workers.n_threads] = workers.split(self.arrays.indptr)
        return self._ranges[workers.n_threads]

    def apply(self, kernel: Any, v: np.ndarray, workers: Workers) -> np.ndarray:
        out = np.empty(len(self.arrays.indptr) - 1, v.dtype)
        workers.run(kernel, self.ranges(workers), self.arrays, v, out)
        return out


class SparseField(Field):
    """A sparse matrix, by compressed rows and by compressed columns."""

    few_features = True
    has_rows = True

    def __init__(self, name: str, matrix: Any) -> None:
        csr: Any = sp.csr_array(check.sparse(f"field {name!r}", matrix), copy=True)
        csr = sp.csr_array((csr.data.astype(_float(csr.dtype)), csr.indices, csr.indptr), shape=csr.shape)
        csr.sum_duplicates()
        csr.eliminate_zeros()
        check.finite(f"field {name!r}", csr)
        self.shape = (int(csr.shape[0]), int(csr.shape[1]))
        self.one_hot = bool(np.all(np.diff(csr.indptr) <= 1))
        csc: Any = csr.tocsc()
        ones = bool(np.all(csr.data == 1.0))
        self.rows = Compressed(csr.indptr, csr.indices, 1.0 if ones else csr.data)
        self.columns = Compressed(csc.indptr, csc.indices, 1.0 if ones else csc.data)

    def divide(self, group: Group) -> None:
        self.one_hot = not group.agreed(not self.one_hot)

    def take(self, index: np.ndarray) -> SparseField:
        """The rows ``index``."""
        return SparseField("rows", self._matrix()[index])

    def toarray(self) -> np.ndarray:
        return self._matrix().toarray()

    def entries(self, row: int) -> tuple[np.ndarray, np.ndarray]:
        indptr, indices, values = self.rows.arrays
        at = slice(indptr[row], indptr[row + 1])
        there = indices[at]
        return there, np.ones(len(there)) if np.ndim(values) == 0 else values[at].astype(np.float64)  # type: ignore[index]

    def content(self) -> Iterator[Any]:
        yield self.shape
        yield from self.rows.arrays

    def _matrix(self) -> Any:
        indptr, indices, values = self.rows.arrays
        return sp.csr_array((np.broadcast_to(values, len(indices)), indices, indptr), shape=self.shape)

    def multiply(self, v: np.ndarray, workers: Workers) -> np.ndarray:
        return self.rows.apply(sparse.multiply, v, workers)

    def add_products(self, W: np.ndarray, out: np.ndarray, workers: Workers) -> None:
        """Each thread takes whole dimensions: fewer and longer tasks than those of one product after the other."""
        workers.run(sparse.add_products, workers.singly(len(W), W.size + out.size), self.rows.arrays, W, out)

    def add_rows(self, start: int, stop: int, W: np.ndarray, out: np.ndarray) -> None:
        row_vectors.add_rows(start, stop, self.rows.arrays, W, out)

    def panel_transposed(self, Z: np.ndarray, workers: Workers, squared: bool = False) -> np.ndarray:
        out, columns = np.zeros((self.shape[1], Z.shape[1])), self.columns.arrays
        if squared:
            columns = columns._replace(values=np.square(columns.values))

        def some(start: int, stop: int) -> None:
            row_vectors.multiply_columns(start, stop, columns, Z, np.empty((1, Z.shape[1]), Z.dtype), out)

        workers.run(some, self.columns.ranges(workers))
        return out

    def multiply_transposed(self, z: np.ndarray, workers: Workers) -> np.ndarray:
        return self.columns.apply(sparse.multiply, z, workers)

    def multiply_squared(self, v: np.ndarray, workers: Workers) -> np.ndarray:
        return self.rows.apply(sparse.multiply_squared, v, workers)

    def multiply_squared_transposed(self, z: np.ndarray, workers: Workers) -> np.ndarray:
        return self.columns.apply(sparse.multiply_squared, z, workers)


class OneHotField(Field):
    """A feature per level of a categorical column, stored as the level of each row.

    Parameters
    ----------
    codes : array of integers
        The level of each row, -1 for none.
    n : int
        Number of levels.
    """

    one_hot = True
    few_features = True
    has_rows = True

    def __init__(self, codes: np.ndarray, n: int) -> None:
        self.shape = (len(codes), n)
        self.codes = np.where(codes < 0, n, codes).astype(np.uint32)  # rows without a level: one past the last

    @cached_property
    def columns(self) -> Compressed:
        """The rows of each level."""
        indptr, rows = grouped(self.codes, self.shape[1] + 1, np.int32 if len(self.codes) < 2**31 else np.int64)
        return Compressed(indptr[:-1], rows, 1.0)

    @cached_property
    def ranges(self) -> np.ndarray:
        """Bounds of ranges of rows that have sums by level of their own; they depend on the data, not on the number of threads."""
        return np.linspace(0, self.shape[0], 1 + max(1, ranges_with_sums(*self.shape))).astype(np.int64)

    @property
    def by_row(self) -> bool:
        """Whether sums by level are computed row by row: with few rows per level, sums for each range would cost too much."""
        return ranges_with_sums(*self.shape) > 0

    def take(self, index: np.ndarray) -> OneHotField:
        """The rows ``index``."""
        taken = OneHotField(self._signed()[index], self.shape[1])
        taken.local = self.local
        return taken

    def toarray(self) -> np.ndarray:
        return with_none(np.eye(self.shape[1]))[self.codes]

    def entries(self, row: int) -> tuple[np.ndarray, np.ndarray]:
        there = self.codes[row : row + 1].astype(np.int64)
        there = there[there < self.shape[1]]
        return there, np.ones(len(there))

    def content(self) -> Iterator[Any]:
        yield from (self.shape, self.codes)

    def multiply(self, v: np.ndarray, workers: Workers) -> np.ndarray:
        out = np.empty(self.shape[0], v.dtype)
        workers.run(take, workers.even(len(out)), self.codes, with_none(v), out)
        return out

    def add_products(self, W: np.ndarray, out: np.ndarray, workers: Workers) -> None:
        workers.run(one_hot.add_products, workers.even(self.shape[0]), self.codes, with_none(W, axis=1), out)

    def add_rows(self, start: int, stop: int, W: np.ndarray, out: np.ndarray) -> None:
        row_vectors.add_levels(start, stop, self.codes, W, out)

    def multiply_transposed(self, z: np.ndarray, workers: Workers) -> np.ndarray:
        if not self.by_row:
            return self.columns.apply(sparse.multiply, z, workers)
        sums = np.zeros((len(self.ranges) - 1, self.shape[1] + 1))
        workers.run(one_hot.add_at, range(len(self.ranges)), self.ranges, self.codes, z, sums)
        return workers.total(sums)[:-1].astype(z.dtype)

    multiply_squared = multiply
    multiply_squared_transposed = multiply_transposed

    def _signed(self) -> np.ndarray:
        return np.where(self.codes == self.shape[1], -1, self.codes.astype(np.int64))


class DenseField(Field):
    """A matrix with mostly non-zero entries, such as embeddings of texts or images."""

    one_hot = False
    makes_columns = True
    has_rows = True

    def __init__(self, name: str, matrix: np.ndarray) -> None:
        check.refuse(f"field {name!r}", ~np.isfinite(matrix), matrix, "be finite")
        self._matrix = np.array(matrix, _float(matrix.dtype), order="C")
        self.shape = (len(matrix), matrix.shape[1])

    def take(self, index: np.ndarray) -> DenseField:
        """The rows ``index``."""
        return DenseField("rows", self._matrix[index])

    def toarray(self) -> np.ndarray:
        return self._matrix.copy()

    def content(self) -> Iterator[Any]:
        yield self._matrix

    def multiply(self, v: np.ndarray, workers: Workers) -> np.ndarray:
        return self._times(lambda x: x, v, workers)

    def add_rows(self, start: int, stop: int, W: np.ndarray, out: np.ndarray) -> None:
        out += self._matrix[start:stop] @ W

    def panel_transposed(self, Z: np.ndarray, workers: Workers, squared: bool = False) -> np.ndarray:
        def term(start: int, stop: int) -> np.ndarray:
            rows = self._matrix[start:stop]
            return ((np.square(rows) if squared else rows).T @ Z[start:stop]).astype(np.float64)

        return workers.sum(self.shape[0], term)

    def multiply_transposed(self, z: np.ndarray, workers: Workers) -> np.ndarray:
        return self._transposed_times(lambda x: x, z, workers)

    def multiply_squared(self, v: np.ndarray, workers: Workers) -> np.ndarray:
        return self._times(np.square, v, workers)

    def multiply_squared_transposed(self, z: np.ndarray, workers: Workers) -> np.ndarray:
        return self._transposed_times(np.square, z, workers)

    def iterate_columns(self) -> Iterator[np.ndarray]:
        for column in self._matrix.T:
            yield np.ascontiguousarray(column)

    def _times(self, entries: Callable[[np.ndarray], np.ndarray], v: np.ndarray, workers: Workers) -> np.ndarray:
        chunks = workers.chunks(self.shape[0], lambda start, stop: entries(self._matrix[start:stop]) @ v)
        return np.concatenate(chunks).astype(v.dtype, copy=False)

    def _transposed_times(self, entries: Callable[[np.ndarray], np.ndarray], z: np.ndarray, workers: Workers) -> np.ndarray:
        def term(start: int, stop: int) -> np.ndarray:
            return (z[start:stop] @ entries(self._matrix[start:stop])).astype(np.float64)

        return workers.sum(self.shape[0], term).astype(z.dtype)


class OperatorField(Field):
    """A linear operator, of which only products are known."""

    one_hot = False

    def __init__(self, name: str, operator: Operator) -> None:
        self.shape = (int(operator.shape[0]), int(operator.shape[1]))
        self._name, self._operator = name, operator
        self.has_squares = getattr(operator, "squared", None) is not None

    def multiply(self, v: np.ndarray, workers: Workers) -> np.ndarray:
        return self._checked(self._operator.matvec(v), v.dtype, 0)

    def multiply_transposed(self, z: np.ndarray, workers: Workers) -> np.ndarray:
        return self._checked(self._operator.rmatvec(z), z.dtype, 1)

    def multiply_squared(self, v: np.ndarray, workers: Workers) -> np.ndarray:
        return self._checked(self._squared.matvec(v), v.dtype, 0)

    def multiply_squared_transposed(self, z: np.ndarray, workers: Workers) -> np.ndarray:
        return self._checked(self._squared.rmatvec(z), z.dtype, 1)

    def _checked(self, product: Any, dtype: Any, axis: int) -> np.ndarray:
        product = np.asarray(product, dtype)
        if product.shape != (self.shape[axis],):
            raise ValueError(
                f"field {self._name!r}: {('matvec', 'rmatvec')[axis]} of an operator of shape {self.shape} must return an array of "
                f"shape ({self.shape[axis]},), got {product.shape}."
            )
        return product

    @property
    def _squared(self) -> Operator:
        return self._operator.squared  # type: ignore[attr-defined]


class OnesField(Field):
    """A single feature that every row has: the global bias."""

    one_hot = False

    def __init__(self, n_rows: int) -> None:
        self.shape = (n_rows, 1)
        self.columns = Compressed(np.array([0, n_rows]), np.arange(n_rows, dtype=np.int32), 1.0)

    def multiply(self, v: np.ndarray, workers: Workers) -> np.ndarray:
        return np.full(self.shape[0], v[0])

    def multiply_transposed(self, z: np.ndarray, workers: Workers) -> np.ndarray:
        return workers.sum(len(z), lambda start, stop: z[start:stop].sum(dtype=np.float64, keepdims=True)).astype(z.dtype)

    multiply_squared = multiply
    multiply_squared_transposed = multiply_transposed


def as_field(name: str, matrix: Any) -> Field:
    """The field of a matrix or operator."""
    if isinstance(matrix, Field):
        return matrix
    if sp.issparse(matrix):
        return _levels_of(field := SparseField(name, matrix)) or field
    if isinstance(matrix, np.ndarray) and matrix.ndim == 2:
        matrix = check.array(f"field {name!r}", matrix)
        if matrix.dtype.kind not in "fiub":
            raise TypeError(f"field {name!r} must hold numbers, got dtype {matrix.dtype}.")
        if matrix.dtype.kind == "f" and np.count_nonzero(matrix) > DENSE * matrix.size:
            return DenseField(name, matrix)
        return as_field(name, sp.csr_array(matrix))
    if isinstance(matrix, Operator):
        return OperatorField(name, matrix)
    raise TypeError(
        f"field {name!r} must be a scipy sparse matrix, a 2-dimensional numpy array or a linear operator with shape, matvec and "
        f"rmatvec, got {type(matrix).__name__}" + (f" of shape {matrix.shape}." if hasattr(matrix, "shape") else ".")
    )


def _levels_of(field: SparseField) -> OneHotField | None:
    """The field as levels, if all entries are ones and no row has more than one."""
    indptr, indices, values = field.rows.arrays
    if not field.one_hot or np.ndim(values) != 0:
        return None
    codes = np.full(field.shape[0], -1)
    codes[np.diff(indptr) > 0] = indices
    return OneHotField(codes, field.shape[1])


def ranges_with_sums(rows: int, levels: int) -> int:
    """The number of ranges of rows that have sums by level of their own; 0 where levels have too few rows for that to pay."""
    found = min(RANGES, rows // RANGE, rows // (LEVEL * max(levels, 1)))
    return max(found, 1) if found >= 2 or rows < 2 * RANGE else 0


def with_none(table: np.ndarray, axis: int = 0) -> np.ndarray:
    """The table with a zero appended, for rows without a level."""
    shape = list(table.shape)
    shape[axis] = 1
    return np.concatenate([table, np.zeros(shape, table.dtype)], axis=axis)


def _float(dtype: np.dtype) -> type:
    return np.float32 if dtype == np.float32 else np.float64
