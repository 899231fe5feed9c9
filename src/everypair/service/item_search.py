"""Search of items and users by id or title, and the titles and attributes shown of items."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa

from everypair.data import Dataset
from everypair.data.arrow import decoded, pc
from everypair.recommend.titles import Titles
from everypair.runtime.cached import cached_property

EXACT, PREFIX, WORD_PREFIX, SUBSTRING = 4, 3, 2, 1  # quality of a match


class ItemSearch:
    """Finds items and users of a dataset, and gives titles and attributes of items.

    Parameters
    ----------
    dataset : Dataset
    events : array
        The number of events of each item: of equal matches the most popular comes first.
    title : str, optional
        The column of the items' table with titles, see :class:`~everypair.recommend.titles.Titles`.
    """

    def __init__(self, dataset: Dataset, events: np.ndarray, title: str | None = None) -> None:
        self._dataset, self._events, self.titles = dataset, events, Titles(dataset, title)
        self.attributes = [column for column in dataset.item_table.column_names if column != self.title_column]

    @property
    def title_column(self) -> str | None:
        return self.titles.column

    def details(self, codes: np.ndarray) -> list[dict[str, Any]]:
        """Titles and attributes of items, as JSON values."""
        table = self._dataset.item_table
        if not table.num_columns:
            return [{"title": None, "attributes": {}} for _ in codes]
        rows = table.take(pa.array(codes)).to_pylist()
        titles = self.titles.of(codes)
        attributes = [{name: json_value(row[name]) for name in self.attributes} for row in rows]
        return [{"title": title, "attributes": values} for title, values in zip(titles, attributes, strict=True)]

    def groups(self, attribute: str) -> np.ndarray:
        """Items grouped by the value of an attribute: the number of each item's group, -1 for items without a value."""
        encoded = decoded(self._dataset.item_table[attribute]).combine_chunks().dictionary_encode()
        return pc.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False).astype(np.int64)

    def summaries(self, codes: np.ndarray) -> list[dict[str, Any]]:
        """Ids, titles, attributes and numbers of events of items."""
        rows = zip(self._dataset.items.take(codes).to_pylist(), self.details(codes), self._events[codes].tolist(), strict=True)
        return [{"item": item, **details, "events": events} for item, details, events in rows]

    def search(self, query: str, limit: int) -> np.ndarray:
        """Codes of items whose id or title contains the query: the best matches first, then the most popular."""
        return _best_matches([self._ids, *([] if self._titles is None else [self._titles])], query, limit, self._events)

    def search_users(self, query: str, limit: int) -> np.ndarray:
        """Codes of users whose id contains the query: the best matches first, then those with most events."""
        return _best_matches([self._users], query, limit, np.diff(self._dataset.bounds))

    @cached_property
    def _ids(self) -> pa.Array:
        return _lower(self._dataset.items.values)

    @cached_property
    def _users(self) -> pa.Array:
        return _lower(self._dataset.users.values)

    @cached_property
    def _titles(self) -> pa.Array | None:
        if self.title_column is None:
            return None
        return pc.fill_null(_lower(decoded(self._dataset.item_table[self.title_column])), "")

    @cached_property
    def most_popular(self) -> np.ndarray:
        """Codes of all items by falling number of events."""
        return np.argsort(-self._events, kind="stable")


def json_value(value: Any) -> Any:
    """A value of a table as JSON: null for NaN, strings for values that JSON does not have."""
    if isinstance(value, dict):
        return {str(key): json_value(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [json_value(entry) for entry in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, bool | int | str) else str(value)


def _lower(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    lowered = pc.utf8_lower(values.cast(pa.large_string()))
    return lowered.combine_chunks() if isinstance(lowered, pa.ChunkedArray) else lowered


def _best_matches(columns: list[pa.Array], query: str, limit: int, popularity: np.ndarray) -> np.ndarray:
    """Rows in which any of the columns (in lower case) contains the query."""
    query = pc.utf8_lower(pa.scalar(query.strip(), pa.large_string())).as_py()
    quality = np.zeros(len(popularity), np.int64)
    for column in columns:
        for value, matches in (
            (SUBSTRING, pc.match_substring(column, query)),
            (WORD_PREFIX, pc.match_substring(column, f" {query}")),
            (PREFIX, pc.starts_with(column, query)),
            (EXACT, pc.equal(column, query)),
        ):
            quality = np.maximum(quality, value * matches.to_numpy(zero_copy_only=False))
    rows = np.flatnonzero(quality)
    order = np.lexsort((rows, -popularity[rows], -quality[rows]))
    return rows[order[:limit]]
