"""Data on standard output: tables as CSV or JSON lines, results as JSON."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from typing import Any

import click
import pyarrow as pa

from everypair.files import as_json

ROWS = 10_000  # written at once


def rows(table: pa.Table) -> Iterator[list[dict[str, Any]]]:
    """The rows of a table, some at a time; numbers of 32 bits with as many digits as they have."""
    for batch in table.to_batches(max_chunksize=ROWS):
        columns = {name: _plain(batch.column(name)) for name in table.column_names}
        yield [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _plain(column: pa.Array) -> list[Any]:
    if pa.types.is_float32(column.type):
        return [float(str(value)) for value in column.to_numpy(zero_copy_only=False)]
    return column.to_pylist()


def json_lines(table: pa.Table) -> Iterator[str]:
    """A JSON object per row."""
    for some in rows(table):
        yield "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in some)


def csv_lines(table: pa.Table) -> Iterator[str]:
    """A header, and a line per row."""
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerow(table.column_names)
    yield buffer.getvalue()
    for some in rows(table):
        buffer = io.StringIO()
        csv.writer(buffer, lineterminator="\n").writerows(row.values() for row in some)
        yield buffer.getvalue()


def write(lines: Iterator[str]) -> None:
    for some in lines:
        click.echo(some, nl=False)


def tell(result: Any) -> None:
    """A result as JSON."""
    click.echo(as_json(result), nl=False)
