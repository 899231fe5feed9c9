"""Data on standard output."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from everypair.runtime.atomic_files import as_json


def write(lines: Iterator[str]) -> None:
    for some in lines:
        click.echo(some, nl=False)


def tell(result: Any) -> None:
    """A result as JSON."""
    click.echo(as_json(result), nl=False)
