"""Merging of ids and attribute tables, for datasets that are extended with new data."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from everypair.data.arrow import decoded, is_text, value_type
from everypair.data.ids import Ids, as_ids
from everypair.data.tables import decide_ids, opened
from everypair.data.text_columns import as_type


class Changed(NamedTuple):
    """Codes of the users and items with new events or new attributes."""

    users: np.ndarray
    items: np.ndarray


class AttributeRows(NamedTuple):
    """A table of attributes: its ids, sorted, and its other columns in their order."""

    ids: Ids
    table: pa.Table


def attribute_rows(source: Any, argument: str, key: str, known: Ids) -> AttributeRows | None:
    """A table of attributes (``argument``) with ids in column ``key``, of the same type as the known ones."""
    if source is None:
        return None
    read = opened(argument, source, (key,))
    what = f"{argument[:-1]} ids"
    decide_ids([(read, key)], known.kind if len(known) else None, what)
    what = f"{what} (column {key!r} of {argument})"
    given = as_ids(read.column(key), what)
    known.require_same_kind(given, what)
    ids, codes = Ids.coded(given, what)
    if len(ids) < len(given):
        example = ids[int(np.argmax(np.bincount(codes) > 1))]
        raise ValueError(f"{argument} must have one row per id, but some ids have several, such as {example!r}. Keep one of each.")
    return AttributeRows(ids, read.table.drop_columns([key]).take(pa.array(np.argsort(codes))))


def union(before: Ids, of_events: Ids | None, rows: AttributeRows | None) -> Ids:
    """The ids of a dataset, of new events and of a new table."""
    parts = [before.values, *([] if of_events is None else [of_events.values]), *([] if rows is None else [rows.ids.values])]
    return before if len(parts) == 1 else Ids.of(pa.chunked_array(parts))


def changed_codes(ids: Ids, of_events: tuple[Ids, np.ndarray] | None, rows: AttributeRows | None) -> np.ndarray:
    """Codes of the ids of new events (ids, and a code per event) and of a new table."""
    codes = [np.empty(0, np.int64)]
    if of_events is not None:
        codes.append(ids.codes(of_events[0].values)[np.unique(of_events[1])])
    if rows is not None:
        codes.append(ids.codes(rows.ids.values))
    return np.unique(np.concatenate(codes))


def merged_attributes(
    argument: str, before: pa.Table, old: Ids, ids: Ids, rows: AttributeRows | None, notes: list[str]
) -> pa.Table:
    """Attributes in the order of ``ids``: those of the new table where it has them, else the earlier ones."""
    old_rows = old.codes(ids.values)
    if rows is None:
        return before.take(pa.array(old_rows, mask=old_rows < 0)) if before.num_columns else before
    left_out = [name for name in rows.table.column_names if name not in before.column_names]
    if left_out:
        notes.append(f"columns of {argument} that the dataset does not have: left out ({', '.join(left_out)}).")
    new_rows, columns = rows.ids.codes(ids.values), {}
    given = cast_columns(before.schema, rows.table, len(rows.ids), argument)
    for name in before.column_names:
        replaced = new_rows >= 0 if name in rows.table.column_names else np.zeros(len(ids), bool)
        source = np.where(replaced, len(before) + new_rows, old_rows)
        both = pa.chunked_array([*before[name].chunks, *given[name].chunks], before[name].type)
        columns[name] = both.take(pa.array(source, mask=source < 0))
    return pa.table(columns, schema=before.schema) if columns else before


def cast_columns(schema: pa.Schema, table: pa.Table, n: int, argument: str) -> pa.Table:
    """The columns of a schema from a table of n rows, cast to its types; nulls where the table has no such column."""
    columns = {}
    for field in schema:
        if field.name not in table.column_names or pa.types.is_null(field.type):  # a null column has no type to cast to
            columns[field.name] = pa.nulls(n, field.type)
            continue
        values = table[field.name]
        if is_text(value_type(values.type)) and not is_text(value_type(field.type)):
            values = as_type(decoded(values), field.type, f"column {field.name!r} of {argument}")
        try:
            columns[field.name] = values.cast(field.type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise TypeError(
                f"column {field.name!r} of {argument} must be {field.type}, as before, got {table[field.name].type}: {error}"
            ) from error
    return pa.table(columns, schema=schema) if columns else pa.table({})
