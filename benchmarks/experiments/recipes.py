"""Recipes of contexts and weights of events beside others, on the tuning part: ``python -m benchmarks recipes``."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.quality import datasets
from benchmarks.quality.datasets import DatasetSpec
from benchmarks.quality.tasks import EvaluationTask
from everypair import models
from everypair.datasets import parquet
from everypair.evaluation import EarlyStopping, LeaveLast, evaluate
from everypair.recommend.recipe_syntax import event_weights, recipe
from everypair.recommender import Recommender

QUERIES = 5_000
TIMES = "timestamp"  # the column that orders events, where there are times


def compare(
    data: Path,
    row: str,
    contexts: Sequence[Sequence[str]],
    item: Sequence[str],
    weights: Sequence[str | None],
    settings: Mapping[str, Any],
    *,
    model: str = "MFSI",
    times: bool = False,
    test: bool = False,
) -> None:
    """Print the tuned metric for each list of recipes and weights of events; with ``test``, the test part's metrics, too."""
    (spec,) = datasets.choose(data, [row])
    task = _with_times(data / row) if times else spec.read(data / row, 0)
    for context in contexts:
        for weight in weights:
            made = Recommender(
                getattr(models, model)(**settings),
                context=[recipe(text) for text in context],
                item=[recipe(text) for text in item],
                event_weights=None if weight is None else event_weights(weight),
            )
            _report(spec, task, made, " + ".join(context) + (f" ({weight})" if weight else ""), test)


def _with_times(folder: Path) -> EvaluationTask:
    """The same split, with the times of events."""
    split = LeaveLast().split(parquet(folder, timestamp=TIMES))
    return EvaluationTask(split, split)


def _report(spec: DatasetSpec, task: EvaluationTask, made: Recommender, name: str, test: bool) -> None:
    queries, metric = task.tuning.tune.sample(QUERIES, 0), spec.tuned_metric
    stopping = EarlyStopping(queries, metric, exclude_seen=task.exclude_seen)
    began = time.process_time()
    made.fit(task.tuning.train, callback=stopping)
    seconds = time.process_time() - began
    line = f"{name:<60} {metric} {stopping.best_value:.4f} at epoch {stopping.best_epoch} ({seconds:.0f} s of CPU)"
    if test:
        found = evaluate(made, task.final.test, spec.metrics, exclude_seen=task.exclude_seen)
        line += "; test " + ", ".join(f"{each} {found[each]:.4f}" for each in spec.metrics)
    print(line, flush=True)
