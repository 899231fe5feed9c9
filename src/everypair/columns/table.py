"""Tables that describe contexts, items or levels: columns of levels, of features and of numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import numpy as np
import scipy.sparse as sp

from everypair.columns.features import Features
from everypair.columns.fields import DenseField, Field, OneHotField, Operator, OperatorField, SparseField, as_field, with_none
from everypair.columns.keys import NO_LEVEL, Keys, as_keys, key_array
from everypair.kernels.order import grouped
from everypair.runtime import validation as check
from everypair.runtime.cached import cached_property
from everypair.runtime.stored_names import stored_name


class Levels:
    """A categorical column: the level of each row, and columns that describe the levels.

    Parameters
    ----------
    codes : array of integers
        The level of each row, from 0; -1 for none (no previous item, say). A row without a level has the zero vector.
    n : int, optional
        Number of levels; by default, the largest plus one.
    columns : mapping, optional
        Columns with a row per level, as ``contexts`` has a row per context: for towers over levels (see
        :class:`everypair.towers.Lookup`).

    Examples
    --------
    >>> import everypair as ep
    >>> ep.Levels([0, 2, 2, 1], columns={"age": [0.3, 0.5, 0.2]})
    Levels(4 rows, 3 levels: age)
    """

    def __init__(self, codes: Any, n: int | None = None, columns: Mapping[str, Any] | None = None) -> None:
        n = None if n is None else check.integer("n", n, low=1)
        self.codes = np.array(level_codes("codes", codes, n), order="C")
        self.codes.setflags(write=False)  # copies of this column share them
        described = {} if columns is None else as_columns("columns", columns)
        counts = {len_of(column) for column in described.values()}
        if len(counts) > 1 or (counts and n is not None and counts != {n}):
            given = {name: len_of(column) for name, column in described.items()}
            raise ValueError(f"columns must have one row per level{'' if n is None else f' ({n})'}, got {given}.")
        self.n = n or (counts.pop() if counts else int(self.codes.max(initial=0)) + 1)
        if n is None and described:
            level_codes("codes", self.codes, self.n)
        self.missing = bool(self.codes.min(initial=0) < 0)
        self.columns = described
        self.keys: Keys = range(self.n)
        self.local = False
        self._rows: Rows | None = None

    @cached_property
    def groups(self) -> tuple[np.ndarray, np.ndarray]:
        """Where the rows of each level begin, and the rows, level by level."""
        if not self.missing:
            return grouped(self.codes, self.n, np.int64)
        indptr, rows = grouped(self.codes + 1, self.n + 1, np.int64)
        return indptr[1:] - indptr[1], rows[indptr[1] :]

    def spread(self, of_levels: np.ndarray) -> np.ndarray:
        """The values of levels, for each row; zero for rows without a level."""
        return self.padded(of_levels)[self.codes]

    def padded(self, of_levels: np.ndarray) -> np.ndarray:
        """The values of levels such that ``codes`` can index them: with a zero for the missing level, if rows have none."""
        return with_none(of_levels) if self.missing else of_levels

    def sum(self, of_rows: np.ndarray) -> np.ndarray:
        """For each level, the sum over its rows."""
        return np.bincount(self.codes + 1, of_rows, self.n + 1)[1:]

    def rows(self, name: str) -> Rows:
        """The levels as a table: always the same object, so that it records which columns are used."""
        if self._rows is None:
            own = {key: column.of(column.codes) if isinstance(column, Levels) else column for key, column in self.columns.items()}
            self._rows = Rows(name, self.n, own, keys=self.keys)
        return self._rows

    def keyed(self, keys: Any) -> Levels:
        """The same column with a key for each level: a hash of its id, of 64 bits.

        Random start values of a level are functions of its key. By default that is its number, so that they would change with the
        order of levels.
        """
        other = self.again()
        other.keys = as_keys("keys", keys, self.n)
        return other

    def again(self) -> Levels:
        """The same column as an object of its own."""
        other = Levels.__new__(Levels)
        other.codes, other.n, other.missing, other._rows = self.codes, self.n, self.missing, None
        other.columns, other.keys, other.local = self.columns, self.keys, self.local
        return other

    def keys_of_rows(self) -> np.ndarray:
        """The key of each row's level."""
        return np.append(key_array(self.keys), np.uint64(NO_LEVEL))[self.codes]

    def like(self, argument: str, name: str, trained: Levels) -> Levels:
        """This column where a fit had ``trained``: the levels of the fit, or new ones if ``columns`` describes them."""
        described = trained.rows(name)
        if not self.columns or self.columns is trained.columns or not (described.used or name in self.columns):
            return trained.of(level_codes(argument, self.codes, trained.n))
        return NewLevels(self, rows_like(f"{argument}.columns", self.columns, described), trained)

    def take(self, index: np.ndarray) -> Levels:
        return self.of(self.codes[index])

    def of(self, codes: np.ndarray) -> Levels:
        """The same levels in other rows."""
        other = Levels(codes, self.n)
        other.columns, other.keys, other.local = self.columns, self.keys, self.local
        return other

    def of_this_shard(self) -> Levels:
        """The same column, whose levels occur in no other shard of the data: those of users, where users are divided."""
        other = self.again()
        other.local = True
        return other

    def content(self) -> Iterator[Any]:
        """The content for a fingerprint."""
        yield from (self.n, self.codes)
        for name, column in self.columns.items():
            yield name
            yield from content_of(column)

    def __len__(self) -> int:
        return len(self.codes)

    def __repr__(self) -> str:
        described = f": {', '.join(self.columns)}" if self.columns else ""
        return f"Levels({len(self):,} rows, {self.n:,} levels{described})"


