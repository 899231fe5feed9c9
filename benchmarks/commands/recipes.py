"""``python -m benchmarks recipes``: recipes of contexts and weights of events beside others."""

from __future__ import annotations

from pathlib import Path

import click

from benchmarks.commands.options import FOLDER

EXAMPLE = "Example: python -m benchmarks recipes --data DIR --row s3rec-beauty --context 'previous + history' --setting factors=128"


@click.command(epilog=EXAMPLE)
@click.option("--data", type=FOLDER, required=True, help="Folder with a folder per data set, as for quality.")
@click.option("--row", required=True, help="The data set.")
@click.option("--context", multiple=True, required=True, help="Recipes of contexts, separated by ' + '; may be repeated.")
@click.option("--item", multiple=True, default=("item",), show_default=True, help="A recipe of items; may be repeated.")
@click.option("--event-weights", multiple=True, help="As for 'everypair fit', or none; may be repeated.")
@click.option("--model", default="MFSI", show_default=True, help="The class of the model.")
@click.option("--setting", "settings", multiple=True, metavar="NAME=VALUE", help="An argument of the model; may be repeated.")
@click.option("--times", is_flag=True, help="Order events by their timestamps, for half-lives.")
@click.option("--test", is_flag=True, help="Evaluate the test part, too.")
def recipes(
    data: Path,
    row: str,
    context: tuple[str, ...],
    item: tuple[str, ...],
    event_weights: tuple[str, ...],
    model: str,
    settings: tuple[str, ...],
    times: bool,
    test: bool,
) -> None:
    """Recipes of contexts and weights of events beside others.

    Prints the tuned metric on the tuning part, at the best epoch.
    """
    from benchmarks.experiments.recipes import compare
    from everypair.recommend.recipe_syntax import setting

    named = {name: setting(value) for name, _, value in (each.partition("=") for each in settings)}
    weights = [None if each == "none" else each for each in event_weights] or [None]
    compare(data, row, [each.split(" + ") for each in context], item, weights, named, model=model, times=times, test=test)
