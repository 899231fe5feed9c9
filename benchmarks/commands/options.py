"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path

import click

FOLDER = click.Path(path_type=Path, exists=True, file_okay=False)
REPORT = Path("report/benchmarks.md")

OUT = click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    default=REPORT,
    show_default=True,
    help="The report; charts and results.json are written to a folder of the same name beside it.",
)
AGAIN = click.option("--again", is_flag=True, help="Repeat measurements that results.json has.")
THREADS = click.option("--threads", type=click.IntRange(1), default=2, show_default=True)
JSON = click.option("--json", "as_json", is_flag=True, help="Print results as JSON.")
LOG = click.option("--data", type=FOLDER, help="Folder with train.parquet (columns user and item); else generated events.")