class NewLevels(Levels):
    """Levels with a table of their own, which may differ from that of the fit.

    ``table`` has the codes of its own levels; ``codes`` are those of the fit, -1 for new levels, if the table has them.
    """

    def __init__(self, table: Levels, described: Rows, trained: Levels) -> None:
        self.table, self.described = table.of(table.codes), described
        self.n, self.columns, self.keys, self._rows = trained.n, trained.columns, trained.keys, None
        self.local = trained.local

    @cached_property
    def codes(self) -> np.ndarray:  # type: ignore[override]
        return np.append(cast(np.ndarray, self.described.checked_index()), -1)[self.table.codes]

    def take(self, index: np.ndarray) -> NewLevels:
        return NewLevels(self.table.take(index), self.described, self)

    @property
    def missing(self) -> bool:  # type: ignore[override]
        return bool(self.codes.min(initial=0) < 0)

    def __len__(self) -> int:
        return len(self.table)


Column = Levels | Field | np.ndarray


class Rows:
    """A table of contexts, items or levels: their number, and the columns that describe them.

    Parameters
    ----------
    name : str
        "context", "item", or the column whose levels these are.
    n : int
    columns : mapping
    index : array of integers, optional
        The index of each row among the ``size`` rows of the fit, -1 for none; by default, all of them in order. None: unknown.
    keys : array of uint64, or range
        What each row of the fit is; by default, its number.
    """

    def __init__(
        self,
        name: str,
        n: int,
        columns: Mapping[str, Column],
        index: np.ndarray | slice | None = slice(None),
        size: int = 0,
        keys: Keys | None = None,
    ) -> None:
        self.name, self.n, self.columns = name, n, dict(columns)
        self.index, self.size = index, size or n
        self.keys: Keys = range(self.size) if keys is None else keys
        self.used: set[str] = set()  # columns that towers have read

    def levels(self, name: str) -> Levels:
        """A categorical column."""
        column = self._column(name)
        if not isinstance(column, Levels):
            raise TypeError(
                f"column {name!r} must hold levels: a 1-dimensional array of integers, or everypair.Levels; got {_kind(column)}. "
                f"For features, use a Linear tower."
            )
        return column

    def values(self, name: str) -> np.ndarray:
        """A column of numbers, as an array: (n,), or (n, width) for a matrix."""
        column = self._column(name)
        if isinstance(column, Levels):
            raise TypeError(f"column {name!r} of each {self.name} holds integers, which are levels: give numbers as floats.")
        if isinstance(column, Field):
            return column.toarray()
        return column

    def features(self, names: Sequence[str] = ()) -> Features:
        """Columns as fields of features, with a feature per level; by default all, or a feature per row if there is none."""
        if not names and not self.columns:
            index = self.checked_index()
            rows = OneHotField(np.arange(self.size) if isinstance(index, slice) else index, self.size)
            rows.local = True
            return Features({self.name: rows.keyed(self.keys)})
        return Features({name: self._field(name, self._column(name)) for name in names or self.columns})

    def pick(self, table: np.ndarray) -> np.ndarray:
        """Each row's entry of a table with a row for each row of the fit; zero for new rows."""
        index = self.checked_index()
        return table[index] if isinstance(index, slice) or index.min(initial=0) >= 0 else with_none(table)[index]

    def checked_index(self) -> np.ndarray | slice:
        """The index of each row among those of the fit; an error if it is unknown."""
        if self.index is None:
            raise ValueError(
                f"the model has a vector for each {self.name} of the fit, so every row needs its index there: give the indices as "
                f"a column {self.name!r}, with -1 for a new {self.name}, whose vector is zero."
            )
        return self.index

    @property
    def has_rows(self) -> bool:
        """Whether rows can be taken, which operators do not allow."""
        return not any(isinstance(column, OperatorField) for column in self.columns.values())

    def take(self, index: np.ndarray) -> Rows:
        """The rows ``index``."""
        columns = {name: take_rows(column, index) for name, column in self.columns.items()}
        where = index if isinstance(self.index, slice) else None if self.index is None else self.index[index]
        return Rows(self.name, len(index), columns, where, self.size, self.keys)

    def _column(self, name: str) -> Column:
        if name not in self.columns:
            known = ", ".join(map(repr, self.columns)) or "none"
            raise ValueError(f"a tower reads the column {name!r} of each {self.name}, which is not among those given: {known}.")
        self.used.add(name)
        return self.columns[name]

    @staticmethod
    def _field(name: str, column: Column) -> Field:
        if isinstance(column, Levels):
            field = OneHotField(column.codes, column.n).keyed(column.keys)
            field.local = column.local
            return field
        return as_field(name, column[:, None]) if isinstance(column, np.ndarray) else column


