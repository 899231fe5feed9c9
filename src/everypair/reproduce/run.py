"""``reproduce``: runs the paper's experiments (Section 6), three scenarios and the computational cost."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

import numpy as np

from everypair.data import Dataset
from everypair.evaluation import Evaluation, Split, evaluate
from everypair.models.tower_model import TowerModel
from everypair.recommender import Recommender
from everypair.reproduce import cost
from everypair.reproduce.common import environment, rounded, stop_if_interrupted
from everypair.reproduce.lineups import POPULARITY, SPACE, LineupEntry, Scenario, scenarios
from everypair.tuning.search import SearchResult, search

METRICS = ("recall@100", "ndcg@100")
TUNED = "ndcg@100"


class Scale(NamedTuple):
    """The size of an experiment and its budget for tuning. Field names are keys of results.json."""

    users: int  # of generated data, as items
    items: int
    factors: int
    epochs: int  # maximum
    trials: int  # per model and scenario
    tuning_events: int  # most training events while tuning, those of randomly drawn users
    sample: int  # most events evaluated in the instant scenario
    events: int  # most events of real data, those of randomly drawn users
    cost_events: int  # see everypair.reproduce.cost.compare, also for the next three
    catalogue: tuple[int, ...]
    alone: int
    repeats: int
    seed: int = 0


QUICK = Scale(
    users=3_000, items=800, factors=32, epochs=8, trials=3, tuning_events=16_000, sample=3_000, events=48_000,
    cost_events=600, catalogue=(250, 500, 1_000), alone=20_000, repeats=3,
)  # fmt: skip
DEFAULT = Scale(
    users=10_000, items=3_000, factors=32, epochs=16, trials=8, tuning_events=120_000, sample=20_000, events=10_000_000,
    cost_events=2_000, catalogue=(500, 1_000, 2_000, 4_000), alone=70_000, repeats=3,
)  # fmt: skip

Watch = Callable[[str], Any]


def reproduce(
    dataset: Dataset,
    name: str,
    attributes: Sequence[str],
    scale: Scale,
    watch: Watch = lambda text: None,
    keep: Callable[[dict[str, Any]], Any] = lambda results: None,
    keep_model: Callable[[Recommender], Any] = lambda recommender: None,
) -> dict[str, Any]:
    """Run all experiments; returns the content of results.json.

    Parameters
    ----------
    dataset : Dataset
        Must have timestamps.
    name : str
        The name of the data.
    attributes : sequence of str
        The attributes of users that A stands for.
    scale : Scale
    watch : callable
        Called with a description of each step before it begins; there are :func:`steps` of them.
    keep : callable
        Called with the results so far before each scenario and after the last.
    keep_model : callable
        Called with the last recommender of each scenario, which has the most recipes, and its evaluation.
    """
    began = time.perf_counter()
    results: dict[str, Any] = {
        "data": {"name": name, "events": len(dataset), "users": len(np.unique(dataset.user)), "items": len(np.unique(dataset.item)),
                 "attributes": list(attributes), "notes": dataset.notes},
        "scale": scale._asdict(),
        "tuning": {"metric": TUNED, "space": SPACE, "trials": scale.trials, "regularization_exponent": 1.0},
        "environment": environment(),
        "scenarios": [],
    }  # fmt: skip
    for scenario in scenarios(scale.sample, scale.seed):
        keep(results)
        results["scenarios"].append(_scenario(scenario, dataset, attributes, scale, watch, keep_model))
    keep(results)
    costs = cost.compare(
        scale.cost_events, list(scale.catalogue), scale.alone, min(scale.factors, 8), scale.repeats, scale.seed, watch
    )
    results["cost"] = {
        "measured": [entry.json for entry in costs.measured],
        "alone": [
            {"context": name, **asdict(problem), "icd_operations": problem.icd, "icd_seconds": seconds}
            for name, (problem, seconds) in costs.alone.items()
        ],
        "paper": [entry.json for entry in costs.paper],
    }  # fmt: skip
    results["findings"] = findings(results)
    results["seconds"] = time.perf_counter() - began
    return results


def steps(scale: Scale) -> int:
    """The number of calls of ``watch``."""
    models = sum(1 + (1 + scale.trials) * entry.tuned for scenario in scenarios(1, 0) for entry in scenario.lineup)
    return models + len(cost.CONTEXTS) * (len(scale.catalogue) + 1)


def _scenario(
    scenario: Scenario,
    dataset: Dataset,
    attributes: Sequence[str],
    scale: Scale,
    watch: Watch,
    keep_model: Callable[[Recommender], Any],
) -> dict[str, Any]:
    split = scenario.splitter.split(dataset)
    thinned = split.thin(scale.tuning_events, scale.seed)
    models: list[dict[str, Any]] = []
    evaluations: dict[str, Evaluation] = {}
    for entry in scenario.lineup:
        found = _tune(scenario, entry, attributes, scale, thinned, watch) if entry.tuned else None
        settings = found.best.settings if found else {}
        watch(f"{scenario.name}: {entry.name}")
        began = time.perf_counter()
        recommender = entry.make(attributes, scale.factors, found.best.epochs if found else 1, **settings)
        stop_if_interrupted(recommender.fit(split.train))
        fitted = time.perf_counter()
        evaluation = evaluations[entry.name] = evaluate(recommender, split.test, METRICS)
        popularity = evaluations[POPULARITY.name]
        models.append({
            "name": entry.name,
            "context": entry.letters,
            "contexts": recommender.feedback_.n_contexts,
            "metrics": {metric: _metric(evaluation, popularity, metric, scale.seed) for metric in METRICS},
            "settings": {**settings, "epochs": found.best.epochs, "factors": scale.factors} if found else None,
            "tuning": [{**trial.settings, "epochs": trial.epochs, TUNED: trial.value} for trial in found.trials] if found else None,
            "seconds": {"fit": _seconds(recommender, fitted - began), "evaluate": time.perf_counter() - fitted},
        })  # fmt: skip
        if entry is scenario.lineup[-1]:
            recommender.evaluation_ = evaluation.summary()
            keep_model(recommender)
    expected = scenario.lineup[-1].name
    popularity = evaluations[POPULARITY.name]
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
        "expected": {
            "model": expected,
            "against": {metric: _against(evaluations, expected, metric, scale.seed) for metric in METRICS},
        },
    }


def _seconds(recommender: Recommender, elapsed: float) -> float:
    """Seconds of the epochs alone, if the model has epochs: the first fit also compiles."""
    history = getattr(recommender.model, "history_", None) if isinstance(recommender.model, TowerModel) else None
    return elapsed if history is None else float(sum(epoch.seconds for epoch in history))


def _against(evaluations: dict[str, Evaluation], expected: str, metric: str, seed: int) -> dict[str, Any]:
    """The paper's best model relative to the best of the others here: the ratio and its interval (bootstrap over users)."""
    rival = max((name for name in evaluations if name != expected), key=lambda name: evaluations[name][metric])
    low, high = evaluations[expected].interval(metric, seed=seed, relative_to=evaluations[rival])
    base = evaluations[rival][metric]
    return {"rival": rival, "ratio": evaluations[expected][metric] / base if base > 0 else float("nan"), "low": low, "high": high}


