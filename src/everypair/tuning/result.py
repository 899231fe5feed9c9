"""The result of a hyperparameter search: the best settings, all trials and the importance of each setting."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from everypair.recommender import Recommender
from everypair.runtime import svg as pictures
from everypair.runtime.wording import named
from everypair.tuning.search import Trial
from everypair.tuning.spaces import Space
from everypair.tuning.studies import optuna

ENOUGH = 20  # trials with a value that importances need


class Tuning:
    """The best settings and all trials of a search. In a notebook, it is shown as a plot of the trials.

    Attributes
    ----------
    best : Trial
        ``settings`` (arguments of the model), ``epochs`` and ``value`` of ``metric`` on the tuning part.
    recommender : Recommender
        Not fitted, with the best settings and number of epochs: ``tuning.recommender.fit(dataset)`` trains it on all data.
    trials : Arrow table
        A row per trial, in order: number, state ("complete", "pruned", or "no value" if the objective was not finite before the
        first evaluation), best value and its epoch, seconds, the point of the space and the model's arguments there.
    importance : dict of float
        The importance of each searched setting, as shares that sum to one, largest first: Optuna's PED-ANOVA, which compares the
        distribution of the best tenth of the trials with that of all trials. Empty with fewer than 20 trials that have a value, and
        rough with few more.
    metric : str
    stop_reason : str
        "trials" (all are finished), "timeout" or "interrupt".
    """

    def __init__(
        self,
        metric: str,
        best: Trial,
        recommender: Recommender,
        rows: list[dict[str, Any]],
        importance: dict[str, float],
        space: Mapping[str, Any],
        stop_reason: str,
    ) -> None:
        self.metric, self.best, self.recommender = metric, best, recommender
        self.importance, self.stop_reason, self._rows, self._space = importance, stop_reason, rows, space
        self.trials = pa.table({name: _column([row[name] for row in rows]) for name in rows[0]})

    @classmethod
    def of(cls, study: Any, space: Space, metric: str, stop_reason: str, make: Callable[[dict[str, Any]], Recommender]) -> Tuning:
        """The result of a study; an error if no trial is complete."""
        states = optuna().trial.TrialState
        finished = study.get_trials(deepcopy=False, states=[states.COMPLETE, states.PRUNED])
        complete = [trial for trial in finished if trial.state == states.COMPLETE]
        if not complete:
            _raise_without_result(len(finished), stop_reason)
        found = max(complete, key=lambda trial: trial.value)
        best = Trial(space.settings(found.params), best_epoch(found), found.value)
        recommender = make({**best.settings, "epochs": best.epochs})
        rows = [_row(number, trial, space) for number, trial in enumerate(finished)]
        return cls(metric, best, recommender, rows, _importance(finished), space.dimensions, stop_reason)

    def svg(self) -> str:
        """A plot: the value of each trial against each setting, and the importance of settings."""
        from everypair.tuning.plot import draw

        return draw(self._rows, self.metric, self._space, self.importance)

    def save(self, path: str | Path) -> None:
        """Write the plot to a file that ends in ``.svg`` or ``.html``."""
        pictures.save(path, f"Importance of settings for {self.metric}", self.svg())

    def _repr_html_(self) -> str:
        return self.svg()

    def __repr__(self) -> str:
        settings = ", ".join(f"{name}={value!r}" for name, value in self.best.settings.items())
        count = f"{len(self.trials)} trial{'s' if len(self.trials) != 1 else ''}"
        return f"Tuning({count}, best {self.metric} {self.best.value:.4f}: {settings}, epochs={self.best.epochs})"


def best_epoch(trial: Any) -> int:
    """The first epoch with the best value."""
    values = trial.intermediate_values
    return max(sorted(values), key=lambda epoch: values[epoch])


def _raise_without_result(finished: int, stop_reason: str) -> None:
    if stop_reason == "interrupt":
        raise KeyboardInterrupt
    if stop_reason == "timeout":
        raise TimeoutError(f"no trial was finished within {named('timeout')}: give more time, or fewer epochs.")
    raise ValueError(
        f"none of {finished} trials could be evaluated: the objective was not finite. Use dtype 'float64', or another space."
    )


def _row(number: int, trial: Any, space: Space) -> dict[str, Any]:
    values = trial.intermediate_values
    complete = trial.state == optuna().trial.TrialState.COMPLETE
    best = best_epoch(trial) if values else None
    return {
        "trial": number,
        "state": "complete" if complete else "pruned" if values else "no value",
        "value": None if best is None else values[best],
        "epochs": best,
        "seconds": trial.duration.total_seconds(),
        **space.point(trial.params),
        **space.settings(trial.params),
    }


def _column(values: list[Any]) -> pa.Array:
    """Values as a column; choices of different types become strings."""
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return pa.array([repr(value) for value in values])


def _importance(finished: list[Any]) -> dict[str, float]:
    """The importance of settings. Pruned trials count with their best value: most of the bad settings are among them."""
    library = optuna()
    with_value = [trial for trial in finished if trial.intermediate_values]
    values = [trial.intermediate_values[best_epoch(trial)] for trial in with_value]
    if len(values) < ENOUGH or len(set(values)) == 1:
        return {}
    study = library.create_study(direction="maximize")
    for trial, value in zip(with_value, values, strict=True):
        study.add_trial(library.trial.create_trial(params=trial.params, distributions=trial.distributions, value=value))
    evaluator = library.importance.PedAnovaImportanceEvaluator()
    return library.importance.get_param_importances(study, evaluator=evaluator)
