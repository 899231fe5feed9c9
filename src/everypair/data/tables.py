"""Conversion of tables (data frames of any library, mappings of columns, Parquet and CSV files) and columns to Arrow."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import narwhals as nw
import numpy as np
import pyarrow as pa
import pyarrow.compute
from narwhals.exceptions import NarwhalsError
from pyarrow import csv, parquet

pc: Any = pyarrow.compute  # its functions are generated at import, unknown to type checkers
CANONICAL_INTEGER = r"^(0|-?[1-9][0-9]*)$"  # no leading zeros: "007" is a string
INDEX = re.compile(r"__index_level_\d+__")  # name that pandas gives to an unnamed index
SEPARATORS = {".csv": ",", ".tsv": "\t", ".tab": "\t"}
UNITS = ("us", "ns")  # units of time; the first that is exact is used


def as_table(argument: str, source: Any, ids: Iterable[str] = ()) -> pa.Table:
    """``source`` as an Arrow table. Columns named in ``ids`` hold ids: in a CSV file they are read as strings, or as integers if
    all of them are written as such."""
    try:
        table = _table(argument, source, ids)
    except (pa.ArrowException, NarwhalsError, OverflowError) as error:
        raise ValueError(f"{argument} cannot be read as a table; each column must hold values of one type: {error}") from error
    names = table.column_names
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"{argument} has more than one column {name!r}. Rename or drop the others.")
    return pa.table({name: _plain(table[name]) for name in names if not INDEX.fullmatch(name)})


def _table(argument: str, source: Any, ids: Iterable[str]) -> pa.Table:
    if isinstance(source, str | os.PathLike):
        return read_table(Path(source), ids)
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


def _plain(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """The column in a layout that Arrow's compute functions support: no views, no unusual lists, no nulls inside dictionaries."""
    kind = values.type
    if pa.types.is_dictionary(kind) and pa.types.is_string_view(kind.value_type):
        strings = [chunk.dictionary.cast(pa.large_string()).take(chunk.indices) for chunk in values.chunks]
        return pa.chunked_array(strings, pa.large_string())
    if pa.types.is_dictionary(kind) and any(chunk.dictionary.null_count for chunk in values.chunks):
        return decoded(values)
    if pa.types.is_string_view(kind):
        return values.cast(pa.large_string())
    if is_lists(kind):
        entry = kind.value_type.value_type if pa.types.is_dictionary(kind.value_type) else kind.value_type
        usual = isinstance(kind, pa.ListType | pa.LargeListType) and entry == kind.value_type and not pa.types.is_string_view(entry)
        return values if usual else values.cast(pa.large_list(pa.large_string() if is_text(entry) else entry))
    return values


def is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)


def is_lists(kind: pa.DataType) -> bool:
    return isinstance(kind, pa.ListType | pa.LargeListType | pa.FixedSizeListType | pa.ListViewType | pa.LargeListViewType)