def as_rows(side: str, given: Any, n: int | None, keys: Keys | None = None) -> Rows:
    """The table of the contexts (or items) of a fit, from a mapping of columns, Features, one matrix, or None."""
    argument = f"{side}s"
    columns = {} if given is None else as_columns(argument, given)
    lengths = {name: len_of(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"all columns of {argument} must have the same number of rows, got {lengths}.")
    found = next(iter(lengths.values()), n)
    if found != n and n is not None:
        raise ValueError(f"{argument} has {found} rows, but the feedback has {n}: one row per {side} is needed.")
    assert found is not None
    return Rows(side, found, columns, keys=keys)


def rows_like(argument: str, given: Any, trained: Rows) -> Rows:
    """A table of other rows with the columns of the fit; if no column was used, of the rows' indices in the fit."""
    used = {name: column for name, column in trained.columns.items() if name in trained.used}
    columns = _mapping(given)
    index = None
    if not used:
        if columns.keys() == {"features"} and not isinstance(given, Mapping):
            columns = {trained.name: given}
        if trained.name not in columns:
            Rows(trained.name, 0, {}, index).checked_index()
        index = level_codes(argument, np.atleast_1d(check.array(argument, _codes(columns[trained.name]))), trained.size)
        return Rows(trained.name, len(index), {}, index, trained.size)
    known = trained.columns.keys() - {trained.name}
    given = {name: column for name, column in columns.items() if name in used or name not in known}
    if trained.name in given and trained.name not in used:
        index = level_codes(f"{argument}[{trained.name!r}]", _codes(given.pop(trained.name)), trained.size)
    columns = as_columns(argument, given, used) if given else {}
    if _widths(columns, used) != _widths(used, used):
        raise ValueError(f"{argument} must have the fields trained on, {_widths(used, used)}, got {_widths(columns, used)}.")
    lengths = {name: len_of(column) for name, column in columns.items()} | ({} if index is None else {trained.name: len(index)})
    if len(set(lengths.values())) > 1:
        raise ValueError(f"all columns of {argument} must have the same number of rows, got {lengths}.")
    return Rows(trained.name, next(iter(lengths.values())), columns, index, trained.size)


def as_columns(argument: str, given: Any, trained: Mapping[str, Column] | None = None) -> dict[str, Column]:
    """Columns by name, from a mapping, a data frame, Features, or a single matrix, which is one field named "features".

    ``trained`` are the columns of the fit, if ``given`` describes other rows.
    """
    columns = _mapping(given)
    if not columns:
        raise TypeError(f"{argument} must be a mapping of names to matrices or arrays, with at least one entry, got {given!r}.")
    for name in columns:
        if not isinstance(name, str):
            raise TypeError(f"names of columns must be strings, got {name!r} of type {type(name).__name__} in {argument}.")
    trained = trained or {}
    return {name: _as_column(f"{argument}[{name!r}]", name, column, trained.get(name)) for name, column in columns.items()}


def _mapping(given: Any) -> dict[str, Any]:
    if isinstance(given, Features):
        return dict(given.fields)
    if isinstance(given, Mapping):
        return dict(given)
    if hasattr(given, "columns") and hasattr(given, "__getitem__"):  # a data frame, or an Arrow table
        return {name: np.asarray(given[name]) for name in getattr(given, "column_names", given.columns)}
    return {"features": given}


def _as_column(argument: str, name: str, column: Any, trained: Column | None) -> Column:
    """A column of the kind that the values suggest or, if the fit had one of this name, of its kind."""
    if isinstance(trained, np.ndarray):
        array = check.array(argument, _codes(column))
        return check.reals(argument, array, len(array) if array.ndim == 1 else -1).astype(np.float64)
    if isinstance(column, Levels) and not isinstance(trained, Levels):
        return column.again()  # for this fit alone
    if not isinstance(column, Levels | Field) and not sp.issparse(column):
        if isinstance(column, list | tuple) or getattr(column, "ndim", None) == 1:
            column = check.array(argument, column)
        if getattr(column, "ndim", None) == 1:
            column = _one_dimensional(argument, column)
    if isinstance(column, Levels):
        return column.like(argument, name, trained) if isinstance(trained, Levels) else column
    if isinstance(column, Field) or (isinstance(column, np.ndarray) and column.ndim == 1):
        return column
    if not sp.issparse(column) and not isinstance(column, np.ndarray | Operator):
        raise TypeError(
            f"field {name!r} must be a scipy sparse matrix, a numpy array of one or two dimensions, everypair.Levels, or a linear "
            f"operator with shape, matvec and rmatvec, got {column!r} of type {type(column).__name__}."
        )
    return as_field(name, column)


def _one_dimensional(argument: str, array: np.ndarray) -> Column:
    if array.dtype.kind in "iu":
        return Levels(level_codes(argument, array, None))
    if array.dtype.kind not in "fb":
        raise TypeError(
            f"{argument} must hold integers (levels) or numbers, got dtype {array.dtype}. Map ids to 0, 1, 2, ... first "
            f"(numpy.unique(ids, return_inverse=True) does)."
        )
    return check.reals(argument, array, len(array)).astype(np.float64)


def _codes(column: Any) -> Any:
    return column.codes if isinstance(column, Levels) else column


def level_codes(argument: str, codes: Any, n: int | None) -> np.ndarray:
    """``codes``, checked: integers from -1 (none) to n - 1."""
    array = check.array(argument, codes)
    if array.dtype.kind != "i" or not array.size or array.min() > -1:
        return check.indices(argument, array, n)
    check.refuse(argument, array < -1, array, "hold levels: 0, 1, 2, ..., or -1 for none")
    check.indices(argument, np.where(array == -1, 0, array), n)
    return array.astype(np.int64, copy=False)


def content_of(column: Column) -> Iterator[Any]:
    """The content of a column, for a fingerprint."""
    yield stored_name(type(column))
    yield from [column] if isinstance(column, np.ndarray) else column.content()


def len_of(column: Column) -> int:
    return column.shape[0] if isinstance(column, Field) else len(column)


def _widths(columns: Mapping[str, Column], trained: Mapping[str, Column]) -> dict[str, Any]:
    """Number of features by field, in the order of the fit; the kind of other columns."""
    order = [*[name for name in trained if name in columns], *[name for name in columns if name not in trained]]
    return {name: column.shape[1] if isinstance(column := columns[name], Field) else _kind(column) for name in order}


def _kind(column: Column) -> str:
    if isinstance(column, Levels):
        return "levels"
    return "numbers" if isinstance(column, np.ndarray) else f"a matrix of {column.shape[1]} features"


def take_rows(column: Column, index: np.ndarray) -> Column:
    """The rows ``index`` of a column."""
    if isinstance(column, np.ndarray):
        return column[index]
    return cast(Levels | OneHotField | SparseField | DenseField, column).take(index)


def one_hot(codes: np.ndarray, n: int) -> sp.csr_array:
    """A matrix with a feature per level; rows without a level are empty."""
    there = codes >= 0
    return sp.csr_array((np.ones(int(there.sum())), codes[there], np.append(0, np.cumsum(there))), shape=(len(codes), n))


def variable_letters(n: int) -> list[str]:
    """The names of a tensor's context variables: U, V as in the paper; U1, U2, ... if there are not two."""
    return ["U", "V"] if n == 2 else [f"U{j + 1}" for j in range(n)]
