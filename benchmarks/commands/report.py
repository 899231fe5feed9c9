"""``python -m benchmarks report``: the report of stored results, without measuring anything."""

from __future__ import annotations

import json
from pathlib import Path

import click

from benchmarks.commands.options import OUT


@click.command(epilog="Example: python -m benchmarks report --out docs/benchmarks.md")
@OUT
def report(out: Path) -> None:
    """Write the report from stored results."""
    from benchmarks import report as page

    results = page.results_path(out)
    if not results.exists():
        raise FileNotFoundError(f"{results} does not exist: run quality or speed with --out {out} first.")
    page.write(json.loads(results.read_text("utf-8")), out)
    click.echo(f"Report: {out}", err=True)
