"""Default settings beside others, on the tuning part: ``python -m benchmarks defaults``."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.quality import datasets
from benchmarks.quality.recommenders import build
from everypair.evaluation import evaluate
from everypair.models.tower_model import AUTO
from everypair.tuning.search import ALL_PAIRS, SHRINKAGE, WEIGHT, arguments

QUERIES = 4_000


class Tried(NamedTuple):
    """Values to try; empty: the default."""

    popularity: Sequence[float] = ()
    decay: Sequence[float] = ()
    all_pairs: Sequence[float] = ()
    shrinkage: Sequence[float] = ()

    def combinations(self, history: bool) -> Iterator[dict[str, Any]]:
        """Settings of every combination; decay only for models with a history."""
        fades = [1.0 - decay for decay in self.decay] if history else []
        values = {"popularity_exponent": self.popularity, "fade": fades, ALL_PAIRS: self.all_pairs, SHRINKAGE: self.shrinkage}
        given = {name: tried for name, tried in values.items() if tried}
        for combination in itertools.product(*given.values()):
            yield dict(zip(given, combination, strict=True))


def compare(data: Path, rows: Sequence[str], tried: Tried) -> None:
    """Print the tuned metric of the first model of each data set, for each combination."""
    for spec in datasets.choose(data, rows):
        task, structure, metric = spec.read(data / spec.name, 0), spec.models[0].structure, spec.tuned_metric
        queries, pairs = task.tuning.tune.sample(QUERIES, 0), build(structure).pairs_per_event(task.tuning.train)
        for combination in tried.combinations("history" in structure["context"]):
            weight = {} if ALL_PAIRS in combination else {WEIGHT: AUTO}
            began = time.perf_counter()
            recommender = build({**structure, **arguments({**weight, **combination}, pairs)}).fit(task.tuning.train)
            seconds = time.perf_counter() - began
            value = evaluate(recommender, queries, (metric,), exclude_seen=task.exclude_seen)[metric]
            print(f"{spec.name:<20} {combination} {metric} {value:.4f} ({seconds:.0f} s)", flush=True)
