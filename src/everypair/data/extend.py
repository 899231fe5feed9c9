"""A dataset with more events, users and items."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from everypair.data.dataset import Dataset
from everypair.data.ids import Ids, as_ids
from everypair.data.tables import as_table, column

LATEST = 2**63 // 1000  # microseconds that nanoseconds of 64 bits can hold


class Changed(NamedTuple):
    """Users and items (codes) of new events, or of whom something new is known."""

    users: np.ndarray
    items: np.ndarray


class Described(NamedTuple):
    """The ids of a table, in order, and its other columns."""

    ids: Ids
    table: pa.Table


def extended(dataset: Dataset, interactions: Any = None, users: Any = None, items: Any = None) -> tuple[Dataset, Changed]:
    """See :meth:`everypair.Dataset.extended`; and what has changed."""
    new = None if interactions is None else _more(dataset, interactions)
    people = _rows(users, "users", dataset.user_column, dataset.users)
    things = _rows(items, "items", dataset.item_column, dataset.items)
    result = object.__new__(Dataset)
    vars(result).update(vars(dataset), notes=[])
    result.users = _union(dataset.users, None if new is None else new.users, people)
    result.items = _union(dataset.items, None if new is None else new.items, things)
    _merge(result, dataset, new)
    result.user_table = _described(result, dataset.user_table, dataset.users, result.users, people, "users")
    result.item_table = _described(result, dataset.item_table, dataset.items, result.items, things, "items")
    return result, Changed(
        _changed(result.users, None if new is None else (new.users, new.user), people),
        _changed(result.items, None if new is None else (new.items, new.item), things),
    )


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


def _rows(source: Any, argument: str, name: str, ids: Ids) -> Described | None:
    """A table of attributes, its rows in the order of ids."""
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
    return Described(own, table.drop_columns([name]).take(pa.array(np.argsort(codes))))


def _union(before: Ids, of_events: Ids | None, table: Described | None) -> Ids:
    parts = [before.values, *([] if of_events is None else [of_events.values]), *([] if table is None else [table.ids.values])]
    return before if len(parts) == 1 else Ids.of(pa.chunked_array(parts))


def _changed(ids: Ids, of_events: tuple[Ids, np.ndarray] | None, table: Described | None) -> np.ndarray:
    codes = [np.empty(0, np.int64)]
    if of_events is not None:
        codes.append(ids.codes(of_events[0].values)[np.unique(of_events[1])])
    if table is not None:
        codes.append(ids.codes(table.ids.values))
    return np.unique(np.concatenate(codes))


def _merge(result: Dataset, dataset: Dataset, new: Dataset | None) -> None:
    """The events of both, in order."""
    parts = [dataset] if new is None else [dataset, new]
    user = np.concatenate([result.users.codes(part.users.values)[part.user] for part in parts])
    item = np.concatenate([result.items.codes(part.items.values)[part.item] for part in parts])
    weight = None if dataset.weight is None else np.concatenate([np.asarray(part.weight) for part in parts])
    events = dataset.event_table
    if new is not None:
        events = pa.concat_tables([events, _like(events.schema, new.event_table, len(new), "interactions")])
    time = None
    if dataset.time is not None:
        result.time_unit = "ns" if "ns" in [part.time_unit for part in parts] else dataset.time_unit
        time = np.concatenate([_in_unit(part, result.time_unit) for part in parts])
    result._sort(user, item, time, weight, events)
    if result.repeats == "drop":
        result._keep(np.flatnonzero(result.first_of_pair()))


def _in_unit(part: Dataset, unit: str | None) -> np.ndarray:
    time = np.asarray(part.time)
    if part.time_unit == unit:
        return time
    if np.abs(time).max(initial=0) >= LATEST:
        raise ValueError(
            "new timestamps have nanoseconds, and there are times before 1678 or after 2262, which cannot: round them."
        )
    return time * 1000


def _described(result: Dataset, before: pa.Table, old: Ids, ids: Ids, more: Described | None, argument: str) -> pa.Table:
    """Attributes in the order of the ids: what the new table says of an id, and what was known before."""
    old_rows = old.codes(ids.values)
    if more is None:
        return before.take(pa.array(old_rows, mask=old_rows < 0)) if before.num_columns else before
    left_out = [name for name in more.table.column_names if name not in before.column_names]
    if left_out:
        result.notes.append(f"columns of {argument} that the data do not have: left out ({', '.join(left_out)}).")
    new_rows, columns = more.ids.codes(ids.values), {}
    given = _like(before.schema, more.table, len(more.ids), argument)
    for name in before.column_names:
        said = new_rows >= 0 if name in more.table.column_names else np.zeros(len(ids), bool)
        rows = np.where(said, len(before) + new_rows, old_rows)
        both = pa.chunked_array([*before[name].chunks, *given[name].chunks], before[name].type)
        columns[name] = both.take(pa.array(rows, mask=rows < 0))
    return pa.table(columns, schema=before.schema) if columns else before


def _like(schema: pa.Schema, table: pa.Table, n: int, argument: str) -> pa.Table:
    """The columns of a schema: missing where the table has none, of its types where they can be."""
    columns = {}
    for field in schema:
        if field.name not in table.column_names or pa.types.is_null(field.type):  # of which there was nothing to learn
            columns[field.name] = pa.nulls(n, field.type)
            continue
        try:
            columns[field.name] = table[field.name].cast(field.type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise TypeError(
                f"column {field.name!r} of {argument} must be {field.type}, as before, got {table[field.name].type}: {error}"
            ) from error
    return pa.table(columns, schema=schema) if columns else pa.table({})
