"""The trials of :func:`everypair.auto`: successive halving, with more factors from round to round."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import qmc

from everypair.data import Dataset
from everypair.engine.divergence import DivergedError
from everypair.evaluation import EarlyStopping, Split
from everypair.models import MF
from everypair.recommender import SEQUENCE, Recommender
from everypair.tuning.search import ALL_PAIRS, SHRINKAGE, arguments
from everypair.tuning.structures import Looked, Structure, held_out, structures, weighings

SIZES = (32, 128, 256)  # factors of the rounds
ROUNDS = (0.5, 0.8, 1.0)  # by which share of the trials, or of the time, each round is over
KEPT = 3  # one of so many trials of a round goes on to the next
FADE = "fade"
RANGES: dict[str, tuple[float, float]] = {
    ALL_PAIRS: (2.0, 60.0), SHRINKAGE: (0.02, 0.4), "popularity_exponent": (0.1, 0.8), FADE: (0.5, 2.0),
}  # fmt: skip
PROMISING = 3  # structures whose settings are searched, in turn
EPOCHS = 12  # at most, in a trial
STEP = 0.15  # of a search near the best, in the range of each setting
RESERVE = 1.0  # times the seconds of the best trial: kept for the fit to all events


@dataclass(frozen=True)
class AutoTrial:
    """Settings, and the metric that they reached on the held-out events.

    Attributes
    ----------
    structure : Structure
    point : mapping or None
        Where in the ranges of settings; None: the defaults.
    factors : int
    settings : dict
        The arguments of the model.
    fade : float
        See :meth:`~everypair.tuning.structures.Structure.made`.
    epochs : int
        The best epoch.
    value : float
        Of the metric.
    seconds : float
    """

    structure: Structure
    point: Mapping[str, float] | None
    factors: int
    settings: dict[str, Any]
    fade: float
    epochs: int
    value: float
    seconds: float

    @property
    def changed(self) -> dict[str, float]:
        """The settings that are not the defaults."""
        if self.point is None:
            return {}
        numbers = {name: value for name, value in self.settings.items() if name != "factors" and isinstance(value, float)}
        return {**numbers, FADE: self.fade}

    @property
    def recommender(self) -> Recommender:
        """Not fitted, with the best number of epochs."""
        return self.structure.made({**self.settings, "epochs": self.epochs}, self.fade)


@dataclass(frozen=True)
class Point:
    """What a trial is to try."""

    structure: Structure
    point: Mapping[str, float] | None
    factors: int


class Budget:
    """How many trials there may be, or how long they may take."""

    def __init__(self, seconds: float | None, trials: int | None) -> None:
        self._began, self._seconds, self._trials = time.monotonic(), seconds, trials

    def used(self, done: int, reserved: float) -> float:
        """The share that is used after so many trials, if so many seconds are needed for the end."""
        if self._trials is not None:
            return done / self._trials
        assert self._seconds is not None
        return (time.monotonic() - self._began + reserved) / self._seconds


class AutoSearch:
    """The trials of one call."""

    def __init__(
        self,
        dataset: Dataset,
        looked: Looked,
        metric: str,
        seed: int,
        n_threads: int | None,
        budget: Budget,
        say: Callable[[str], Any],
    ) -> None:
        self._looked, self._metric, self._seed, self._n_threads, self._budget, self._say = (
            looked,
            metric,
            seed,
            n_threads,
            budget,
            say,
        )
        self._split: Split = held_out(dataset, looked, seed)
        self._structures = structures(looked)
        self.trials: list[AutoTrial] = []
        self._tried: list[Point] = []
        most = max(min(dataset.n_users, dataset.n_items), 1)
        self._sizes = [min(size, most) for size in SIZES]
        EarlyStopping(self._split.tune, metric)  # checks the metric

    @property
    def best(self) -> AutoTrial:
        return max(self.trials, key=lambda trial: trial.value)  # the first of equal ones

    def run(self) -> None:
        """The default, then round after round."""
        first = self._structures[0]
        self._try(Point(first, None, min(_default(first)["factors"], self._sizes[-1])), certain=True)
        before: list[AutoTrial] = []
        for number, (size, share) in enumerate(zip(self._sizes, ROUNDS, strict=True)):
            begun = len(self.trials)
            points = self._explored(size) if number == 0 else self._promoted(before, size)
            for point in points:
                if point in self._tried:
                    continue
                if self._used >= share or not self._try(point):
                    break
            before = self.trials[begun:] or before

    @property
    def _used(self) -> float:
        return self._budget.used(len(self.trials), RESERVE * self.best.seconds if self.trials else 0.0)

    def _explored(self, size: int) -> Iterator[Point]:
        """Each structure with the defaults, the best of them with weights of events, then the best at points of the space."""
        yield from (Point(structure, None, size) for structure in self._structures)
        best = min((trial for trial in self.trials if trial.factors == size), key=_rank).structure
        yield from (Point(best.weighing(*each), None, size) for each in weighings(self._looked).items())
        for number, unit in enumerate(_halton(self._seed)):
            point = {name: low * (high / low) ** x for (name, (low, high)), x in zip(RANGES.items(), unit.tolist(), strict=True)}
            found: dict[str, AutoTrial] = {}
            for trial in sorted(self.trials, key=_rank):
                found.setdefault(trial.structure.name, trial)
            promising = list(found.values())[:PROMISING]
            yield Point(promising[number % len(promising)].structure, point, size)

    def _promoted(self, before: list[AutoTrial], size: int) -> Iterator[Point]:
        """The best of the round before with more factors, then points near the best so far."""
        best = sorted(before, key=_rank)[: max(1, len(before) // KEPT)]
        yield from (Point(trial.structure, trial.point, size) for trial in best)
        random = np.random.default_rng([self._seed, size])
        while True:
            near, point = self.best, {}
            for name, (low, high) in RANGES.items():
                value = (near.point or {}).get(name, MIDDLE[name])
                moved = value * (high / low) ** (STEP * random.normal())
                point[name] = float(np.clip(moved, low, high))
            yield Point(near.structure, point, max(size, near.factors))

    def _try(self, tried: Point, certain: bool = False) -> bool:
        """Run a trial, and keep it; False if there was no time for it."""
        self._tried.append(tried)
        settings, fade = self._settings(tried)
        recommender = tried.structure.made({**settings, "epochs": EPOCHS, "n_threads": self._n_threads}, fade)
        stopping = EarlyStopping(self._split.tune, self._metric, patience=1, exclude_seen=self._looked.exclude_seen, restores=False)
        began, late = time.monotonic(), []

        def after(fitted: Recommender, epoch: Any) -> bool:
            stop = stopping(fitted, epoch)
            if not stop and not certain and self._budget.used(len(self.trials), 0.0) >= 1.0:
                late.append(epoch.epoch)
            return stop or bool(late)

        with suppress(DivergedError):  # a bad trial is not the end of the search
            recommender.fit(self._split.train, callback=after)
        if getattr(recommender.model, "stop_reason_", None) == "interrupt":
            raise KeyboardInterrupt
        if not stopping.values:
            value, epochs = -np.inf, 1
        else:
            value, epochs = stopping.best_value, stopping.best_epoch or 1
        trial = AutoTrial(
            tried.structure, tried.point, tried.factors, settings, fade, epochs, float(value), time.monotonic() - began
        )  # fmt: skip
        self.trials.append(trial)
        told = ", ".join(f"{name} {value:.3g}" for name, value in trial.changed.items()) or "default settings"
        self._say(
            f"{len(self.trials) - 1:>3}  {self._metric} {trial.value:.4f}  {trial.structure.name}, k = {trial.factors}, {told}, "
            f"{trial.epochs} epochs, {trial.seconds:.1f} s"
        )
        return not late

    def _settings(self, tried: Point) -> tuple[dict[str, Any], float]:
        """The arguments of the model, and the fade of its histories."""
        own = {**_default(tried.structure), "factors": tried.factors}
        if tried.point is None:
            return own, 1.0
        point = {name: value for name, value in tried.point.items() if name != FADE}
        pairs = tried.structure.made(own).pairs_per_event(self._split.train)
        return {**own, **arguments(point, pairs)}, float(f"{tried.point[FADE]:.3g}")


MIDDLE = {name: float(np.sqrt(low * high)) for name, (low, high) in RANGES.items()}


def _default(structure: Structure) -> dict[str, Any]:
    """The arguments of a model that nobody tuned."""
    return {"factors": 64} if structure.model is MF else {"factors": 128, **SEQUENCE}


def _halton(seed: int) -> Iterator[np.ndarray]:
    drawn = qmc.Halton(len(RANGES), rng=seed)
    while True:
        yield drawn.random(1)[0]


def _rank(trial: AutoTrial) -> float:
    return -trial.value
