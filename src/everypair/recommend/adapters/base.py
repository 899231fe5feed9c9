"""The interface of adapters, and the requests they answer."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np

from everypair.columns.table import Levels
from everypair.engine.feedback import Feedback
from everypair.models.base import Model
from everypair.ranking.rank import Lists, Scores
from everypair.recommend.description import ItemColumns
from everypair.recommend.explain.explanation import Summand
from everypair.recommend.fold_in import WeightedHistory
from everypair.recommend.recipes import ItemId, Previous, Recipe
from everypair.recommend.stored_arrays import Stored
from everypair.runtime.wording import setting, shown

Columns = Mapping[str, Any]


class ScoringRequest(NamedTuple):
    """Contexts to be scored.

    Attributes
    ----------
    columns : mapping
        Their features by field.
    history : Lists
        The items of their histories.
    weighted : callable
        From the items of a history to a WeightedHistory.
    known : callable
        Returns which contexts have a feature that was trained.
    own_history : array of booleans
        Whether the history was given by the request.
    """

    columns: Columns
    history: Lists
    weighted: Callable[[np.ndarray], WeightedHistory]
    known: Callable[[], np.ndarray]
    own_history: np.ndarray

    def history_of(self, row: int) -> WeightedHistory:
        return self.weighted(self.history.items[self.history.begin[row] : self.history.end[row]])

    def to_fold_in(self, known: np.ndarray) -> np.ndarray:
        """The contexts that a fold-in of their history describes better than an id does."""
        return (~known | self.own_history) & (self.history.end > self.history.begin)


class ExplanationRequest(NamedTuple):
    """The score of one item in one context, to be explained.

    Attributes
    ----------
    scoring : ScoringRequest
        Of the context alone.
    item : int
        The code of the item.
    item_id : callable
        From the code of an item to its id, as a string.
    label : callable
        From a field and a feature of the context (None: all of them) to its name.
    trained_history : callable
        Returns the events of the context's user, as the fit counted them.
    """

    scoring: ScoringRequest
    item: int
    item_id: Callable[[int], str]
    label: Callable[[str, int | None], str]
    trained_history: Callable[[], WeightedHistory]


class Adapter(ABC):
    """A model as a recommender uses it."""

    takes_item_features = False
    trained_by_epochs = False
    has_vectors = False  # scores are inner products
    refits_on_update = False  # an update is a fit to all events
    folds_in_histories = False  # a request's history stands in for an unknown user
    uses_contexts = True  # scores differ between contexts
    needs_every_level = False  # a context is unknown if any of its levels is
    trained = True  # False during a fit

    def __init__(self, model: Any) -> None:
        self.model = model

    def check(self, context: Sequence[Recipe], item: Sequence[Recipe]) -> None:
        """Refuse recipes that the model cannot use, and adapt to the others; called before :meth:`fit` and :meth:`restore`."""
        if not self.takes_item_features and any(not isinstance(recipe, ItemId) for recipe in item):
            by_id = setting("item", [ItemId], "Recommender")
            raise ValueError(f"{type(self.model).__name__} knows items by id alone: {by_id}; use FM or MFSI for attributes.")

    @property
    @abstractmethod
    def fit_state(self) -> Any:
        """The object that a fit leaves on the model, another one after another fit; None before the first."""

    def is_fit_of(self, model: Model) -> bool:
        """Whether the model still has the fit that this adapter has."""
        return type(model) is type(self.model) and type(self)(model).fit_state is self.fit_state

    @property
    def merged_contexts_weigh(self) -> bool:
        """Whether contexts with the same features, merged to one, weigh as many."""
        return True

    @abstractmethod
    def fit(self, feedback: Feedback, contexts: Columns, items: ItemColumns, **options: Any) -> None:
        """Train the model; ``options`` are those of its ``fit``."""

    def frozen(self) -> Self:
        """A copy with a model of its own, for after the fit: later changes of the model do not reach it."""
        frozen = copy.copy(self)
        frozen.model = copy.copy(self.model)
        return frozen

    @abstractmethod
    def scores(self, request: ScoringRequest) -> tuple[Scores, np.ndarray | None]:
        """The scores of all items in each context, and which contexts the model knows anything of; None: all."""

    def by_popularity(self, request: ScoringRequest) -> np.ndarray:
        """Which contexts a model that scores every context knows only the popularity of items for."""
        return np.zeros(len(request.history.begin), bool)

    @abstractmethod
    def summands(self, request: ExplanationRequest, scores: Scores) -> list[Summand]:
        """The summands of a score, by feature as far as the model adds up features."""

    def with_vectors(self) -> Any:
        """This adapter as a VectorAdapter, if its model has vectors."""
        raise ValueError(f"{type(self.model).__name__} counts: it has no vectors. Use MF, FM or another model with factors.")

    def extended(self, index: Mapping[str, np.ndarray], fields: Mapping[str, Any], contexts: Columns, items: ItemColumns) -> Self:
        """The same with more users and items, whose parameters are zero.

        Parameters
        ----------
        index : mapping
            The previous codes of all "users" and "items", -1 for new ones.
        fields : mapping of Featurizer
            Of the contexts.
        contexts : mapping
            The columns of no contexts.
        items : ItemColumns
        """
        return self

    @abstractmethod
    def stored(self) -> Stored:
        """The fit, to be written to a file."""

    @abstractmethod
    def restore(self, stored: Stored, contexts: Columns, items: ItemColumns) -> None:
        """Take back the result of :meth:`stored`; ``contexts`` are the columns of no contexts, as the fit had them."""


def level_columns(columns: Columns, model: Any) -> list[Levels]:
    """The columns, if all are levels."""
    for name, column in columns.items():
        if not isinstance(column, Levels):
            raise ValueError(f"{type(model).__name__} takes one level per context and recipe; {name!r} is not one. Use FM or MFSI.")
    return list(columns.values())


def single_level_column(columns: Columns, model: Any) -> Levels:
    """The only column, if it is the only one and holds levels."""
    if len(columns) != 1:
        raise ValueError(
            f"{type(model).__name__} takes one recipe with a single level per context, such as {shown(Previous)}, got the fields "
            f"{', '.join(columns)}. Use FM or MFSI for several."
        )
    return level_columns(columns, model)[0]
