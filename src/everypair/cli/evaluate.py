"""``everypair evaluate``: how good a model is on what was held out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from everypair.cli.options import CONFIG, DATA, JSON, MODEL, PATH, SPLIT, ModelCommand, configured
from everypair.cli.shell import note

EXAMPLES = """\b
Examples:
  everypair evaluate plays.csv --timestamp time --model mf --metric recall@20 --metric ndcg@20
  everypair evaluate plays.csv --users users.csv --timestamp time --context attributes:age,country --protocol cold-start
  everypair evaluate --config model.toml --on tune --json
  everypair evaluate --train train.parquet --test test.parquet --model mf
"""


@click.command(cls=ModelCommand, epilog=EXAMPLES)
@DATA
@MODEL
@SPLIT
@configured("evaluate", "--metric", multiple=True, help="Such as ndcg@10; may be repeated. [default: recall@10 and ndcg@10]")
@configured(
    "evaluate", "--on", type=click.Choice(["tune", "test"]), help="Settings are found on tune; test is for the end. [default: test]"
)
@configured("evaluate", "--include-seen/--exclude-seen", default=None, help="Rank also what was seen already. [default: exclude]")
@click.option("--keep", type=PATH, help="Keep the figures with this saved model, which must have the same settings.")
@CONFIG
@JSON
@click.pass_context
def evaluate(
    ctx: click.Context,
    metric: tuple[str, ...],
    on: str | None,
    include_seen: bool | None,
    keep: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Fit a model without the events that a protocol holds out, and see how many of those it finds.

    Prints the mean of each metric with its 95 % interval (bootstrap over users), and that of Popularity beside it.
    """
    from everypair.cli import build
    from everypair.cli.output import tell
    from everypair.evaluation import evaluate as evaluated
    from everypair.evaluation.evaluate import DEFAULT
    from everypair.evaluation.metrics import parse
    from everypair.models import Popularity
    from everypair.recommender import Recommender

    part, metrics = on or "test", metric or DEFAULT
    for spec in metrics:
        parse(spec)  # before anything is fitted
    recommender = build.recommender(ctx)
    kept = None if keep is None else _same(keep, recommender)
    split = build.split(ctx)
    entries = {} if isinstance(recommender.model, Popularity) else {"Popularity": Recommender(Popularity())}
    entries[type(recommender.model).__name__] = recommender
    queries, found = getattr(split, part), {}
    for name, entry in entries.items():
        found[name] = evaluated(entry.fit(split.train), queries, metrics, exclude_seen=not include_seen)
        if getattr(entry.model, "stop_reason_", None) == "interrupt":
            raise KeyboardInterrupt("Nothing was evaluated.")
    told = {name: evaluation.summary() for name, evaluation in found.items()}
    own = told[name]
    if kept is not None:
        kept.evaluation_ = {"protocol": split.name, **own}
        kept.save(keep)
    for text in own["notes"]:
        note(text)
    if as_json:
        models = [{"name": name, "metrics": summary["metrics"]} for name, summary in told.items()]
        tell({
            "protocol": split.name, "on": part, "queries": own["queries"], "training_events": len(split.train),
            "model": repr(recommender), "models": models, "notes": [*split.notes, *own["notes"]],
        })  # fmt: skip
    else:
        note(f"{split.name}: {len(split.train):,} events to train on, {own['queries']:,} queries of {part}", label="")
        click.echo(_table({name: summary["metrics"] for name, summary in told.items()}))


def _same(path: Path, recommender: Any) -> Any:
    """A saved model, if it has the settings that are evaluated: the figures would be of another one."""
    from everypair.recommender import load

    kept = load(path)
    settings = {name: repr(each) for name, each in (("the model", kept), ("what is evaluated", recommender))}
    if len(set(settings.values())) > 1:
        told = "; ".join(f"{name} is {text}" for name, text in settings.items())
        raise ValueError(f"{path} was made with other settings, so the figures would not be its own: {told}.")
    return kept


def _table(found: dict[str, Any]) -> str:
    from everypair.runtime.formatting import table

    rows = [
        [
            name,
            *(f"{f['value']:.4f}" + ("" if f["low"] is None else " ({low:.4f}-{high:.4f})".format(**f)) for f in figures.values()),
        ]
        for name, figures in found.items()
    ]
    return table(["", *next(iter(found.values()))], rows)
