"""``everypair fit``: from tables to a saved recommender."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import click

from everypair.cli.options import CONFIG, DATA, HELD_OUT, JSON, MODEL, PATH, PROTOCOLS, ModelCommand, configured, watched
from everypair.cli.shell import note

EXAMPLES = """\b
Examples:
  everypair fit plays.csv --timestamp time --model mf --factors 32 --out model/
  everypair fit plays.csv --users users.csv --timestamp time --context user --context attributes:age,country --out model/
  everypair fit --config model.toml --epochs 20 --out model/
Recipes: user, item, previous[:back=], attributes[:COLUMN,...,kind=,bins=,separator=], history[:last=,decay=,normalize=,name=].
"""


@click.command(cls=ModelCommand, epilog=EXAMPLES)
@DATA
@MODEL
@configured("fit", "--out", type=PATH, help="Folder of the model; what is there is replaced when the fit is done.")
@configured(
    "fit", "--validation", type=click.Choice(PROTOCOLS), help="Find the number of epochs on what this protocol holds out first."
)
@configured("fit", "--metric", help="Of --validation. [default: ndcg@10]")
@watched("fit", "a fit")
@configured("fit", "--checkpoint", type=PATH, help="Folder of the state of the fit: the same command goes on where it was stopped.")
@configured("fit", "--every", type=click.IntRange(1), help="Epochs between checkpoints. [default: 1]")
@HELD_OUT
@CONFIG
@JSON
@click.pass_context
def fit(ctx: click.Context, out: Path | None, validation: str | None, as_json: bool, **options: Any) -> None:
    """Train a model on tables of events, users and items (CSV or Parquet), and save it to a folder.

    With --validation, a first fit leaves out what the protocol holds out, and ends where --metric no longer gets better there; then
    the model is trained on all events, for as many epochs. Ctrl-C saves nothing: what was in OUT stays. With --checkpoint,
    the same command goes on from there.
    """
    from everypair.cli import build
    from everypair.cli.output import tell

    if out is None:
        raise click.UsageError("Give --out, the folder to save the model to.")
    for option, needed in (
        ("metric", validation),
        ("patience", validation),
        ("evaluate_every", validation),
        ("every", options["checkpoint"]),
    ):
        if options[option] is not None and needed is None:
            raise click.UsageError(
                f"--{option.replace('_', '-')} is for {'--checkpoint' if option == 'every' else '--validation'}."
            )
    kept = _checkpoints(out, options["checkpoint"], options["every"], validation is not None)
    recommender = build.recommender(ctx)
    dataset = build.dataset(ctx)
    began = time.perf_counter()
    found = None
    with _place(out):
        if validation is not None:
            watched = {key: options[key] for key in ("metric", "patience", "evaluate_every") if options[key] is not None}
            split = build.splitter(ctx, validation).split(dataset)
            recommender, found = _best_epochs(recommender, split, {**watched, **kept["validation"]})
        _fit(recommender, dataset, kept["fit"])
        seconds = time.perf_counter() - began
        if found is not None:
            held_out = {"protocol": f"{validation}, tuning part", "metrics": {found["metric"]: {"value": found["value"]}}}
            recommender.evaluation_ = held_out
        recommender.save(out)
    summary = {**_summary(recommender), "validation": found, "seconds": round(seconds, 3), "saved": str(out)}
    if as_json:
        tell(summary)
    else:
        note(_told(recommender, summary), label="")


def _checkpoints(out: Path, folder: Path | None, every: int | None, validated: bool) -> dict[str, dict[str, Any]]:
    """What each fit is told of its checkpoint: where there are two, each has a folder of its own in the one given."""
    if folder is None:
        return {"validation": {}, "fit": {}}
    places = {name: folder / name if validated else folder for name in ("validation", "fit")}
    if out.resolve() in (place.resolve() for place in (folder, *places.values())):
        raise click.UsageError(f"--out and --checkpoint are both {out}: give two folders.")
    return {name: {"checkpoint": place, **({"every": every} if every is not None else {})} for name, place in places.items()}


@contextmanager
def _place(out: Path) -> Iterator[None]:
    """A folder that can be written to, known before anything is computed; a new one is gone again if nothing was."""
    from everypair.persistence.folder import Folder
    from everypair.recommend.archive import KIND, VERSION

    new = not out.exists()
    Folder(out, KIND, VERSION).make()
    try:
        yield
    except BaseException:
        if new:
            with suppress(OSError):
                out.rmdir()
        raise


def _best_epochs(template: Any, split: Any, watched: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The same with the number of epochs that was best on the tuning part, and what was found there."""
    for text in split.notes:
        note(text)
    trial = template.unfitted()
    _fit(trial, split.train, {"validation": split.tune, **watched})
    stopping: Any = trial.validation_
    found = {"metric": stopping.metric, "epoch": stopping.best_epoch, "value": stopping.best_value}
    return template.unfitted(model__epochs=stopping.best_epoch), found


def _fit(recommender: Any, dataset: Any, options: dict[str, Any]) -> None:
    """Go on after it, unless Ctrl-C ended it."""
    model = recommender.fit(dataset, **options).model
    if getattr(model, "stop_reason_", None) == "interrupt":
        on = " The same command goes on." if "checkpoint" in options else ""
        raise KeyboardInterrupt(f"{len(model.history_)} of {model.epochs} epochs were done. Nothing was saved.{on}")


def _summary(recommender: Any) -> dict[str, Any]:
    dataset, history = recommender.dataset_, getattr(recommender.model, "history_", [])
    return {
        "events": len(dataset),
        "users": dataset.n_users,
        "items": dataset.n_items,
        "model": repr(recommender.model),
        "context": [repr(recipe) for recipe in recommender.context],
        "item": [repr(recipe) for recipe in recommender.item],
        "epochs": len(history),
        "stop_reason": getattr(recommender.model, "stop_reason_", None),
        "objective": {"first": history[0].objective, "last": history[-1].objective} if history else None,
    }


def _told(recommender: Any, summary: dict[str, Any]) -> str:
    lines = [f"{summary['events']:,} events of {summary['users']:,} users and {summary['items']:,} items", repr(recommender)]
    if summary["validation"]:
        lines.append("best {metric} on what was held out {value:.4f}, at epoch {epoch}".format(**summary["validation"]))
    if summary["objective"]:
        lines.append(
            "{epochs} epoch{s}, objective {objective[first]:.6g} -> {objective[last]:.6g}".format(
                **summary, s="s" * (summary["epochs"] != 1)
            )
        )
    return "\n".join([*lines, f"{summary['seconds']:.1f} seconds; saved to {summary['saved']}"])
