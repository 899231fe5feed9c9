"""``everypair fit``: trains a recommender on tables and saves it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import click

from everypair.cli.options import (
    CONFIG,
    DATA,
    HELD_OUT,
    JSON,
    MODEL,
    PATH,
    PROTOCOLS,
    ModelCommand,
    configured,
    early_stopping_options,
    section_of,
)
from everypair.cli.output import note, write_json
from everypair.runtime.wording import named

EXAMPLES = """\b
Examples:
  everypair fit plays.csv --timestamp time --model mf --factors 32 --out model/
  everypair fit plays.csv --users users.csv --timestamp time --context user --context attributes:age,country --out model/
  everypair fit --config model.toml --epochs 20 --out model/
  everypair fit plays.csv --items items.csv --timestamp time --auto 60s --out model/
  everypair fit shards/ --on processes:4 --model mf --out model/
Recipes: user, item, previous[:back=], attributes[:COLUMN,...,kind=,bins=,separator=], history[:last=,decay=,normalize=,name=].
"""


class AutoType(click.ParamType):
    """Parameter type: seconds, written as a duration, or a number of trials."""

    name = "time"

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        from everypair.data.durations import seconds

        try:
            return {"trials": int(value)} if value.isdigit() else {"seconds": seconds("auto", value)}
        except ValueError:
            self.fail(f"{value!r} is neither a time such as '60s' or '5min' nor a number of trials.", param, ctx)


@click.command(cls=ModelCommand, epilog=EXAMPLES)
@DATA
@MODEL
@configured("fit", "--out", type=PATH, help="Folder of the model. An earlier model there is replaced when the fit is finished.")
@configured(
    "fit", "--validation", type=click.Choice(PROTOCOLS), help="Choose the number of epochs on events that this protocol holds out."
)
@click.option(
    "--auto", type=AutoType(), help="Choose model, recipes and settings in about this time ('60s'), or in so many trials ('20')."
)
@configured("fit", "--metric", help="The metric of --validation and --auto. [default: ndcg@10]")
@early_stopping_options("fit", "a fit")
@configured(
    "fit", "--checkpoint", type=PATH, help="Folder for the state of the fit: after an interruption, the same command resumes."
)
@configured("fit", "--every", type=click.IntRange(1), help="Epochs between checkpoints. [default: 1]")
@configured("fit", "--on", help="Fit in several processes: processes:N, or ray; PLAYS is a folder of 'everypair shard'.")
@HELD_OUT
@CONFIG
@JSON
@click.pass_context
def fit(
    ctx: click.Context,
    out: Path | None,
    validation: str | None,
    auto: dict[str, Any] | None,
    on: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Train a model on tables of events, users and items (CSV or Parquet), and save it to a folder.

    With --validation, a first fit without the events that the protocol holds out ends when --metric on those no longer improves;
    then the model is trained on all events, for as many epochs. After Ctrl-C nothing is saved, and OUT stays as it was; with
    --checkpoint, the same command resumes. With --auto, model, recipes and settings are searched on events held out for it;
    'everypair inspect OUT --toml' prints what was chosen.
    """
    from everypair.cli import build

    if out is None:
        raise click.UsageError("Give --out, the folder to save the model to.")
    for option, needed in (
        ("metric", validation or auto),
        ("patience", validation),
        ("evaluate_every", validation),
        ("every", options["checkpoint"]),
    ):
        if options[option] is not None and needed is None:
            raise click.UsageError(
                f"--{option.replace('_', '-')} is for {'--checkpoint' if option == 'every' else '--validation'}."
            )
    if auto is not None:
        _refuse_beside_auto(ctx, validation, options)
    checkpoints = _checkpoints(out, options["checkpoint"], options["every"], validation is not None)
    recommender = None if auto is not None else build.recommender(ctx)
    if on is None:
        dataset: Any = build.dataset(ctx)
    else:
        if validation is not None or auto is not None:
            raise click.UsageError("--validation and --auto cannot be used with --on: fits of shards hold no events out.")
        checkpoints["fit"]["on"] = build.placement(on)
        dataset = build.shards(ctx)
    began = time.perf_counter()
    found = None
    with _prepared_folder(out):
        if auto is not None:
            recommender = _auto(dataset, auto, options["metric"], section_of(ctx, "model").get("n_threads"))
        elif validation is not None:
            stopping = {key: options[key] for key in ("metric", "patience", "evaluate_every") if options[key] is not None}
            split = build.splitter(ctx, validation).split(dataset)
            recommender, found = _best_epochs(recommender, split, {**stopping, **checkpoints["validation"]})
        if auto is None:
            _fit(recommender, dataset, checkpoints["fit"])
        assert recommender is not None
        seconds = time.perf_counter() - began
        for text in recommender.state.notes:
            note(text)
        if found is not None:
            metrics = {found["metric"]: {"value": found["value"]}}
            by_popularity = found["by_popularity"]
            recommender.evaluation_ = {"protocol": f"{validation}, tuning part", "by_popularity": by_popularity, "metrics": metrics}
        recommender.save(out)
    summary = {**_summary(recommender), "validation": found, "seconds": round(seconds, 3), "saved": str(out)}
    if as_json:
        write_json(summary)
    else:
        note(_report(recommender, summary), label="")


