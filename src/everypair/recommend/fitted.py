"""The fitted state of a recommender: it answers requests. Nothing in it changes, so that any number of threads may use it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from everypair.data import Dataset
from everypair.ranking.rank import InnerProducts, Lists, Scores, rank
from everypair.recommend import results, similar
from everypair.recommend.adapters.base import Adapter, ExplanationRequest, ScoringRequest
from everypair.recommend.adapters.counts import popularity_scores
from everypair.recommend.adapters.vectors import VectorAdapter
from everypair.recommend.context_batch import HISTORY, HISTORY_TIMES, ContextBatch
from everypair.recommend.description import Description, ItemColumns
from everypair.recommend.event_weights import EventWeights
from everypair.recommend.explain.explanation import Explanation, Summand
from everypair.recommend.fold_in import WeightedHistory
from everypair.recommend.item_batch import ItemBatch
from everypair.recommend.recipes import Attributes, History, Previous, Recipe, by_row_order
from everypair.recommend.requests import (
    FALLBACKS,
    POPULAR,
    UNKNOWN,
    GivenIds,
    RequestBatch,
    UnknownCounts,
    UnusedHistoryWarning,
    refuse_unknown,
)
from everypair.recommend.results import RankedLists
from everypair.recommend.titles import Titles
from everypair.recommend.training_set import TrainingSet
from everypair.runtime import validation as check
from everypair.runtime.cached import cached_property
from everypair.runtime.parallel import Workers, thread_count
from everypair.runtime.progress import Progress
from everypair.runtime.warn import warn_caller
from everypair.runtime.wording import listed, setting, shown

USER, ITEM = "user", "item"


class Ranking(NamedTuple):
    """The best n items in each context.

    Attributes
    ----------
    codes, scores : arrays of shape (contexts, n)
        Filled up with -1 and ``-inf`` where fewer than n items are left.
    by_popularity : array of booleans
        The contexts that the model knows nothing of: their lists are the most popular items.
    """

    codes: np.ndarray
    scores: np.ndarray
    by_popularity: np.ndarray


@dataclass(frozen=True)
class FittedState:
    """A fitted model with its descriptions of contexts and items, and the data it answers from.

    Attributes
    ----------
    dataset : Dataset
    recipes : dict
        Of "context" and "item".
    contexts, items : Description
    adapter : Adapter
        Of the model.
    popularity : array
        How often each item was chosen: its score where the model knows nothing of a context.
    by_user : bool
        Whether a context is a user, and not an event.
    event_weights : EventWeights or None
        Of the fit.
    unknown : UnknownCounts
        Of all requests so far.
    """

    dataset: Dataset
    recipes: dict[str, Sequence[Recipe]]
    contexts: Description
    items: Description
    adapter: Adapter
    popularity: np.ndarray
    by_user: bool
    event_weights: EventWeights | None = None
    unknown: UnknownCounts = field(default_factory=UnknownCounts)

    @property
    def notes(self) -> list[str]:
        """What a reader of this fit's figures should know."""
        ordered = listed(by_row_order(self.recipes["context"], self.dataset))
        notes = [f"no timestamps: {ordered} follows the order of rows ({self.dataset.row_order})."] if ordered else []
        recipes = self.recipes["item"]
        if self.dataset.all_items and self.adapter.has_vectors and not any(recipe.describes_new_items for recipe in recipes):
            unused, own = int(np.sum(self.popularity == 0)), setting("item", list(recipes), "Recommender")
            notes.append(
                f"{unused:,} of {self.dataset.n_items:,} items have no events, and {own} says nothing else of them: their scores "
                f"are of no meaning. Add {shown(Attributes)}."
            )
        how = self.adapter.model.cut_short
        return notes if how is None else [*notes, f"the model is unfinished: {how}."]

    # requests

    def request_batch(
        self, users: Any = None, requests: Any = None, unknown: str = "ignore", fallback: str | None = None
    ) -> RequestBatch:
        """Users or requests, as for :meth:`everypair.Recommender.recommend`, as a batch.

        Values that training never saw are counted, or refused with ``unknown="error"``. Ids of users that the data do not have are
        refused, too, unless there is a ``fallback`` for them; None: the call has none.
        """
        check.choice("unknown", unknown, UNKNOWN)
        if (users is None) == (requests is None):
            raise TypeError("give either users=[ids] or requests=[{...}, ...], as in recommend(users=['ann'], n=10).")
        if users is not None:
            batch = RequestBatch.of_users(self.dataset, users, fallback if unknown == "ignore" else None)
            self.unknown.add(batch.unknown)
            return batch
        batch = RequestBatch.of_requests(self.dataset, requests)
        counts = self._count_unknown(batch.contexts, unknown)
        return batch._replace(unknown=counts, unused=self._unused(batch.contexts))

    def _unused(self, contexts: ContextBatch) -> str | None:
        """A message about histories of requests that change nothing but which items are left out, or whose times are missing."""
        recipes, given = self.recipes["context"], contexts.own_history & (contexts.end > contexts.begin)
        timed = [recipe for recipe in recipes if recipe.uses_times]
        if timed and contexts.untimed:
            return (
                f"{listed(timed)} depends on the times of the items of a history, and {contexts.untimed:,} of {len(contexts):,} "
                f"requests have a {HISTORY!r} without {HISTORY_TIMES!r}: its items are taken for events of one moment."
            )
        used = self.adapter.folds_in_histories or any(recipe.uses_history for recipe in recipes)
        if used or not self.adapter.uses_contexts or not given.any():
            return None
        own = setting("context", list(recipes), "Recommender")
        return (
            f"{type(self.adapter.model).__name__} with {own} does not use the {HISTORY!r} of requests: it only says which items "
            f"were seen. Fit with {shown(History)} or {shown(Previous)} as a recipe of contexts, or MF with users alone, which "
            f"folds histories in."
        )

    def _count_unknown(self, contexts: ContextBatch, unknown: str) -> dict[str, int]:
        by_row = {name: rows for name, rows in self.contexts.unknown(contexts).items() if rows.any()}
        counts = {name: int(rows.sum()) for name, rows in by_row.items()} | {key: n for key, n in contexts.unknown.items() if n}
        if counts and unknown == "error":
            refuse_unknown(counts, by_row, contexts)
        self.unknown.add(counts)
        return counts

    def scoring_request(self, contexts: ContextBatch) -> ScoringRequest:
        """Contexts as adapters take them."""
        self.require_same_data(contexts)
        contexts = contexts.compact()
        history = Lists(contexts.begin, contexts.end, contexts.items)
        columns = self.contexts.columns(contexts)
        return ScoringRequest(columns, history, self.weighted_history, lambda: self.contexts.known(contexts), contexts.own_history)

    def require_same_data(self, contexts: ContextBatch) -> None:
        """Raise if contexts are of other data, so that codes mean other users or items."""
        has_users = bool((contexts.user >= 0).any())
        if not contexts.item_ids.same(self.dataset.items) or (has_users and not contexts.user_ids.same(self.dataset.users)):
            raise ValueError(
                "these contexts are of other data than the recommender was fitted on: codes mean other users or items. "
                "Split one Dataset."
            )

    def weighted_history(self, items: np.ndarray) -> WeightedHistory:
        """The items of a history as a fit would count them, each event with a confidence of one times its weight in training."""
        weights, repeats = self.event_weights, self.dataset.repeats
        of_events = np.ones(len(items)) if weights is None else weights.of_history(len(items), self._mean_weight)
        if not self.by_user and repeats == "keep":
            return WeightedHistory(items, of_events, len(items), len(items))
        once, first, event = np.unique(items, return_index=True, return_inverse=True)
        alpha = of_events[first] if repeats == "drop" else np.bincount(event, of_events, len(once))
        return WeightedHistory(once, alpha, 1 if self.by_user else len(once), len(items) if repeats == "keep" else len(once))

    @cached_property
    def _mean_weight(self) -> float:
        return 1.0 if self.event_weights is None else self.event_weights.mean(self.dataset)

    # recommendations

    def scores(self, contexts: ContextBatch) -> tuple[Scores, np.ndarray | None]:
        """The scores of all items in each context, and which contexts the model knows anything of; None: all."""
        return self.adapter.scores(self.scoring_request(contexts))

    def rank(
        self,
        contexts: ContextBatch,
        n: int,
        *,
        exclude_seen: bool = True,
        candidates: Lists | None = None,
        allowed: np.ndarray | None = None,
        refuse: Callable[[np.ndarray], Any] | None = None,
        n_threads: int | None = None,
    ) -> Ranking:
        """The best n items in each context, by code, and their scores; where the model knows nothing, the most popular ones.

        Parameters
        ----------
        contexts : ContextBatch
        n : int
            At most the number of items.
        exclude_seen : bool
            Leave out the items of the history.
        candidates : Lists, optional
            The only items to rank in each context.
        allowed : array of booleans, optional
            The only items to rank in any context.
        refuse : callable
            Called with the mask of known contexts if there are others.
        n_threads : int, optional

        Returns
        -------
        Ranking
        """
        n = min(check.integer("n", n, low=1), self.dataset.n_items)
        if candidates is not None:
            check.indices("candidates.items", candidates.items, self.dataset.n_items)
            if not len(candidates.begin) == len(candidates.end) == len(contexts):
                raise ValueError(
                    f"candidates must have a list for each of the {len(contexts):,} contexts, got {len(candidates.begin):,}."
                )
        seen = Lists(contexts.begin, contexts.end, contexts.items) if exclude_seen else None
        request = self.scoring_request(contexts)
        scores, known = self.adapter.scores(request)
        with Workers(thread_count(n_threads)) as workers, Progress(len(contexts), "ranking", unit="row") as progress:
            if known is None or known.all():
                codes, best = rank(scores, n, workers, seen, candidates, allowed, progress.advance)
                return Ranking(codes, best, self.adapter.by_popularity(request) if known is None else ~known)
            if refuse is not None:
                refuse(known)
            codes, best = np.full((len(contexts), n), -1), np.full((len(contexts), n), -np.inf, scores.dtype)
            for which in (known, ~known):
                rows = np.flatnonzero(which)
                if not len(rows):
                    continue
                assert isinstance(scores, InnerProducts)  # other scores know every context
                chosen = scores.take(rows) if which is known else popularity_scores(self.popularity, len(rows))
                own_seen, own_candidates = (None if each is None else each.take(rows) for each in (seen, candidates))
                codes[rows], best[rows] = rank(chosen, n, workers, own_seen, own_candidates, allowed, progress.advance)
            return Ranking(codes, best, ~known)

    def recommend(
        self,
        users: Any = None,
        n: int = 10,
        *,
        requests: Any = None,
        unknown: str = "ignore",
        fallback: str = "error",
        **options: Any,
    ) -> Any:
        """A table of recommendations, see :meth:`everypair.Recommender.recommend`; ``options`` as for :meth:`ranked`."""
        check.choice("fallback", fallback, FALLBACKS)
        batch, dataset = self.request_batch(users, requests, unknown, fallback), self.dataset
        ranked = self.ranked(batch, n, fallback=fallback, **options)
        results.warn_about(ranked)
        if batch.unused is not None:
            warn_caller(batch.unused, UnusedHistoryWarning)
        table = results.table(batch.kind, batch.names, dataset.item_column, dataset.items, ranked)
        return results.in_frame(table, (batch.frame, dataset.frame))

    def ranked(
        self,
        batch: RequestBatch,
        n: int = 10,
        *,
        exclude_seen: bool = True,
        allow: Any = None,
        deny: Any = None,
        candidates: Any = None,
        fallback: str = "error",
        n_threads: int | None = None,
    ) -> RankedLists:
        """The best n items for each user or request of a batch; arguments as for :meth:`everypair.Recommender.recommend`."""
        length, dataset = check.integer("n", n, low=1), self.dataset
        lists = results.candidate_lists(dataset, candidates, len(batch.contexts), batch.argument)
        allowed = results.allowed_items(dataset, allow, deny)
        popular = check.choice("fallback", fallback, FALLBACKS) == POPULAR
        codes, scores, by_popularity = self.rank(
            batch.contexts,
            length,
            exclude_seen=exclude_seen,
            candidates=lists,
            allowed=allowed,
            refuse=None if popular else lambda known: self._refuse(known, batch),
            n_threads=n_threads,
        )
        filters = results.filter_names(exclude_seen, allow, deny, candidates)
        short = results.reason_if_short(codes, length, batch.names, batch.kind, filters, dataset.n_items)
        fallen_back = self.reason_if_fallback(batch, by_popularity) if popular else None
        return RankedLists(codes, scores, short, by_popularity, fallen_back)

    def reason_if_fallback(self, batch: RequestBatch, by_popularity: np.ndarray) -> str | None:
        """Which lists of a batch do not come from what the model knows of someone; None if all do."""
        model = type(self.adapter.model).__name__
        return results.reason_if_fallback(by_popularity, batch.new_users, batch.names, batch.kind, model)

    def _refuse(self, known: np.ndarray, batch: RequestBatch) -> None:
        """The error for contexts that the model knows nothing of."""
        r, model = int(np.argmin(known)), type(self.adapter.model).__name__
        fields = ", ".join(map(repr, self.contexts.fields))
        also = f" (and {HISTORY!r}, the items of an unknown user)" if self.adapter.folds_in_histories else ""
        raise ValueError(
            f"{model} can say nothing about {int(np.sum(~known)):,} of {len(known):,}, such as {batch.kind} "
            f"{batch.names[r].as_py()!r}: it uses {fields}{also}, and training saw none of the values given. For people never "
            f"seen, fit FM or MFSI with {setting('context', [Attributes], 'Recommender')} (their attributes) or {shown(History)} "
            f"(the items they have seen); or use {setting('fallback', POPULAR)}."
        )

    # explanations

    def explain(self, user: Any = None, item: Any = None, *, request: Any = None, unknown: str = "ignore") -> Explanation:
        """See :meth:`everypair.Recommender.explain`."""
        if (user is None) == (request is None) or item is None:
            raise TypeError(
                "explain takes an item and either a user or a request: explain(user, item) or explain(item=..., request={...}), "
                f"got user={user!r}, item={item!r}, request={request!r}."
            )
        (code,) = GivenIds.known(self.dataset.items, [item], "items").codes
        batch = self.request_batch(None if user is None else [user], None if request is None else [request], unknown)
        if batch.unused is not None:
            warn_caller(batch.unused, UnusedHistoryWarning)
        return self.explained(batch.contexts, int(code))

    def explained(self, contexts: ContextBatch, item: int, titles: Titles | None = None) -> Explanation:
        """The summands of the score of an item (its code) in a single context; ``titles`` are those of the data by default."""
        scoring = self.scoring_request(contexts)
        scores, known = self.adapter.scores(scoring)
        if known is not None and not known[0]:
            summands = [Summand("popularity", "nothing else is known", float(self.popularity[item]))]
        else:
            summands = self.adapter.summands(self._explanation_request(contexts, scoring, item), scores)
        user, titles = int(contexts.user[0]), self.titles if titles is None else titles
        (title,) = titles.of([item])
        user_id, named = contexts.user_ids[user] if user >= 0 else None, titles.added_to(summands, self._names_an_item)
        return Explanation(contexts.item_ids[item], user_id, named, title, titles.column is not None)

    @cached_property
    def titles(self) -> Titles:
        """The titles of items."""
        return Titles(self.dataset)

    def _names_an_item(self, field: str) -> bool:
        """Whether the value of a summand of this field is the id of an item."""
        featurizer = self.contexts.fields.get(field)
        return field in (ITEM, HISTORY) if featurizer is None else featurizer.ids == "items"

    def _explanation_request(self, contexts: ContextBatch, scoring: ScoringRequest, item: int) -> ExplanationRequest:
        def item_id(code: int) -> str:
            return str(contexts.item_ids[code])

        def label(field: str, feature: int | None) -> str:
            return self.contexts.label(contexts, field, feature)

        def trained_history() -> WeightedHistory:
            feedback = TrainingSet.of(
                self.dataset, self.by_user, self.dataset.user == contexts.user[0], self.event_weights
            ).feedback
            alpha = np.broadcast_to(feedback.alpha, len(feedback))
            return WeightedHistory(feedback.by_context.indices, alpha, feedback.n_contexts, float(feedback.context_count.sum()))

        return ExplanationRequest(scoring, item, item_id, label, trained_history)

    # vectors, and what is similar by them

    @property
    def vectors(self) -> VectorAdapter:
        """The adapter, if its model has vectors."""
        return self.adapter.with_vectors()

    def context_vectors(self, contexts: ContextBatch) -> tuple[np.ndarray, np.ndarray]:
        """phi of contexts, by which they are ranked; and which of them the model knows anything of."""
        scores, known = self.vectors.scores(self.scoring_request(contexts))
        return scores.phi, np.ones(len(contexts), bool) if known is None else known

    def known_context_vectors(self, batch: RequestBatch) -> np.ndarray:
        """phi of users or requests; an error if the model knows nothing of one."""
        vectors, known = self.context_vectors(batch.contexts)
        if not known.all():
            self._refuse(known, batch)
        return vectors

    @property
    def trained_items(self) -> np.ndarray:
        """Which items training learnt anything of: from events if their ids are features, or from attributes."""
        rows, fields = ItemBatch.of(self.dataset), self.items.fields.values()
        return np.any([self.popularity > 0 if field.ids is not None else field.known(rows) for field in fields], axis=0)

    @property
    def item_directions(self) -> similar.Directions:
        """The directions of the vectors of items; kept when the fit has ended."""
        return self._kept_directions if self.adapter.trained else self._directions()

    @cached_property
    def _kept_directions(self) -> similar.Directions:
        return self._directions()

    def _directions(self) -> similar.Directions:
        return similar.directions(self.vectors.psi, self.vectors.factor_dimensions, self.trained_items, self.vectors.model.device)

    @property
    def user_directions(self) -> similar.Directions:
        """The directions of the vectors of users, after all their events."""
        contexts = ContextBatch.of_users(self.dataset, np.arange(self.dataset.n_users))
        vectors = self.vectors.vectors(self.contexts.columns(contexts))
        return similar.directions(vectors, self.vectors.factor_dimensions, self.contexts.known(contexts), self.vectors.model.device)

    def nearest(self, what: str, codes: np.ndarray, names: pa.Array, n: int, n_threads: int | None = None) -> RankedLists:
        """The n items (``what`` "item") or users ("user") most similar to each of these."""
        directions = self.item_directions if what == ITEM else self.user_directions
        length, count = check.integer("n", n, low=1), len(directions.trained)
        found, scores = directions.nearest(codes, names, what, min(length, count), n_threads)
        left_out = [f"nothing being known of them, the {what} itself among them"]
        return RankedLists(found, scores, results.reason_if_short(found, length, names, what, left_out, count))

    def similar(self, what: str, given: Any, n: int, n_threads: int | None = None) -> Any:
        """As :meth:`nearest`, from ids to a table."""
        dataset = self.dataset
        ids, column = (dataset.items, dataset.item_column) if what == ITEM else (dataset.users, dataset.user_column)
        known = GivenIds.known(ids, given, f"{what}s")
        ranked = self.nearest(what, known.codes, known.names, n, n_threads)
        results.warn_about(ranked)
        return results.in_frame(results.table(column, known.names, "similar", ids, ranked), (known.frame, dataset.frame))

    # columns of no rows, which say what features there are

    def no_contexts(self) -> Mapping[str, Any]:
        return self.contexts.columns(ContextBatch.of_users(self.dataset, np.empty(0, np.int64)))

    @property
    def item_columns(self) -> ItemColumns:
        return ItemColumns(self.items, self.recipes["item"], self.dataset)
