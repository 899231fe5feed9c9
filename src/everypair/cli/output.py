"""Output of commands: results on standard output, notes on standard error."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import click

from everypair.runtime.atomic_files import as_json


def write_lines(batches: Iterable[str]) -> None:
    """Print strings that hold whole lines."""
    for batch in batches:
        click.echo(batch, nl=False)


def write_json(result: Any) -> None:
    """Print a result as JSON."""
    click.echo(as_json(result), nl=False)


def note(text: str, label: str = "note: ") -> None:
    """Print a line that is not part of the result."""
    click.echo(f"{label}{text}", err=True)
