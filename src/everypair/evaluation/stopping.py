"""Early stopping: a fit ends where a metric on held-out queries no longer gets better, and the best epoch's parameters are kept."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from everypair import validation as check
from everypair.evaluation import metrics as formulas
from everypair.evaluation.evaluate import evaluate
from everypair.evaluation.splits import Queries
from everypair.models.tower_model import TowerModel
from everypair.recommender import Recommender
from everypair.solver import Epoch


class EarlyStopping:
    """A callback of :meth:`Recommender.fit <everypair.Recommender.fit>` that evaluates the model and ends the fit in time.

    When the fit ends, the model has the parameters of its best epoch, not of its last; ``history_`` has all epochs that were run.

    ``fit(dataset, validation=split.tune)`` makes one. Given as a callback of its own, it puts the best parameters back when it
    stops the fit and at the model's last epoch, but not where ``tol``, Ctrl-C or another callback ended the fit before.

    Parameters
    ----------
    queries : Queries
        ``tune`` of a :class:`~everypair.evaluation.Split` whose ``train`` is fitted.
    metric : str
    every : int
        Epochs between evaluations; the last epoch is evaluated, too.
    patience : int
        The fit ends after so many evaluations in a row without a better value.
    exclude_seen : bool
        As for :func:`~everypair.evaluation.evaluate`.

    Attributes
    ----------
    values : dict
        The metric at each epoch that was evaluated.
    best_epoch : int or None
        The first epoch with the largest value; None before the first evaluation.
    best_value : float
        Its value.
    restores : bool
        Whether it puts the best parameters back by itself, and does not leave that to whoever made it.

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
        self, queries: Queries, metric: str = "ndcg@10", *, every: int = 1, patience: int = 2, exclude_seen: bool = True
    ) -> None:
        if not isinstance(queries, Queries):
            raise TypeError(f"queries must be split.tune or other Queries of a split, got {type(queries).__name__}.")
        formulas.parse(metric)
        self.queries, self.metric, self.exclude_seen = queries, metric, exclude_seen
        self.every, self.patience = check.integer("every", every, low=1), check.integer("patience", patience, low=1)
        self.restores = True
        self._forget()

    def _forget(self) -> None:
        self.values: dict[int, float] = {}
        self._best: dict[str, np.ndarray] = {}

    @property
    def best_epoch(self) -> int | None:
        return max(self.values, key=lambda epoch: self.values[epoch], default=None)

    @property
    def best_value(self) -> float:
        return max(self.values.values(), default=-np.inf)

    def __call__(self, recommender: Recommender, epoch: Epoch) -> bool:
        """Evaluate, if it is time to; whether to stop."""
        model = trained_by_epochs(recommender.model)
        if epoch.epoch == 1:  # of another fit
            self._forget()
        last = epoch.epoch == model.epochs
        if epoch.epoch % self.every and not last:
            return False
        found = evaluate(recommender, self.queries, (self.metric,), exclude_seen=self.exclude_seen)[self.metric]
        self.values[epoch.epoch] = found
        if self.best_epoch == epoch.epoch:
            self._best = model.parameters_
        since = sum(evaluated > (self.best_epoch or 0) for evaluated in self.values)
        stop = since >= self.patience
        if self.restores and (stop or last):
            self.restore(recommender)
        return stop

    def restore(self, recommender: Recommender) -> None:
        """Put the best parameters back into the model; nothing if there was no evaluation yet."""
        for name, parameter in _parameters(recommender).items() if self._best else ():
            parameter.load(self._best[name])

    def __repr__(self) -> str:
        if not self.values:
            return f"EarlyStopping({self.metric}, not evaluated yet)"
        return f"EarlyStopping({self.metric} {self.best_value:.4f}, best at epoch {self.best_epoch} of {max(self.values)})"

    def state(self) -> dict[str, Any]:
        """What a fit that goes on later needs to know, as JSON takes it; the best parameters apart (see :meth:`arrays`)."""
        return {"metric": self.metric, "values": [[epoch, value] for epoch, value in self.values.items()]}

    def arrays(self) -> dict[str, np.ndarray]:
        """The best parameters by name, as ``parameters_`` of the model has them."""
        return dict(self._best)

    def resume(self, recommender: Recommender, state: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
        """Go on with a fit that was ended.

        Parameters
        ----------
        recommender : Recommender
            With the epochs so far, and the parameters of the last of them.
        state, arrays
            Of the :class:`EarlyStopping` of that fit, after the same epoch.
        """
        if state["metric"] != self.metric:
            raise ValueError(f"the fit was watched by {state['metric']}, got metric={self.metric!r}: go on with the same.")
        values = {int(epoch): float(value) for epoch, value in state["values"]}
        done = len(trained_by_epochs(recommender.model).history_)
        if values and max(values) > done:
            raise ValueError(f"the state is of epoch {max(values)}, the fit has come to epoch {done}: they do not belong together.")
        parameters = _parameters(recommender)
        shapes = {name: np.shape(value) for name, value in arrays.items()}
        if values and shapes != {name: parameter.shape for name, parameter in parameters.items()}:
            raise ValueError(f"arrays must be the best parameters of the model ({', '.join(parameters)}), got shapes {shapes}.")
        self.values, self._best = values, {name: np.array(value) for name, value in arrays.items()}


def trained_by_epochs(model: Any) -> TowerModel:
    """The model, if it is trained by epochs."""
    if not isinstance(model, TowerModel):
        raise TypeError(
            f"only models that are trained by epochs (MF, MFSI, FM, PARAFAC, Tucker) can be stopped early or tuned, got {model!r}."
        )
    return model


def _parameters(recommender: Recommender) -> dict[str, Any]:
    towers = trained_by_epochs(recommender.model)._towers
    return {name: parameter for tower in towers.values() for name, parameter in tower.parameters.items()}
