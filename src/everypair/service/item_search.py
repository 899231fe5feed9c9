"""What people are shown of items and users, and how they find them: by id or title."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from everypair.data import Dataset, Ids
from everypair.data.tables import decoded, is_text, pc

TITLES = ("title", "name")  # columns that items are known by, if none is named
EXACT, BEGINS, WORD, WITHIN = 4, 3, 2, 1  # how well something matches a query


class Catalogue:
    """The items of a dataset, with titles and attributes.

    Parameters
    ----------
    dataset : Dataset
    events : array
        How often each item was chosen: what is popular is found first.
    title : str, optional
        The column of the items' table that has titles. By default "title" or "name", in whatever case, if there is one.
    """

    def __init__(self, dataset: Dataset, events: np.ndarray, title: str | None = None) -> None:
        self._dataset, self._events = dataset, events
        columns = dataset.item_table.column_names
        if title is not None and title not in columns:
            raise ValueError(f"there is no column {title!r} of items; the data have {', '.join(map(repr, columns)) or 'none'}.")
        readable = [column for column in columns if _is_readable(dataset.item_table.schema.field(column).type)]
        if title is not None and title not in readable:
            raise ValueError(f"titles must be texts or numbers, and the column {title!r} has none.")
        found = [column for known in TITLES for column in readable if column.lower() == known]
        self.title_column = title or next(iter(found), None)
        self.attributes = [column for column in columns if column != self.title_column]

    def title(self, code: int) -> str | None:
        """What people call an item."""
        if self.title_column is None:
            return None
        return _title(self._dataset.item_table[self.title_column][int(code)].as_py())

    def details(self, codes: np.ndarray) -> list[dict[str, Any]]:
        """Titles and attributes of several items, as JSON can hold them."""
        table = self._dataset.item_table
        if not table.num_columns:
            return [{"title": None, "attributes": {}} for _ in codes]
        rows = table.take(pa.array(codes)).to_pylist()
        titles = [None if self.title_column is None else _title(row[self.title_column]) for row in rows]
        told = [{name: plain(row[name]) for name in self.attributes} for row in rows]
        return [{"title": title, "attributes": each} for title, each in zip(titles, told, strict=True)]

    def groups(self, attribute: str) -> np.ndarray:
        """Equal numbers, from 0, for items with the same value; -1 for those without one."""
        encoded = decoded(self._dataset.item_table[attribute]).combine_chunks().dictionary_encode()
        return pc.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False).astype(np.int64)

    def found(self, codes: np.ndarray) -> list[dict[str, Any]]:
        """All that is shown of several items."""
        named = zip(self._dataset.items.take(codes).to_pylist(), self.details(codes), self._events[codes].tolist(), strict=True)
        return [{"item": item, **details, "events": events} for item, details, events in named]

    def search(self, query: str, limit: int) -> np.ndarray:
        """The codes of the items whose id or title has the query in it: the best matches first, and of those the most popular."""
        return _best([self._ids, *([] if self._titles is None else [self._titles])], query, limit, self._events)

    def search_users(self, query: str, limit: int) -> np.ndarray:
        """The codes of the users whose id has the query in it, those with most events first."""
        return _best([self._users], query, limit, np.diff(self._dataset.bounds))

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
        """Items by falling number of events."""
        return np.argsort(-self._events, kind="stable")


def _is_readable(kind: pa.DataType) -> bool:
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return is_text(kind) or pa.types.is_primitive(kind)


def _title(value: Any) -> str | None:
    return str(value) if value is not None and str(value).strip() else None


def plain(value: Any) -> Any:
    """A value of a table as JSON can hold it."""
    if isinstance(value, dict):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, bool | int | str) else str(value)


def item_code(items: Ids, text: str) -> int | None:
    """The code of an item by its id as people read it."""
    if items.kind == "integers" and not text.removeprefix("-").isdecimal():
        return None
    (code,) = items.codes([int(text) if items.kind == "integers" else text])
    return int(code) if code >= 0 else None


def _lower(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    lowered = pc.utf8_lower(values.cast(pa.large_string()))
    return lowered.combine_chunks() if isinstance(lowered, pa.ChunkedArray) else lowered


def _best(texts: list[pa.Array], query: str, limit: int, popularity: np.ndarray) -> np.ndarray:
    wanted = pc.utf8_lower(pa.scalar(query.strip(), pa.large_string())).as_py()
    match = np.zeros(len(popularity), np.int64)
    for text in texts:
        for value, found in (
            (WITHIN, pc.match_substring(text, wanted)),
            (WORD, pc.match_substring(text, f" {wanted}")),
            (BEGINS, pc.starts_with(text, wanted)),
            (EXACT, pc.equal(text, wanted)),
        ):
            match = np.maximum(match, value * found.to_numpy(zero_copy_only=False))
    there = np.flatnonzero(match)
    order = np.lexsort((there, -popularity[there], -match[there]))
    return there[order[:limit]]
