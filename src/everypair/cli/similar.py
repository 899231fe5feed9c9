"""``everypair similar``: the items, or users, most similar to others."""

from __future__ import annotations

from pathlib import Path

import click

from everypair.cli.options import JSON_LINES, PATH, TABLE_OUT, refuse_json_with_out
from everypair.cli.output import write_table

EXAMPLES = """\b
Examples:
  everypair similar model/ --items v042
  everypair similar model/ --users u001,u002 -n 5 --json
"""


@click.command(epilog=EXAMPLES)
@click.argument("model", type=PATH)
@click.option("--items", multiple=True, metavar="A,B,...", help="Ids of items; may be repeated.")
@click.option("--users", multiple=True, metavar="A,B,...", help="Instead of items, ids of users; may be repeated.")
@click.option("-n", type=click.IntRange(1), default=10, show_default=True, help="Similar items (or users) for each.")
@TABLE_OUT
@JSON_LINES
def similar(model: Path, items: tuple[str, ...], users: tuple[str, ...], n: int, out: Path | None, as_json: bool) -> None:
    """Print the items of a saved MODEL that are most similar to each of these, by the cosine of their factors; or users.

    Prints CSV: item (or user), similar, score, rank.
    """
    from everypair.cli.inputs import ids_of_option
    from everypair.recommender import load

    if bool(items) == bool(users):
        raise click.UsageError("Give either --items or --users.")
    refuse_json_with_out(out, as_json)
    recommender = load(model)
    dataset = recommender.dataset_
    if items:
        found = recommender.similar_items(ids_of_option(items, dataset.items, "--items"), n)
    else:
        found = recommender.similar_users(ids_of_option(users, dataset.users, "--users"), n)
    write_table(found, out, as_json)
