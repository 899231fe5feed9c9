"""Tables of any kind (data frames of any library, mappings of columns, Parquet and CSV files) as Arrow tables."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import narwhals as nw
import numpy as np
import pyarrow as pa
from narwhals.exceptions import NarwhalsError

from everypair.data import files, text_columns
from everypair.data.arrow import decoded, floats, is_number, is_text, no_nulls, pc, plain, value_type
from everypair.runtime.wording import named

INDEX = re.compile(r"__index_level_\d+__")  # name that pandas gives to an unnamed index


class Source:
    """A table as it was given.

    Attributes
    ----------
    argument : str
        The argument it was given by, for messages.
    table : Arrow table
    untyped : set of str
        Columns of text whose type the file does not have: it is decided by what they are used for, and together with other tables.
    """

    def __init__(self, argument: str, table: pa.Table, untyped: Collection[str] = ()) -> None:
        self.argument, self.table, self.untyped = argument, table, set(untyped)

    def column(self, name: str, option: str | None = None) -> pa.ChunkedArray:
        """A column; an error names ``option``, the setting for the column's name, if the caller can set it."""
        return column(self.table, name, self.argument, option)

    def decide(self, name: str, values: pa.ChunkedArray) -> None:
        """Replace an untyped column by its values of the right type."""
        self.table = self.table.set_column(self.table.column_names.index(name), name, values)
        self.untyped.discard(name)

    def typed(self, notes: list[str] | None = None, text: Collection[str | None] = ()) -> pa.Table:
        """The table, with untyped columns as numbers or truth values where their text survives it; those named in ``text`` stay."""
        for name in [name for name in self.table.column_names if name in self.untyped and name not in text]:
            values, remark = text_columns.guess(self.table[name])
            self.decide(name, values)
            if remark is not None and notes is not None:
                notes.append(f"column {name!r} of {self.argument} {remark}.")
        return self.table


def opened(argument: str, source: Any, needed: Collection[str] = ()) -> Source:
    """``source`` as a table. By the columns ``needed``, a CSV file shows its separator."""
    if isinstance(source, Source):
        return source
    try:
        table, untyped = _table(argument, source, needed)
    except (pa.ArrowException, NarwhalsError, OverflowError) as error:
        raise ValueError(f"{argument} cannot be read as a table; each column must hold values of one type: {error}") from error
    names = table.column_names
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"{argument} has more than one column {name!r}. Rename or drop the others.")
    return Source(argument, pa.table({name: plain(table[name]) for name in names if not INDEX.fullmatch(name)}), untyped)


def as_table(argument: str, source: Any, ids: Iterable[str] = (), kind: str | None = None) -> pa.Table:
    """``source`` as an Arrow table. Columns named in ``ids`` hold ids; ``kind`` is that of the data, "integers" or "strings"."""
    read = opened(argument, source, list(ids))
    for name in ids:
        decide_ids([(read, name)], kind, f"{name} ids")
    return read.typed()


def decide_ids(columns: Sequence[tuple[Source, str]], kind: str | None, what: str) -> None:
    """Decide what untyped columns of the same ids hold: ids of the ``kind`` that is known, or that a table with types shows; else
    integers if all of them are written as integers, in all tables."""
    there = [(source, name) for source, name in columns if name in source.table.column_names]
    for source, name in there:
        if kind is None and name not in source.untyped:
            kind = "strings" if is_text(value_type(source.table[name].type)) else "integers"
    untyped = [(source, name) for source, name in there if name in source.untyped]
    whole = [None if kind == "strings" else text_columns.integers(source.table[name]) for source, name in untyped]
    if kind is None and all(values is not None for values in whole):
        kind = "integers"
    for (source, name), values in zip(untyped, whole, strict=True):
        if kind == "integers" and values is None:
            text_columns.refuse_ids(source.table[name], f"{what} (column {name!r} of {source.argument})")
        source.decide(name, values if kind == "integers" and values is not None else source.table[name])


