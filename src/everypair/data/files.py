"""Reading of tables from paths: Parquet files, folders of them, and CSV files."""

from __future__ import annotations

import csv as header_csv
import gzip
import io
import re
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

import pyarrow as pa
from pyarrow import csv, parquet

from everypair.runtime.wording import in_python

SEPARATORS = {".csv": ",", ".tsv": "\t", ".tab": "\t"}
PARQUET = (".parquet", ".pq")
POSSIBLE = (",", ";", "\t", "|")  # separators that a header may show, whatever the suffix
NO_PARTITION = "__HIVE_DEFAULT_PARTITION__"  # name of the folder of missing values


class FileTable(NamedTuple):
    """A table as a file has it, and the columns that are text for want of types."""

    table: pa.Table
    untyped: frozenset[str]


def is_table(path: Path) -> bool:
    """Whether a path is that of a table, and not of a plain text."""
    return path.is_dir() or _kind(path) in (*SEPARATORS, *PARQUET)


def read(path: Path, needed: Collection[str] = ()) -> FileTable:
    """A Parquet file, a folder of those, or a CSV file (``.csv``, ``.tsv``, also with ``.gz``) whose first line names the columns.

    Columns that are ``needed`` show by which separator a CSV file is to be read.
    """
    if not path.exists():
        raise FileNotFoundError(f"no such file: {path}.")
    if path.is_dir():
        return _read_folder(path, needed)
    kind = _kind(path)
    if kind in PARQUET:
        return FileTable(_read_parquet(path), frozenset())
    if kind not in SEPARATORS:
        raise ValueError(
            f"{path} must end in .parquet, {', '.join(SEPARATORS)} (also with .gz); convert it"
            f"{in_python(', or give a data frame')}."
        )
    table = _read_csv(path, SEPARATORS[kind], needed)
    return FileTable(table, frozenset(table.column_names))


def _kind(path: Path) -> str:
    suffixes = [suffix.lower() for suffix in path.suffixes]
    return suffixes[-2] if suffixes[-1:] == [".gz"] and len(suffixes) > 1 else suffixes[-1] if suffixes else ""


def _read_parquet(path: Path) -> pa.Table:
    try:
        with parquet.ParquetFile(path) as file:
            return file.read()
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"{path} is not a Parquet table: {error}") from error


def _read_folder(folder: Path, needed: Collection[str]) -> FileTable:
    """All Parquet files of a folder, in the order of their names ("part-2" before "part-10"), with columns for folders such as
    ``day=2024-05-01``. A file without a column has missing values there."""
    files = sorted((file for file in folder.rglob("*") if file.is_file() and not _hidden(file, folder)), key=_natural)
    if not files:
        raise ValueError(f"{folder} is a folder without files: it must hold the Parquet files of one table.")
    tables, partitions = [], set()
    for file in files:
        table = _read_parquet(file)
        for name, value in _partition(file, folder).items():
            if name not in table.column_names:
                partitions.add(name)
                table = table.append_column(name, pa.array([value] * len(table), pa.string()))
        tables.append(table)
    for name in needed:
        there = [name in table.column_names for table in tables]
        if any(there) and not all(there):
            lacking, having = files[there.index(False)], files[there.index(True)]
            raise ValueError(f"{lacking} has no column {name!r}, which {having} has: it is no part of the same table.")
    try:
        return FileTable(pa.concat_tables(tables, promote_options="permissive"), frozenset(partitions))
    except pa.ArrowException as error:
        raise ValueError(f"the files of {folder} hold columns of different types: {error}. Write them with one.") from error


def _hidden(file: Path, folder: Path) -> bool:
    """Whether others leave it out, too: "_SUCCESS", "_temporary/...", ".part-0.crc"."""
    return any(part[0] in "._" and "=" not in part for part in file.relative_to(folder).parts)


def _natural(file: Path) -> list[tuple[int, str]]:
    """A key of the order in which numbers within names count as numbers."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"([0-9]+)", str(file))]


def _partition(file: Path, folder: Path) -> dict[str, str | None]:
    """The columns that the names of the folders between have: text, as in a CSV file."""
    named = [part.partition("=") for part in file.relative_to(folder).parts[:-1]]
    return {unquote(name): None if value == NO_PARTITION else unquote(value) for name, equals, value in named if equals}


def _read_csv(path: Path, usual: str, needed: Collection[str]) -> pa.Table:
    """A CSV file in UTF-8, all columns as text. Empty values are missing."""
    separator, names = _header(path, usual, needed)
    parse = csv.ParseOptions(delimiter=separator, newlines_in_values=True)
    try:
        table = _read_bytes(path, parse, names)
    except (pa.ArrowInvalid, OSError) as error:
        raise ValueError(f"{path} cannot be read as a UTF-8 table separated by {separator!r}: {error}") from error
    columns = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        if name in columns:
            raise ValueError(f"{path} has more than one column {name!r}. Rename or drop the others.")
        try:
            columns[name] = column.cast(pa.string())
        except pa.ArrowInvalid as error:
            raise ValueError(
                f"column {name!r} of {path} is not UTF-8. Convert the file{in_python(', or give a data frame')}."
            ) from error
    return pa.table(columns)


def _read_bytes(path: Path, parse: csv.ParseOptions, names: list[str]) -> pa.Table:
    """The columns as bytes: the type has to be given by name, and if Arrow reads another header, by its names."""
    for _ in range(2):
        convert = csv.ConvertOptions(column_types=dict.fromkeys(names, pa.binary()), strings_can_be_null=True, null_values=[""])
        table = csv.read_csv(path, parse_options=parse, convert_options=convert)
        if all(pa.types.is_binary(kind) for kind in table.schema.types):
            break
        names = table.column_names
    return table


def _header(path: Path, usual: str, needed: Collection[str]) -> tuple[str, list[str]]:
    """The separator of a CSV file, by its first line, and the names there: the separator by which it has the columns ``needed``,
    else the one by which it has most; the ``usual`` one before others."""
    names = {separator: _first_row(path, separator) for separator in (usual, *POSSIBLE)}
    right = [separator for separator, found in names.items() if needed and set(needed) <= set(found)]
    separator = right[0] if right else max(names, key=lambda separator: len(names[separator]))
    return separator, names[separator]


def _first_row(path: Path, separator: str) -> list[str]:
    zipped = path.suffix.lower() == ".gz"
    try:
        with gzip.open(path) if zipped else path.open("rb") as file, io.TextIOWrapper(file, "utf-8-sig", "replace", "") as text:
            return next(header_csv.reader(text, delimiter=separator), [])
    except (header_csv.Error, OSError, EOFError):  # Arrow says what is wrong
        return []
