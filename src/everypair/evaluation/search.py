"""A small random search for settings, on the tuning part of a split alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from everypair.evaluation.evaluate import evaluate
from everypair.evaluation.splits import Split
from everypair.models.tower_model import TowerModel
from everypair.recommender import Recommender

PATIENCE = 2  # evaluations in a row without a better value, after which a fit ends


@dataclass(frozen=True)
class Trial:
    """Settings that were tried, the epoch at which they were best, and the metric there."""

    settings: dict[str, float]
    epochs: int
    value: float


@dataclass
class Found:
    """The best trial, and all of them in order."""

    trials: list[Trial] = field(default_factory=list)

    @property
    def best(self) -> Trial:
        return max(self.trials, key=lambda trial: trial.value)


def search(
    make: Callable[[dict[str, float]], Recommender],
    space: Mapping[str, tuple[float, float]],
    split: Split,
    metric: str,
    trials: int,
    *,
    every: int = 2,
    seed: int = 0,
    exclude_seen: bool = True,
    fitted: Callable[[Recommender], Any] = lambda recommender: None,
) -> Found:
    """Try settings within ``space``, on a logarithmic scale: the middle first, then at random, then near the best.

    A fit is evaluated on ``split.tune`` after every few epochs, and ends where it no longer gets better: the number of epochs is
    found with each trial. The test part is not looked at.

    Parameters
    ----------
    make : callable
        From settings to a recommender, which has a model with the largest number of epochs.
    space : mapping of names to (low, high)
    split : Split
    metric : str
    trials : int
    every : int
        Epochs between evaluations.
    fitted : callable
        Called with the recommender of each trial after its fit.
    """
    random = np.random.default_rng(seed)
    bounds = {name: (np.log(low), np.log(high)) for name, (low, high) in space.items()}
    found = Found()
    for number in range(trials):
        if number == 0:
            point = {name: (low + high) / 2 for name, (low, high) in bounds.items()}
        elif number <= trials // 2:
            point = {name: random.uniform(low, high) for name, (low, high) in bounds.items()}
        else:
            near = {name: np.log(found.best.settings[name]) for name in bounds}
            point = {
                n: float(np.clip(near[n] + random.normal(0, (high - low) / 8), low, high)) for n, (low, high) in bounds.items()
            }
        settings = {name: float(f"{np.exp(value):.3g}") for name, value in point.items()}
        recommender = make(settings)
        found.trials.append(_try(recommender, settings, split, metric, every, exclude_seen))
        fitted(recommender)
    return found


def _try(recommender: Recommender, settings: dict[str, float], split: Split, metric: str, every: int, exclude_seen: bool) -> Trial:
    """Fit and evaluate until it no longer gets better."""
    values: dict[int, float] = {}
    model = recommender.model
    assert isinstance(model, TowerModel)

    def after(fitted: Recommender, epoch: Any) -> bool:
        if epoch.epoch % every and epoch.epoch != model.epochs:
            return False
        values[epoch.epoch] = evaluate(fitted, split.tune, (metric,), exclude_seen=exclude_seen)[metric]
        best = max(values, key=lambda e: values[e])
        return epoch.epoch - best >= PATIENCE * every

    recommender.fit(split.train, callback=after)
    if not values:  # interrupted
        return Trial(settings, 1, -np.inf)
    best = max(values, key=lambda epoch: values[epoch])
    return Trial(settings, best, values[best])
