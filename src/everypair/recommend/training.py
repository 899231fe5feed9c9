"""One fit of a recommender: from a dataset to the state that answers requests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from everypair.columns.table import Levels
from everypair.data import Dataset
from everypair.engine.feedback import Feedback
from everypair.models.base import Model
from everypair.recommend.adapters.registry import adapter_of
from everypair.recommend.description import Description
from everypair.recommend.event_weights import EventWeights
from everypair.recommend.fitted import FittedState
from everypair.recommend.item_batch import ItemBatch
from everypair.recommend.recipes import Recipe, warn_if_order_is_doubtful
from everypair.recommend.training_set import TrainingSet, contexts_are_users
from everypair.runtime.group import current_group
from everypair.runtime.wording import named


@dataclass(frozen=True)
class Training:
    """A fit that is prepared, running or done.

    Attributes
    ----------
    state : FittedState
        It answers requests while the model is trained, by the parameters of that time.
    feedback : Feedback
    columns : dict
        The features of the contexts.
    """

    state: FittedState
    feedback: Feedback
    columns: dict[str, Any]
    before: Any  # the model's fit before

    @classmethod
    def of(
        cls,
        model: Model,
        recipes: dict[str, Sequence[Recipe]],
        unit: str,
        dataset: Dataset,
        event_weights: EventWeights | None = None,
    ) -> Training:
        """Check the arguments of a fit and prepare it; nothing is changed."""
        if not isinstance(dataset, Dataset):
            raise TypeError(f"dataset must be an everypair.Dataset, got {type(dataset).__name__}.")
        if not len(dataset):
            raise ValueError("dataset has no events: there is nothing to learn from.")
        adapter = adapter_of(model)
        adapter.check(recipes["context"], recipes["item"])
        by_user = contexts_are_users(recipes["context"], unit, dataset)
        warn_if_order_is_doubtful(recipes["context"], dataset)
        training_set = TrainingSet.of(dataset, by_user, weights=event_weights)
        popularity = current_group().total(training_set.popularity)
        contexts = Description("context", recipes["context"], dataset, training_set.contexts)
        items = Description("item", recipes["item"], dataset, ItemBatch.of(dataset))
        training_set = training_set.merged(contexts, weigh=adapter.merged_contexts_weigh)
        state = FittedState(dataset, recipes, contexts, items, adapter, popularity, by_user, event_weights)
        columns = contexts.keyed_columns(training_set.contexts)
        return cls(state, _keyed(training_set.feedback, columns, dataset), columns, adapter.fit_state)

    def run(self, **options: Any) -> None:
        """Train the model; ``options`` are those of its ``fit``."""
        adapter = self.state.adapter
        if "checkpoint" in options and not adapter.trained_by_epochs:
            name = type(adapter.model).__name__
            raise TypeError(f"{name} is not trained by epochs, and so it has no checkpoints. Leave out {named('checkpoint')}.")
        adapter.fit(self.feedback, self.columns, self.state.item_columns, **options)

    @property
    def has_fitted(self) -> bool:
        """Whether the model has another fit than before: of all epochs, or of those before a callback failed."""
        return self.state.adapter.fit_state is not self.before

    def done(self) -> FittedState:
        """The state after the fit, which later changes of the model do not reach."""
        return replace(self.state, adapter=self.state.adapter.frozen())


def _keyed(feedback: Feedback, columns: dict[str, Any], dataset: Dataset) -> Feedback:
    """With the keys of items, and those of contexts that are the levels of a single column."""
    first, *others = columns.values()
    contexts = first.keys_of_rows() if isinstance(first, Levels) and not others else None
    return feedback.keyed(contexts, dataset.items.keys())
