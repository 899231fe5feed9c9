"""Output of commands: results on standard output, notes on standard error."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from everypair.runtime.atomic_files import as_json


def write_lines(batches: Iterable[str]) -> None:
    """Print strings that hold whole lines."""
    for batch in batches:
        click.echo(batch, nl=False)


def write_table(table: Any, out: Path | None, as_json: bool) -> None:
    """Print a table as CSV, or as a JSON object per line; or write it to a file, whose suffix gives the format."""
    from everypair.data.tables import as_table
    from everypair.recommend.export import table_file
    from everypair.runtime.formatting import csv_lines, json_lines

    arrow = as_table("result", table)
    if out is None:
        write_lines(json_lines(arrow) if as_json else csv_lines(arrow))
        return
    with table_file(out) as write:
        write(arrow)


def write_json(result: Any) -> None:
    """Print a result as JSON."""
    click.echo(as_json(result), nl=False)


def note(text: str, label: str = "note: ") -> None:
    """Print a line that is not part of the result."""
    click.echo(f"{label}{text}", err=True)
