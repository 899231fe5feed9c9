"""How each kind of model takes the columns that recipes make, and scores rows that were not trained on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from everypair.contexts import ItemId, Previous
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
Known = Callable[[], np.ndarray]


class Reader(ABC):
    """A model, and columns as it takes them."""

    takes_items = False
    _across: np.ndarray | None = None  # the vectors of items, once the fit has ended

    def __init__(self, model: Any) -> None:
        self.model = model

    @property
    def state(self) -> Any:
        """What a fit leaves behind: another object after another fit."""
        return vars(self.model).get("_towers")

    def ended(self) -> None:
        """The fit has ended: what does not change any more can be kept."""
        self._across = np.ascontiguousarray(self.model.psi_.T)

    def products(self, phi: np.ndarray) -> Score:
        """The scores of rows with these vectors."""
        across = self.model.psi_.T if self._across is None else self._across
        return lambda start, stop: phi[start:stop] @ across

    def check(self, context: Any, item: Any) -> None:
        """Refuse recipes that the model cannot read."""
        if not self.takes_items and any(not isinstance(recipe, ItemId) for recipe in item):
            raise ValueError(
                f"{type(self.model).__name__} knows items by id alone: item=[ItemId()]; use FM or MFSI for attributes."
            )

    @abstractmethod
    def fit(self, feedback: Feedback, contexts: Columns, items: Columns | None, callback: Any) -> None: ...

    @abstractmethod
    def scorer(self, contexts: Columns, known: Known) -> tuple[Score, np.ndarray | None]:
        """From a range of rows to the scores of all items; and the rows that the model can tell from others, None for all.

        ``known`` gives the rows of which any field is known.
        """


class FeaturedReader(Reader):
    """Columns on both sides."""

    takes_items = True

    def fit(self, feedback: Feedback, contexts: Columns, items: Columns | None, callback: Any) -> None:
        self.model.fit(feedback, contexts=contexts, items=items, callback=callback)

    def scorer(self, contexts: Columns, known: Known) -> tuple[Score, np.ndarray | None]:
        """A factorization machine knows everyone, by its item biases; others, whose vector is not zero (a product may be)."""
        phi = self.model.context_vectors(contexts)
        return self.products(phi), None if isinstance(self.model, FM) else known() & phi.any(axis=1)


class FactorizationReader(Reader):
    """One column of levels, each a context of its own."""

    def fit(self, feedback: Feedback, contexts: Columns, items: Columns | None, callback: Any) -> None:
        if len(contexts) != 1:
            raise ValueError(
                f"{type(self.model).__name__} takes one recipe with a single level per context, such as [UserId()], got the fields "
                f"{', '.join(contexts)}. Use FM or MFSI for several."
            )
        levels = _levels(contexts, self.model)[0]
        self._row = np.full(levels.n + 1, -1)
        self._row[levels.codes] = np.arange(len(levels))
        self._row[-1] = -1
        self.model.fit(feedback, callback=callback)

    def scorer(self, contexts: Columns, known: Known) -> tuple[Score, np.ndarray | None]:
        return self.products(with_none(self.model.phi_)[self.rows_of(contexts)]), known()

    def rows_of(self, contexts: Columns) -> np.ndarray:
        """Which context of the fit each row is, -1 for none of them."""
        return self._row[_levels(contexts, self.model)[0].codes]


class TensorReader(Reader):
    """Two or more columns of levels; none is a level, too."""

    def fit(self, feedback: Feedback, contexts: Columns, items: Columns | None, callback: Any) -> None:
        levels = _levels(contexts, self.model)
        table, sizes = self._table(levels), [column.n + 1 for column in levels]
        self._met = [np.bincount(column, minlength=n) > 0 for column, n in zip(table.T, sizes, strict=True)]
        self.model.fit(feedback, contexts=table, levels=sizes, callback=callback)

    def scorer(self, contexts: Columns, known: Known) -> tuple[Score, np.ndarray | None]:
        """A product of vectors says nothing where one of them is of a level never met."""
        table = self._table(_levels(contexts, self.model))
        met = np.all([met[column] for met, column in zip(self._met, table.T, strict=True)], axis=0)
        return self.products(self.model.context_vectors(table)), met

    @staticmethod
    def _table(levels: list[Levels]) -> np.ndarray:
        return np.stack([column.codes + 1 for column in levels], axis=1)


class CountReader(Reader):
    """Counts, which are those of all items where nothing is known."""

    @property
    def state(self) -> Any:
        return vars(self.model).get("popularity_", vars(self.model).get("counts_"))

    def ended(self) -> None:
        """There are no vectors."""


class CoViewReader(CountReader):
    """The previous item."""

    def check(self, context: Any, item: Any) -> None:
        super().check(context, item)
        if list(context) != [Previous()]:
            raise ValueError(f"CoView takes context=[Previous()], got {list(context)}.")

    def fit(self, feedback: Feedback, contexts: Columns, items: Columns | None, callback: Any) -> None:
        self.model.fit(feedback, contexts=contexts["previous"].codes)

    def scorer(self, contexts: Columns, known: Known) -> tuple[Score, np.ndarray | None]:
        previous = contexts["previous"].codes
        return lambda start, stop: self.model.scores_after(previous[start:stop]), None


class PopularityReader(CountReader):
    """Nothing but how many there are."""

    def fit(self, feedback: Feedback, contexts: Columns, items: Columns | None, callback: Any) -> None:
        self.model.fit(feedback)

    def scorer(self, contexts: Columns, known: Known) -> tuple[Score, np.ndarray | None]:
        return lambda start, stop: np.tile(self.model.popularity_, (stop - start, 1)), None


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
