"""Descriptions: the featurizers of all recipes of one side, with the features they learnt from the rows of a fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from everypair.data import Dataset
from everypair.recommend.featurizers import Featurizer
from everypair.recommend.item_batch import ItemBatch
from everypair.recommend.recipes import ItemId, Recipe, check_recipes
from everypair.runtime.cached import cached_property


class Description:
    """The fields of one side and their featurizers.

    Attributes
    ----------
    fields : dict of Featurizer
        By name of the field.
    """

    def __init__(self, side: str, recipes: Sequence[Recipe], dataset: Dataset, rows: Any) -> None:
        self.fields = _new_fields(side, recipes, dataset, rows)
        for field in self.fields.values():
            field.learn(rows)

    @classmethod
    def _of_fields(cls, fields: dict[str, Featurizer]) -> Description:
        description = object.__new__(cls)
        description.fields = fields
        return description

    @classmethod
    def restored(
        cls, side: str, recipes: Sequence[Recipe], dataset: Dataset, rows: Any, arrays: Mapping[str, Any], facts: Mapping[str, Any]
    ) -> Description:
        """From the result of :meth:`stored`."""
        fields = _new_fields(side, recipes, dataset, rows)
        for name, field in fields.items():
            prefix = f"{name} "
            own = {key.removeprefix(prefix): array for key, array in arrays.items() if key.startswith(prefix)}
            field.restore(rows, own, facts[name])
        return cls._of_fields(fields)

    def stored(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """What all fields learnt, as arrays and facts."""
        stored = {name: field.stored() for name, field in self.fields.items()}
        arrays = {f"{name} {key}": array for name, (arrays, _) in stored.items() for key, array in arrays.items()}
        return arrays, {name: facts for name, (_, facts) in stored.items()}

    def extended(
        self, side: str, recipes: Sequence[Recipe], dataset: Dataset, rows: Any, index: Mapping[str, np.ndarray]
    ) -> Description:
        """The same with the users and items of another dataset; ``index`` as for :meth:`Featurizer.continuing`."""
        fields = _new_fields(side, recipes, dataset, rows)
        return self._of_fields({name: field.continuing(self.fields[name], index) for name, field in fields.items()})

    def columns(self, rows: Any) -> dict[str, Any]:
        """The features of rows by field, as models take them."""
        return {name: field.column(rows) for name, field in self.fields.items()}

    def keyed_columns(self, rows: Any) -> dict[str, Any]:
        """The same, each feature with its key, so that a fit does not depend on the order of levels."""
        keys = {name: field.keys(rows) for name, field in self.fields.items()}
        return {name: column if (own := keys[name]) is None else column.keyed(own) for name, column in self.columns(rows).items()}

    def groups(self, rows: Any) -> np.ndarray | None:
        """Numbers from 0, equal for rows with the same features; None where hardly any two rows are equal."""
        keys: np.ndarray | None = None
        for field in self.fields.values():
            codes = field.groups(rows)
            if codes is None:
                return None
            keys = codes if keys is None else keys * (int(codes.max(initial=0)) + 1) + codes
            keys = np.unique(keys, return_inverse=True)[1]
        return keys

    def label(self, rows: Any, name: str, feature: int | None) -> str:
        """The name of a feature of a single row; None: of all features of the field together."""
        field = self.fields.get(name)
        if field is None:  # a column that describes the levels of a user-defined recipe
            return "" if feature is None else str(feature)
        return field.label(rows, feature)

    def known(self, rows: Any) -> np.ndarray:
        """Whether each row has a feature that was trained."""
        return np.any([field.known(rows) for field in self.fields.values()], axis=0)

    def unknown(self, rows: Any) -> dict[str, np.ndarray]:
        """By attribute, how many values of each row were not in training."""
        counts = {name: field.unknown(rows) for name, field in self.fields.items()}
        return {name: count for name, count in counts.items() if count is not None}


def _new_fields(side: str, recipes: Sequence[Recipe], dataset: Dataset, rows: Any) -> dict[str, Featurizer]:
    """The fields of recipes, which have learnt nothing yet."""
    found = [(recipe, *field) for recipe in check_recipes(side, recipes) for field in recipe.fields(dataset, rows)]
    fields: dict[str, Featurizer] = {}
    for recipe, short, field in found:
        name = recipe.long_name(short) if [other for _, other, _ in found].count(short) > 1 else short
        if name in fields:
            raise ValueError(f"two fields of the {side} are named {name!r}. Rename the attribute, or name the history.")
        fields[name] = field
    return fields


@dataclass(frozen=True)
class ItemColumns:
    """The features of all items of a dataset, computed at the first call; None if items have no features but their id."""

    items: Description
    recipes: Sequence[Recipe]
    dataset: Dataset

    def __call__(self) -> dict[str, Any] | None:
        return self._columns

    @cached_property
    def _columns(self) -> dict[str, Any] | None:
        return None if self._by_id else self.items.keyed_columns(ItemBatch.of(self.dataset))

    def without_rows(self) -> dict[str, Any] | None:
        """The same columns, of no items."""
        return None if self._by_id else self.items.columns(ItemBatch.of(self.dataset).take(np.empty(0, np.int64)))

    @property
    def _by_id(self) -> bool:
        return list(self.recipes) == [ItemId()]
