"""A model and what it is told: from tables to features to a fitted model to ranked items."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import numpy as np

from everypair import validation as check
from everypair.contexts import Attributes, Catalogue, Description, ItemId, Recipe, UserId, check_recipes
from everypair.data import Dataset
from everypair.feedback import Feedback
from everypair.models.base import Model, NotFittedError
from everypair.models.readers import Reader, reader
from everypair.moments import Moments
from everypair.parallel import Workers, thread_count
from everypair.ranking import Lists, rank

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

    def fit(self, dataset: Dataset, callback: Callable[[Recommender, Any], Any] | None = None) -> Self:
        """Train from scratch on all events; ``callback(recommender, epoch)`` after each epoch, a true value stops."""
        if not isinstance(dataset, Dataset):
            raise TypeError(f"dataset must be an everypair.Dataset, got {type(dataset).__name__}.")
        events, alpha = dataset.counted()
        user, item = dataset.user[events], dataset.item[events]
        if self._by_user(dataset):
            users, unit = np.unique(user, return_inverse=True)
            moments = Moments.of_users(dataset, users)
        else:
            unit, moments = np.arange(len(events)), Moments.of_events(dataset, events)
        self._read: Reader = reader(self.model)
        self._read.check(self.context, self.item)
        self._contexts = Description("context", self.context, dataset, moments)
        catalogue = Catalogue.of(dataset)
        self._items = Description("item", self.item, dataset, catalogue)
        self._popularity = np.bincount(item, np.broadcast_to(alpha, len(item)), dataset.n_items)
        self.feedback_ = Feedback(unit, item, 1.0, alpha, (len(moments), dataset.n_items), duplicates="sum")
        groups = self._contexts.groups(moments)
        if groups is not None and len(groups) and int(groups.max()) + 1 < len(groups):
            self.feedback_ = self.feedback_.merge_contexts(groups)
            moments = moments.take(np.unique(groups, return_index=True)[1])
        self._dataset = dataset
        own_items = None if self.item == [ItemId()] else self._items.columns(catalogue)
        called = None if callback is None else lambda model, epoch: callback(self, epoch)
        self._read.fit(self.feedback_, self._contexts.columns(moments), own_items, called)
        return self

    def recommend(self, requests: Sequence[Mapping[str, Any]], n: int = 10) -> tuple[np.ndarray, np.ndarray]:
        """The best n items for each request, by id, and their scores; items of the request's history are left out.

        A request says what is known: attributes by name, ``"history"`` (items, oldest first), or the ``"user"``.
        """
        moments = Moments.of_requests(requests, self._fitted())
        items, scores = self.rank(moments, n)
        names = np.asarray(self._dataset.items.values.to_numpy(zero_copy_only=False), object)
        return np.where(items >= 0, names[items], np.array(None)), scores

    def rank(
        self, moments: Moments, n: int, *, exclude_seen: bool = True, candidates: Lists | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """As :meth:`recommend` for moments, with items by code: -1 where there are fewer than n."""
        n_items = self._fitted().n_items
        seen = Lists(moments.begin, moments.end, moments.items) if exclude_seen else None
        n = check.integer("n", n, low=1)
        with Workers(thread_count(getattr(self.model, "n_threads", None))) as workers:
            return rank(self.scorer(moments), len(moments), n_items, n, workers, seen, candidates)

    def scorer(self, moments: Moments) -> Callable[[int, int], np.ndarray]:
        """A function from a range of moments to the scores of all items; popularity where nothing is known of a moment."""
        self._fitted()
        score = self._read.scorer(self._contexts.columns(moments))
        if self._read.has_bias:
            return score
        unknown = ~self._contexts.known(moments)

        def filled(start: int, stop: int) -> np.ndarray:
            scores = score(start, stop)
            scores[unknown[start:stop]] = self._popularity
            return scores

        return filled if unknown.any() else score

    def _by_user(self, dataset: Dataset) -> bool:
        if self.unit != "auto":
            return self.unit == "user"
        changing = set(dataset.event_table.column_names)
        return all(
            isinstance(recipe, UserId) or (isinstance(recipe, Attributes) and not changing & set(recipe.names))
            for recipe in self.context
        )

    def _fitted(self) -> Dataset:
        if "_dataset" not in vars(self):
            raise NotFittedError("this Recommender is not fitted yet: call fit first.")
        return self._dataset

    def __repr__(self) -> str:
        return f"Recommender({self.model!r}, context={list(self.context)}, item={list(self.item)})"
