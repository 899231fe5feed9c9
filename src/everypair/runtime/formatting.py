"""Tables as text: aligned for terminals, as CSV, and as JSON lines."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

BATCH_ROWS = 10_000  # rows formatted at a time


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Aligned columns: the first flush left, the others flush right."""
    widths = [max(len(row[j]) for row in (header, *rows)) for j in range(len(header))]
    lines = [
        "  ".join(cell.ljust(w) if j == 0 else cell.rjust(w) for j, (cell, w) in enumerate(zip(row, widths, strict=True)))
        for row in (header, *rows)
    ]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])


def json_lines(rows: pa.Table) -> Iterator[str]:
    """A JSON object per row and line; each yielded string holds a batch of lines."""
    for columns in _batches(rows):
        yield "".join(
            json.dumps(dict(zip(rows.column_names, row, strict=True)), ensure_ascii=False) + "\n"
            for row in zip(*columns, strict=True)
        )  # fmt: skip


def csv_lines(rows: pa.Table) -> Iterator[str]:
    """A header, then a line per row; each yielded string holds a batch of lines."""
    yield _csv([rows.column_names])
    for columns in _batches(rows):
        yield _csv(zip(*columns, strict=True))


def _csv(rows: Any) -> str:
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows(rows)
    return buffer.getvalue()


def _batches(rows: pa.Table) -> Iterator[list[list[Any]]]:
    for batch in rows.to_batches(max_chunksize=BATCH_ROWS):
        yield [_values(column) for column in batch.columns]


def _values(column: pa.Array) -> list[Any]:
    """Python values; float32 by its shortest decimal, not that of the equal float64."""
    if pa.types.is_float32(column.type):
        return [float(str(value)) for value in column.to_numpy(zero_copy_only=False)]
    return column.to_pylist()
