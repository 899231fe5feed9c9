"""The paper's experiments (Section 6) on generated or real data: three scenarios, their line-ups, and the computational cost."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

import numpy as np

import everypair
from everypair.data import Dataset
from everypair.evaluation import Evaluation, Split, evaluate
from everypair.evaluation.search import Found, search
from everypair.experiments import cost
from everypair.experiments.lineups import SPACE, Contender, Scenario, scenarios
from everypair.parallel import thread_count
from everypair.recommender import Recommender

METRICS = ("recall@100", "ndcg@100")
TUNED = "ndcg@100"


class Scale(NamedTuple):
    """How large an experiment is, and how much is spent on tuning."""

    users: int  # of generated data
    items: int
    factors: int
    epochs: int  # at most
    trials: int  # per model and scenario
    tuning_events: int  # trained on while tuning, at most: those of randomly drawn users
    sample: int  # events evaluated in the instant scenario, at most
    cost_events: int
    catalogue: tuple[int, ...]
    alone: int
    repeats: int
    seed: int = 0


QUICK = Scale(
    users=2_000, items=1_000, factors=16, epochs=8, trials=3, tuning_events=20_000, sample=3_000,
    cost_events=600, catalogue=(250, 500, 1_000), alone=5_000, repeats=1,
)  # fmt: skip
DEFAULT = Scale(
    users=10_000, items=3_000, factors=32, epochs=16, trials=8, tuning_events=120_000, sample=20_000,
    cost_events=2_000, catalogue=(500, 1_000, 2_000, 4_000), alone=40_000, repeats=3,
)  # fmt: skip

Watch = Callable[[str], Any]


def reproduce(
    dataset: Dataset,
    name: str,
    attributes: Sequence[str],
    scale: Scale,
    watch: Watch = lambda text: None,
    keep: Callable[[dict[str, Any]], Any] = lambda results: None,
) -> dict[str, Any]:
    """Run all of it.

    Parameters
    ----------
    dataset : Dataset
        With timestamps.
    name : str
        Of the data.
    attributes : sequence of str
        Of users: what A stands for.
    scale : Scale
    watch : callable
        Told of each step before it begins; there are :func:`steps` of them.
    keep : callable
        Given the results so far before each scenario and after the last.
    """
    began = time.perf_counter()
    results: dict[str, Any] = {
        "data": {"name": name, "events": len(dataset), "users": dataset.n_users, "items": dataset.n_items,
                 "attributes": list(attributes), "notes": dataset.notes},
        "scale": scale._asdict(),
        "tuning": {"metric": TUNED, "space": SPACE, "trials": scale.trials, "regularization_exponent": 1.0},
        "environment": environment(),
        "scenarios": [],
    }  # fmt: skip
    for scenario in scenarios(scale.sample, scale.seed):
        keep(results)
        results["scenarios"].append(_scenario(scenario, dataset, attributes, scale, watch))
    keep(results)
    costs = cost.compare(
        scale.cost_events, list(scale.catalogue), scale.alone, min(scale.factors, 8), scale.repeats, scale.seed, watch
    )
    results["cost"] = {
        "measured": [one.json for one in costs.measured],
        "alone": [
            {"context": name, **asdict(problem), "icd_operations": problem.icd, "icd_seconds": seconds}
            for name, (problem, seconds) in costs.alone.items()
        ],
        "paper": [one.json for one in costs.paper],
    }  # fmt: skip
    results["findings"] = findings(results)
    results["seconds"] = time.perf_counter() - began
    return results


def steps(scale: Scale) -> int:
    """How often ``watch`` is called."""
    models = sum(1 + (1 + scale.trials) * model.tuned for scenario in scenarios(1, 0) for model in scenario.lineup)
    return models + len(cost.CONTEXTS) * (len(scale.catalogue) + 1)


def _scenario(scenario: Scenario, dataset: Dataset, attributes: Sequence[str], scale: Scale, watch: Watch) -> dict[str, Any]:
    split = scenario.splitter.split(dataset)
    thinned = split.thin(scale.tuning_events, scale.seed)
    models: list[dict[str, Any]] = []
    popularity: Evaluation | None = None
    for contender in scenario.lineup:
        found = _tune(scenario, contender, attributes, scale, thinned, watch) if contender.tuned else None
        settings = found.best.settings if found else {}
        watch(f"{scenario.name}: {contender.name}")
        began = time.perf_counter()
        recommender = contender.make(attributes, scale.factors, found.best.epochs if found else 1, **settings)
        stop_if_interrupted(recommender.fit(split.train))
        fitted = time.perf_counter()
        evaluation = evaluate(recommender, split.test, METRICS)
        popularity = popularity or evaluation
        models.append({
            "name": contender.name,
            "context": contender.letters if contender.name not in ("Popularity",) else "",
            "contexts": recommender.feedback_.n_contexts,
            "metrics": {metric: _metric(evaluation, popularity, metric, scale.seed) for metric in METRICS},
            "settings": {**settings, "epochs": found.best.epochs, "factors": scale.factors} if found else None,
            "tuning": [{**trial.settings, "epochs": trial.epochs, TUNED: trial.value} for trial in found.trials] if found else None,
            "seconds": {"fit": fitted - began, "evaluate": time.perf_counter() - fitted},
        })  # fmt: skip
    assert popularity is not None
    return {
        "name": scenario.name,
        "title": scenario.title,
        "question": scenario.question,
        "split": {
            "train_events": len(split.train),
            "tune_queries": len(split.tune),
            "test_queries": len(split.test),
            "evaluated": len(popularity.user),
            "tuning_events": len(thinned.train),
            "notes": split.notes + popularity.notes,
        },
        "models": models,
    }


def _tune(scenario: Scenario, contender: Contender, attributes: Sequence[str], scale: Scale, split: Split, watch: Watch) -> Found:
    def make(settings: dict[str, float]) -> Recommender:
        return contender.make(attributes, scale.factors, scale.epochs, **settings)

    def after(recommender: Recommender) -> None:
        stop_if_interrupted(recommender)
        watch(f"{scenario.name}: tuning {contender.name}")

    watch(f"{scenario.name}: tuning {contender.name}")
    return search(make, SPACE, split, TUNED, scale.trials, seed=scale.seed, fitted=after)


def stop_if_interrupted(recommender: Recommender) -> None:
    """A fit that is interrupted leaves a model; an experiment ends."""
    if getattr(recommender.model, "stop_reason_", None) == "interrupt":
        raise KeyboardInterrupt


def _metric(evaluation: Evaluation, popularity: Evaluation, metric: str, seed: int) -> dict[str, float]:
    """The value, its interval, and both relative to Popularity."""
    low, high = evaluation.interval(metric, seed=seed)
    below, above = evaluation.interval(metric, seed=seed, relative_to=popularity)
    value, base = evaluation[metric], popularity[metric]
    return {
        "value": value,
        "low": low,
        "high": high,
        "relative": value / base if base > 0 else float("nan"),
        "relative_low": below,
        "relative_high": above,
    }


def findings(results: dict[str, Any]) -> list[dict[str, Any]]:
    """The paper's findings, and whether they came out here."""
    cold, offline, instant = ({m["name"]: m["metrics"] for m in scenario["models"]} for scenario in results["scenarios"])

    def above(models: dict[str, Any], name: str) -> bool:
        return all(models[name][metric]["relative_low"] > 1 for metric in METRICS)

    def best(models: dict[str, Any], name: str) -> bool:
        return all(max(models, key=lambda other: models[other][metric]["value"]) == name for metric in METRICS)

    ratios = [one["ratio_operations"] for one in results["cost"]["paper"]]
    said = [
        ("Cold start: iCD-FM A is clearly above Popularity.", above(cold, "iCD-FM A")),
        ("Cold start: iCD-MF and Coview are not above Popularity.", not (above(cold, "iCD-MF") or above(cold, "Coview"))),
        ("Offline: iCD-FM A+P+U is best.", best(offline, "iCD-FM A+P+U")),
        ("Instant: iCD-FM A+P+H is best.", best(instant, "iCD-FM A+P+H")),
        ("Conventional CD needs about four orders of magnitude more operations at the paper's size.", min(ratios) > 3_000),
    ]
    return [{"finding": finding, "holds": bool(holds)} for finding, holds in said]


def environment() -> dict[str, Any]:
    """What the figures were measured on."""
    import numba
    import scipy

    return {
        "everypair": everypair.__version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "numba": numba.__version__,
        "machine": platform.machine(),
        "threads": thread_count(None),
    }
