"""``everypair update``: folds new events, users and items into a saved model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from everypair.cli.options import JSON, PATH
from everypair.cli.output import note, write_json

EXAMPLES = """\b
Examples:
  everypair update model/ new.csv
  everypair update model/ new.csv --users new-users.csv --items new-items.csv --out updated/
  everypair update model/ --items new-items.csv
"""


@click.command(epilog=EXAMPLES)
@click.argument("model", type=PATH)
@click.argument("interactions", type=PATH, required=False, metavar="PLAYS")
@click.option("--users", type=PATH, help="Table with attributes of new users, or new attributes of known ones.")
@click.option("--items", type=PATH, help="Table of items, likewise; without PLAYS, new items are recommended by their attributes.")
@click.option("--out", type=PATH, help="Folder of the updated model. [default: MODEL, which is replaced]")
@JSON
def update(model: Path, interactions: Path | None, users: Path | None, items: Path | None, out: Path | None, as_json: bool) -> None:
    """Fold new events into a saved MODEL, without a fit. PLAYS has the new events alone, with the columns of the data of the fit.

    New users and items get an id; the ids of all that have new events get the parameters that fit all their events best. The
    updated model is saved when it is complete; after an error, MODEL and OUT are as they were.
    """
    from everypair.recommender import load

    if interactions is None and (items is None or users is not None):
        raise click.UsageError("Give the table of new events, as in 'everypair update model/ new.csv'; or --items alone.")
    before, recommender = _manifest(model), load(model)
    counts = _counts(recommender.dataset_)
    if interactions is None:
        recommender.add_items(items)
    else:
        recommender.update(interactions, users, items)
    dataset = recommender.dataset_
    for text in dataset.notes:
        note(text)
    changes = {name: {"new": count - counts[name], "all": count} for name, count in _counts(dataset).items()}
    place = model if out is None else out
    if out is None and _manifest(model) != before:
        raise ValueError(f"{model} was replaced by another model meanwhile, so nothing was saved. Repeat the command.")
    recommender.save(place)
    if as_json:
        write_json({**changes, "saved": str(place)})
    else:
        words = [f"{change['new']:,} new {name} ({change['all']:,} in all)" for name, change in changes.items()]
        note(f"{', '.join(words)}; saved to {place}", label="")


def _counts(dataset: Any) -> dict[str, int]:
    return {"events": len(dataset), "users": dataset.n_users, "items": dataset.n_items}


def _manifest(model: Path) -> bytes | None:
    """What the manifest says now: another one after every save."""
    from everypair.persistence.folder import MANIFEST

    path = model / MANIFEST
    return path.read_bytes() if path.is_file() else None
