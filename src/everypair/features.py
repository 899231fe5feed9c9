"""Features of contexts or items: named fields, each a matrix or a linear operator with one row per context or item."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol, runtime_checkable

import numpy as np
import scipy.sparse as sp

from everypair import validation as check
from everypair.feedback import Values
from everypair.kernels import columns
from everypair.parallel import SERIAL, Workers


@runtime_checkable
class Operator(Protocol):
    """A field that is computed, not stored: ``X v`` and ``X' z``, as ``scipy.sparse.linalg.LinearOperator`` has them.

    An attribute ``squared``, an operator for the squared entries, is needed for factorization machines and for
    ``regularization_exponent``; without it the block solve goes without its preconditioner.
    """

    shape: tuple[int, int]

    def matvec(self, v: np.ndarray) -> np.ndarray: ...

    def rmatvec(self, z: np.ndarray) -> np.ndarray: ...


class Features:
    """Fields of features by name.

    Parameters
    ----------
    fields : mapping of str to matrix
        Each a scipy sparse matrix, a 2-d array or a linear operator (``shape``, ``matvec``, ``rmatvec``), all with one row per
        context (or item). A field in which every row has at most one feature is swept in parallel; for the others, see
        the models' ``field_solver``.

    Examples
    --------
    >>> import scipy.sparse as sp, everypair as ep
    >>> ep.Features({"user": sp.eye_array(3), "country": sp.csr_array([[1, 0], [0, 1], [1, 0]])})
    Features(3 rows: user 3, country 2)
    """

    def __init__(self, fields: Mapping[str, Any]) -> None:
        if not isinstance(fields, Mapping) or not fields:
            raise TypeError(f"fields must be a mapping of names to matrices, with at least one entry, got {fields!r}.")
        for name in fields:
            if not isinstance(name, str):
                raise TypeError(f"names of fields must be strings, got {name!r} of type {type(name).__name__}.")
        self.fields: dict[str, Field] = {name: as_field(name, matrix) for name, matrix in fields.items()}
        self.is_identity = False
        rows = {name: field.shape[0] for name, field in self.fields.items()}
        if len(set(rows.values())) > 1:
            raise ValueError(f"all fields must have the same number of rows, got {rows}.")

    @property
    def n_rows(self) -> int:
        return next(iter(self.fields.values())).shape[0]

    @property
    def widths(self) -> dict[str, int]:
        """Number of features by field."""
        return {name: field.shape[1] for name, field in self.fields.items()}

    @property
    def n_features(self) -> int:
        return sum(self.widths.values())

    @classmethod
    def identity(cls, n: int, name: str) -> Features:
        """One feature per row: the row itself."""
        features = cls({name: sp.eye_array(n, format="csr")})
        features.is_identity = True
        return features

    @property
    def has_rows(self) -> bool:
        """Whether rows can be taken: an operator has none."""
        return all(isinstance(field, SparseField) for field in self.fields.values())

    def take(self, index: np.ndarray) -> Features:
        """The features of some rows."""
        return Features({name: field.take(index) for name, field in self.fields.items() if isinstance(field, SparseField)})

    def __repr__(self) -> str:
        return f"Features({self.n_rows:,} rows: {', '.join(f'{name} {width:,}' for name, width in self.widths.items())})"


def as_features(name: str, features: Any, n_rows: int | None = None) -> Features:
    """``features`` as :class:`Features`: a mapping of fields, or one matrix, which is one field named "features"."""
    if isinstance(features, Mapping):
        features = Features(features)
    elif not isinstance(features, Features):
        features = Features({"features": features})
    if n_rows is not None and features.n_rows != n_rows:
        raise ValueError(
            f"{name} has {features.n_rows} rows of features, but the feedback has {n_rows}: one row per {name[:-1]} is needed."
        )
    return features


def like(name: str, features: Any, trained: Features) -> Features:
    """Features of other rows, with the fields that were trained on; row numbers where each row was its own feature."""
    if trained.is_identity and not isinstance(features, Features | Mapping):
        rows = check.indices(name, np.atleast_1d(check.array(name, features)), trained.n_rows)
        ((field, width),) = trained.widths.items()
        one_hot = sp.csr_array((np.ones(len(rows)), rows, np.arange(len(rows) + 1)), shape=(len(rows), width))
        return Features({field: one_hot})
    features = as_features(name, features)
    if features.widths != trained.widths:
        raise ValueError(f"{name} must have the fields trained on, {trained.widths}, got {features.widths}.")
    return Features({field: features.fields[field] for field in trained.fields})


class Field:
    """A block X of feature columns: products with it, and its columns where it has any."""

    shape: tuple[int, int]
    one_hot: bool  # at most one feature in each row
    makes_columns = False  # has :meth:`iterate_columns`
    has_squares = True  # has the products with squared entries

    def multiply(self, v: np.ndarray, workers: Workers) -> np.ndarray:
        """``X v``."""
        raise NotImplementedError

    def multiply_transposed(self, z: np.ndarray, workers: Workers) -> np.ndarray:
        """``X' z``."""
        raise NotImplementedError

    def multiply_squared(self, v: np.ndarray, workers: Workers) -> np.ndarray:
        """``X^2 v``, entries squared."""
        raise NotImplementedError

    def multiply_squared_transposed(self, z: np.ndarray, workers: Workers) -> np.ndarray:
        """``(X^2)' z``, entries squared."""
        raise NotImplementedError

    def iterate_columns(self) -> Iterator[np.ndarray]:
        """The columns of X as dense vectors, in order."""
        raise NotImplementedError


