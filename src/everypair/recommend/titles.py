"""The titles of items, where the table of items has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from everypair.data import Dataset
from everypair.data.arrow import is_text
from everypair.recommend.explain.explanation import Summand

TITLE_COLUMNS = ("title", "name")  # in this order, if no column is chosen


class Titles:
    """The titles of the items of a dataset.

    Parameters
    ----------
    dataset : Dataset
    column : str, optional
        The column of the items' table with titles. By default "title" or "name", in any case, if there is one.

    Attributes
    ----------
    column : str or None
        None where items have no titles.
    """

    def __init__(self, dataset: Dataset, column: str | None = None) -> None:
        self._ids, self._table = dataset.items, dataset.item_table
        columns = self._table.column_names
        if column is not None and column not in columns:
            raise ValueError(f"items have no column {column!r}; they have {', '.join(map(repr, columns)) or 'none'}.")
        readable = [name for name in columns if _is_readable(self._table.schema.field(name).type)]
        if column is not None and column not in readable:
            raise ValueError(f"titles must be strings or numbers, and the column {column!r} has other values.")
        matches = [name for wanted in TITLE_COLUMNS for name in readable if name.lower() == wanted]
        self.column = column or next(iter(matches), None)

    def of(self, codes: Any) -> list[str | None]:
        """The title of each of these items (codes); None for one without."""
        if self.column is None:
            return [None] * len(codes)
        return [_title(value) for value in self._table[self.column].take(pa.array(np.asarray(codes, np.int64))).to_pylist()]

    def added_to(self, summands: list[Summand], is_item: Callable[[str], bool]) -> list[Summand]:
        """Summands with the titles of the items that they come from; ``is_item`` says of a field whether its values are items."""
        codes = {s.value: self._ids.code_of_text(s.value) for s in summands if is_item(s.field)}
        known = {value: code for value, code in codes.items() if code >= 0}
        title_of = dict(zip(known, self.of(list(known.values())), strict=True))
        return [s._replace(title=title_of.get(s.value)) if is_item(s.field) else s for s in summands]


def _is_readable(kind: pa.DataType) -> bool:
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return is_text(kind) or pa.types.is_primitive(kind)


def _title(value: Any) -> str | None:
    return str(value) if value is not None and str(value).strip() else None
