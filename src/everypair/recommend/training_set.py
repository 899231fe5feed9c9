"""From a dataset to the contexts and the feedback that a model is trained on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from everypair.data import Dataset
from everypair.engine.feedback import Feedback
from everypair.recommend.context_batch import ContextBatch
from everypair.recommend.description import Description
from everypair.recommend.event_weights import EventWeights, weighted
from everypair.recommend.recipes import Recipe
from everypair.runtime import validation as check
from everypair.runtime.wording import listed, setting

UNITS = ("auto", "user", "event")  # what a context is


@dataclass(frozen=True)
class TrainingSet:
    """Contexts, the items chosen in them, and how often each item was chosen."""

    contexts: ContextBatch
    feedback: Feedback
    popularity: np.ndarray

    @classmethod
    def of(
        cls, dataset: Dataset, by_user: bool, part: np.ndarray | None = None, weights: EventWeights | None = None
    ) -> TrainingSet:
        """All events, or those of a mask, which has all events of a user and an item or none of them."""
        dataset = weighted(dataset, weights)
        if part is None:
            events, alpha = dataset.counted()
        else:
            chosen, alpha = dataset.subset(part).counted()
            events = np.flatnonzero(part)[chosen]
        user, item = dataset.user[events], dataset.item[events]
        if by_user:
            present, row = np.unique(user, return_inverse=True)
            contexts = ContextBatch.of_users(dataset, present)
        else:
            row, contexts = np.arange(len(events)), ContextBatch.of_events(dataset, events)
        feedback = Feedback(row, item, 1.0, alpha, (len(contexts), dataset.n_items), duplicates="sum")
        return cls(contexts, feedback, np.bincount(item, np.broadcast_to(alpha, len(item)), dataset.n_items))

    def merged(self, description: Description, weigh: bool = True) -> TrainingSet:
        """With contexts of the same features merged to one that weighs as many: the loss is the same.

        Without ``weigh`` a merged context weighs one.
        """
        groups = description.groups(self.contexts)
        if groups is None or int(groups.max()) + 1 == len(groups):
            return self
        first = np.unique(groups, return_index=True)[1]
        return TrainingSet(self.contexts.take(first), self.feedback.merge_contexts(groups, weigh), self.popularity)


def contexts_are_users(recipes: Sequence[Recipe], unit: str, dataset: Dataset) -> bool:
    """Whether a context is a user, and not an event."""
    changing = [recipe for recipe in recipes if recipe.changes(dataset)]
    if check.choice("unit", unit, UNITS) == "user" and changing:
        by_user, by_event = (setting("unit", value, "Recommender") for value in ("user", "event"))
        raise ValueError(f"{by_user} takes recipes that stay the same from event to event, got {listed(changing)}. Use {by_event}.")
    return not changing and unit != "event"