class Compressed:
    """Compressed rows (or columns) of a sparse matrix, and the ranges that threads share them in."""

    def __init__(self, indptr: np.ndarray, indices: np.ndarray, values: Values) -> None:
        self.arrays = (indptr.astype(np.int64), indices, values)
        self._ranges: dict[int, np.ndarray] = {}

    def ranges(self, workers: Workers) -> np.ndarray:
        if workers.n_threads not in self._ranges:
            self._ranges[workers.n_threads] = workers.split(self.arrays[0])
        return self._ranges[workers.n_threads]

    def apply(self, kernel: Any, v: np.ndarray, workers: Workers) -> np.ndarray:
        out = np.empty(len(self.arrays[0]) - 1, v.dtype)
        workers.run(kernel, self.ranges(workers), *self.arrays, v, out)
        return out


class SparseField(Field):
    """A sparse matrix, compressed both ways."""

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
        self._rows = Compressed(csr.indptr, csr.indices, 1.0 if ones else csr.data)
        self.columns = Compressed(csc.indptr, csc.indices, 1.0 if ones else csc.data)

    def take(self, index: np.ndarray) -> SparseField:
        """Some of the rows."""
        indptr, indices, values = self._rows.arrays
        data = np.broadcast_to(values, len(indices))
        return SparseField("rows", sp.csr_array((data, indices, indptr), shape=self.shape)[index])

    def multiply(self, v: np.ndarray, workers: Workers) -> np.ndarray:
        return self._rows.apply(columns.multiply, v, workers)

    def multiply_transposed(self, z: np.ndarray, workers: Workers) -> np.ndarray:
        return self.columns.apply(columns.multiply, z, workers)

    def multiply_squared(self, v: np.ndarray, workers: Workers) -> np.ndarray:
        return self._rows.apply(columns.multiply_squared, v, workers)

    def multiply_squared_transposed(self, z: np.ndarray, workers: Workers) -> np.ndarray:
        return self.columns.apply(columns.multiply_squared, z, workers)


class OperatorField(Field):
    """A linear operator: its columns are never seen."""

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
        return SparseField(name, matrix)
    if isinstance(matrix, np.ndarray) and matrix.ndim == 2:
        return SparseField(name, sp.csr_array(check.array(f"field {name!r}", matrix)))
    if isinstance(matrix, Operator):
        return OperatorField(name, matrix)
    raise TypeError(
        f"field {name!r} must be a scipy sparse matrix, a 2-dimensional numpy array or a linear operator with shape, matvec and "
        f"rmatvec, got {type(matrix).__name__}" + (f" of shape {matrix.shape}." if hasattr(matrix, "shape") else ".")
    )


def require_squares(features: Features) -> None:
    """Refuse, before anything is computed, operators that cannot give the products with squared entries."""
    for name, field in features.fields.items():
        if not field.has_squares:
            raise ValueError(
                f"field {name!r} is an operator without squares, which this model needs. Give the operator an attribute "
                f"'squared': the operator whose entries are the squares of its own."
            )


def feature_weights(features: Features, row_weight: np.ndarray, exponent: float) -> dict[str, np.ndarray]:
    """``sum_c x_cl^2 row_weight_c``: the weight of each feature, by field (ones where the exponent makes it irrelevant)."""
    if exponent == 0.0:
        return {name: np.ones(width) for name, width in features.widths.items()}
    return {
        name: field.multiply_squared_transposed(np.asarray(row_weight, np.float64), SERIAL)
        for name, field in features.fields.items()
    }


def _float(dtype: np.dtype) -> type:
    return np.float32 if dtype == np.float32 else np.float64
