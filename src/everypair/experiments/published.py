"""Published train/test splits: matrix factorization beside the figures of others.

Settings are tuned on a part held out of the published train; the model is then fitted on all of it and judged once by the published
test. The data are read from a folder with a folder per data set, in which ``train.parquet`` and ``test.parquet`` have the columns
``user`` and ``item``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow.parquet as pq

from everypair.data import Dataset
from everypair.evaluation import Evaluation, Queries, evaluate, given
from everypair.evaluation.search import search
from everypair.experiments.common import environment, stop_if_interrupted
from everypair.models import MF
from everypair.ranking import Lists
from everypair.recommender import Recommender
from everypair.text import table

SPACE = {"unobserved_weight": (0.002, 1.0), "shrinkage": (0.01, 0.5)}
TUNED_ON = 5_000  # users, at most
NEGATIVES = 99  # of each query, where the published test has as many


class Row(NamedTuple):
    """A published split, its metrics, and figures that others printed, in the order of the metrics."""

    name: str
    metrics: tuple[str, ...]
    tuned: str
    factors: int
    published: dict[str, tuple[float, ...]]
    negatives: bool = False  # ranked against given negatives, not against all items
    trials: int = 12
    epochs: int = 16


ROWS = [
    Row(
        "lcfn-movielens-1m",
        ("f1@5", "f1@10", "f1@20", "ndcg@5", "ndcg@10", "ndcg@20"),
        "ndcg@20",
        128,
        {
            "ENMF (its readme)": (0.1239, 0.1512, 0.1640, 0.2457, 0.2475, 0.2656),
            "LCFN (ENMF's readme)": (0.1213, 0.1482, 0.1625, 0.2427, 0.2429, 0.2603),
        },
    ),
    Row(
        "lightgcn-gowalla",
        ("recall@20", "ndcg@20"),
        "ndcg@20",
        256,
        {
            "MF-BPR (BARS)": (0.1627, 0.1378),
            "EASE (BARS)": (0.1765, 0.1467),
            "LightGCN (BARS)": (0.1820, 0.1547),
            "UltraGCN (BARS)": (0.1862, 0.1580),
            "SimpleX (BARS)": (0.1872, 0.1557),
        },
    ),
    Row(
        "ncf-movielens-1m",
        ("hit_rate@10", "ndcg@10"),
        "ndcg@10",
        192,
        {"iALS d=64 (Rendle et al. 2021)": (0.722, 0.445), "iALS d=192 (irspack)": (0.7310, 0.4521)},
        negatives=True,
    ),
]


def choose(data: Path, names: Sequence[str]) -> list[Row]:
    """The rows of these names, or all whose data are there."""
    known = {row.name: row for row in ROWS}
    for name in names:
        if name not in known:
            raise ValueError(f"there is no row {name!r}; there are {', '.join(known)}.")
    there = [row for row in ROWS if (data / row.name / "train.parquet").exists()]
    missing = [name for name in names if known[name] not in there]
    if missing or not there:
        raise FileNotFoundError(f"{data} has no folder {', '.join(missing or known)} with train.parquet and test.parquet.")
    return [row for row in there if not names or row.name in names]


def steps(rows: Sequence[Row], trials: int | None) -> int:
    """How often ``watch`` is called by :func:`run` for these rows."""
    return sum((trials or row.trials) + 1 for row in rows)


def run(row: Row, data: Path, trials: int | None, seed: int, watch: Callable[[str], Any] = lambda text: None) -> dict[str, Any]:
    """Tune, fit on all of train, evaluate once."""
    began = time.perf_counter()
    tables = [pq.read_table(data / row.name / f"{part}.parquet").select(["user", "item"]) for part in ("train", "test")]
    split = given(*tables, tune_share=0.1, seed=seed)
    tune = split.tune.sample(TUNED_ON, seed)
    tune = like_the_test(split.train, tune, NEGATIVES, seed) if row.negatives else tune

    fixed: dict[str, Any] = {"factors": row.factors, "regularization_exponent": 1.0, "random_state": seed}

    def make(settings: dict[str, Any], epochs: int = row.epochs) -> Recommender:
        return Recommender(MF(epochs=epochs, **fixed, **settings))

    watch(f"{row.name}: tuning")

    def after(recommender: Recommender) -> None:
        stop_if_interrupted(recommender)
        watch(row.name)

    found = search(make, SPACE, replace(split, tune=tune), row.tuned, trials or row.trials, seed=seed, fitted=after)
    whole = given(*tables, tune_share=0.0)
    fitting = time.perf_counter()
    recommender = make(found.best.settings, found.best.epochs).fit(whole.train)
    stop_if_interrupted(recommender)
    seconds = time.perf_counter() - fitting
    test = whole.test
    if row.negatives:
        path = data / row.name / "test_negatives.parquet"
        test = replace(test, candidates=given_negatives(whole.train, test, path))
    evaluation = evaluate(recommender, test, row.metrics)
    return {
        "row": row.name,
        "model": "MF",
        "metrics": {metric: _with_interval(evaluation, metric) for metric in row.metrics},
        "published": {name: dict(zip(row.metrics, figures, strict=True)) for name, figures in row.published.items()},
        "settings": {**found.best.settings, **fixed, "epochs": found.best.epochs},
        "tuning": [{**trial.settings, "epochs": trial.epochs, row.tuned: trial.value} for trial in found.trials],
        "notes": whole.notes + evaluation.notes,
        "seconds": {"fit": seconds, "all": time.perf_counter() - began},
        "environment": environment(),
    }  # fmt: skip


def _with_interval(evaluation: Evaluation, metric: str) -> dict[str, float]:
    low, high = evaluation.interval(metric)
    return {"value": evaluation[metric], "low": low, "high": high}


def given_negatives(dataset: Dataset, queries: Queries, path: Path) -> Lists:
    """The published negatives of each query's user, and what was relevant."""
    table = pq.read_table(path)
    return _candidates(dataset, queries, dataset.users.codes(table["user"]), dataset.items.codes(table["item"]))


