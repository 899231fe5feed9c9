"""Whether a published test resembles its training part: ``python -m benchmarks shift``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

import everypair as ep
from benchmarks.quality import tasks
from everypair.evaluation import Split, evaluate

BOUNDS = (1, 20, 50, 100, 200, 500)  # of training pairs of an item
METRICS = ("recall@20", "ndcg@20")


def compare(folder: Path, settings: Sequence[str]) -> None:
    """Print test pairs per training pair, and the metrics of each of the settings."""
    models = [_model(values) for values in settings]
    task = tasks.pairs(folder, 0)
    _print_ratios(task.final)
    for values, model in zip(settings, models, strict=True):
        print(f"{values}: {_metrics(model, task)}", flush=True)


def _print_ratios(split: Split) -> None:
    """Test pairs per training pair, by the number of training pairs of an item."""
    train, test = (np.bincount(items, minlength=split.train.n_items) for items in (split.train.item, split.test.relevant))
    band = np.digitize(train, BOUNDS)
    for j, low in enumerate(BOUNDS, 1):
        above = f"to {BOUNDS[j] - 1}" if j < len(BOUNDS) else "or more"
        pairs = train[band == j].sum()
        print(f"items with {low} {above} training pairs: {f'{test[band == j].sum() / pairs:.3f}' if pairs else 'none'}")
    most = np.argsort(-train)[:15]
    ratios = test[most] / train[most]
    print(f"the fifteen with most: from {ratios.min():.2f} to {ratios.max():.2f}", flush=True)


def _model(values: str) -> ep.MF:
    try:
        k, alpha0, strength, popularity, epochs = (float(number) for number in values.split(","))
    except ValueError as error:
        raise ValueError(f"--settings {values} must be five numbers: K,ALPHA0,LAMBDA,POPULARITY,EPOCHS.") from error
    return ep.MF(int(k), unobserved_weight=alpha0, regularization=strength, popularity_exponent=popularity, epochs=int(epochs))


def _metrics(model: ep.MF, task: tasks.EvaluationTask) -> str:
    """Metrics of the tuning part and of the test."""
    found = []
    for name, split, queries in (("tuning", task.tuning, task.tuning.tune), ("test", task.final, task.final.test)):
        values = evaluate(ep.Recommender(model).fit(split.train), queries, METRICS)
        found.append(f"{name} {', '.join(f'{metric} {values[metric]:.4f}' for metric in METRICS)}")
    return "; ".join(found)
