r"""A small hyperparameter search without Optuna, on the tuning part of a split.

The weight :math:`\alpha_0` of unobserved pairs and L2 matter most. If L2 grows with the weight of a feature
(``regularization_exponent=1``), the weight of a row is the number of its observed pairs plus :math:`\alpha_0` times that of all its
pairs, so that the best :math:`\lambda` depends on :math:`\alpha_0`. The search therefore uses two numbers that depend less on each
other: :math:`\alpha_0`, and the *shrinkage* :math:`\nu = \lambda (1 + \alpha_0 P)`, where P is the number of pairs per observed
pair: L2 in units of observed pairs. The weight can also be given in such units, which are comparable between datasets of all sizes:
the weight of all pairs together, :math:`\alpha_0 P`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.stats import qmc

from everypair.engine.divergence import DivergedError
from everypair.evaluation.early_stopping import EarlyStopping, trained_by_epochs
from everypair.evaluation.splits import Split
from everypair.models.tower_model import AUTO, auto_weight
from everypair.recommender import Recommender
from everypair.runtime import validation as check

WEIGHT, SHRINKAGE, ALL_PAIRS = "unobserved_weight", "shrinkage", "all_pairs"


@dataclass(frozen=True)
class Trial:
    """Settings of a model, the epoch with the best value of the metric, and that value."""

    settings: dict[str, Any]
    epochs: int
    value: float


@dataclass
class SearchResult:
    """All trials of a search, in order, and the best of them."""

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
) -> SearchResult:
    """Try settings within ``space``, on a logarithmic scale: the middle, then a Halton sequence, then ever nearer to the best.

    A fit is evaluated on ``split.tune`` after every few epochs, and ends when the metric no longer improves: each trial also finds
    the number of epochs. The test part is not used.

    Parameters
    ----------
    make : callable
        Makes a recommender from settings; ``epochs`` of its model is the maximum.
    space : mapping of names to (low, high)
        Ranges of arguments of the model. "all_pairs" (see the module) replaces ``unobserved_weight``; "shrinkage", which needs one
        of the two, replaces ``regularization``.
    split : Split
    metric : str
    trials : int
    every : int
        Epochs between evaluations.
    fitted : callable
        Called with the recommender of each trial after its fit.
    """
    check.integer("trials", trials, low=1)
    check.integer("every", every, low=1)
    for name, bounds in space.items():
        if not isinstance(bounds, Sequence) or len(bounds) != 2 or not 0 < bounds[0] <= bounds[1] < np.inf:
            raise ValueError(f"space[{name!r}] must be (low, high) with 0 < low <= high, got {bounds!r}.")
    if WEIGHT in space and ALL_PAIRS in space:
        raise ValueError(f"space has both {WEIGHT!r} and {ALL_PAIRS!r}, which are the same setting in other units: give one.")
    if SHRINKAGE in space and space.keys().isdisjoint((WEIGHT, ALL_PAIRS)):
        raise ValueError(f"{SHRINKAGE!r} in space needs {WEIGHT!r} or {ALL_PAIRS!r}: add one of them.")
    random = np.random.default_rng(seed)
    low, high = (np.log([bound[j] for bound in space.values()]) for j in (0, 1))
    explored = 1 + trials // 2
    points = [(low + high) / 2, *(low + (high - low) * qmc.Halton(len(space), rng=seed).random(explored - 1))]
    pairs = 0.0 if space.keys().isdisjoint((SHRINKAGE, ALL_PAIRS)) else make({}).pairs_per_event(split.train)
    result, best = SearchResult(), points[0]
    for number in range(trials):
        if number < explored:
            point = points[number]
        else:
            reach = (high - low) / 6 * (1 - (number - explored) / (2 * (trials - explored)))
            point = np.clip(best + reach * random.normal(size=len(space)), low, high)
        settings = arguments(dict(zip(space, np.exp(point).tolist(), strict=True)), pairs)
        recommender = make(settings)
        result.trials.append(_try(recommender, settings, split, metric, every, exclude_seen))
        fitted(recommender)
        if result.best is result.trials[-1]:
            best = point
    return result


def arguments(point: Mapping[str, Any], pairs: float) -> dict[str, Any]:
    """The model's arguments at a point of a space, rounded to three digits; ``pairs``: the number of pairs per event."""
    settings = dict(point)
    if ALL_PAIRS in settings:
        settings[WEIGHT] = settings.pop(ALL_PAIRS) / pairs
    if SHRINKAGE in settings:
        weight = auto_weight(pairs) if settings[WEIGHT] == AUTO else settings[WEIGHT]
        settings["regularization"] = settings.pop(SHRINKAGE) / (1 + weight * pairs)
    return {name: float(f"{value:.3g}") if isinstance(value, float) else value for name, value in settings.items()}


def _try(recommender: Recommender, settings: dict[str, Any], split: Split, metric: str, every: int, exclude_seen: bool) -> Trial:
    """Fit, with early stopping on the tuning part."""
    trained_by_epochs(recommender.model)
    stopping = EarlyStopping(split.tune, metric, every=every, exclude_seen=exclude_seen)
    with suppress(DivergedError):  # a bad trial, not the end of the search
        recommender.fit(split.train, callback=stopping)
    return Trial(settings, stopping.best_epoch or 1, stopping.best_value)