def like_the_test(dataset: Dataset, queries: Queries, n: int, seed: int) -> Queries:
    """As the published test is: one relevant item for each query, drawn from its own, and n others that the user does not have."""
    random = np.random.default_rng(seed)
    first = queries.bounds[:-1] + (random.random(len(queries)) * np.diff(queries.bounds)).astype(np.int64)
    lists = []
    for q, user in enumerate(queries.user):
        own = dataset.item[dataset.bounds[user] : dataset.bounds[user + 1]]
        held = queries.relevant[queries.bounds[q] : queries.bounds[q + 1]]
        others = np.setdiff1d(np.arange(dataset.n_items), np.concatenate([own, held]))
        lists.append(random.choice(others, min(n, len(others)), replace=False))
    single = replace(queries, bounds=np.arange(len(queries) + 1), relevant=queries.relevant[first])
    users = np.repeat(queries.user, [len(items) for items in lists])
    return replace(single, candidates=_candidates(dataset, single, users, np.concatenate(lists)))


def _candidates(dataset: Dataset, queries: Queries, user: np.ndarray, item: np.ndarray) -> Lists:
    """A list for each query: these items of its user, and its relevant ones, each once."""
    place = np.full(dataset.n_users + 1, -1)
    place[queries.user] = np.arange(len(queries))
    known = (place[user] >= 0) & (item >= 0)
    owner = np.repeat(np.arange(len(queries)), np.diff(queries.bounds))
    keys = np.concatenate([place[user[known]] * dataset.n_items + item[known], owner * dataset.n_items + queries.relevant])
    keys = np.unique(keys)
    bounds = np.searchsorted(keys, np.arange(len(queries) + 1) * dataset.n_items)
    return Lists(bounds[:-1], bounds[1:], keys % dataset.n_items)


def terminal(results: Sequence[dict[str, Any]]) -> str:
    """Ours beside theirs."""
    parts = []
    for result in results:
        metrics = list(result["metrics"])
        rows = [[name, *(f"{figures[metric]:.4f}" for metric in metrics)] for name, figures in result["published"].items()]
        k = result["settings"]["factors"]
        rows.append([f"EveryPair MF, k = {k}", *(f"{result['metrics'][metric]['value']:.4f}" for metric in metrics)])
        rows.append(["  95 %", *(f"{m['low']:.3f}-{m['high']:.3f}" for m in result["metrics"].values())])
        parts.append(f"{result['row']}: trained in {result['seconds']['fit']:.1f} s, {result['seconds']['all']:.0f} s with tuning")
        parts.append(table([" ", *metrics], rows))
        chosen = {key: value for key, value in result["settings"].items() if key != "random_state"}
        parts.append("  " + ", ".join(f"{key} {value:g}" for key, value in chosen.items()) + "\n")
    return "\n".join(parts)
