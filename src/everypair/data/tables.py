"""Tables from anywhere: data frames of any library, mappings of columns, and paths of Parquet and CSV files."""

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

pc: Any = pyarrow.compute  # its functions are made at run time
CANONICAL_INTEGER = r"^(0|-?[1-9][0-9]*)$"  # no leading zeros: "007" is text
INDEX = re.compile(r"__index_level_\d+__")  # how pandas calls an index without a name
SEPARATORS = {".csv": ",", ".tsv": "\t", ".tab": "\t"}
UNITS = ("us", "ns")  # of time, finer ones where needed


def as_table(argument: str, source: Any, text: Iterable[str] = ()) -> pa.Table:
    """``source`` as an Arrow table. Columns named in ``text`` hold ids: in a CSV file they are not taken for numbers unless
    all of them are."""
    try:
        table = _table(argument, source, text)
    except (pa.ArrowException, NarwhalsError, OverflowError) as error:
        raise ValueError(f"{argument} cannot be read as a table; each column must hold values of one type: {error}") from error
    names = table.column_names
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"{argument} has more than one column {name!r}. Rename or drop the others.")
    return pa.table({name: _plain(table[name]) for name in names if not INDEX.fullmatch(name)})


def _table(argument: str, source: Any, text: Iterable[str]) -> pa.Table:
    if isinstance(source, str | os.PathLike):
        return read_table(Path(source), text)
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
    """An Arrow array of a list, a numpy array or a series of any library."""
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
    """Without layouts that Arrow can hold but hardly count with: views, kinds of lists, missing values inside a dictionary."""
    kind = values.type
    if pa.types.is_dictionary(kind) and pa.types.is_string_view(kind.value_type):
        texts = [chunk.dictionary.cast(pa.large_string()).take(chunk.indices) for chunk in values.chunks]
        return pa.chunked_array(texts, pa.large_string())
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
    """The values themselves where an array holds numbers of them."""
    return values.cast(values.type.value_type) if pa.types.is_dictionary(values.type) else values


def read_table(path: Path, text: Iterable[str] = ()) -> pa.Table:
    """A Parquet file, or a CSV (``.csv``, ``.tsv``, also with ``.gz``) whose first line names the columns."""
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
    return read_csv(path, SEPARATORS[kind], text)


def read_csv(path: Path, separator: str = ",", text: Iterable[str] = ()) -> pa.Table:
    """A CSV file in UTF-8. Missing is what is empty and, among numbers, what says so: "NA" can be an id, or Namibia."""
    convert = csv.ConvertOptions(column_types=dict.fromkeys(text, pa.string()), strings_can_be_null=True, null_values=[""])
    parse = csv.ParseOptions(delimiter=separator, newlines_in_values=True)
    try:
        table = csv.read_csv(path, parse_options=parse, convert_options=convert)
    except (pa.ArrowInvalid, OSError) as error:
        raise ValueError(f"{path} cannot be read as a UTF-8 table separated by {separator!r}: {error}") from error
    for place, (name, column) in enumerate(zip(table.column_names, table.columns, strict=True)):
        if pa.types.is_binary(column.type):
            raise ValueError(f"column {name!r} of {path} is not UTF-8. Convert the file, or give a data frame.")
        if pa.types.is_string(column.type):
            table = table.set_column(place, name, _integers(column) if name in set(text) else _spelled_out(column))
    return table


def _integers(ids: pa.ChunkedArray) -> pa.ChunkedArray:
    """Ids as integers if all of them can be written back as they were."""
    integers = _cast(ids, pa.int64())
    return ids if integers is None or not pc.all(pc.match_substring_regex(ids, CANONICAL_INTEGER)).as_py() else integers


def _spelled_out(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    """Numbers, if all others say that they are missing; else the texts."""
    missing = pc.is_in(texts, pa.array(csv.ConvertOptions().null_values))
    if not pc.any(missing).as_py():
        return texts
    rest = pc.if_else(missing, None, texts)
    if rest.null_count == len(rest):
        return texts
    found = (_cast(rest, kind) for kind in (pa.int64(), pa.float64()))
    return next((numbers for numbers in found if numbers is not None), texts)


def column(table: pa.Table, name: str, argument: str, option: str) -> pa.ChunkedArray:
    """A column that must be there."""
    if name not in table.column_names:
        there = ", ".join(map(repr, table.column_names)) or "none"
        raise ValueError(f"{argument} has no column {name!r}; it has {there}. Name the column with {option}=...")
    return table[name]


def no_nulls(values: pa.ChunkedArray, what: str, advice: str) -> None:
    """Refuse missing entries, naming the first row."""
    if values.null_count:
        row = pc.index(pc.is_null(values), True).as_py()
        raise ValueError(f"{what} must not be missing, but {values.null_count:,} are, the first in row {row}. {advice}")


def numbers(values: pa.ChunkedArray, what: str) -> np.ndarray:
    """A column of finite numbers."""
    values = decoded(values)
    no_nulls(values, what, "Drop those rows, or fill them.")
    if not is_number(values.type) and not pa.types.is_boolean(values.type):
        raise TypeError(f"{what} must hold numbers, got {values.type}, such as {values[0].as_py()!r}.")
    array = floats(values)
    bad = ~np.isfinite(array)
    if bad.any():
        raise ValueError(f"{what} must be finite, got {array[bad][0]} in row {int(np.argmax(bad))} ({int(bad.sum())} such in all).")
    return array


def is_number(kind: pa.DataType) -> bool:
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)


def floats(values: pa.ChunkedArray) -> np.ndarray:
    """Numbers as they are counted with; NaN where they are missing."""
    return np.asarray(decoded(values).cast(pa.float64(), safe=False).to_numpy(), np.float64)


def times(values: pa.ChunkedArray, what: str) -> tuple[np.ndarray, str | None]:
    """A column of timestamps as numbers, and their unit: numbers as they are (None), dates and times as microseconds since 1970
    ("us"), as nanoseconds ("ns") where some are finer."""
    values = decoded(values)
    no_nulls(values, what, "Drop those rows, or leave out timestamp= to take the order of the rows.")
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
        raise TypeError(f"{what} must hold numbers, dates, times or ISO 8601 texts, got {kind}, such as {values[0].as_py()!r}.")
    return numbers(values, what), None


def _parsed(texts: pa.ChunkedArray, what: str) -> pa.ChunkedArray:
    """Numbers or times from texts, all of one kind."""
    kinds = [pa.int64(), pa.float64(), *(pa.timestamp(unit, zone) for zone in (None, "UTC") for unit in UNITS)]
    for kind in kinds:
        if (found := _cast(texts, kind)) is not None:
            return found
    row = max(_first_unlike(texts, kind) for kind in kinds)
    raise ValueError(
        f"{what} cannot be parsed: {texts[row].as_py()!r} in row {row}. Expected are numbers, dates, times, or texts like "
        f"'2024-05-01 12:30:00', all with a time zone or all without."
    )


def _first_unlike(texts: pa.ChunkedArray, kind: pa.DataType) -> int:
    """The first row that is not of a kind which not all are of."""
    low, high = 0, len(texts)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _cast(texts[low:middle], kind) is None else (middle, high)
    return low


def _cast(values: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray | None:
    try:
        return values.cast(kind)
    except pa.ArrowInvalid:
        return None
