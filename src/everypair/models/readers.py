"""How each kind of model takes the columns that recipes make, and scores rows that were not trained on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from everypair.feedback import Feedback
from everypair.models.base import Model
from everypair.models.baselines import CoView, Popularity
from everypair.models.featured import Featured
from everypair.models.fm import FM
from everypair.models.mf import MF
from everypair.models.tensor import Tensor
from everypair.rows import Levels, with_none

Columns = Mapping[str, Any]
Score = Callable[[int, int], np.ndarray]


class Reader(ABC):
    """A model, and columns as it takes them."""

    has_bias = False  # the model itself prefers popular items where it knows nothing of a context
    takes_items = False

    def __init__(self, model: Any) -> None:
        self.model = model

    def check(self, context: Any, item: Any) -> None:
        """Refuse recipes that the model cannot read."""
        if not self.takes_items and any(type(recipe).__name__ != "ItemId" for recipe in item):
            raise ValueError(
                f"{type(self.model).__name__} knows items by id alone: item=[ItemId()]; use FM or MFSI for attributes."
            )

    @abstractmethod
    def fit(self, feedback: Feedback, contexts: Columns, items: Columns | None, callback: Any) -> None: ...

    @abstractmethod
    def scorer(self, contexts: Columns) -> Score:
        """From a range of rows to the scores of all items."""


class FeaturedReader(Reader):
    """Columns on both sides."""

    takes_items = True

    @property
    def has_bias(self) -> bool:  # type: ignore[override]
        return isinstance(self.model, FM)

    def fit(self, feedback: Feedback, contexts: Columns, items: Columns | None, callback: Any) -> None:
        self.model.fit(feedback, contexts=contexts, items=items, callback=callback)

    def scorer(self, contexts: Columns) -> Score:
        return _products(self.model.context_vectors(contexts), self.model.psi_)


class FactorizationReader(Reader):
    """One column of levels, each a context of its own."""

    def check(self, context: Any, item: Any) -> None:
        super().check(context, item)
        if len(context) != 1:
            raise ValueError(
                f"{type(self.model).__name__} takes one recipe with a single level per context, such as [UserId()], got "
                f"{list(context)}. "
                f"Use FM or MFSI for several."
            )

    def fit(self, feedback: Feedback, contexts: Columns, items: Columns | None, callback: Any) -> None:
        levels = _levels(contexts, self.model)[0]
        self._row = np.full(levels.n + 1, -1)
        self._row[levels.codes] = np.arange(len(levels))
        self._row[-1] = -1
        self.model.fit(feedback, callback=callback)

    def scorer(self, contexts: Columns) -> Score:
        return _products(with_none(self.model.phi_)[self._row[_levels(contexts, self.model)[0].codes]], self.model.psi_)


class TensorReader(Reader):
    """Two or more columns of levels; none is a level, too."""

    def fit(self, feedback: Feedback, contexts: Columns, items: Columns | None, callback: Any) -> None:
        levels = _levels(contexts, self.model)
        self.model.fit(feedback, contexts=self._table(levels), levels=[column.n + 1 for column in levels], callback=callback)

    def scorer(self, contexts: Columns) -> Score:
        return _products(self.model.context_vectors(self._table(_levels(contexts, self.model))), self.model.psi_)

    @staticmethod
    def _table(levels: list[Levels]) -> np.ndarray:
        return np.stack([column.codes + 1 for column in levels], axis=1)


class CoViewReader(Reader):
    """The previous item."""

    has_bias = True

    def check(self, context: Any, item: Any) -> None:
        super().check(context, item)
        if [type(recipe).__name__ for recipe in context] != ["Previous"]:
            raise ValueError(f"CoView takes context=[Previous()], got {list(context)}.")

    def fit(self, feedback: Feedback, contexts: Columns, items: Columns | None, callback: Any) -> None:
        self.model.fit(feedback, contexts=contexts["previous"].codes)

    def scorer(self, contexts: Columns) -> Score:
        previous = contexts["previous"].codes
        return lambda start, stop: self.model.scores_after(previous[start:stop])


class PopularityReader(Reader):
    """Nothing but how many there are."""

    has_bias = True

    def fit(self, feedback: Feedback, contexts: Columns, items: Columns | None, callback: Any) -> None:
        self.model.fit(feedback)

    def scorer(self, contexts: Columns) -> Score:
        return lambda start, stop: np.tile(self.model.popularity_, (stop - start, 1))


def reader(model: Model) -> Reader:
    """The reader of a kind of model."""
    kinds = {
        Featured: FeaturedReader, MF: FactorizationReader, Tensor: TensorReader, CoView: CoViewReader, Popularity: PopularityReader
    }  # fmt: skip
    for kind, made in kinds.items():
        if isinstance(model, kind):
            return made(model)
    raise TypeError(f"a Recommender cannot read the columns of {type(model).__name__}: derive it from one of the package's models.")


def _levels(columns: Columns, model: Any) -> list[Levels]:
    for name, column in columns.items():
        if not isinstance(column, Levels):
            raise ValueError(f"{type(model).__name__} takes one level per context and recipe; {name!r} is not one. Use FM or MFSI.")
    return list(columns.values())


def _products(phi: np.ndarray, psi: np.ndarray) -> Score:
    across = np.ascontiguousarray(psi.T)
    return lambda start, stop: phi[start:stop] @ across
