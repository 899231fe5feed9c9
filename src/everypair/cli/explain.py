"""``everypair explain``: the contributions to an item's score."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from everypair.cli.options import JSON, PATH, PicturePath
from everypair.cli.output import write_json

EXAMPLES = """\b
Examples:
  everypair explain model/ --user u001 --item v042
  everypair explain model/ --request '{"country": "DE", "history": ["v007"]}' --item v042 --picture why.svg
"""


@click.command(epilog=EXAMPLES)
@click.argument("model", type=PATH)
@click.option("--item", required=True, help="The id of the item.")
@click.option("--user", help="The id of a user of the data.")
@click.option("--request", help="Instead of --user, a JSON object with attributes and history.")
@click.option("--picture", type=PicturePath(), help="Also write a picture to this file (.svg or .html).")
@JSON
def explain(model: Path, item: str, user: str | None, request: str | None, picture: Path | None, as_json: bool) -> None:
    """Show the contribution of each feature of the context to an item's score in a saved MODEL; they sum to the score."""
    from everypair.cli import inputs
    from everypair.recommender import load

    if (user is None) == (request is None):
        raise click.UsageError("Give either --user or --request.")
    try:
        parsed = None if request is None else inputs.request(request, "--request")
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    recommender = load(model)
    dataset = recommender.dataset_
    known: Any = {"user": inputs.parse_ids([user], dataset.users, "--user")[0]} if user is not None else {"request": parsed}
    why = recommender.explain(item=inputs.parse_ids([item], dataset.items, "--item")[0], **known)
    if picture is not None:
        why.save(picture)
    if as_json:
        who = {"item": why.item, "title": why.title, "user": why.user}
        write_json({**who, "score": why.score, "contributions": why.contributions})
    else:
        click.echo(repr(why))
