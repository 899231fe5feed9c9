"""Evaluation of a recommender on held-out queries: metrics of ranked lists, and their confidence intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from everypair.evaluation import metrics as formulas
from everypair.evaluation.leaks import refuse_trained_events, trained_on
from everypair.evaluation.metrics import RankedQueries
from everypair.evaluation.queries import Queries
from everypair.recommend.fitted import FittedState
from everypair.runtime import validation as check

DEFAULT = ("recall@10", "ndcg@10")


class Evaluation:
    """Metrics by query, and their means over all queries.

    Attributes
    ----------
    values : dict of arrays
        Each metric, a number per query.
    coverage : dict of float
        Metrics that are a number for all lists together.
    user : array
        The user of each query: the bootstrap draws users.
    notes : list of str
        Queries and relevant items left out, and why; how many queries the model did not answer itself.
    by_popularity : int
        Queries of which the model knew nothing, so that the most popular items were its answer.
    """

    def __init__(
        self,
        values: dict[str, np.ndarray],
        coverage: dict[str, float],
        user: np.ndarray,
        notes: list[str],
        by_popularity: int = 0,
    ) -> None:
        self.values, self.coverage, self.user, self.notes = values, coverage, user, notes
        self.by_popularity = by_popularity

    def __getitem__(self, metric: str) -> float:
        return self.coverage[metric] if metric in self.coverage else float(self._values(metric).mean())

    def _values(self, metric: str) -> np.ndarray:
        if metric not in self.values:
            raise KeyError(f"{metric!r} was not evaluated by query; {', '.join(self.values) or 'nothing'} was.")
        return self.values[metric]

    @property
    def means(self) -> dict[str, float]:
        return {metric: self[metric] for metric in (*self.values, *self.coverage)}

    def interval(
        self, metric: str, level: float = 0.95, draws: int = 1000, seed: int = 0, relative_to: Evaluation | None = None
    ) -> tuple[float, float]:
        """Bootstrap percentiles of the mean: users are drawn with replacement, with all their queries.

        With ``relative_to``, those of the ratio to another evaluation of the same queries, with the same draws of users for both.
        """
        if relative_to is not None and not (isinstance(relative_to, Evaluation) and np.array_equal(relative_to.user, self.user)):
            raise ValueError("relative_to must be an evaluation of the same queries.")
        _, user = np.unique(self.user, return_inverse=True)
        top = np.bincount(user, self._values(metric))
        bottom = np.bincount(user).astype(float) if relative_to is None else np.bincount(user, relative_to._values(metric))
        random = np.random.default_rng(seed)
        found = np.empty(check.integer("draws", draws, low=1))
        for draw in range(len(found)):
            drawn = random.integers(0, len(top), len(top))
            below = bottom[drawn].sum()
            found[draw] = top[drawn].sum() / below if below > 0 else np.nan
        tail = 50 * (1 - check.number("level", level, low=0.0, high=1.0))
        low, high = np.nanpercentile(found, [tail, 100 - tail]) if np.isfinite(found).any() else (np.nan, np.nan)
        return float(low), float(high)

    def summary(self) -> dict[str, Any]:
        """Means and their intervals, for ``recommender.evaluation_``, which is saved with a recommender."""
        figures: dict[str, Any] = {}
        for metric, value in self.means.items():
            low, high = self.interval(metric) if metric in self.values else (None, None)  # coverage is of all lists together
            figures[metric] = {"value": value, "low": low, "high": high}
        counts = {"queries": len(self.user), "by_popularity": self.by_popularity}
        return {**counts, "metrics": figures, "notes": list(self.notes)}

    def __repr__(self) -> str:
        popular = f", {self.by_popularity:,} of them answered by popularity" if self.by_popularity else ""
        figures = ", ".join(f"{name} {value:.4f}" for name, value in self.means.items())
        return f"Evaluation({len(self.user):,} queries{popular}: {figures})"


def evaluate(
    recommender: Any,
    queries: Queries,
    metrics: Sequence[str] = DEFAULT,
    *,
    exclude_seen: bool = True,
    allow_trained: bool = False,
) -> Evaluation:
    """Rank all items for each query and compare the lists with the relevant items.

    Parameters
    ----------
    recommender : Recommender, or its state
        Fitted on the split's train.
    queries : Queries
        ``tune`` or ``test`` of a :class:`~everypair.evaluation.Split`.
    metrics : sequence of str
        Such as "recall@10", "ndcg@100"; see :mod:`everypair.evaluation.metrics`.
    exclude_seen : bool
        Leave out the items of a query's history, also where such an item is relevant again.
    allow_trained : bool
        Evaluate also if relevant items are events that the recommender was trained on, which is refused otherwise: a note has their
        number.
    """
    _check_arguments(recommender, queries)
    state = state_of(recommender)
    state.require_same_data(queries.contexts)
    dataset = state.dataset
    if not allow_trained:
        refuse_trained_events(dataset, queries)
    found = evaluated(recommender, queries, metrics, exclude_seen)
    trained = int(trained_on(dataset, queries).sum()) if allow_trained else 0
    if trained:
        found.notes.append(f"{trained:,} of {len(queries.relevant):,} relevant items were trained on: figures measure memory.")
    return found


def evaluated(recommender: Any, queries: Queries, metrics: Sequence[str], exclude_seen: bool) -> Evaluation:
    """As :func:`evaluate`, for queries that are known to be of other events than those trained on."""
    _check_arguments(recommender, queries)
    if isinstance(metrics, str) or not len(metrics):
        raise TypeError(f"metrics must be a list such as ['recall@10', 'ndcg@10'], got {metrics!r}.")
    wanted = {spec: formulas.parse(spec) for spec in metrics}
    queries, notes = queries.unseen if exclude_seen else (queries, [])
    if not len(queries):
        raise ValueError(f"nothing is left to evaluate. {' '.join(notes)}")
    longest, state = max(k for _, k in wanted.values()), state_of(recommender)
    items, _, popular = state.rank(
        queries.contexts,
        longest,
        exclude_seen=exclude_seen,
        candidates=queries.candidates,
        n_threads=getattr(recommender, "n_threads", None),
    )
    ranked = RankedQueries.of(items, queries.bounds, queries.relevant, state.popularity)
    values = {spec: formulas.value(name, ranked.at(k)) for spec, (name, k) in wanted.items()}
    by_query = {spec: found for spec, found in values.items() if isinstance(found, np.ndarray)}
    of_all = {spec: float(found) for spec, found in values.items() if not isinstance(found, np.ndarray)}
    notes = [*notes, *state.notes]
    if popular.any():
        name = type(state.adapter.model).__name__
        notes.append(
            f"{int(popular.sum()):,} of {len(queries):,} queries were answered by the most popular items: {name} knows nothing of "
            f"their contexts."
        )
    return Evaluation(by_query, of_all, queries.user, notes, int(popular.sum()))


def state_of(recommender: Any) -> FittedState:
    return recommender if isinstance(recommender, FittedState) else recommender.state


def _check_arguments(recommender: Any, queries: Any) -> None:
    if not callable(getattr(recommender, "rank", None)):
        raise TypeError(f"recommender must be a Recommender, got {type(recommender).__name__}: Recommender(model, context=[...]).")
    if not isinstance(queries, Queries):
        raise TypeError(f"queries must be split.tune or split.test, got {type(queries).__name__}.")