def _tune(
    scenario: Scenario, entry: LineupEntry, attributes: Sequence[str], scale: Scale, split: Split, watch: Watch
) -> SearchResult:
    def make(settings: dict[str, float]) -> Recommender:
        return entry.make(attributes, scale.factors, scale.epochs, **settings)

    def after_trial(recommender: Recommender) -> None:
        stop_if_interrupted(recommender)
        watch(f"{scenario.name}: tuning {entry.name}")

    watch(f"{scenario.name}: tuning {entry.name}")
    return search(make, SPACE, split, TUNED, scale.trials, seed=scale.seed, fitted=after_trial)


def _metric(evaluation: Evaluation, popularity: Evaluation, metric: str, seed: int) -> dict[str, float]:
    """The value and its interval, absolute and relative to Popularity."""
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


def findings(results: dict[str, Any]) -> list[dict[str, str]]:
    """The paper's findings, and whether they hold here: "yes", "no", or "undecided" where an interval contains 1."""
    cold, offline, instant = results["scenarios"]
    cold_metrics = {model["name"]: model["metrics"] for model in cold["models"]}
    others = [cold_metrics[name][metric] for name in ("iCD-MF", "Coview") for metric in METRICS]
    above = any(m["relative_low"] > 1 for m in others)
    not_above = all(m["relative_high"] <= 1 for m in others)
    ratios = [entry["ratio_operations"] for entry in results["cost"]["paper"]]
    return [
        _finding("Cold start: iCD-FM A is clearly above Popularity, MF and Coview.", cold),
        {
            "finding": "Cold start: iCD-MF and Coview are not above Popularity.",
            "verdict": "no" if above else "yes" if not_above else "undecided",
            "why": f"{min(m['relative'] for m in others):.2f} to {max(m['relative'] for m in others):.2f} times Popularity",
        },
        _finding("Offline: iCD-FM A+P+U is best.", offline),
        _finding("Instant: iCD-FM A+P+H is best.", instant),
        {
            "finding": "Conventional CD needs about four orders of magnitude more operations at the paper's size.",
            "verdict": "yes" if min(ratios) > 3_000 and max(ratios) < 300_000 else "no",
            "why": f"{rounded(min(ratios))} to {rounded(max(ratios))} times as many",
        },
    ]


def _finding(finding: str, scenario: dict[str, Any]) -> dict[str, str]:
    against = scenario["expected"]["against"]
    verdict = (
        "yes"
        if all(m["low"] > 1 for m in against.values())
        else "no"
        if any(m["high"] < 1 for m in against.values())
        else "undecided"
    )
    ratios = [f"{metric} {m['ratio']:.3f} ({m['low']:.3f} to {m['high']:.3f}) times {m['rival']}" for metric, m in against.items()]
    return {"finding": finding, "verdict": verdict, "why": ", ".join(ratios)}
