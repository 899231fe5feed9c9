"""Loader for Amazon reviews: ratings of products."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

import pyarrow as pa

from everypair.data import Dataset
from everypair.datasets.folder import holds, names_in, read_columns

TYPES = {"user": pa.string(), "item": pa.string(), "rating": pa.float64(), "timestamp": pa.int64()}
COLUMNS_2014 = ("user", "item", "rating", "timestamp")
COLUMNS_2018 = ("item", "user", "rating", "timestamp")
HEADER_2023 = {"user_id": "user", "parent_asin": "item", "rating": "rating", "timestamp": "timestamp"}
ASIN_LENGTH = 10
SAMPLE_BYTES = 1 << 18


def amazon_reviews(
    path: str | os.PathLike[str], *, at_least: float | None = None, repeats: str = "keep", columns: Sequence[str] | None = None
) -> Dataset:
    """Load Amazon reviews of 2014, 2018 or 2023: the CSV file of ratings of one category of products, also with ``.gz``.

    - 2014, "ratings only" (``ratings_Beauty.csv``): user, item, rating, timestamp, without a header
    - 2018, "ratings only" (``All_Beauty.csv``): item, user, rating, timestamp, without a header
    - 2023 (``All_Beauty.csv``): a header with ``user_id``, ``parent_asin``, ``rating``, ``timestamp``; other columns, such as
      ``history``, are left out

    The first rows distinguish 2014 from 2018: ids of products (ASINs) have 10 characters, those of users begin with "A" and most
    are longer. All ids are strings. Timestamps are those of the file: seconds, or milliseconds in 2023.

    Parameters
    ----------
    path : str or Path
        The file.
    at_least : number, optional
        The smallest rating that counts. None: all events count, and ``rating`` is an attribute of events.
    repeats : {"keep", "sum", "drop"}
        See :class:`everypair.Dataset`.
    columns : sequence of str, optional
        "user", "item", "rating" and "timestamp", in the order of a file without a header. None: detected.
    """
    file = _existing(path)
    if columns is not None:
        table = _headless(file, _checked(columns))
    else:
        sample = _first_rows(file)
        if HEADER_2023.keys() <= set(sample[0]):
            types = {name: TYPES[role] for name, role in HEADER_2023.items()}
            table = read_columns(file, types, header=True).rename_columns(list(HEADER_2023.values()))
        else:
            table = _headless(file, _order(file, sample))
    rating = None if at_least is None else "rating"
    return Dataset(table, timestamp="timestamp", rating=rating, at_least=at_least, repeats=repeats)


def _existing(path: str | os.PathLike[str]) -> Path:
    file = Path(path)
    if file.is_dir():
        raise IsADirectoryError(f"path must be a CSV file, got the folder {file}. {holds(names_in(file))}")
    if not file.exists():
        raise FileNotFoundError(f"no such file: {file.name} in {file.parent}. {holds(names_in(file.parent))}")
    return file


def _checked(columns: Sequence[str]) -> Sequence[str]:
    if not isinstance(columns, tuple | list) or set(columns) != set(COLUMNS_2014) or len(columns) != len(COLUMNS_2014):
        raise ValueError(f"columns must be {', '.join(map(repr, COLUMNS_2014))} in the order of the file, got {columns!r}.")
    return columns


def _headless(file: Path, names: Iterable[str]) -> pa.Table:
    return read_columns(file, {name: TYPES[name] for name in names})


def _first_rows(file: Path) -> list[list[str]]:
    """The fields of the first lines; one row without fields for an empty file."""
    with pa.input_stream(str(file), compression="detect") as stream:
        lines = stream.read(SAMPLE_BYTES).decode("utf-8-sig", errors="replace").splitlines()
    complete = lines[:-1] if len(lines) > 1 else lines  # the last line may be cut off
    return [row for row in csv.reader(complete) if row] or [[]]


def _order(file: Path, rows: list[list[str]]) -> tuple[str, ...]:
    """The order of the columns, found by which of the first two holds the products."""
    if min(map(len, rows)) >= 2:
        first, second = ([row[j] for row in rows] for j in (0, 1))
        if _may_be_items(first, second) != _may_be_items(second, first):
            return COLUMNS_2018 if _may_be_items(first, second) else COLUMNS_2014
    raise ValueError(
        f"it is not clear which column of {file} holds users and which products (10 characters each); the first line is "
        f"{','.join(rows[0])!r}. Give the order, such as columns={COLUMNS_2014!r}."
    )


def _may_be_items(ids: list[str], others: list[str]) -> bool:
    """Whether all ids have the length of ASINs, and the other column does not look more like ASINs."""
    if any(len(name) != ASIN_LENGTH for name in ids):
        return False
    return any(len(name) != ASIN_LENGTH for name in others) or all(name.startswith("A") for name in others)
