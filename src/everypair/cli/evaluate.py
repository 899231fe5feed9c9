"""``everypair evaluate``: metrics of a model on held-out events."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from everypair.cli.options import CONFIG, DATA, JSON, MODEL, PATH, SPLIT, ModelCommand, configured
from everypair.cli.output import note, write_json

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
@configured(
    "evaluate", "--metric", multiple=True, help="A metric such as ndcg@10; may be repeated. [default: recall@10 and ndcg@10]"
)
@configured(
    "evaluate", "--on", type=click.Choice(["tune", "test"]), help="Use tune to choose settings, test for the end. [default: test]"
)
@configured(
    "evaluate", "--include-seen/--exclude-seen", default=None, help="Whether to rank items already seen. [default: exclude]"
)
@click.option("--keep", type=PATH, help="Store the metrics with this saved model, which must have the same settings.")
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
    """Fit a model without the events that a protocol holds out, and evaluate its rankings on those.

    Prints the mean of each metric with its 95 % interval (bootstrap over users), beside the same of Popularity.
    """
    from everypair.cli import build
    from everypair.evaluation import evaluate as evaluated
    from everypair.evaluation.evaluate import DEFAULT
    from everypair.evaluation.metrics import parse
    from everypair.models import Popularity
    from everypair.recommender import Recommender

    part, metrics = on or "test", metric or DEFAULT
    for spec in metrics:
        parse(spec)  # refuses unknown metrics before the fit
    recommender = build.recommender(ctx)
    saved = None if keep is None else _load_same(keep, recommender)
    split = build.split(ctx)
    entries = {} if isinstance(recommender.model, Popularity) else {"Popularity": Recommender(Popularity())}
    entries[type(recommender.model).__name__] = recommender
    queries, evaluations = getattr(split, part), {}
    for name, entry in entries.items():
        evaluations[name] = evaluated(entry.fit(split.train), queries, metrics, exclude_seen=not include_seen)
        if getattr(entry.model, "stop_reason_", None) == "interrupt":
            raise KeyboardInterrupt("Nothing was evaluated.")
    summaries = {name: evaluation.summary() for name, evaluation in evaluations.items()}
    own = summaries[name]
    if saved is not None:
        saved.evaluation_ = {"protocol": split.name, **own}
        saved.save(keep)
    for text in own["notes"]:
        note(text)
    if as_json:
        shown = ("by_popularity", "metrics")
        models = [{"name": name, **{key: summary[key] for key in shown}} for name, summary in summaries.items()]
        write_json({
            "protocol": split.name, "on": part, "queries": own["queries"], "training_events": len(split.train),
            "model": repr(recommender), "models": models, "notes": [*split.notes, *own["notes"]],
        })  # fmt: skip
    else:
        note(f"{split.name}: {len(split.train):,} training events, {own['queries']:,} queries of the {part} part", label="")
        click.echo(_table({name: summary["metrics"] for name, summary in summaries.items()}))


def _load_same(path: Path, recommender: Any) -> Any:
    """A saved recommender; an error if its settings differ from those that are evaluated."""
    from everypair.recommender import load

    saved = load(path)
    settings = saved.unfitted()
    if repr(settings) != repr(recommender):
        raise ValueError(
            f"--keep {path} was made with other settings, so these metrics are not its own: it is {settings!r}; {recommender!r} is "
            f"evaluated. Give the same settings."
        )
    return saved


def _table(metrics: dict[str, Any]) -> str:
    from everypair.runtime.formatting import table

    rows = [
        [
            name,
            *(f"{f['value']:.4f}" + ("" if f["low"] is None else " ({low:.4f}-{high:.4f})".format(**f)) for f in figures.values()),
        ]
        for name, figures in metrics.items()
    ]
    return table(["", *next(iter(metrics.values()))], rows)
