"""``python -m benchmarks shift``: whether a published test resembles its training part."""

from __future__ import annotations

from pathlib import Path

import click

from benchmarks.commands.options import FOLDER

EXAMPLE = "python -m benchmarks shift --data DIR/lightgcn-gowalla --settings 512,0.01,0.01,0,8"


@click.command(epilog=f"Example: {EXAMPLE}")
@click.option("--data", type=FOLDER, required=True, help="Folder with train.parquet and test.parquet (columns user and item).")
@click.option("--settings", multiple=True, metavar="K,ALPHA0,LAMBDA,POPULARITY,EPOCHS", help="Of MF; may be repeated.")
def shift(data: Path, settings: tuple[str, ...]) -> None:
    """Whether a published test resembles its training part.

    Prints the number of test pairs per training pair by the popularity of items, which is about constant if test pairs were drawn
    at random. For each of the settings, MF is fitted without the tuning pairs and evaluated on them, then fitted on all training
    pairs and evaluated on the test.
    """
    from benchmarks.experiments import shift as experiment

    experiment.compare(data, settings)
