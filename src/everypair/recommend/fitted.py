"""What a fit leaves to recommend with: nothing in it changes, so that any number of threads may ask at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from everypair.data import Dataset
from everypair.engine.feedback import Feedback
from everypair.ranking.rank import Lists, Products, Scores, rank
from everypair.recommend import similar
from everypair.recommend.adapters import Adapter, Asked, VectorAdapter, popular
from everypair.recommend.context_batch import ContextBatch
from everypair.recommend.fold_in import Past
from everypair.recommend.recipes import Catalogue, Description, IdField, ItemId, Recipe
from everypair.runtime.parallel import Workers, thread_count
from everypair.runtime.progress import Progress


@dataclass(frozen=True)
class FittedState:
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
    reader: Adapter
    popularity: np.ndarray
    by_user: bool

    def scores(self, moments: ContextBatch) -> tuple[Scores, np.ndarray | None]:
        """Of all items at each moment; and the moments that the model knows anything of, None for all."""
        return self.reader.scores(self.asked(moments))

    def asked(self, moments: ContextBatch) -> Asked:
        """Moments as a reader takes them."""
        self._check(moments)
        moments = moments.compact()
        past = Lists(moments.begin, moments.end, moments.items)
        columns = self.contexts.columns(moments)
        return Asked(columns, past, self.counted, lambda: self.contexts.known(moments), moments.told)

    def rank(
        self,
        moments: ContextBatch,
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
        with Workers(thread_count(n_threads)) as workers, Progress(len(moments), "ranking", unit="row") as progress:
            if known is None or known.all():
                return rank(scores, n, workers, seen, candidates, allowed, progress.advance)
            if refuse is not None:
                refuse(known)
            ids, best = np.full((len(moments), n), -1), np.full((len(moments), n), -np.inf, scores.dtype)
            for which in (known, ~known):
                rows = np.flatnonzero(which)
                if not len(rows):
                    continue
                assert isinstance(scores, Products)  # others know everyone
                some = scores.take(rows) if which is known else popular(self.popularity, len(rows))
                own_seen, own_candidates = (None if each is None else each.take(rows) for each in (seen, candidates))
                ids[rows], best[rows] = rank(some, n, workers, own_seen, own_candidates, allowed, progress.advance)
            return ids, best

    def _check(self, moments: ContextBatch) -> None:
        known_users = bool((moments.user >= 0).any())
        if not moments.catalogue.same(self.dataset.items) or (known_users and not moments.people.same(self.dataset.users)):
            raise ValueError(
                "these moments are of other data than the recommender was fitted on: codes mean other users or items. "
                "Split one Dataset."
            )

    def counted(self, past: np.ndarray) -> Past:
        """Items that someone has seen as a fit would count them, each time with the confidence of one."""
        once, counts = np.unique(past, return_counts=True)
        repeats = self.dataset.repeats
        if not self.by_user and repeats == "keep":
            return Past(past, np.ones(len(past)), len(past), len(past))
        alpha = np.ones(len(once)) if repeats == "drop" else counts.astype(np.float64)
        return Past(once, alpha, 1 if self.by_user else len(once), len(past) if repeats == "keep" else len(once))

    @property
    def vectors(self) -> VectorAdapter:
        """The reader of a model that has vectors."""
        if not isinstance(self.reader, VectorAdapter):
            name = type(self.reader.model).__name__
            raise ValueError(f"{name} counts: it has no vectors. Use MF, FM or another model with factors.")
        return self.reader

    @property
    def items_met(self) -> np.ndarray:
        """Items of which training saw anything: an event, where their ids are told apart, or an attribute."""
        rows = Catalogue.of(self.dataset)
        by_field = [
            self.popularity > 0 if isinstance(field, IdField) else field.known(rows) for field in self.items.fields.values()
        ]
        return np.any(by_field, axis=0)

    @property
    def item_directions(self) -> similar.Directions:
        """Where the vectors of items point; kept once the fit has ended."""
        return self._item_directions if self.vectors.trained else self._directions()

    @cached_property
    def _item_directions(self) -> similar.Directions:
        return self._directions()

    def _directions(self) -> similar.Directions:
        return similar.directions(self.vectors, "item", self.vectors.psi, self.items_met)

    def without_rows(self) -> dict[str, Any]:
        """The columns of both sides, of no rows."""
        nobody = ContextBatch.of_users(self.dataset, np.empty(0, np.int64))
        items = ItemColumns(self.items, self.recipes["item"], self.dataset)
        return {"context": self.contexts.columns(nobody), "item": items.without_rows()}


@dataclass(frozen=True)
class TrainingSet:
    """What a model is trained on: the moments that are its contexts, and the items chosen there."""

    moments: ContextBatch
    feedback: Feedback
    popularity: np.ndarray

    @classmethod
    def of(cls, dataset: Dataset, by_user: bool, part: np.ndarray | None = None) -> TrainingSet:
        """All events, or part of them (a mask): all or none of those of a user and an item."""
        if part is None:
            events, alpha = dataset.counted()
        else:
            chosen, alpha = dataset.subset(part).counted()
            events = np.flatnonzero(part)[chosen]
        user, item = dataset.user[events], dataset.item[events]
        if by_user:
            present, unit = np.unique(user, return_inverse=True)
            moments = ContextBatch.of_users(dataset, present)
        else:
            unit, moments = np.arange(len(events)), ContextBatch.of_events(dataset, events)
        feedback = Feedback(unit, item, 1.0, alpha, (len(moments), dataset.n_items), duplicates="sum")
        return cls(moments, feedback, np.bincount(item, np.broadcast_to(alpha, len(item)), dataset.n_items))

    def merged(self, contexts: Description, weigh: bool = True) -> TrainingSet:
        """With contexts of the same features as one, which weighs as many as they are: the loss is the same.

        Without ``weigh`` it weighs one, as every combination does where all of them are contexts, whether or not they were met.
        """
        groups = contexts.groups(self.moments)
        if groups is None or int(groups.max()) + 1 == len(groups):
            return self
        first = np.unique(groups, return_index=True)[1]
        return TrainingSet(self.moments.take(first), self.feedback.merge_contexts(groups, weigh), self.popularity)


@dataclass(frozen=True)
class ItemColumns:
    """What describes all items, made when it is first asked for; None where it is their id alone."""

    items: Description
    recipes: Sequence[Recipe]
    dataset: Dataset

    def __call__(self) -> dict[str, Any] | None:
        return self._columns

    @cached_property
    def _columns(self) -> dict[str, Any] | None:
        return self._of(Catalogue.of(self.dataset))

    def without_rows(self) -> dict[str, Any] | None:
        return self._of(Catalogue.of(self.dataset).take(np.empty(0, np.int64)))

    def _of(self, catalogue: Catalogue) -> dict[str, Any] | None:
        return None if list(self.recipes) == [ItemId()] else self.items.columns(catalogue)
