"""Queries: contexts to rank items for, and the items that were relevant in them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from everypair.data import Dataset
from everypair.ranking.rank import Lists
from everypair.recommend.context_batch import ContextBatch
from everypair.runtime import validation as check
from everypair.runtime.cached import cached_property


@dataclass(frozen=True)
class Queries:
    """Contexts to rank items for, and the items that were relevant in them.

    Attributes
    ----------
    contexts : ContextBatch
    user : array
        The user of each query, also where the context has none.
    bounds, relevant : arrays
        The relevant items of query q are ``relevant[bounds[q]:bounds[q + 1]]``.
    candidates : Lists, optional
        The only items to rank.
    """

    contexts: ContextBatch
    user: np.ndarray
    bounds: np.ndarray
    relevant: np.ndarray
    candidates: Lists | None = None

    @property
    def moments(self) -> ContextBatch:
        """The name of ``contexts`` before 0.2."""
        return self.contexts

    def __len__(self) -> int:
        return len(self.user)

    def content(self) -> Iterator[Any]:
        """All that the lists and the relevant items depend on, for a fingerprint."""
        yield from (self.user, self.bounds, self.relevant, *(self.candidates or ()))
        yield from self.contexts.content()

    def take(self, index: np.ndarray) -> Queries:
        """Some of the queries."""
        lengths = np.diff(self.bounds)[index]
        bounds = np.append(0, np.cumsum(lengths))
        at = np.repeat(self.bounds[index] - bounds[:-1], lengths) + np.arange(bounds[-1])
        lists = self.candidates and self.candidates.take(index)
        return Queries(self.contexts.take(index), self.user[index], bounds, self.relevant[at], lists)

    def sample(self, n: int, seed: int = 0) -> Queries:
        """At most n of the queries, drawn at random."""
        if check.integer("n", n, low=1) >= len(self):
            return self
        return self.take(np.sort(np.random.default_rng(seed).choice(len(self), n, replace=False)))

    @property
    def owner(self) -> np.ndarray:
        """The query of each relevant item."""
        return np.repeat(np.arange(len(self)), np.diff(self.bounds))

    @cached_property
    def times_seen(self) -> np.ndarray:
        """How often each relevant item occurs in the history of its query."""
        m, owner = self.contexts, self.owner
        return self._occurrences(m.begin[owner], m.end[owner])

    @cached_property
    def times_elsewhere(self) -> np.ndarray:
        """How often each relevant item occurs among all events of its user, as far as the contexts have them, but for the event
        that the query is about."""
        m, owner = self.contexts, self.owner
        user, begin, end = m.user[owner], m.begin[owner], m.end[owner]
        place = np.clip(user, 0, len(m.bounds) - 2)
        has_all = (user == place) & (m.bounds[place] == begin)  # not of someone who is anonymous, who has no history
        stop = np.where(has_all, m.bounds[place + 1], end)
        is_own = (end < stop) & (np.append(m.items, -1)[np.minimum(end, len(m.items))] == self.relevant)
        return self._occurrences(begin, stop) - is_own

    def _occurrences(self, begin: np.ndarray, end: np.ndarray) -> np.ndarray:
        """How often each relevant item occurs in a part of a sequence of the contexts: in ``items[begin:end]``."""
        m, n = self.contexts, len(self.contexts.items)
        n_items = int(max(m.items.max(initial=0), self.relevant.max(initial=0))) + 1
        # begin and end, among the sorted positions of the item in its sequence, give the count
        sequence_of = np.repeat(np.arange(len(m.bounds) - 1), np.diff(m.bounds))
        pairs, number = np.unique(sequence_of * n_items + m.items, return_inverse=True)
        occurrences = np.sort(number * (n + 1) + np.arange(n))
        wanted = (np.searchsorted(m.bounds, begin, side="right") - 1) * n_items + self.relevant
        at = np.searchsorted(pairs, wanted)
        found = (np.append(pairs, -1)[at] == wanted) & (begin < end)
        first, last = (np.searchsorted(occurrences, at * (n + 1) + place) for place in (begin, end))
        return np.where(found, last - first, 0)

    @cached_property
    def unseen(self) -> tuple[Queries, list[str]]:
        """Without relevant items that are in the history, and without queries that have no others; and notes on what was left out.

        Computed once: a search evaluates the same queries again and again.
        """
        seen = self.times_seen > 0
        if not seen.any():
            return self, []
        left = np.bincount(self.owner[~seen], minlength=len(self))
        kept = Queries(self.contexts, self.user, np.append(0, np.cumsum(left)), self.relevant[~seen], self.candidates)
        notes = [f"{counted(int(seen.sum()), 'relevant item')} left out: already seen, so never ranked."]
        if not left.all():
            notes.append(f"{counted(int((left == 0).sum()), 'query', 'queries')} left out: nothing else was relevant.")
        return kept.take(np.flatnonzero(left)), notes


def of_events(dataset: Dataset, events: np.ndarray) -> Queries:
    """A query per event."""
    contexts = ContextBatch.of_events(dataset, events)
    return Queries(contexts, contexts.user, np.arange(len(events) + 1), dataset.item[events].astype(np.int64))


def counted(n: int, what: str, plural: str | None = None) -> str:
    return f"{n:,} {what if n == 1 else plural or what + 's'}"