def decoded(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """The values of a dictionary-encoded column; other columns unchanged."""
    return values.cast(values.type.value_type) if pa.types.is_dictionary(values.type) else values


def read_table(path: Path, ids: Iterable[str] = ()) -> pa.Table:
    """A Parquet file or folder, or a CSV file (``.csv``, ``.tsv``, also with ``.gz``) whose first line names the columns."""
    if not path.exists():
        raise FileNotFoundError(f"no such file: {path}.")
    suffixes = [suffix.lower() for suffix in path.suffixes]
    kind = suffixes[-2] if suffixes[-1:] == [".gz"] and len(suffixes) > 1 else suffixes[-1] if suffixes else ""
    if path.is_dir() or kind in (".parquet", ".pq"):
        try:
            return parquet.read_table(path)
        except pa.ArrowException as error:
            raise ValueError(f"{path} is not a Parquet table: {error}") from error
    if kind not in SEPARATORS:
        raise ValueError(f"{path} must end in .parquet, {', '.join(SEPARATORS)} (also with .gz); convert it, or give a data frame.")
    return read_csv(path, SEPARATORS[kind], ids)


def read_csv(path: Path, separator: str = ",", ids: Iterable[str] = ()) -> pa.Table:
    """A CSV file in UTF-8. Empty values are missing; values such as "NA" only in columns of numbers: elsewhere they may be ids or
    codes, such as that of Namibia."""
    convert = csv.ConvertOptions(column_types=dict.fromkeys(ids, pa.string()), strings_can_be_null=True, null_values=[""])
    parse = csv.ParseOptions(delimiter=separator, newlines_in_values=True)
    try:
        table = csv.read_csv(path, parse_options=parse, convert_options=convert)
    except (pa.ArrowInvalid, OSError) as error:
        raise ValueError(f"{path} cannot be read as a UTF-8 table separated by {separator!r}: {error}") from error
    for place, (name, column) in enumerate(zip(table.column_names, table.columns, strict=True)):
        if pa.types.is_binary(column.type):
            raise ValueError(f"column {name!r} of {path} is not UTF-8. Convert the file, or give a data frame.")
        if pa.types.is_string(column.type):
            table = table.set_column(place, name, _integers(column) if name in set(ids) else _numbers(column))
    return table


def _integers(ids: pa.ChunkedArray) -> pa.ChunkedArray:
    """Ids as integers, if all of them are spelled as integers print; else the strings."""
    integers = _cast(ids, pa.int64())
    return ids if integers is None or not pc.all(pc.match_substring_regex(ids, CANONICAL_INTEGER)).as_py() else integers


def _numbers(strings: pa.ChunkedArray) -> pa.ChunkedArray:
    """The column as numbers, if all values are numbers or words for missing values; else the strings."""
    missing = pc.is_in(strings, pa.array(csv.ConvertOptions().null_values))
    if not pc.any(missing).as_py():
        return strings
    rest = pc.if_else(missing, None, strings)
    if rest.null_count == len(rest):
        return strings
    found = (_cast(rest, kind) for kind in (pa.int64(), pa.float64()))
    return next((numbers for numbers in found if numbers is not None), strings)


def column(table: pa.Table, name: str, argument: str, option: str) -> pa.ChunkedArray:
    """A column of a table; an error names ``option``, the setting for the column's name."""
    if name not in table.column_names:
        existing = ", ".join(map(repr, table.column_names)) or "none"
        raise ValueError(f"{argument} has no column {name!r}; it has {existing}. Set {option} to the name of the column.")
    return table[name]


def no_nulls(values: pa.ChunkedArray, what: str, advice: str) -> None:
    """Raise if entries are missing, naming the first row."""
    if values.null_count:
        row = pc.index(pc.is_null(values), True).as_py()
        raise ValueError(f"{what} must not be missing, but {values.null_count:,} are, the first in row {row}. {advice}")


def numbers(values: pa.ChunkedArray, what: str) -> np.ndarray:
    """A column of finite numbers as an array."""
    values = decoded(values)
    no_nulls(values, what, "Drop those rows, or fill them.")
    if not is_number(values.type) and not pa.types.is_boolean(values.type):
        raise TypeError(f"{what} must hold numbers, got {values.type}, such as {values[0].as_py()!r}.")
    array = floats(values)
    bad = ~np.isfinite(array)
    if bad.any():
        raise ValueError(f"{what} must be finite, got {array[bad][0]} in row {int(np.argmax(bad))} ({int(bad.sum())} such rows).")
    return array


def is_number(kind: pa.DataType) -> bool:
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)


def floats(values: pa.ChunkedArray) -> np.ndarray:
    """A column of numbers as float64; NaN where they are missing."""
    return np.asarray(decoded(values).cast(pa.float64(), safe=False).to_numpy(), np.float64)


def times(values: pa.ChunkedArray, what: str) -> tuple[np.ndarray, str | None]:
    """A column of timestamps as numbers, and their unit: None for numbers, which are unchanged; "us" for dates and times, as
    microseconds since 1970; "ns" where microseconds are not exact."""
    values = decoded(values)
    no_nulls(values, what, "Drop those rows, or leave out timestamp to use the order of rows.")
    if is_text(values.type):
        values = _parsed(values, what)
    kind = values.type
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        zone = kind.tz if pa.types.is_timestamp(kind) else None
        for unit in UNITS:
            if (exact := _cast(values, pa.timestamp(unit, zone))) is not None:
                return np.asarray(exact.cast(pa.int64()).to_numpy()), unit
        raise ValueError(f"{what} must lie within 290,000 years of 1970.")
    if pa.types.is_integer(kind):
        if (integers := _cast(values, pa.int64())) is None:
            raise ValueError(f"{what} must fit into 64-bit signed integers.")
        return np.asarray(integers.to_numpy()), None
    if not is_number(kind):
        raise TypeError(f"{what} must hold numbers, dates, times or ISO 8601 strings, got {kind}, such as {values[0].as_py()!r}.")
    return numbers(values, what), None


def _parsed(strings: pa.ChunkedArray, what: str) -> pa.ChunkedArray:
    """Strings as numbers or times, all of one type."""
    kinds = [pa.int64(), pa.float64(), *(pa.timestamp(unit, zone) for zone in (None, "UTC") for unit in UNITS)]
    for kind in kinds:
        if (found := _cast(strings, kind)) is not None:
            return found
    row = max(_first_unlike(strings, kind) for kind in kinds)
    raise ValueError(
        f"{what} cannot be parsed: {strings[row].as_py()!r} in row {row}. Expected are numbers, dates, times, or strings like "
        f"'2024-05-01 12:30:00', all with a time zone or all without."
    )


def _first_unlike(strings: pa.ChunkedArray, kind: pa.DataType) -> int:
    """The first row that cannot be cast, in a column that cannot."""
    low, high = 0, len(strings)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _cast(strings[low:middle], kind) is None else (middle, high)
    return low


def _cast(values: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray | None:
    """The column cast to a type, None if it cannot be."""
    try:
        return values.cast(kind)
    except pa.ArrowInvalid:
        return None
