"""Early stopping: a fit ends when a metric on held-out queries no longer improves, and keeps the best epoch's parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from everypair.data import Dataset
from everypair.engine.solver import Epoch
from everypair.evaluation import metrics as formulas
from everypair.evaluation.evaluate import Evaluation, evaluated
from everypair.evaluation.leaks import refuse_trained_events
from everypair.evaluation.queries import Queries
from everypair.models.tower_model import TowerModel
from everypair.persistence.fingerprints import fingerprint
from everypair.recommend.results import FallbackWarning
from everypair.runtime import validation as check
from everypair.runtime.cached import cached_property
from everypair.runtime.warn import warn_caller


class Trainee(Protocol):
    """A recommender that is being fitted."""

    model: Any
    state: Any


class EarlyStopping:
    """A callback of :meth:`Recommender.fit <everypair.Recommender.fit>` that evaluates the model and ends the fit in time.

    When the fit ends, the model has the parameters of its best epoch, not of its last; ``history_`` has all epochs that were run.

    ``fit(dataset, validation=split.tune)`` makes one. Given as a callback, it restores the best parameters when it stops the fit
    and at the model's last epoch, but not if ``tol``, Ctrl-C or another callback ended the fit before.

    Parameters
    ----------
    queries : Queries
        ``tune`` of a :class:`~everypair.evaluation.Split` whose ``train`` is fitted.
    metric : str
    every : int
        Epochs between evaluations; the last epoch is always evaluated.
    patience : int
        The fit ends after so many evaluations in a row without a better value.
    exclude_seen : bool
        As for :func:`~everypair.evaluation.evaluate`.
    restores : bool
        Whether it restores the best parameters itself; if not, call :meth:`restore` after the fit.
    allow_trained : bool
        Whether the queries may be of events that are trained on: the fit would be stopped by what it remembers.

    Attributes
    ----------
    values : dict
        The metric at each epoch that was evaluated.
    best_epoch : int or None
        The first epoch with the largest value; None before the first evaluation.
    best_value : float
        Its value.
    by_popularity : int
        Queries of which the model knows nothing, so that the most popular items are its answer after every epoch. A
        :class:`~everypair.FallbackWarning` says so.

    Examples
    --------
    >>> import everypair as ep
    >>> split = ep.evaluation.LeaveLast().split(ep.datasets.youtube_like(200, 50, seed=0))
    >>> stopping = ep.evaluation.EarlyStopping(split.tune, "ndcg@10")
    >>> recommender = ep.Recommender(ep.MF(factors=4, epochs=30)).fit(split.train, callback=stopping)
    >>> found = ep.evaluation.evaluate(recommender, split.tune, ["ndcg@10"])
    >>> found["ndcg@10"] == stopping.best_value == max(stopping.values.values())
    True
    """

    def __init__(
        self,
        queries: Queries,
        metric: str = "ndcg@10",
        *,
        every: int = 1,
        patience: int = 2,
        exclude_seen: bool = True,
        restores: bool = True,
        allow_trained: bool = False,
    ) -> None:
        if not isinstance(queries, Queries):
            raise TypeError(f"queries must be split.tune or other Queries of a split, got {type(queries).__name__}.")
        formulas.parse(metric)
        self.queries, self.metric, self.exclude_seen = queries, metric, exclude_seen
        self.every, self.patience = check.integer("every", every, low=1), check.integer("patience", patience, low=1)
        self.restores, self.allow_trained = restores, allow_trained
        self._forget()

    def _forget(self) -> None:
        self.values: dict[int, float] = {}
        self._kept: dict[int, dict[str, np.ndarray]] = {}
        self._restored = False
        self._warned = False
        self.by_popularity = 0

    @property
    def best_epoch(self) -> int | None:
        return _best(self.values)

    def _regular(self, epoch: int) -> bool:
        """Whether the epoch is evaluated even if it is not the last."""
        return epoch % self.every == 0

    @property
    def best_value(self) -> float:
        return max(self.values.values(), default=-np.inf)

    def __call__(self, recommender: Trainee, epoch: Epoch) -> bool:
        """Evaluate, if it is time to; returns whether to stop."""
        model = trained_by_epochs(recommender.model)
        if epoch.epoch == 1:  # of another fit
            self._forget()
            self.check(recommender.state.dataset)
        last, regular = epoch.epoch == model.epochs, self._regular(epoch.epoch)
        if not regular and not last:
            return False
        found = evaluated(recommender, self.queries, (self.metric,), self.exclude_seen)
        self.values[epoch.epoch] = found[self.metric]
        self._warn_of_popularity(found, model)
        wanted = self._epochs_to_keep()
        self._kept = {old: values for old, values in self._kept.items() if old in wanted}
        if epoch.epoch in wanted:
            self._kept[epoch.epoch] = model.parameters_
        since = sum(evaluated > (self.best_epoch or 0) for evaluated in self.values)
        stop = regular and since >= self.patience  # a fit of more epochs would not have been evaluated at an irregular one
        if self.restores and (stop or last):
            self.restore(recommender)
            self._restored = not stop
        return stop

    def _warn_of_popularity(self, found: Evaluation, model: TowerModel) -> None:
        """Count the queries that the model does not answer, and warn of them once in a fit."""
        self.by_popularity = found.by_popularity
        if not self.by_popularity or self._warned:
            return
        self._warned = True
        warn_caller(
            f"{self.by_popularity:,} of {len(found.user):,} queries of the validation are answered by the most popular items, "
            f"after any epoch: {type(model).__name__} knows nothing of their contexts. Hold out other queries, or describe "
            f"contexts by what is known of these.",
            FallbackWarning,
        )

    def check(self, dataset: Dataset) -> None:
        """Raise if a fit to ``dataset`` would be trained on the events it is evaluated on."""
        if not self.allow_trained:
            refuse_trained_events(dataset, self.queries)

    def _epochs_to_keep(self) -> set[int | None]:
        """The best epoch, and the best one if the fit continues with more epochs."""
        return {self.best_epoch, _best({epoch: value for epoch, value in self.values.items() if self._regular(epoch)})}

    def restore(self, recommender: Trainee) -> None:
        """Set the model's parameters to those of the best epoch, if there was an evaluation."""
        if self.best_epoch is not None:
            for name, parameter in _parameters(recommender).items():
                parameter.load(self._kept[self.best_epoch][name])

    def __repr__(self) -> str:
        if not self.values:
            return f"EarlyStopping({self.metric}, not evaluated yet)"
        popular = f", {self.by_popularity:,} queries answered by popularity" if self.by_popularity else ""
        best = f"{self.metric} {self.best_value:.4f}, best at epoch {self.best_epoch} of {max(self.values)}"
        return f"EarlyStopping({best}{popular})"

    @cached_property
    def _settings(self) -> dict[str, Any]:
        """All that the values and the end of the fit depend on."""
        return {
            "metric": self.metric,
            "every": self.every,
            "patience": self.patience,
            "exclude_seen": bool(self.exclude_seen),
            "queries": fingerprint(self.queries.content()),
        }

    def state(self) -> dict[str, Any]:
        """For a checkpoint, as JSON can hold it; :meth:`arrays` has the best parameters."""
        values = [[epoch, value] for epoch, value in self.values.items()]
        return {**self._settings, "values": values, "restored": self._restored, "by_popularity": self.by_popularity}

    def arrays(self) -> dict[str, np.ndarray]:
        """The best parameters, in the shapes of the model's ``parameters_``, by epoch and name."""
        return {f"{epoch} {name}": value for epoch, values in self._kept.items() for name, value in values.items()}

    def resume(self, recommender: Trainee, state: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
        """Continue a fit from a checkpoint.

        If there are more epochs now, the value of an epoch that was evaluated only because it was the last is dropped: the fit
        continues as if it had so many epochs from the start.

        Parameters
        ----------
        recommender : Recommender
            With the epochs so far, and the parameters of the last of them.
        state, arrays
            Of the :class:`EarlyStopping` of that fit, after the same epoch.
        """
        self._check_settings(state)
        model = trained_by_epochs(recommender.model)
        (values, by_popularity), done = _restored(state), len(model.history_)
        if values and max(values) > done:
            raise ValueError(f"the state is of epoch {max(values)}, the fit has come to epoch {done}: they do not belong together.")
        if state.get("restored") and done < model.epochs:
            raise ValueError(
                f"the fit had ended at epoch {done} with the best epoch's parameters, so that it cannot continue to epoch "
                f"{model.epochs}: give fit(validation=...) in place of this callback from the start, or epochs={done}."
            )
        self.values = {epoch: value for epoch, value in values.items() if self._regular(epoch) or epoch == model.epochs}
        self._kept, self._restored, self._warned = {}, bool(state.get("restored")), False
        self.by_popularity = by_popularity
        shapes = {name: parameter.shape for name, parameter in _parameters(recommender).items()}
        for epoch in self._epochs_to_keep() - {None}:
            kept = {name: np.array(arrays[f"{epoch} {name}"]) for name in shapes if f"{epoch} {name}" in arrays}
            given = {name: value.shape for name, value in kept.items()}
            if given != shapes:
                raise ValueError(f"arrays must have the parameters of epoch {epoch}, with shapes {shapes}, got {given}.")
            self._kept[int(epoch or 0)] = kept

    def _check_settings(self, state: Any) -> None:
        """Refuse the state of another metric or other queries: its values cannot be compared."""
        known = state if isinstance(state, Mapping) else {}
        for name, now in self._settings.items():
            before = known.get(name)
            if before != now:
                what = "other queries" if name == "queries" else f"{name}={before!r}, got {name}={now!r}"
                raise ValueError(f"the fit was validated with {what}: continue with the same, or fit without its checkpoint.")


def _restored(state: Mapping[str, Any]) -> tuple[dict[int, float], int]:
    """The values, and the number of queries that popularity answered, which 0.1 does not have."""
    try:
        values = {int(epoch): float(value) for epoch, value in state["values"]}
        return values, check.integer("by_popularity", state.get("by_popularity", 0), low=0)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"the values of the checkpoint's EarlyStopping cannot be used ({error!r}): delete it.") from error


def _best(values: Mapping[int, float]) -> int | None:
    """The first epoch with the largest value."""
    return max(values, key=lambda epoch: values[epoch], default=None)


def trained_by_epochs(model: Any) -> TowerModel:
    """The model, if it is trained by epochs."""
    if not isinstance(model, TowerModel):
        raise TypeError(
            f"only models that are trained by epochs (MF, MFSI, FM, PARAFAC, Tucker) can be stopped early or tuned, got {model!r}."
        )
    return model


def _parameters(recommender: Trainee) -> dict[str, Any]:
    return trained_by_epochs(recommender.model).state.parameters