def joined(sources: Sequence[Source]) -> Source:
    """The rows of several tables, with the columns they share; an untyped column gets the type that another table has for it."""
    first, *others = sources
    shared = [name for name in first.table.column_names if all(name in other.table.column_names for other in others)]
    for name in shared:
        kinds = [value_type(source.table[name].type) for source in sources if name not in source.untyped]
        for source in sources:
            if kinds and name in source.untyped:
                kind = pa.int64() if pa.types.is_integer(kinds[0]) else kinds[0]
                source.decide(name, text_columns.as_type(source.table[name], kind, f"column {name!r} of {source.argument}"))
    plain_tables = [pa.table({name: decoded(source.table[name]) for name in shared}) for source in sources]
    table = pa.concat_tables(plain_tables, promote_options="permissive")
    return Source("interactions", table, first.untyped & set(shared))


def _table(argument: str, source: Any, needed: Collection[str]) -> files.FileTable:
    if isinstance(source, str | os.PathLike):
        return files.read(Path(source), needed)
    return files.FileTable(_in_memory(argument, source), frozenset())


def _in_memory(argument: str, source: Any) -> pa.Table:
    if isinstance(source, pa.Table):
        return source
    if isinstance(source, Mapping):
        for name, values in source.items():
            if not isinstance(name, str) or isinstance(values, str | bytes) or not hasattr(values, "__len__"):
                raise TypeError(f"{argument} must map names to columns, got {name!r}: {values!r}.")
        return pa.table({name: _array(f"column {name!r} of {argument}", values) for name, values in source.items()})
    try:
        frame = nw.from_native(source)
    except TypeError:
        raise TypeError(
            f"{argument} must be a data frame (pandas, polars, pyarrow, ...), a mapping of names to columns, or the path of a "
            f"Parquet or CSV file, got {type(source).__name__}."
        ) from None
    return frame.collect("pyarrow").to_arrow() if isinstance(frame, nw.LazyFrame) else frame.to_arrow()


def _array(what: str, values: Any) -> Any:
    """A list, a numpy array or a series of any library as an Arrow array."""
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values
    try:
        return nw.from_native(values, series_only=True).to_arrow()
    except TypeError:
        pass  # not a series
    try:
        return pa.array(values, from_pandas=True)
    except (pa.ArrowException, TypeError, OverflowError) as error:
        raise TypeError(f"{what} must hold values of one type: {error}") from error


def column(table: pa.Table, name: str, argument: str, option: str | None = None) -> pa.ChunkedArray:
    """A column of a table; an error names ``option``, the setting for the column's name, if the caller can set it."""
    if name not in table.column_names:
        existing = ", ".join(map(repr, table.column_names)) or "none"
        advice = (
            "Name it as in the data before." if option is None else f"Set {named(option, 'Dataset')} to the name of the column."
        )
        raise ValueError(f"{argument} has no column {name!r}; it has {existing}. {advice}")
    return table[name]


def numbers(values: pa.ChunkedArray, what: str, untyped: bool = False) -> np.ndarray:
    """A column of finite numbers as an array; the text of an ``untyped`` one may write them in any way."""
    values = decoded(values)
    no_nulls(values, what, "Drop those rows, or fill them.")
    if untyped:
        values = _written_numbers(values, what)
    if not is_number(values.type) and not pa.types.is_boolean(values.type):
        raise TypeError(f"{what} must hold numbers, got {values.type}, such as {values[0].as_py()!r}.")
    array = floats(values)
    bad = ~np.isfinite(array)
    if bad.any():
        raise ValueError(f"{what} must be finite, got {array[bad][0]} in row {int(np.argmax(bad))} ({int(bad.sum())} such rows).")
    return array


def _written_numbers(text: pa.ChunkedArray, what: str) -> pa.ChunkedArray:
    found = text_columns.parsed(text)
    if found.null_count:
        row = pc.index(pc.is_null(found), True).as_py()
        raise TypeError(f"{what} must hold numbers, but row {row} has {text[row].as_py()!r}.")
    return found
