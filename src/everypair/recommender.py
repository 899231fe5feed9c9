"""A model and what it is told: from tables to features to a fitted model to ranked items."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from everypair import validation as check
from everypair.contexts import Catalogue, Description, ItemId, Recipe, UserId, check_recipes
from everypair.data import Dataset
from everypair.feedback import Feedback
from everypair.models.base import Model, NotFittedError
from everypair.moments import Moments
from everypair.parallel import Workers, thread_count
from everypair.ranking import Lists, rank
from everypair.readers import reader

if TYPE_CHECKING:
    from everypair.evaluation import EarlyStopping, Queries

UNITS = ("auto", "user", "event")


class Recommender:
    """A model, and recipes for what it is told of contexts and items.

    Parameters
    ----------
    model : Model
        Any of the package; it is fitted in place.
    context, item : lists of recipes, optional
        See :mod:`everypair.contexts`. By default the user's and the item's id.
    unit : {"auto", "user", "event"}
        What a context is. "event": each event, which chose its item over all others. "user": each user, with all her items. "auto":
        a user where the recipes tell nothing that changes from event to event. Identical contexts are merged and weigh as
        many: the loss is the same.

    Examples
    --------
    >>> import everypair as ep
    >>> dataset = ep.datasets.youtube_like(200, 50, seed=0)
    >>> recommender = ep.Recommender(ep.FM(factors=4), context=[ep.Attributes("country"), ep.Previous()])
    >>> ids, scores = recommender.fit(dataset).recommend([{"country": dataset.user_table["country"][0].as_py()}], n=3)
    >>> ids.shape
    (1, 3)
    """

    def __init__(
        self, model: Model, context: Sequence[Recipe] | None = None, item: Sequence[Recipe] | None = None, *, unit: str = "auto"
    ) -> None:
        if not isinstance(model, Model):
            raise TypeError(f"model must be a model of this package, such as everypair.MF(), got {model!r}.")
        self.model = model
        self.context = check_recipes("context", [UserId()] if context is None else context)
        self.item = check_recipes("item", [ItemId()] if item is None else item)
        self.unit = check.choice("unit", unit, UNITS)

    def fit(
        self,
        dataset: Dataset,
        callback: Callable[[Recommender, Any], Any] | None = None,
        *,
        validation: Queries | None = None,
        metric: str = "ndcg@10",
        patience: int = 2,
        evaluate_every: int = 1,
    ) -> Self:
        """Train from scratch on all events.

        Parameters
        ----------
        dataset : Dataset
        callback : callable, optional
            ``callback(recommender, epoch)`` after each epoch; a true value stops.
        validation : Queries, optional
            ``tune`` of a split whose ``train`` is fitted: the fit ends where ``metric`` no longer gets better there, and the model
            is that of the best epoch. ``validation_`` has the values (see :class:`~everypair.evaluation.EarlyStopping`).
        metric : str
        patience : int
            The fit ends after so many evaluations in a row without a better value.
        evaluate_every : int
            Epochs between evaluations.
        """
        if not isinstance(dataset, Dataset):
            raise TypeError(f"dataset must be an everypair.Dataset, got {type(dataset).__name__}.")
        if not len(dataset):
            raise ValueError("dataset has no events: there is nothing to learn from.")
        if callback is not None and not callable(callback):
            raise TypeError(f"callback must be callable with (recommender, epoch), got {callback!r}.")
        stopping = None if validation is None else self._stopping(validation, metric, patience, evaluate_every)
        read = reader(self.model)
        read.check(self.context, self.item)
        events, alpha = dataset.counted()
        user, item = dataset.user[events], dataset.item[events]
        if self._by_user(dataset):
            users, unit = np.unique(user, return_inverse=True)
            moments = Moments.of_users(dataset, users)
        else:
            unit, moments = np.arange(len(events)), Moments.of_events(dataset, events)
        catalogue = Catalogue.of(dataset)
        contexts = Description("context", self.context, dataset, moments)
        items = Description("item", self.item, dataset, catalogue)
        feedback = Feedback(unit, item, 1.0, alpha, (len(moments), dataset.n_items), duplicates="sum")
        groups = contexts.groups(moments)
        if groups is not None and int(groups.max()) + 1 < len(groups):
            feedback = feedback.merge_contexts(groups)
            moments = moments.take(np.unique(groups, return_index=True)[1])
        columns = contexts.columns(moments)
        own_items = None if list(self.item) == [ItemId()] else items.columns(catalogue)
        before, state = dict(vars(self)), read.state
        self._read, self._contexts, self._dataset, self.feedback_ = read, contexts, dataset, feedback
        self._popularity = np.bincount(item, np.broadcast_to(alpha, len(item)), dataset.n_items)
        self._state, self.validation_ = None, stopping
        watching = [watch for watch in (callback, stopping) if watch is not None]  # the user's first: it sees each epoch's model

        def after_epoch(model: Model, epoch: Any) -> bool:
            stops = [watch(self, epoch) for watch in watching]
            return any(stops)

        try:
            read.fit(feedback, columns, own_items, after_epoch)
        except BaseException:
            if read.state is state:  # nothing was learnt: as before
                vars(self).clear()
                vars(self).update(before)
            else:
                self._state = read.state
            raise
        if stopping is not None:
            stopping.restore(self)
        read.ended()
        self._state = read.state
        return self

    def recommend(self, requests: Sequence[Mapping[str, Any]], n: int = 10) -> tuple[np.ndarray, np.ndarray]:
        """The best n items for each request, by id, and their scores; items of the request's history are left out.

        A request says what is known: attributes by name, ``"history"`` (items, oldest first), or the user's id, named as in the
        interactions. Where fewer than n items are left, names are filled up with None; n is at most that of all items.
        """
        moments = Moments.of_requests(requests, self.dataset_)
        items, scores = self.rank(moments, n)
        names = self.dataset_.items.take(np.maximum(items, 0).ravel()).to_numpy(zero_copy_only=False).astype(object)
        return np.where(items >= 0, names.reshape(items.shape), np.array(None)), scores

    def rank(
        self, moments: Moments, n: int, *, exclude_seen: bool = True, candidates: Lists | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """As :meth:`recommend` for moments, with items by code: -1 where fewer than n are left; n is at most that of all items."""
        n_items = self.dataset_.n_items
        seen = Lists(moments.begin, moments.end, moments.items) if exclude_seen else None
        n = min(check.integer("n", n, low=1), n_items)
        if candidates is not None:
            check.indices("candidates.items", candidates.items, n_items)
            if not len(candidates.begin) == len(candidates.end) == len(moments):
                raise ValueError(
                    f"candidates must have a list for each of the {len(moments):,} moments, got {len(candidates.begin):,}."
                )
        with Workers(thread_count(getattr(self.model, "n_threads", None))) as workers:
            return rank(self.scorer(moments), len(moments), n_items, n, workers, seen, candidates)

    def scorer(self, moments: Moments) -> Callable[[int, int], np.ndarray]:
        """A function from a range of moments to the scores of all items; popularity where nothing is known of a moment."""
        known_users = bool((moments.user >= 0).any())
        if not moments.catalogue.same(self.dataset_.items) or (known_users and not moments.people.same(self.dataset_.users)):
            raise ValueError(
                "these moments are of other data than the recommender was fitted on: codes mean other users or items. "
                "Split one Dataset."
            )
        if self._state is not None and self._read.state is not self._state:
            raise ValueError("the model was fitted again elsewhere. Give each Recommender a model of its own.")
        columns = self._contexts.columns(moments)
        score, known = self._read.scorer(columns, lambda: self._contexts.known(moments))
        if known is None or known.all():
            return score

        def filled(start: int, stop: int) -> np.ndarray:
            scores = score(start, stop)
            scores[~known[start:stop]] = self._popularity
            return scores

        return filled

    def pairs_per_event(self, dataset: Dataset) -> float:
        """How many context-item pairs there are for each event, contexts counted before they are merged."""
        contexts = len(np.unique(dataset.user)) if self._by_user(dataset) else len(dataset)
        return contexts * dataset.n_items / len(dataset)

    def _stopping(self, validation: Queries, metric: str, patience: int, evaluate_every: int) -> EarlyStopping:
        from everypair.evaluation.stopping import EarlyStopping, trained_by_epochs  # which import this module

        trained_by_epochs(self.model)
        return EarlyStopping(validation, metric, every=evaluate_every, patience=patience)

    def _by_user(self, dataset: Dataset) -> bool:
        """Whether a context is a user."""
        changing = [recipe for recipe in self.context if recipe.changes(dataset)]
        if changing and self.unit == "user":
            raise ValueError(f"unit='user' takes recipes that stay the same from event to event, got {changing}. Use unit='event'.")
        return not changing and self.unit != "event"

    @property
    def dataset_(self) -> Dataset:
        """What it was fitted on."""
        if "_dataset" not in vars(self):
            raise NotFittedError("this Recommender is not fitted yet: call fit first.")
        return self._dataset

    def __repr__(self) -> str:
        return f"Recommender({self.model!r}, context={list(self.context)}, item={list(self.item)})"
