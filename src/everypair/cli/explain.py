"""``everypair explain``: why an item has its score."""

from __future__ import annotations

import json
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
    from everypair.cli.output import tell
    from everypair.storage import load

    if (user is None) == (request is None):
        raise click.UsageError("Give either --user or --request.")
    recommender = load(model)
    dataset = recommender.dataset_
    known: Any = {"user": _id(user, dataset.users, "--user")} if user is not None else {"request": _object(str(request))}
    why = recommender.explain(item=_id(item, dataset.items, "--item"), **known)
    if picture is not None:
        why.save(picture)
    if as_json:
        tell({"item": why.item, "user": why.user, "score": why.score, "contributions": why.table.to_pylist()})
    else:
        click.echo(repr(why))


def _id(text: str, known: Any, option: str) -> Any:
    from everypair.cli.recommend import own_ids

    return own_ids([text], known, option)[0]


def _object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        raise click.UsageError(f"--request is not JSON: {error}.") from error
    if not isinstance(found, dict):
        raise click.UsageError(f'--request must be an object such as {{"country": "DE"}}, got {text}.')
    return found
