"""Recipes: what a model is told of a context, and of an item.

``[UserId(), Attributes("country"), Previous(), History(last=50)]`` names the fields of a context (U, A, P and H in the paper's
experiments, Section 6); ``[ItemId(), Attributes("category")]`` those of an item. A recipe is a description; :class:`Description`
holds what it learnt from the rows trained on, and makes columns from those and from live requests by the same code.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from everypair.columns.history_field import NORMALIZATIONS, HistoryField, Window
from everypair.columns.table import Levels
from everypair.data import Dataset, Ids
from everypair.recommend import encoders as coding
from everypair.recommend.context_batch import ContextBatch, Lookup
from everypair.runtime import validation as check

NONE = "none"  # what people are told where a row has no value


@dataclass(frozen=True)
class Catalogue:
    """The rows that item features are made of."""

    item: np.ndarray
    attributes: dict[str, Lookup]
    catalogue: Ids

    @classmethod
    def of(cls, dataset: Dataset) -> Catalogue:
        item = np.arange(dataset.n_items)
        attributes = {name: Lookup(dataset.item_table[name], item) for name in dataset.item_table.column_names}
        return cls(item, attributes, dataset.items)

    def take(self, index: np.ndarray) -> Catalogue:
        """Some of the rows."""
        attributes = {name: Lookup(values, at[index]) for name, (values, at) in self.attributes.items()}
        return Catalogue(self.item[index], attributes, self.catalogue)


class Field(ABC):
    """One field of a description: learns from the rows trained on, describes any."""

    ids: str | None = None  # whose ids are its levels: "users" or "items"

    @abstractmethod
    def column(self, rows: Any) -> Any:
        """A column as models take it."""

    @abstractmethod
    def learn(self, rows: Any) -> None:
        """From the rows trained on."""

    @abstractmethod
    def groups(self, rows: Any) -> np.ndarray | None:
        """Equal numbers, from 0, for rows with equal features; None where hardly any two are."""

    @abstractmethod
    def known(self, rows: Any) -> np.ndarray:
        """Which rows have a feature that there was something learnt of."""

    @abstractmethod
    def learnt(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """What it learnt, to be stored: arrays and facts."""

    @abstractmethod
    def restore(self, arrays: Mapping[str, np.ndarray], facts: Mapping[str, Any]) -> None:
        """From what :meth:`learnt` gave."""

    @abstractmethod
    def label(self, rows: Any, feature: int | None) -> str:
        """What people call a feature of a single row; None: all that the field says of it."""


class IdField(Field):
    """A field with a feature per user (per item): ``met`` are those that were trained on."""

    n: int
    met: np.ndarray

    def learnt(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        return {"met": self.met}, {}

    def restore(self, arrays: Mapping[str, np.ndarray], facts: Mapping[str, Any]) -> None:
        met = arrays["met"]
        if met.shape != (self.n,) or met.dtype != bool:
            raise ValueError(f"there must be {self.n} truth values, one for each of the {self.ids}, got {met.dtype} {met.shape}.")
        self.met = met

    def move(self, before: IdField, index: np.ndarray) -> None:
        """What another field learnt of other users (items): which of its levels each of these was, -1 for a new one."""
        self.met = np.append(before.met, False)[index]


class LevelField(IdField):
    """A code per row: that of its user, its previous item, or itself."""

    def __init__(self, attribute: str, ids: str, n: int) -> None:
        self._attribute, self.ids, self.n = attribute, ids, n

    def _codes(self, rows: Any) -> np.ndarray:
        return getattr(rows, self._attribute)

    def learn(self, rows: Any) -> None:
        self.met = np.bincount(self._codes(rows) + 1, minlength=self.n + 1)[1:] > 0

    def column(self, rows: Any) -> Levels:
        return Levels(self._codes(rows), self.n)

    def groups(self, rows: Any) -> np.ndarray:
        return self._codes(rows) + 1

    def known(self, rows: Any) -> np.ndarray:
        return np.append(self.met, False)[self._codes(rows)]

    def label(self, rows: Any, feature: int | None) -> str:
        code = int(self._codes(rows)[0]) if feature is None else feature
        ids = rows.people if self.ids == "users" else rows.catalogue
        return str(ids[code]) if code >= 0 else NONE


class PreviousField(LevelField):
    """The item before, or so many before."""

    def __init__(self, back: int, n: int) -> None:
        super().__init__("previous", "items", n)
        self._back = back

    def _codes(self, rows: ContextBatch) -> np.ndarray:
        return rows.previous(self._back)


class PastField(IdField):
    """The history."""

    ids = "items"

    def __init__(self, n_items: int, window: Window) -> None:
        self.n, self._window = n_items, window

    def learn(self, rows: ContextBatch) -> None:
        """Which items are in a past."""
        edges = np.zeros(len(rows.items) + 1, np.int64)
        np.add.at(edges, self._begin(rows), 1)
        np.add.at(edges, rows.end, -1)
        self.met = np.bincount(rows.items[np.cumsum(edges)[:-1] > 0], minlength=self.n) > 0

    def column(self, rows: ContextBatch) -> HistoryField:
        return HistoryField(rows.items, rows.bounds, rows.begin, rows.end, self.n, self._window)

    def groups(self, rows: ContextBatch) -> None:
        return None

    def known(self, rows: ContextBatch) -> np.ndarray:
        met = np.append(0, np.cumsum(self.met[rows.items]))
        return met[rows.end] > met[self._begin(rows)]

    def label(self, rows: ContextBatch, feature: int | None) -> str:
        if feature is not None:
            return str(rows.catalogue[feature])
        count = int((rows.end - self._begin(rows))[0])
        return "1 item" if count == 1 else f"{count:,} items"

    def _begin(self, rows: ContextBatch) -> np.ndarray:
        return self._window.first(rows.begin, rows.end)


class AttributeField(Field):
    """A column of a table."""

    encoder: coding.Encoder

    def __init__(self, recipe: Attributes, name: str) -> None:
        self._recipe, self._name = recipe, name

    def learn(self, rows: Any) -> None:
        """What the column is, and what it holds, from the rows trained on alone."""
        values, index = rows.attributes[self._name]
        there = np.unique(index[index >= 0])
        values = values if len(there) == len(values) else values.take(there)
        self.encoder = coding.encoder(self._name, values, self._recipe.kind, self._recipe.bins, self._recipe.separator)
        self.encoder.learn(values)

    def column(self, rows: Any) -> Any:
        return self.encoder.columns(*rows.attributes[self._name])

    def groups(self, rows: Any) -> np.ndarray:
        return self.encoder.groups(*rows.attributes[self._name])

    def known(self, rows: Any) -> np.ndarray:
        return self.encoder.known(*rows.attributes[self._name])

    def unknown(self, rows: Any) -> np.ndarray:
        """How many values that there was nothing learnt of each row has."""
        return self.encoder.unknown(*rows.attributes[self._name])

    def learnt(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        return {}, self.encoder.learnt()

    def restore(self, arrays: Mapping[str, np.ndarray], facts: Mapping[str, Any]) -> None:
        self.encoder = coding.restored(facts)

    def label(self, rows: Any, feature: int | None) -> str:
        named = None if feature is None else self.encoder.label(feature)
        return self._value(rows) if named is None else named

    def _value(self, rows: Any) -> str:
        """As the table or the request has it."""
        values, index = rows.attributes[self._name]
        value = values[int(index[0])].as_py() if index[0] >= 0 else None
        if isinstance(value, list):
            return ", ".join(map(str, value)) or NONE
        return NONE if value is None else str(value)


class Recipe(ABC):
    """Part of what a model is told."""

    sides: tuple[str, ...]

    @abstractmethod
    def fields(self, dataset: Dataset, rows: Any) -> Iterable[tuple[str, Field]]:
        """The fields it stands for, by name."""

    def changes(self, dataset: Dataset) -> bool:
        """Whether what it tells of a user changes from event to event."""
        return False


@dataclass(frozen=True)
class UserId(Recipe):
    """Who it is (U): a feature per user."""

    sides = ("context",)

    def fields(self, dataset: Dataset, rows: Any) -> Iterable[tuple[str, Field]]:
        yield "user", LevelField("user", "users", dataset.n_users)


@dataclass(frozen=True)
class Previous(Recipe):
    """The item before (P): a feature per item.

    Parameters
    ----------
    back : int
        Which one: 1 for the last, 2 for the one before it, whose field is called "previous 2".
    """

    back: int = 1
    sides = ("context",)

    def __post_init__(self) -> None:
        check.integer("back", self.back, low=1)

    def changes(self, dataset: Dataset) -> bool:
        return True

    def fields(self, dataset: Dataset, rows: Any) -> Iterable[tuple[str, Field]]:
        yield "previous" if self.back == 1 else f"previous {self.back}", PreviousField(self.back, dataset.n_items)


@dataclass(frozen=True)
class History(Recipe):
    """The items so far (H): a feature per item.

    Parameters
    ----------
    last : int, optional
        How many of the latest events count; None: all.
    decay : float
        An event's weight is multiplied by it with every later event; 1: all weigh the same, as in the paper. What was seen last
        mostly tells more (docs/log.md).
    normalize : {"sqrt", "mean", "none"}
        Divide a row's weights by the square root of their sum, by their sum, or not at all.
    name : str
        Of the field, for recipes with more than one history.
    """

    last: int | None = None
    decay: float = 0.8
    normalize: str = "sqrt"
    name: str = "history"
    sides = ("context",)

    def __post_init__(self) -> None:
        if self.last is not None:
            check.integer("last", self.last, low=1)
        check.number("decay", self.decay, low=0.0, high=1.0, open_low=True)
        check.choice("normalize", self.normalize, NORMALIZATIONS)

    def changes(self, dataset: Dataset) -> bool:
        return True

    def fields(self, dataset: Dataset, rows: Any) -> Iterable[tuple[str, Field]]:
        yield self.name, PastField(dataset.n_items, Window(self.last or 0, float(self.decay), self.normalize))


@dataclass(frozen=True)
class ItemId(Recipe):
    """The item itself: a feature per item."""

    sides = ("item",)

    def fields(self, dataset: Dataset, rows: Any) -> Iterable[tuple[str, Field]]:
        yield "item", LevelField("item", "items", dataset.n_items)


@dataclass(frozen=True, init=False)
class Attributes(Recipe):
    """Columns of the users' table or of the interactions (A); on the item side, of the items' table.

    Parameters
    ----------
    *names : str
        By default all columns of the table of users (of items). Columns of the interactions must be named: what is known only after
        an event, such as its rating, must not be.
    kind : {"auto", "category", "bins", "value", "multiple"}
        "category": a feature per level. "bins": numbers, cut at quantiles. "value": the number, standardised. "multiple": lists,
        a feature per entry. "auto": by type; integers are categories where there are few of them.
    bins : int
        At most so many.
    separator : str, optional
        Texts that hold several values ("Action|Drama") are split at it.
    """

    names: tuple[str, ...]
    kind: str
    bins: int
    separator: str | None
    sides = ("context", "item")

    def __init__(self, *names: str, kind: str = "auto", bins: int = 10, separator: str | None = None) -> None:
        if not all(isinstance(name, str) for name in names):
            raise TypeError(f"names of attributes must be texts, got {names!r}.")
        check.choice("kind", kind, coding.KINDS)
        check.integer("bins", bins, low=2)
        if separator is not None and (not isinstance(separator, str) or not separator):
            raise TypeError(f"separator must be a text such as '|', got {separator!r}.")
        for key, value in (("names", names), ("kind", kind), ("bins", bins), ("separator", separator)):
            object.__setattr__(self, key, value)

    def fields(self, dataset: Dataset, rows: Any) -> Iterable[tuple[str, Field]]:
        side = "items" if isinstance(rows, Catalogue) else "users"
        for name in self.in_use(dataset, side):
            if name not in rows.attributes:
                there = ", ".join(map(repr, rows.attributes)) or "none: give the table"
                raise ValueError(f"there is no attribute {name!r}; the data have {there}.")
            yield name, AttributeField(self, name)

    def changes(self, dataset: Dataset) -> bool:
        return not set(self.in_use(dataset, "users")).isdisjoint(dataset.event_table.column_names)

    def in_use(self, dataset: Dataset, side: str) -> Sequence[str]:
        """The attributes named, or all columns of the table."""
        table = dataset.item_table if side == "items" else dataset.user_table
        if not self.names and not table.num_columns:
            raise ValueError(
                f"there are no attributes of {side}: give Dataset(..., {side}=...), or name columns of the interactions."
            )
        return self.names or table.column_names


class Description:
    """What recipes learnt from the rows of a fit."""

    def __init__(self, side: str, recipes: Sequence[Recipe], dataset: Dataset, rows: Any) -> None:
        self.fields = fields_of(side, recipes, dataset, rows)
        for field in self.fields.values():
            field.learn(rows)

    @classmethod
    def restored(
        cls, side: str, recipes: Sequence[Recipe], dataset: Dataset, rows: Any, arrays: Mapping[str, Any], facts: Mapping[str, Any]
    ) -> Description:
        """From what :meth:`learnt` gave."""
        description = object.__new__(cls)
        description.fields = fields_of(side, recipes, dataset, rows)
        for name, field in description.fields.items():
            mine = f"{name} "
            field.restore({key.removeprefix(mine): a for key, a in arrays.items() if key.startswith(mine)}, facts[name])
        return description

    def learnt(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """To be stored: arrays and facts."""
        learnt = {name: field.learnt() for name, field in self.fields.items()}
        arrays = {f"{name} {key}": array for name, (arrays, _) in learnt.items() for key, array in arrays.items()}
        return arrays, {name: facts for name, (_, facts) in learnt.items()}

    def moved(
        self, side: str, recipes: Sequence[Recipe], dataset: Dataset, rows: Any, index: Mapping[str, np.ndarray]
    ) -> Description:
        """The same for other users and items: which of those before each of them is, -1 for new ones; by "users" and "items"."""
        description = object.__new__(Description)
        description.fields = dict(self.fields)
        for name, field in fields_of(side, recipes, dataset, rows).items():
            before = self.fields[name]
            if isinstance(field, IdField) and isinstance(before, IdField) and field.ids is not None:
                field.move(before, index[field.ids])
                description.fields[name] = field
        return description

    def columns(self, rows: Any) -> dict[str, Any]:
        """Columns as models take them."""
        return {name: field.column(rows) for name, field in self.fields.items()}

    def groups(self, rows: Any) -> np.ndarray | None:
        """Rows with the same features have the same number, from 0; None where merging them would not help."""
        keys: np.ndarray | None = None
        for field in self.fields.values():
            codes = field.groups(rows)
            if codes is None:
                return None
            keys = codes if keys is None else keys * (int(codes.max(initial=0)) + 1) + codes
            keys = np.unique(keys, return_inverse=True)[1]
        return keys

    def label(self, rows: Any, name: str, feature: int | None) -> str:
        """What people call a feature of a single row; None: all that the field says of it."""
        field = self.fields.get(name)
        if field is None:  # a column of levels, which a recipe of one's own may have
            return "" if feature is None else str(feature)
        return field.label(rows, feature)

    def known(self, rows: Any) -> np.ndarray:
        """Rows of which anything is known."""
        return np.any([field.known(rows) for field in self.fields.values()], axis=0)

    def unknown(self, rows: Any) -> dict[str, np.ndarray]:
        """By attribute, how many values that there was nothing learnt of each row has."""
        return {name: field.unknown(rows) for name, field in self.fields.items() if isinstance(field, AttributeField)}


def fields_of(side: str, recipes: Sequence[Recipe], dataset: Dataset, rows: Any) -> dict[str, Field]:
    """The fields that recipes stand for, which have learnt nothing yet."""
    fields: dict[str, Field] = {}
    for recipe in check_recipes(side, recipes):
        for name, field in recipe.fields(dataset, rows):
            if name in fields:
                raise ValueError(f"two fields of the {side} are named {name!r}. Rename the attribute, or name the history.")
            fields[name] = field
    return fields


def check_recipes(side: str, recipes: Any) -> Sequence[Recipe]:
    """``recipes`` if they describe that side."""
    if isinstance(recipes, Recipe):
        recipes = [recipes]
    if isinstance(recipes, str) or not isinstance(recipes, Sequence) or not recipes:
        raise TypeError(
            f"{side} must be a list of recipes such as {'[UserId()]' if side == 'context' else '[ItemId()]'}, got {recipes!r}."
        )
    for recipe in recipes:
        if not isinstance(recipe, Recipe):
            raise TypeError(f"{side} must be a list of recipes such as UserId() and Attributes('age'), got {recipe!r} in it.")
        if side not in recipe.sides:
            raise ValueError(f"{recipe!r} describes the {recipe.sides[0]}, not the {side}.")
    return recipes
