"""A dataset with more events, users and items."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from everypair.data.dataset import Dataset
from everypair.data.ids import Ids, as_ids
from everypair.data.tables import as_table, column


def extended(dataset: Dataset, interactions: Any, users: Any, items: Any) -> Dataset:
    """See :meth:`everypair.Dataset.extended`."""
    new = None if interactions is None else _more(dataset, interactions)
    tables = {
        "users": _rows(users, "users", dataset.user_column, dataset.users),
        "items": _rows(items, "items", dataset.item_column, dataset.items),
    }
    result = object.__new__(Dataset)
    vars(result).update(vars(dataset), notes=[])
    result.users = _union(dataset.users, None if new is None else new.users, tables["users"])
    result.items = _union(dataset.items, None if new is None else new.items, tables["items"])
    if new is not None and len(new):
        _merge(result, dataset, new)
    else:
        result.user = result.users.codes(dataset.users.values)[dataset.user].astype(np.int32)
        result.item = result.items.codes(dataset.items.values)[dataset.item].astype(np.int32)
        result._keep(np.arange(len(dataset)))
    result.user_table = _described(dataset.user_table, dataset.users, result.users, tables["users"], "users")
    result.item_table = _described(dataset.item_table, dataset.items, result.items, tables["items"], "items")
    return result


def _more(dataset: Dataset, interactions: Any) -> Dataset:
    """The new events, read as the first ones were."""
    names: Any = {
        "user": dataset.user_column, "item": dataset.item_column, "timestamp": dataset.timestamp,
        "rating": dataset.rating, "at_least": dataset.at_least, "weight": dataset.weight_column,
    }  # fmt: skip
    new = Dataset(interactions, **names)
    dataset.users.require_same_kind(as_ids(new.users.values, "users"), "user ids of the new interactions")
    dataset.items.require_same_kind(as_ids(new.items.values, "items"), "item ids of the new interactions")
    if (dataset.time_unit is None) != (new.time_unit is None):
        kinds = ["numbers" if unit is None else "dates or times" for unit in (dataset.time_unit, new.time_unit)]
        raise TypeError(f"timestamps of the new interactions must be {kinds[0]}, as those before, got {kinds[1]}.")
    return new


def _rows(source: Any, argument: str, name: str, ids: Ids) -> tuple[Ids, pa.Table] | None:
    """The ids of a table, and its rows in their order."""
    if source is None:
        return None
    table = as_table(argument, source, (name,))
    what = f"{name} ids (column {name!r} of {argument})"
    given = as_ids(column(table, name, argument, argument[:-1]), what)
    ids.require_same_kind(given, what)
    own, codes = Ids.coded(given, what)
    if len(own) < len(given):
        example = own[int(np.argmax(np.bincount(codes) > 1))]
        raise ValueError(f"{argument} must have one row per id, but has more for some, such as {example!r}. Keep one.")
    return own, table.drop_columns([name]).take(pa.array(np.argsort(codes)))


def _union(before: Ids, of_events: Ids | None, table: tuple[Ids, pa.Table] | None) -> Ids:
    parts = [before.values, *([] if of_events is None else [of_events.values]), *([] if table is None else [table[0].values])]
    return before if len(parts) == 1 else Ids.of(pa.chunked_array(parts))


def _merge(result: Dataset, dataset: Dataset, new: Dataset) -> None:
    """The events of both, in order."""
    user = np.concatenate([result.users.codes(d.users.values)[d.user] for d in (dataset, new)])
    item = np.concatenate([result.items.codes(d.items.values)[d.item] for d in (dataset, new)])
    weight = None if dataset.weight is None else np.concatenate([dataset.weight, new.weight])  # type: ignore[list-item]
    events = pa.concat_tables([dataset.event_table, _like(dataset.event_table.schema, new.event_table, len(new), "interactions")])
    time = None
    if dataset.time is not None:
        parts = [dataset.time, new.time]
        result.time_unit = "ns" if "ns" in (dataset.time_unit, new.time_unit) else dataset.time_unit
        scaled = [
            np.asarray(t) * (1000 if d.time_unit != result.time_unit else 1) for t, d in zip(parts, (dataset, new), strict=True)
        ]
        time = np.concatenate(scaled)
    result._sort(user, item, time, weight, events)
    if result.repeats == "drop":
        result._keep(np.flatnonzero(result.first_of_pair()))


def _described(before: pa.Table, old: Ids, ids: Ids, more: tuple[Ids, pa.Table] | None, argument: str) -> pa.Table:
    """Attributes in the order of the ids: those of the new table, where it has a row, and those before."""
    if not before.num_columns:
        return before
    old_rows = old.codes(ids.values)
    if more is None:
        return before.take(pa.array(old_rows, mask=old_rows < 0))
    own, table = more
    new_rows = own.codes(ids.values)
    rows = np.where(new_rows >= 0, len(before) + new_rows, old_rows)
    both = pa.concat_tables([before, _like(before.schema, table, len(table), argument)])
    return both.take(pa.array(rows, mask=rows < 0))


def _like(schema: pa.Schema, table: pa.Table, n: int, argument: str) -> pa.Table:
    """The columns of a schema: missing where the table has none, of its types where they can be."""
    columns = {}
    for field in schema:
        if field.name not in table.column_names:
            columns[field.name] = pa.nulls(n, field.type)
            continue
        try:
            columns[field.name] = table[field.name].cast(field.type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise TypeError(
                f"column {field.name!r} of {argument} must be {field.type}, as before, got {table[field.name].type}: {error}"
            ) from error
    return pa.table(columns, schema=schema) if columns else pa.table({})
