"""Ids in, ids out: a model, what it is told of contexts and items, and what it recommends."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
import pyarrow as pa

from everypair import answers
from everypair import validation as check
from everypair.contexts import Catalogue, Description, ItemId, Recipe, UserId, check_recipes
from everypair.data import Dataset
from everypair.data.frames import frame_of
from everypair.data.ids import as_ids
from everypair.data.tables import as_table
from everypair.feedback import Feedback
from everypair.models.base import Model, NotFittedError
from everypair.moments import HISTORY, Moments
from everypair.ranking import Lists
from everypair.readers import Reader, VectorReader, reader
from everypair.serving import Served, Training, item_columns

UNITS = ("auto", "user", "event")
UNKNOWN = ("ignore", "error")
FALLBACKS = ("error", "popular")


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
    unknown : {"ignore", "error"}
        What to do with values in requests that training never saw (of attributes, items of histories, users): leave them out and
        count them in ``unknown_``, or refuse the request.

    Attributes
    ----------
    dataset_ : Dataset
        What it was fitted on, and what was added since.
    feedback_ : Feedback
        What the model was fitted on.
    unknown_ : dict
        How many unknown values requests have named, by attribute.

    Examples
    --------
    >>> import everypair as ep
    >>> dataset = ep.datasets.youtube_like(200, 50, seed=0)
    >>> recommender = ep.Recommender(ep.FM(factors=4), context=[ep.UserId(), ep.Attributes("country"), ep.Previous()])
    >>> recommender.fit(dataset).recommend(users=[dataset.users[0]], n=3).column_names
    ['user', 'item', 'score', 'rank']
    >>> recommender.recommend(requests=[{"country": "DE", "history": [dataset.items[7]]}], n=3).num_rows
    3
    """

    def __init__(
        self,
        model: Model,
        context: Sequence[Recipe] | None = None,
        item: Sequence[Recipe] | None = None,
        *,
        unit: str = "auto",
        unknown: str = "ignore",
    ) -> None:
        if not isinstance(model, Model):
            raise TypeError(f"model must be a model of this package, such as everypair.MF(), got {model!r}.")
        self.model = model
        self.context = check_recipes("context", [UserId()] if context is None else context)
        self.item = check_recipes("item", [ItemId()] if item is None else item)
        self.unit = check.choice("unit", unit, UNITS)
        self.unknown = check.choice("unknown", unknown, UNKNOWN)
        self._counting = threading.Lock()

    def fit(self, dataset: Dataset, callback: Callable[[Recommender, Any], Any] | None = None) -> Self:
        """Train from scratch on all events; ``callback(recommender, epoch)`` after each epoch, a true value stops."""
        if not isinstance(dataset, Dataset):
            raise TypeError(f"dataset must be an everypair.Dataset, got {type(dataset).__name__}.")
        if not len(dataset):
            raise ValueError("dataset has no events: there is nothing to learn from.")
        if callback is not None and not callable(callback):
            raise TypeError(f"callback must be callable with (recommender, epoch), got {callback!r}.")
        read = reader(self.model)
        read.check(self.context, self.item)
        by_user = self._by_user(dataset)
        training = Training.of(dataset, by_user)
        contexts = Description("context", self.context, dataset, training.moments)
        items = Description("item", self.item, dataset, Catalogue.of(dataset))
        training = training.merged(contexts)
        columns, own_items = contexts.columns(training.moments), item_columns(items, self.item, dataset)
        if isinstance(read, VectorReader):
            read.catalogue = lambda: own_items
        before, state = dict(vars(self)), read.state
        recipes = {"context": self.context, "item": self.item}
        self._served = Served(dataset, recipes, contexts, items, read, training.popularity, by_user)
        self.feedback_, self.unknown_ = training.feedback, {}
        called = None if callback is None else lambda model, epoch: callback(self, epoch)
        try:
            read.fit(training.feedback, columns, own_items, callback=called)
        except BaseException:
            if read.state is state:  # nothing was learnt: as before
                vars(self).clear()
                vars(self).update(before)
            else:
                self._end(read, training.feedback)
            raise
        self._end(read, training.feedback)
        return self

    def _end(self, read: Reader, feedback: Feedback) -> None:
        if isinstance(read, VectorReader):
            read.remember(feedback)
        self._served = replace(self._served, reader=read.ended())

    def recommend(
        self,
        users: Any = None,
        n: int = 10,
        *,
        requests: Any = None,
        exclude_seen: bool = True,
        allow: Any = None,
        deny: Any = None,
        candidates: Sequence[Any] | None = None,
        fallback: str = "error",
    ) -> Any:
        """The best n items for each user or request, as a table.

        Parameters
        ----------
        users : list of ids, or a column of a data frame
            Users of the data.
        n : int
        requests : list of mappings, or a data frame with a row per request
            What is known of someone, seen before or not: attributes by name, ``"history"`` (items, oldest first) and, if there is
            one, the user's id, named as in the interactions. What a request does not say of a known user is taken from the data.
        exclude_seen : bool
            Leave out the items of the user's (or the request's) history.
        allow, deny : lists of item ids, optional
            The only items that may be recommended; items that may not.
        candidates : list of lists of item ids, optional
            For each user or request, the only items that may be recommended.
        fallback : {"error", "popular"}
            What to do where the model can say nothing of someone: refuse, or recommend what is popular.

        Returns
        -------
        table
            ``user`` (named as in the interactions; ``request``, numbered from 0, for requests), ``item``, ``score``, ``rank`` (from
            1), in the data frame library that was given: that of ``users`` or ``requests``, else that of the interactions, else
            as an Arrow table. Equal scores are ranked in the order of items. A list that is shorter than n has its reason in a
            :class:`~everypair.FewerItemsWarning`. A list does not depend on what else is asked for in the same call.
        """
        served = self._fitted
        moments, names, name, frame = self._asked(served, users, requests)
        length, dataset = check.integer("n", n, low=1), served.dataset
        rows = "users" if requests is None else "requests"
        lists = answers.candidate_lists(dataset, candidates, len(moments), rows)
        allowed = answers.allowed_items(dataset, allow, deny)
        popular = check.choice("fallback", fallback, FALLBACKS) == "popular"
        ids, scores = served.rank(
            moments,
            min(length, dataset.n_items),
            self._n_threads,
            exclude_seen=exclude_seen,
            candidates=lists,
            allowed=allowed,
            refuse=None if popular else lambda known: self._refuse(served, known, names, name),
        )
        filters = {
            "exclude_seen (what the history holds)": exclude_seen,
            "allow": allow is not None,
            "deny": deny is not None,
            "candidates": candidates is not None,
        }
        answers.warn_if_short(ids, length, names, name, [text for text, used in filters.items() if used], dataset.n_items)
        return answers.in_frame(answers.table(name, names, dataset, ids, scores), (frame, dataset.frame))

    def _asked(self, served: Served, users: Any, requests: Any) -> tuple[Moments, pa.Array, str, str | None]:
        """The moments asked for, what each is called, what such names are, and the data frame library they came in."""
        dataset = served.dataset
        if (users is None) == (requests is None):
            raise TypeError("give either users=[ids] or requests=[{...}, ...], as in recommend(users=['ann'], n=10).")
        if requests is not None:
            frame = frame_of(requests)
            given = requests if frame is None else as_table("requests", requests, (dataset.user_column,)).to_pylist()
            moments = Moments.of_requests(given, dataset)
            self._count_unknown(served, moments)
            return moments, pa.array(np.arange(len(moments))), "request", frame
        users = [users] if isinstance(users, str | int | np.integer) else answers.id_list("users", users)
        if any(isinstance(user, Mapping) for user in users):
            raise TypeError("users must be ids; mappings of what is known go to recommend(requests=[...]).")
        codes = dataset.users.codes(users, "users")
        names = as_ids(users, "users").combine_chunks()
        if (codes < 0).any():
            stranger = names[int(np.argmin(codes))].as_py()
            raise ValueError(
                f"users must be known, but {int(np.sum(codes < 0)):,} of {len(codes):,} are not, such as {stranger!r}. For someone new, "
                f"say what is known: recommend(requests=[{{'history': [...]}}])."
            )
        return Moments.of_users(dataset, codes), names, dataset.user_column, frame_of(users)

    def _count_unknown(self, served: Served, moments: Moments) -> None:
        """Count, or refuse, what training never saw."""
        of_rows = {name: rows for name, rows in served.contexts.unknown(moments).items() if rows.any()}
        found = {name: int(rows.sum()) for name, rows in of_rows.items()} | {key: n for key, n in moments.unknown.items() if n}
        if not found:
            return
        if self.unknown == "error":
            name, count = next(iter(found.items()))
            example = ""
            if name in of_rows:
                r = int(np.argmax(of_rows[name]))
                values, index = moments.attributes[name]
                example = f", such as {values[int(index[r])].as_py()!r} in request {r}"
            raise ValueError(
                f"requests name {count} of {name!r} that training never saw{example}. Correct them, or leave them out with "
                f"Recommender(unknown='ignore')."
            )
        with self._counting:
            for name, count in found.items():
                self.unknown_[name] = self.unknown_.get(name, 0) + count

    def _refuse(self, served: Served, known: np.ndarray, names: pa.Array, name: str) -> None:
        """Refuse moments of which the model knows nothing, saying what it takes."""
        r, model = int(np.argmin(known)), type(self.model).__name__
        uses = ", ".join(map(repr, served.contexts.fields))
        folds = f" (it also takes {HISTORY!r}, the items someone has seen)" if list(self.context) == [UserId()] else ""
        raise ValueError(
            f"{model} can say nothing about {int(np.sum(~known)):,} of {len(known):,}, such as {name} {names[r].as_py()!r}: it is told "
            f"{uses}, and training saw none of what is said{folds}. "
            f"For people never seen, fit FM or MFSI with context=[Attributes(...)] (what is known of them) or [History()] (what they "
            f"have seen); or ask with fallback='popular'."
        )

    def rank(
        self, moments: Moments, n: int, *, exclude_seen: bool = True, candidates: Lists | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """The best n items at each moment, by code, and their scores: -1 where fewer than n are left; n is at most that of all items.

        What is popular, where nothing is known.
        """
        served = self._fitted
        n = min(check.integer("n", n, low=1), served.dataset.n_items)
        if candidates is not None:
            check.indices("candidates.items", candidates.items, served.dataset.n_items)
            if not len(candidates.begin) == len(candidates.end) == len(moments):
                raise ValueError(
                    f"candidates must have a list for each of the {len(moments):,} moments, got {len(candidates.begin):,}."
                )
        return served.rank(moments, n, self._n_threads, exclude_seen=exclude_seen, candidates=candidates)

    def pairs_per_event(self, dataset: Dataset) -> float:
        """How many context-item pairs there are for each event, contexts counted before they are merged."""
        contexts = len(np.unique(dataset.user)) if self._by_user(dataset) else len(dataset)
        return contexts * dataset.n_items / len(dataset)

    def _by_user(self, dataset: Dataset) -> bool:
        """Whether a context is a user."""
        changing = [recipe for recipe in self.context if recipe.changes(dataset)]
        if changing and self.unit == "user":
            raise ValueError(f"unit='user' takes recipes that stay the same from event to event, got {changing}. Use unit='event'.")
        return not changing and self.unit != "event"

    @property
    def _fitted(self) -> Served:
        if "_served" not in vars(self):
            raise NotFittedError("this Recommender is not fitted yet: call fit first.")
        served = self._served
        if reader(self.model).state is not served.reader.state:
            raise ValueError("the model was fitted again elsewhere. Give each Recommender a model of its own.")
        return served

    @property
    def _n_threads(self) -> int | None:
        return getattr(self.model, "n_threads", None)

    @property
    def dataset_(self) -> Dataset:
        """What it was fitted on, and what was added since."""
        return self._fitted.dataset

    def __repr__(self) -> str:
        return f"Recommender({self.model!r}, context={list(self.context)}, item={list(self.item)})"
