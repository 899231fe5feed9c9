"""Loader for folders of Parquet files, and the file handling that loaders share."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import csv

from everypair.data import Dataset
from everypair.data.tables import as_table

SHOWN = 12  # most file names in a message


def parquet(path: str | os.PathLike[str], **options: Any) -> Dataset:
    """Load a folder of Parquet files: ``interactions.parquet`` and, optionally, ``users.parquet`` and ``items.parquet``.

    Parameters
    ----------
    path : str or Path
        The folder.
    **options
        Arguments of :class:`everypair.Dataset`. By default, ``timestamp`` is ``"timestamp"`` or ``"user_order"``, the first of
        them that is a column of the interactions, or None.
    """
    (interactions,) = files(path, "interactions.parquet")
    table = as_table("interactions", interactions)
    orders = [name for name in ("timestamp", "user_order") if name in table.column_names]
    others = {name: file for name in ("users", "items") if (file := Path(path) / f"{name}.parquet").exists()}
    return Dataset(table, **{"timestamp": orders[0] if orders else None, **others, **options})


def files(path: str | os.PathLike[str], *names: str) -> list[Path]:
    """Paths of files in a folder; an error if any is missing."""
    existing = names_in(path)
    missing = [name for name in names if name not in existing]
    if missing:
        raise FileNotFoundError(f"{path} must hold {listed(names)}, but {listed(missing)} cannot be found. {holds(existing)}")
    return [Path(path) / name for name in names]


def names_in(path: str | os.PathLike[str]) -> list[str]:
    """The names in a folder."""
    folder = Path(path)
    if not folder.exists():
        raise FileNotFoundError(f"no such folder: {folder}.")
    if not folder.is_dir():
        raise NotADirectoryError(f"path must be a folder, got the file {folder}. Unpack it, or give its folder.")
    return sorted(file.name for file in folder.iterdir())


def holds(names: list[str]) -> str:
    """The content of a folder, as a sentence for messages."""
    more = f" and {len(names) - SHOWN:,} more" if len(names) > SHOWN else ""
    return f"It holds: {', '.join(names[:SHOWN])}{more}." if names else "It is empty."


def listed(names: Any) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def as_utf8(path: Path) -> bytes:
    """The content of a file as UTF-8; if it is not UTF-8, it is decoded as Latin-1."""
    data = path.read_bytes()
    try:
        data.decode()
    except UnicodeDecodeError:
        return data.decode("latin-1").encode()
    return data


def read_columns(
    path: Path, types: Mapping[str, pa.DataType], separator: str = ",", *, header: bool = False, content: bytes | None = None
) -> pa.Table:
    """Read columns of these names and types from a text file; empty values are missing.

    Values may be quoted if the separator is a comma. With a ``header``, columns are selected by name, otherwise ``types`` lists all
    of them in order. ``content`` replaces the bytes of the file.
    """
    options: dict[str, Any] = {
        "read_options": csv.ReadOptions(column_names=None if header else list(types)),
        "parse_options": csv.ParseOptions(delimiter=separator, quote_char='"' if separator == "," else False),
        "convert_options": csv.ConvertOptions(
            column_types=dict(types), include_columns=list(types), null_values=[""], strings_can_be_null=True
        ),
    }
    try:
        return csv.read_csv(str(path) if content is None else pa.BufferReader(content), **options)
    except (pa.ArrowInvalid, pa.ArrowKeyError) as error:
        raise ValueError(
            f"{path} must have {'a header with' if header else 'no header, and'} the columns {', '.join(types)}, separated by "
            f"{separator!r}: {error}"
        ) from error
