"""One data set in a process of its own: tuning, and fits that are judged by the test part."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.harness.process import forget_peak, peak_memory
from benchmarks.quality import rows
from benchmarks.quality.contenders import make
from benchmarks.quality.rows import Row
from everypair.evaluation import evaluate
from everypair.recommender import Recommender
from everypair.tuning.search import search

BY_WEIGHT = {"regularization_exponent": 1.0}  # L2 grows with the weight of a feature, unless a contender says otherwise
TUNED_ON = 5_000  # queries, at most
WARM = 50  # users of a fit that compiles


class Trained:
    """The data of a row.

    Parameters
    ----------
    row : str
    data : str
        The folder with a folder per data set.
    threads : int
    """

    def __init__(self, row: str, data: str, threads: int) -> None:
        self._row: Row = next(one for one in rows.ROWS if one.name == row)
        self._problem, self._threads = self._row.read(Path(data) / row, 0), threads

    def tune(self, settings: dict[str, Any], space: dict[str, Any], trials: int, seed: int) -> dict[str, Any]:
        """The settings that are best on what is tuned on, and all that were tried; ``settings`` are those that stay."""
        if not space:
            return {"settings": settings, "value": None, "tried": [], "seconds": 0.0}
        fixed = {**BY_WEIGHT, **settings, "epochs": self._row.epochs, "n_threads": self._threads}
        split, began = self._problem.tuning, time.perf_counter()
        found = search(
            lambda settings: make({**fixed, **settings}),
            space,
            replace(split, tune=split.tune.sample(TUNED_ON, seed)),
            self._row.tuned,
            trials,
            every=1,
            seed=seed,
            exclude_seen=self._problem.exclude_seen,
        )
        return {
            "settings": {**fixed, **found.best.settings, "epochs": found.best.epochs},
            "value": found.best.value,
            "tried": [{**trial.settings, "epochs": trial.epochs, self._row.tuned: trial.value} for trial in found.trials],
            "seconds": time.perf_counter() - began,
        }

    def fit(self, settings: dict[str, Any]) -> dict[str, Any]:
        """A fit with these settings: the metrics of the test part, seconds, and the peak of memory."""
        settings = {"n_threads": self._threads, **settings}
        recommender, train = make(settings), self._problem.final.train
        make({**settings, "epochs": 1}).fit(train.subset(train.user < WARM))  # compiles
        forget_peak()
        began = time.perf_counter()
        recommender.fit(train)
        seconds, memory = time.perf_counter() - began, peak_memory()
        return {
            **self._judged(recommender),
            "seconds": seconds,
            "memory": memory,
            "epochs": getattr(recommender.model, "epochs", 0),
        }

    def _judged(self, recommender: Recommender) -> dict[str, Any]:
        test = self._problem.final.test
        found = evaluate(recommender, test, self._row.metrics, exclude_seen=self._problem.exclude_seen)
        return {"metrics": found.means, "queries": len(found.user), "notes": found.notes}