def _checkpoints(out: Path, folder: Path | None, every: int | None, validated: bool) -> dict[str, dict[str, Any]]:
    """Checkpoint arguments of the two fits; if there are two, each uses a subfolder."""
    if folder is None:
        return {"validation": {}, "fit": {}}
    places = {name: folder / name if validated else folder for name in ("validation", "fit")}
    if out.resolve() in (place.resolve() for place in (folder, *places.values())):
        raise click.UsageError(f"--out and --checkpoint are both {out}: give different folders.")
    if out.resolve() in folder.resolve().parents:
        raise click.UsageError(f"--checkpoint is inside --out, a folder for the model alone: give a folder outside of {out}.")
    return {name: {"checkpoint": place, **({"every": every} if every is not None else {})} for name, place in places.items()}


@contextmanager
def _prepared_folder(out: Path) -> Iterator[None]:
    """Create the folder before anything is computed: one that cannot be used fails early. After an error, a new one is removed."""
    from everypair.persistence.folder import Folder
    from everypair.recommend.archive import KIND, VERSION

    new = not out.exists()
    folder = Folder(out, KIND, VERSION)
    folder.make()
    folder.refuse_other_kinds()
    try:
        yield
    except BaseException:
        if new:
            with suppress(OSError):
                out.rmdir()
        raise


def _best_epochs(template: Any, split: Any, stopping: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The recommender with the number of epochs that is best on the tuning part, and the metric there."""
    for text in split.notes:
        note(text)
    trial = template.unfitted()
    _fit(trial, split.train, {"validation": split.tune, **stopping})
    best: Any = trial.validation_
    found = {"metric": best.metric, "epoch": best.best_epoch, "value": best.best_value, "by_popularity": best.by_popularity}
    return template.unfitted(model__epochs=best.best_epoch), found


def _refuse_beside_auto(ctx: click.Context, validation: str | None, options: dict[str, Any]) -> None:
    """Raise if something is given that the search chooses, or that it has no use for."""
    given = [f"--{name.replace('_', '-')}" for name in ("checkpoint", "patience", "evaluate_every") if options[name] is not None]
    if validation is not None:
        given.append("--validation")
    for section, free in (("model", {"n_threads"}), ("recommender", set()), ("split", set())):
        chosen = section_of(ctx, section).keys() - free
        given += [named(key, "Recommender" if section == "recommender" else None) for key in sorted(chosen)]
    if given:
        raise click.UsageError(f"--auto chooses model, recipes and settings itself: leave out {', '.join(given)}.")


def _auto(dataset: Any, budget: dict[str, Any], metric: str | None, n_threads: int | None) -> Any:
    """The recommender that a search chooses, fitted."""
    import everypair as ep

    asked: dict[str, Any] = {} if metric is None else {"metric": metric}
    return ep.auto(dataset, **budget, **asked, n_threads=n_threads, tell=lambda text: note(text, label="")).recommender


def _fit(recommender: Any, dataset: Any, options: dict[str, Any]) -> None:
    """Fit; an interrupted fit, which returns normally, raises KeyboardInterrupt."""
    model = recommender.fit(dataset, **options).model
    if getattr(model, "stop_reason_", None) == "interrupt":
        resume = " The same command resumes." if "checkpoint" in options else ""
        raise KeyboardInterrupt(f"{len(model.history_)} of {model.epochs} epochs were done. Nothing was saved.{resume}")


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


def _report(recommender: Any, summary: dict[str, Any]) -> str:
    lines = [f"{summary['events']:,} events of {summary['users']:,} users and {summary['items']:,} items", repr(recommender)]
    if summary["validation"]:
        lines.append("best {metric} on held-out events {value:.4f}, at epoch {epoch}".format(**summary["validation"]))
        if summary["validation"]["by_popularity"]:
            lines[-1] += f", with {summary['validation']['by_popularity']:,} queries answered by popularity"
    if summary["objective"]:
        lines.append(
            "{epochs} epoch{s}, objective {objective[first]:.6g} -> {objective[last]:.6g}".format(
                **summary, s="s" * (summary["epochs"] != 1)
            )
        )
    return "\n".join([*lines, f"{summary['seconds']:.1f} seconds; saved to {summary['saved']}"])
