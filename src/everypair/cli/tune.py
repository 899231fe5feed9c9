"""``everypair tune``: searches for the settings of a model."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Any

import click

from everypair.cli.exit_codes import INTERRUPTED
from everypair.cli.options import (
    CONFIG,
    DATA,
    JSON,
    MODEL,
    PATH,
    SPLIT,
    ModelCommand,
    PicturePath,
    configured,
    early_stopping_options,
    section_of,
)
from everypair.cli.output import note, write_json

EXAMPLES = """\b
Examples:
  everypair tune plays.csv --timestamp time --model mf --trials 30 --out best.toml
  everypair tune --config model.toml --study search.db --timeout 3600 --picture why.svg --out best.toml
  everypair tune plays.csv --model fm --space factors=16,32,64 --space unobserved_weight=0.01:1
"""
SHOWN = 10  # most trials in the table


@click.command(cls=ModelCommand, epilog=EXAMPLES)
@DATA
@MODEL
@SPLIT
@configured("tune", "--metric", help="The metric to maximise. [default: ndcg@10]")
@configured(
    "tune", "--trials", type=click.IntRange(1), help="Number of trials, including those of earlier runs of the study. [default: 50]"
)
@configured("tune", "--timeout", type=float, help="Seconds after which no epoch is started.")
@configured("tune", "--study", type=PATH, help="File that stores the trials: the same command continues the search.")
@configured(
    "tune",
    "--space",
    multiple=True,
    metavar="NAME=LOW:HIGH|A,B",
    help="Values to search; may be repeated. [default: L2, factors, weight]",
)
@configured("tune", "--seed", type=click.IntRange(0), help="Seed of the search. [default: 0]")
@early_stopping_options("tune", "a trial")
@configured("tune", "--include-seen/--exclude-seen", default=None, help="Whether to rank items already seen. [default: exclude]")
@configured("tune", "--out", type=PATH, help="Write the best settings to this TOML file, for 'everypair fit --config'.")
@configured("tune", "--picture", type=PicturePath(), help="Write a plot of the trials to this file (.svg or .html).")
@CONFIG
@JSON
@click.pass_context
def tune(ctx: click.Context, out: Path | None, picture: Path | None, as_json: bool, **options: Any) -> None:
    """Search for the settings of a model on the tuning part of a split; the test part is not used.

    Needs Optuna: pip install "everypair[tune]". After Ctrl-C, the results so far are printed.
    """
    import everypair as ep
    from everypair.cli import build
    from everypair.runtime.atomic_files import write_atomically

    given = {key: value for key, value in section_of(ctx, "tune").items() if key not in ("out", "picture")}
    if "space" in given:
        given["space"] = dict(map(_dimension, given["space"]))
    if "include_seen" in given:
        given["exclude_seen"] = not given.pop("include_seen")
    recommender = build.recommender(ctx)
    split = build.split(ctx)
    tuning = ep.tune(recommender, split.train, split, **given)
    if out is not None:
        write_atomically(out, _toml(ctx, tuning, split.name, out))
    if picture is not None:
        tuning.save(picture)
    if as_json:
        best = {"settings": tuning.best.settings, "epochs": tuning.best.epochs, "value": tuning.best.value}
        write_json({
            "metric": tuning.metric, "stop_reason": tuning.stop_reason, "best": best, "importance": tuning.importance,
            "trials": tuning.trials.to_pylist(),
        })  # fmt: skip
    else:
        click.echo(_table(tuning))
        if out is not None:
            note(f"best settings: {out}; to fit with them: {_fit_with(ctx, out)}", label="")
    if tuning.stop_reason == "interrupt":
        ctx.exit(INTERRUPTED)


def _fit_with(ctx: click.Context, out: Path) -> str:
    """The command that fits with the best settings; after a search on a published split, to its training events."""
    train = section_of(ctx, "split").get("train")
    return shlex.join(["everypair", "fit", *([] if train is None else [str(train)]), "--config", str(out), "--out", "model/"])


def _dimension(text: str) -> tuple[str, Any]:
    """A dimension of the space: ``factors=16,32`` are choices, ``unobserved_weight=0.01:1`` is a range."""
    from everypair.recommend.recipe_syntax import setting

    name, equals, values = text.partition("=")
    if not equals or not values:
        raise click.UsageError(f"--space takes NAME=LOW:HIGH or NAME=A,B,C, got {text!r}.")
    bounds = values.split(":")
    parsed = tuple(map(setting, bounds)) if len(bounds) == 2 else [setting(value) for value in values.split(",")]
    return name.strip().replace("-", "_"), parsed


def _table(tuning: Any) -> str:
    from everypair.runtime.formatting import table

    rows = sorted(tuning.trials.to_pylist(), key=lambda row: (row["value"] is None, -(row["value"] or 0.0)))
    header = list(rows[0])
    shown = table(header, [[_cell(row[name]) for name in header] for row in rows[:SHOWN]])
    left = f"\n... and {len(rows) - SHOWN:,} more" if len(rows) > SHOWN else ""
    importance = ", ".join(f"{name} {share:.0%}" for name, share in tuning.importance.items())
    return f"{shown}{left}\n\n{tuning!r}" + (f"\nimportance: {importance}" if importance else "")


def _cell(value: Any) -> str:
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def _toml(ctx: click.Context, tuning: Any, protocol: str, out: Path) -> str:
    """A TOML file for ``everypair fit`` and, by the same protocol, ``everypair evaluate``, with paths relative to it."""
    from everypair.cli.build import FILES
    from everypair.recommend.recipe_syntax import as_text, model_settings, toml, weights_as_text

    def relative(section: dict[str, Any]) -> dict[str, Any]:
        return {key: os.path.relpath(value, out.parent) if isinstance(value, Path) else value for key, value in section.items()}

    recommender, split = tuning.recommender, section_of(ctx, "split")
    recipes = {
        "context": [as_text(recipe) for recipe in recommender.context],
        "item": [as_text(recipe) for recipe in recommender.item],
    }
    return toml(
        {
            "data": relative(section_of(ctx, "data")),
            "model": model_settings(recommender.model),
            "recommender": {
                **recipes,
                "unit": recommender.unit,
                "unknown": recommender.unknown,
                "event_weights": weights_as_text(recommender.event_weights),
            },
            "split": relative(split if split.keys() & set(FILES) else {"protocol": protocol, **split}),
            "evaluate": {"metric": [tuning.metric], "include_seen": section_of(ctx, "tune").get("include_seen")},
        }
    )
