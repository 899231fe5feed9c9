"""Tunes and fits models on one data set, in a separate process."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.harness.process import peak_memory, reset_peak_memory
from benchmarks.quality import datasets
from benchmarks.quality.datasets import DatasetSpec
from benchmarks.quality.recommenders import build
from everypair.evaluation import evaluate
from everypair.recommender import Recommender
from everypair.tuning.search import search

L2_BY_WEIGHT = {"regularization_exponent": 1.0}  # L2 proportional to the weight of a feature, unless a model says otherwise
TUNING_QUERIES = 5_000  # at most
WARM_UP_USERS = 50  # of the fit that compiles the kernels


class QualityWorker:
    """Models on one data set.

    Parameters
    ----------
    row : str
        Name of the data set.
    data : str
        Folder with a folder per data set.
    threads : int
    """

    def __init__(self, row: str, data: str, threads: int) -> None:
        self._spec: DatasetSpec = next(spec for spec in datasets.DATASETS if spec.name == row)
        self._task, self._threads = self._spec.read(Path(data) / row, 0), threads

    def tune(self, settings: dict[str, Any], space: dict[str, Any], trials: int, seed: int) -> dict[str, Any]:
        """The best settings on the tuning part, and all trials. ``settings`` are fixed, ``space`` is searched."""
        if not space:
            return {"settings": settings, "value": None, "tried": [], "seconds": 0.0}
        fixed = {**L2_BY_WEIGHT, **settings, "epochs": self._spec.epochs, "n_threads": self._threads}
        split, began = self._task.tuning, time.perf_counter()
        found = search(
            lambda settings: build({**fixed, **settings}),
            space,
            replace(split, tune=split.tune.sample(TUNING_QUERIES, seed)),
            self._spec.tuned_metric,
            trials,
            every=1,
            seed=seed,
            exclude_seen=self._task.exclude_seen,
        )
        metric = self._spec.tuned_metric
        return {
            "settings": {**fixed, **found.best.settings, "epochs": found.best.epochs},
            "value": found.best.value,
            "tried": [{**trial.settings, "epochs": trial.epochs, metric: trial.value} for trial in found.trials],
            "seconds": time.perf_counter() - began,
        }

    def fit(self, settings: dict[str, Any]) -> dict[str, Any]:
        """Fit on the whole training part: metrics of the test part, seconds and peak memory of the fit."""
        settings = {"n_threads": self._threads, **settings}
        recommender, train = build(settings), self._task.final.train
        build({**settings, "epochs": 1}).fit(train.subset(train.user < WARM_UP_USERS))
        reset_peak_memory()
        began = time.perf_counter()
        recommender.fit(train)
        seconds, memory = time.perf_counter() - began, peak_memory()
        return {
            **self._evaluate(recommender),
            "seconds": seconds,
            "memory": memory,
            "epochs": getattr(recommender.model, "epochs", 0),
        }

    def _evaluate(self, recommender: Recommender) -> dict[str, Any]:
        test = self._task.final.test
        found = evaluate(recommender, test, self._spec.metrics, exclude_seen=self._task.exclude_seen)
        return {"metrics": found.means, "queries": len(found.user), "notes": found.notes}
