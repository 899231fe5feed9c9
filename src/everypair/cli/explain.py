"""``everypair explain``: why an item has its score."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from everypair.cli.options import JSON, PATH, Picture

EXAMPLES = """\b
Examples:
  everypair explain model/ --user u001 --item v042
  everypair explain model/ --request '{"country": "DE", "history": ["v007"]}' --item v042 --picture why.svg
"""


@click.command(epilog=EXAMPLES)
@click.argument("model", type=PATH)
@click.option("--item", required=True, help="The item.")
@click.option("--user", help="A user of the data.")
@click.option("--request", help="In place of the user, what is known of someone: a JSON object.")
@click.option("--picture", type=Picture(), help="Write a picture to this file (.svg or .html) as well.")
@JSON
def explain(model: Path, item: str, user: str | None, request: str | None, picture: Path | None, as_json: bool) -> None:
    """What each feature of the context brings to an item's score in a saved MODEL: the parts add up to it."""
    from everypair.cli import inputs
    from everypair.cli.output import tell
    from everypair.recommender import load

    if (user is None) == (request is None):
        raise click.UsageError("Give either --user or --request.")
    try:
        told = None if request is None else inputs.request(request, "--request")
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    recommender = load(model)
    dataset = recommender.dataset_
    known: Any = {"user": inputs.own_ids([user], dataset.users, "--user")[0]} if user is not None else {"request": told}
    why = recommender.explain(item=inputs.own_ids([item], dataset.items, "--item")[0], **known)
    if picture is not None:
        why.save(picture)
    if as_json:
        tell({"item": why.item, "user": why.user, "score": why.score, "contributions": why.table.to_pylist()})
    else:
        click.echo(repr(why))
