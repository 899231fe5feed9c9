"""The adapters of models that count: CoView and Popularity. They know every context, if only by the counts of all items."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from everypair.engine.feedback import Feedback
from everypair.models.baselines import CoView, Popularity
from everypair.ranking.rank import DenseScores, Scores
from everypair.recommend.adapters.base import Adapter, Columns, ExplanationRequest, ScoringRequest, single_level_column
from everypair.recommend.description import ItemColumns
from everypair.recommend.explain.explanation import Summand
from everypair.recommend.recipes import Previous, UserId
from everypair.recommend.stored_arrays import Stored, check_bounds, check_contexts, check_floats, check_index
from everypair.runtime.wording import setting


class CountAdapter(Adapter):
    """Counts are made anew when there are new events: that is all a fit does."""

    refits_on_update = True

    @staticmethod
    def _score(request: ExplanationRequest, scores: Scores) -> float:
        return float(scores.block(0, 1)[0, request.item])


class CoViewAdapter(CountAdapter):
    """The previous item, or another column of levels."""

    model: CoView

    @property
    def fit_state(self) -> Any:
        return self.model.counts_ if self.model.is_fitted else None

    def check(self, context: Any, item: Any) -> None:
        super().check(context, item)
        if list(context) == [UserId()]:
            taken = setting("context", [Previous], "Recommender")
            raise ValueError(f"CoView takes {taken}, or an attribute: say so, since the default is the user's id.")

    def fit(self, feedback: Feedback, contexts: Columns, items: ItemColumns, **options: Any) -> None:
        self.model.fit(feedback, contexts=self._levels(contexts))

    def _levels(self, columns: Columns) -> np.ndarray:
        return single_level_column(columns, self.model).codes

    def scores(self, request: ScoringRequest) -> tuple[Scores, None]:
        previous, n_items = self._levels(request.columns), self.model.counts_.shape[1]
        return DenseScores(lambda start, stop: self.model.scores_after(previous[start:stop]), len(previous), n_items), None

    def by_popularity(self, request: ScoringRequest) -> np.ndarray:
        return ~self.model.has_counts(self._levels(request.columns))

    def summands(self, request: ExplanationRequest, scores: Scores) -> list[Summand]:
        score, share = self._score(request, scores), float(self.model.share_[request.item])
        found = [Summand("popularity", "decides ties", share)]
        (field,) = request.scoring.columns
        return [Summand(field, request.label(field, None), score - share), *found] if score != share else found

    def stored(self) -> Stored:
        counts = self.model.counts_
        numbers = {"share": self.model.share_, "counts": counts.data}
        return Stored(numbers, {"indices": counts.indices, "indptr": counts.indptr, "previous": self.model.previous_}, {})

    def restore(self, stored: Stored, contexts: Columns, items: ItemColumns) -> None:
        n_items = items.dataset.n_items
        indices = np.array(check_index(stored.index["indices"], 0, n_items))
        indptr = np.array(check_bounds(stored.index["indptr"], len(stored.index["indptr"]) - 1, len(indices)))
        counts = np.array(check_floats(stored.numbers["counts"], len(indices)), np.float64)
        self.model.restore(
            sp.csr_array((counts, indices, indptr), shape=(len(indptr) - 1, n_items)),
            check_floats(stored.numbers["share"], n_items),
            check_index(stored.index["previous"], -1, len(indptr) - 1),
        )


class PopularityAdapter(CountAdapter):
    """The same counts in every context."""

    uses_contexts = False
    model: Popularity

    @property
    def fit_state(self) -> Any:
        return self.model.popularity_ if self.model.is_fitted else None

    def fit(self, feedback: Feedback, contexts: Columns, items: ItemColumns, **options: Any) -> None:
        self.model.fit(feedback)

    def scores(self, request: ScoringRequest) -> tuple[Scores, None]:
        return popularity_scores(self.model.popularity_, len(request.history.begin)), None

    def summands(self, request: ExplanationRequest, scores: Scores) -> list[Summand]:
        score = self._score(request, scores)
        return [Summand("everyone", f"seen {score:.12g} {'time' if score == 1 else 'times'}", score)]

    def stored(self) -> Stored:
        return Stored({"popularity": self.model.popularity_}, {}, {"contexts": self.model.n_contexts_})

    def restore(self, stored: Stored, contexts: Columns, items: ItemColumns) -> None:
        popularity = check_floats(stored.numbers["popularity"], items.dataset.n_items)
        self.model.restore(popularity, check_contexts(stored.facts["contexts"], items.dataset))


def popularity_scores(popularity: np.ndarray, n_rows: int) -> Scores:
    """The same scores in all rows."""
    return DenseScores(lambda start, stop: np.tile(popularity, (stop - start, 1)), n_rows, len(popularity))
