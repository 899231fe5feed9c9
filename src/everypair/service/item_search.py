"""Search of items and users by id or title, and the titles and attributes shown of items."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa

from everypair.data import Dataset, Ids
from everypair.data.arrow import decoded, is_text, pc
from everypair.runtime.cached import cached_property

TITLE_COLUMNS = ("title", "name")  # in this order, if no column is chosen
EXACT, PREFIX, WORD_PREFIX, SUBSTRING = 4, 3, 2, 1  # quality of a match


class ItemSearch:
    """Finds items and users of a dataset, and gives titles and attributes of items.

    Parameters
    ----------
    dataset : Dataset
    events : array
        The number of events of each item: of equal matches the most popular comes first.
    title : str, optional
        The column of the items' table with titles. By default "title" or "name", in any case, if there is one.
    """

    def __init__(self, dataset: Dataset, events: np.ndarray, title: str | None = None) -> None:
        self._dataset, self._events = dataset, events
        columns = dataset.item_table.column_names
        if title is not None and title not in columns:
            raise ValueError(f"items have no column {title!r}; they have {', '.join(map(repr, columns)) or 'none'}.")
        readable = [column for column in columns if _is_readable(dataset.item_table.schema.field(column).type)]
        if title is not None and title not in readable:
            raise ValueError(f"titles must be strings or numbers, and the column {title!r} has other values.")
        matches = [column for name in TITLE_COLUMNS for column in readable if column.lower() == name]
        self.title_column = title or next(iter(matches), None)
        self.attributes = [column for column in columns if column != self.title_column]

    def title(self, code: int) -> str | None:
        """The title of an item; None if it has none."""
        if self.title_column is None:
            return None
        return _title(self._dataset.item_table[self.title_column][int(code)].as_py())

    def details(self, codes: np.ndarray) -> list[dict[str, Any]]:
        """Titles and attributes of items, as JSON values."""
        table = self._dataset.item_table
        if not table.num_columns:
            return [{"title": None, "attributes": {}} for _ in codes]
        rows = table.take(pa.array(codes)).to_pylist()
        titles = [None if self.title_column is None else _title(row[self.title_column]) for row in rows]
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


def _is_readable(kind: pa.DataType) -> bool:
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return is_text(kind) or pa.types.is_primitive(kind)


def _title(value: Any) -> str | None:
    return str(value) if value is not None and str(value).strip() else None


def json_value(value: Any) -> Any:
    """A value of a table as JSON: null for NaN, strings for values that JSON does not have."""
    if isinstance(value, dict):
        return {str(key): json_value(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [json_value(entry) for entry in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, bool | int | str) else str(value)


def item_code(items: Ids, text: str) -> int | None:
    """The code of an item by its id as a string; None if there is no such item."""
    if items.kind == "integers" and not text.removeprefix("-").isdecimal():
        return None
    (code,) = items.codes([int(text) if items.kind == "integers" else text])
    return int(code) if code >= 0 else None


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
