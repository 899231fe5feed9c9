"""Recipes: which features describe a context, and an item.

``[UserId(), Attributes("country"), Previous(), History(last=50)]`` names the fields of a context (U, A, P and H in the paper's
experiments, Section 6); ``[ItemId(), Attributes("category")]`` those of an item. A recipe is a description; a
:class:`~everypair.recommend.description.Description` holds what the featurizers of recipes have learnt.

To add a recipe, write its class here and name it in ``RECIPES``: files and the command line know it then.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from everypair.columns.history_field import NORMALIZATIONS, Window
from everypair.data import Dataset
from everypair.data.durations import check_duration, in_time_units
from everypair.data.row_order import warn_if_sorted
from everypair.recommend.encoders import KINDS
from everypair.recommend.featurizers import (
    AttributeFeaturizer,
    Featurizer,
    HistoryFeaturizer,
    LevelFeaturizer,
    PreviousFeaturizer,
    VectorFeaturizer,
)
from everypair.runtime import validation as check
from everypair.runtime.wording import call, listed, named, setting, shown

FIELD = "history"  # of a history without another name


class Recipe(ABC):
    """Some of the features of a context or an item."""

    sides: tuple[str, ...]  # that it can describe
    describes_new_items = False  # also items without events
    uses_history = False  # its features come from the items before, in their order

    @abstractmethod
    def fields(self, dataset: Dataset, rows: Any) -> Iterable[tuple[str, Featurizer]]:
        """The names of its fields, and their featurizers; ``rows`` is a ContextBatch or an ItemBatch."""

    def changes(self, dataset: Dataset) -> bool:
        """Whether the features of a user change from event to event."""
        return False

    def long_name(self, field: str) -> str:
        """The name of a field where several recipes have one of that name."""
        return field

    @property
    def uses_times(self) -> bool:
        """Whether its features depend on the times of the items before."""
        return False


@dataclass(frozen=True)
class UserId(Recipe):
    """The user (U): a feature per user."""

    sides = ("context",)

    def fields(self, dataset: Dataset, rows: Any) -> Iterable[tuple[str, Featurizer]]:
        yield "user", LevelFeaturizer("user", dataset.n_users, "users")


@dataclass(frozen=True)
class Previous(Recipe):
    """The previous item (P): a feature per item.

    Parameters
    ----------
    back : int
        1 for the last item, 2 for the one before it, whose field is called "previous 2".
    """

    back: int = 1
    sides = ("context",)
    uses_history = True

    def __post_init__(self) -> None:
        check.integer("back", self.back, low=1)

    def changes(self, dataset: Dataset) -> bool:
        return True

    def fields(self, dataset: Dataset, rows: Any) -> Iterable[tuple[str, Featurizer]]:
        yield "previous" if self.back == 1 else f"previous {self.back}", PreviousFeaturizer(self.back, dataset.n_items)


@dataclass(frozen=True)
class History(Recipe):
    """The items so far (H): a feature per item.

    Parameters
    ----------
    last : int, optional
        How many of the latest events count; None: all.
    decay : float
        An event's weight is multiplied by it with every later event; 1: all weigh the same, as in the paper. Recent items
        mostly predict better (docs/log.md).
    normalize : {"sqrt", "mean", "none"} or number from 0 to 1
        Divide a row's weights by the square root of their sum, by their sum, or not at all; or by their sum to this power.
    name : str
        Of the field. Several histories without a name are told apart by their settings: "history 0.95", "history 0.7".
    half_life : str or number, optional
        An event's weight halves with each such time ("30d", "12h", "90min"; a number in the unit of timestamps that are numbers)
        between it and the latest event of the history, besides ``decay``; ``decay=1`` for time alone. Needs timestamps. Requests
        with a history of their own have the times in ``"history_times"``.
    """

    last: int | None = None
    decay: float = 0.8
    normalize: str | float = "sqrt"
    name: str = FIELD
    half_life: str | float | None = None
    sides = ("context",)
    uses_history = True

    def __post_init__(self) -> None:
        if self.last is not None:
            check.integer("last", self.last, low=1)
        check.number("decay", self.decay, low=0.0, high=1.0, open_low=True)
        if isinstance(self.normalize, str):
            check.choice("normalize", self.normalize, NORMALIZATIONS)
        else:
            check.number("normalize", self.normalize, low=0.0, high=1.0)
        if self.half_life is not None:
            check_duration("half_life", self.half_life)

    @property
    def uses_times(self) -> bool:
        return self.half_life is not None

    def changes(self, dataset: Dataset) -> bool:
        return True

    def long_name(self, field: str) -> str:
        if self.name != FIELD:
            return field
        told = [
            "" if self.half_life is not None and self.decay == 1 else f"{self.decay:g}",
            "" if self.half_life is None else str(self.half_life),
            "" if self.last is None else f"last {self.last}",
            "" if self.normalize == "sqrt" else f"by {self.normalize}",
        ]
        return " ".join([field, *filter(None, told)])

    def fields(self, dataset: Dataset, rows: Any) -> Iterable[tuple[str, Featurizer]]:
        half_life = None if self.half_life is None else in_time_units("half_life", self.half_life, dataset, self)
        normalize = self.normalize if isinstance(self.normalize, str) else float(self.normalize)
        yield self.name, HistoryFeaturizer(dataset.n_items, Window(self.last or 0, float(self.decay), normalize), half_life)


@dataclass(frozen=True)
class ItemId(Recipe):
    """The item itself: a feature per item."""

    sides = ("item",)

    def fields(self, dataset: Dataset, rows: Any) -> Iterable[tuple[str, Featurizer]]:
        yield "item", LevelFeaturizer("item", dataset.n_items, "items")


@dataclass(frozen=True, init=False)
class Attributes(Recipe):
    """Columns of the users' table or of the interactions (A); on the item side, of the items' table.

    Parameters
    ----------
    *names : str
        By default all columns of the table of users (of items). Columns of the interactions must be named, and only those that are
        known before the event: never its rating.
    kind : {"auto", "category", "bins", "value", "multiple"}
        "category": a feature per level. "bins": numbers, cut at quantiles. "value": the number, standardised. "multiple": lists,
        a feature per entry. "auto": by type; integers are categories where there are few of them.
    bins : int
        Number of bins, at most.
    separator : str, optional
        Strings that hold several values ("Action|Drama") are split at it.
    """

    names: tuple[str, ...]
    kind: str
    bins: int
    separator: str | None
    sides = ("context", "item")
    describes_new_items = True

    def __init__(self, *names: str, kind: str = "auto", bins: int = 10, separator: str | None = None) -> None:
        if not all(isinstance(name, str) for name in names):
            raise TypeError(f"names of attributes must be strings, got {names!r}.")
        check.choice("kind", kind, KINDS)
        check.integer("bins", bins, low=2)
        if separator is not None and (not isinstance(separator, str) or not separator):
            raise TypeError(f"separator must be a string such as '|', got {separator!r}.")
        for key, value in (("names", names), ("kind", kind), ("bins", bins), ("separator", separator)):
            object.__setattr__(self, key, value)

    def fields(self, dataset: Dataset, rows: Any) -> Iterable[tuple[str, Featurizer]]:
        for name in self._columns(dataset, rows.side):
            _require(name, rows)
            yield name, AttributeFeaturizer(name, self.kind, self.bins, self.separator)

    def changes(self, dataset: Dataset) -> bool:
        return not set(self._columns(dataset, "context")).isdisjoint(dataset.event_table.column_names)

    def _columns(self, dataset: Dataset, side: str) -> Sequence[str]:
        """The attributes named, or all columns of the table."""
        argument, table = ("items", dataset.item_table) if side == "item" else ("users", dataset.user_table)
        if not self.names and not table.num_columns:
            raise ValueError(
                f"there are no attributes of {argument}: give {call('Dataset', argument)}, or name columns of the interactions."
            )
        return self.names or table.column_names


@dataclass(frozen=True, init=False)
class Vectors(Recipe):
    """Columns of vectors, such as those of texts or images: a dense feature for each of their numbers.

    Parameters
    ----------
    *names : str
        Columns of the users' table or of the interactions (on the item side, of the items' table) that hold lists of numbers, all
        of one length. A row without a list has no such features.
    standardize : bool
        Subtract the mean vector, and divide by the root of the mean squared length, so that L2 means the same for all.
    """

    names: tuple[str, ...]
    standardize: bool
    sides = ("context", "item")
    describes_new_items = True

    def __init__(self, *names: str, standardize: bool = True) -> None:
        if not names or not all(isinstance(name, str) for name in names):
            raise TypeError(f"Vectors takes names of columns, such as Vectors('embedding'), got {names!r}.")
        if not isinstance(standardize, bool):
            raise TypeError(f"{setting('standardize', standardize, 'Vectors')} must be true or false.")
        object.__setattr__(self, "names", names)
        object.__setattr__(self, "standardize", standardize)

    def fields(self, dataset: Dataset, rows: Any) -> Iterable[tuple[str, Featurizer]]:
        for name in self.names:
            _require(name, rows)
            yield name, VectorFeaturizer(name, self.standardize)

    def changes(self, dataset: Dataset) -> bool:
        return not set(self.names).isdisjoint(dataset.event_table.column_names)


def _require(name: str, rows: Any) -> None:
    if name not in rows.attributes:
        there = ", ".join(map(repr, rows.attributes)) or "none: give the table"
        raise ValueError(f"there is no attribute {name!r}; the data have {there}.")


RECIPES: dict[str, type[Recipe]] = {
    "user": UserId,
    "item": ItemId,
    "attributes": Attributes,
    "vectors": Vectors,
    "previous": Previous,
    "history": History,
}  # by their names on the command line
DEFAULT_RECIPES: dict[str, list[Recipe]] = {"context": [UserId()], "item": [ItemId()]}


def by_row_order(recipes: Iterable[Recipe], dataset: Dataset) -> list[Recipe]:
    """The recipes that follow the order of rows, for want of timestamps."""
    return [] if dataset.row_order is None else [recipe for recipe in recipes if recipe.uses_history]


def warn_if_order_is_doubtful(recipes: Iterable[Recipe], dataset: Dataset) -> None:
    """Warn where recipes take rows for a user's events in time, but rows are sorted by an id."""
    ordered = by_row_order(recipes, dataset)
    if ordered:
        warn_if_sorted(dataset.row_order, f"{listed(ordered)} takes the rows before an event for earlier events")


def check_recipes(side: str, recipes: Any) -> Sequence[Recipe]:
    """``recipes`` as a list, if they can describe that side; None: the default."""
    if recipes is None:
        return list(DEFAULT_RECIPES[side])
    if isinstance(recipes, Recipe):
        recipes = [recipes]
    if isinstance(recipes, str) or not isinstance(recipes, Sequence) or not recipes:
        raise TypeError(f"{side} must be a list of recipes such as {DEFAULT_RECIPES[side]}, got {recipes!r}.")
    for recipe in recipes:
        if not isinstance(recipe, Recipe):
            raise TypeError(f"{side} must be a list of recipes such as UserId() and Attributes('age'), got {recipe!r} in it.")
        if side not in recipe.sides:
            wrong = named(side, "Recommender")
            raise ValueError(f"{shown(recipe)} describes the {recipe.sides[0]}, not the {side}: it cannot be in {wrong}.")
    return recipes
