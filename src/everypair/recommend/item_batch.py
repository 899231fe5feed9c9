"""Batches of items with their attributes: the rows that features of items are made of."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from everypair.data import Dataset, Ids
from everypair.recommend.context_batch import AttributeColumn


@dataclass(frozen=True)
class ItemBatch:
    """Items by code, their attributes, and the ids that codes stand for."""

    side = "item"
    item: np.ndarray
    attributes: dict[str, AttributeColumn]
    item_ids: Ids

    @classmethod
    def of(cls, dataset: Dataset) -> ItemBatch:
        """All items of a dataset."""
        item = np.arange(dataset.n_items)
        attributes = {name: AttributeColumn(dataset.item_table[name], item) for name in dataset.item_table.column_names}
        return cls(item, attributes, dataset.items)

    def take(self, index: np.ndarray) -> ItemBatch:
        """Some of the rows."""
        attributes = {name: AttributeColumn(values, at[index]) for name, (values, at) in self.attributes.items()}
        return ItemBatch(self.item[index], attributes, self.item_ids)
