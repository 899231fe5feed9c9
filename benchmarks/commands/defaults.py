"""``python -m benchmarks defaults``: default settings beside others."""

from __future__ import annotations

from pathlib import Path

import click

from benchmarks.commands.options import FOLDER

ROWS = ("lightgcn-gowalla", "lcfn-movielens-1m", "ncf-movielens-1m", "s3rec-beauty", "movielens-1m")  # of docs/log.md


@click.command(epilog="Example: python -m benchmarks defaults --data DIR --rows s3rec-beauty --popularity 0 --popularity 0.3")
@click.option("--data", type=FOLDER, required=True, help="Folder with a folder per data set, as for quality.")
@click.option("--rows", multiple=True, default=ROWS, show_default=True, help="Only this data set; may be repeated.")
@click.option("--popularity", multiple=True, type=float, help="popularity_exponent; may be repeated.")
@click.option("--decay", multiple=True, type=float, help="Of the history; may be repeated.")
@click.option("--all-pairs", multiple=True, type=float, help="Weight of all pairs; may be repeated.")
@click.option("--shrinkage", multiple=True, type=float, help="May be repeated.")
def defaults(
    data: Path,
    rows: tuple[str, ...],
    popularity: tuple[float, ...],
    decay: tuple[float, ...],
    all_pairs: tuple[float, ...],
    shrinkage: tuple[float, ...],
) -> None:
    """Default settings beside others.

    Prints metrics on the tuning part, with k = 64. Tries every combination of the given values; settings without values have their
    defaults. The weight of all pairs and the shrinkage are those of everypair.tuning.search.
    """
    from benchmarks.experiments import defaults as experiment

    tried = experiment.Tried(popularity, decay, all_pairs, shrinkage)
    experiment.compare(data, rows, tried)
