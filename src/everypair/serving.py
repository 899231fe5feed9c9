"""What a fit leaves to recommend with: nothing in it changes, so that any number of threads may ask at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from everypair.contexts import Catalogue, Description, ItemId, Recipe
from everypair.data import Dataset
from everypair.feedback import Feedback
from everypair.moments import Moments
from everypair.parallel import Workers, thread_count
from everypair.ranking import Lists, Scores, rank
from everypair.readers import Asked, Reader, VectorReader, popular


@dataclass(frozen=True)
class Served:
    """A fitted model, what was learnt of contexts and items, and the data it is asked about.

    Attributes
    ----------
    dataset : Dataset
    recipes : dict
        Of "context" and "item".
    contexts, items : Description
    reader : Reader
    popularity : array
        How often each item was chosen: what is left where nothing is known of a context.
    by_user : bool
        Whether a context is a user, and not an event.
    """

    dataset: Dataset
    recipes: dict[str, Sequence[Recipe]]
    contexts: Description
    items: Description
    reader: Reader
    popularity: np.ndarray
    by_user: bool

    def scores(self, moments: Moments) -> tuple[Scores, np.ndarray | None]:
        """Of all items at each moment; and the moments that the model knows anything of, None for all."""
        return self.reader.scores(self.asked(moments))

    def asked(self, moments: Moments) -> Asked:
        """Moments as a reader takes them."""
        self._check(moments)
        moments = moments.compact()
        past = Lists(moments.begin, moments.end, moments.items)
        columns = self.contexts.columns(moments)
        return Asked(columns, past, self.confidence, lambda: self.contexts.known(moments), moments.told)

    def rank(
        self,
        moments: Moments,
        n: int,
        n_threads: int | None,
        *,
        exclude_seen: bool = True,
        candidates: Lists | None = None,
        allowed: np.ndarray | None = None,
        refuse: Callable[[np.ndarray], Any] | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """The best n items at each moment, by code, and their scores; the popular ones where nothing is known.

        ``refuse`` is called with the moments of which something is known, if those are not all.
        """
        seen = Lists(moments.begin, moments.end, moments.items) if exclude_seen else None
        scores, known = self.scores(moments)
        with Workers(thread_count(n_threads)) as workers:
            if known is None or known.all():
                return rank(scores, n, workers, seen, candidates, allowed)
            if refuse is not None:
                refuse(known)
            ids, best = np.full((len(moments), n), -1), np.full((len(moments), n), -np.inf)
            for which in (known, ~known):
                rows = np.flatnonzero(which)
                if not len(rows):
                    continue
                some = self.scores(moments.take(rows))[0] if which is known else popular(self.popularity, len(rows))
                own_seen, own_candidates = (None if each is None else each.take(rows) for each in (seen, candidates))
                ids[rows], best[rows] = rank(some, n, workers, own_seen, own_candidates, allowed)
            return ids, best

    def _check(self, moments: Moments) -> None:
        known_users = bool((moments.user >= 0).any())
        if not moments.catalogue.same(self.dataset.items) or (known_users and not moments.people.same(self.dataset.users)):
            raise ValueError(
                "these moments are of other data than the recommender was fitted on: codes mean other users or items. "
                "Split one Dataset."
            )

    def confidence(self, past: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The items of a past, each once, and how much they count."""
        items, counts = np.unique(past, return_counts=True)
        return items, (np.ones(len(items)) if self.dataset.repeats == "drop" else counts.astype(np.float64))

    @property
    def vectors(self) -> VectorReader:
        """The reader of a model that has vectors."""
        if not isinstance(self.reader, VectorReader):
            name = type(self.reader.model).__name__
            raise ValueError(f"{name} counts: it has no vectors. Use MF, FM or another model with factors.")
        return self.reader


@dataclass(frozen=True)
class Training:
    """What a model is trained on: the moments that are its contexts, and the items chosen there."""

    moments: Moments
    feedback: Feedback
    popularity: np.ndarray

    @classmethod
    def of(cls, dataset: Dataset, by_user: bool, users: np.ndarray | None = None) -> Training:
        """All events, or those of these users."""
        part = dataset if users is None else dataset.subset(np.isin(dataset.user, users))
        events, alpha = part.counted()
        user, item = part.user[events], part.item[events]
        if by_user:
            present, unit = np.unique(user, return_inverse=True)
            moments = Moments.of_users(part, present)
        else:
            unit, moments = np.arange(len(events)), Moments.of_events(part, events)
        feedback = Feedback(unit, item, 1.0, alpha, (len(moments), dataset.n_items), duplicates="sum")
        return cls(moments, feedback, np.bincount(item, np.broadcast_to(alpha, len(item)), dataset.n_items))

    def merged(self, contexts: Description) -> Training:
        """With contexts of the same features as one, which weighs as many as they are: the loss is the same."""
        groups = contexts.groups(self.moments)
        if groups is None or int(groups.max()) + 1 == len(groups):
            return self
        first = np.unique(groups, return_index=True)[1]
        return Training(self.moments.take(first), self.feedback.merge_contexts(groups), self.popularity)


def item_columns(items: Description, recipes: Sequence[Recipe], dataset: Dataset) -> dict[str, Any] | None:
    """What describes all items; None where it is their id alone."""
    return None if list(recipes) == [ItemId()] else items.columns(Catalogue.of(dataset))


def no_rows(
    served_recipes: dict[str, Sequence[Recipe]], contexts: Description, items: Description, dataset: Dataset
) -> dict[str, Any]:
    """The columns of both sides, without rows."""
    nothing = np.empty(0, np.int64)
    own = None if list(served_recipes["item"]) == [ItemId()] else items.columns(Catalogue.of(dataset).take(nothing))
    return {"context": contexts.columns(Moments.of_users(dataset, nothing)), "item": own}
