"""A dataset as arrays, Arrow tables and facts, to be stored, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from everypair.data import Dataset, Ids
from everypair.data.dataset import REPEATS, RESULT_COLUMNS
from everypair.data.frames import FRAMES
from everypair.data.row_order import KINDS as ORDERS
from everypair.data.row_order import UNSORTED
from everypair.data.times import UNITS
from everypair.recommend.stored_arrays import check_bounds, check_index
from everypair.runtime import validation as check

NONE = type(None)
FACTS: dict[str, tuple[type, ...]] = {
    "repeats": (str,), "timestamp": (str, NONE), "time_unit": (str, NONE), "time_counts": (bool,), "user_column": (str,),
    "item_column": (str,), "weight_column": (str, NONE), "rating": (str, NONE), "at_least": (int, float, NONE),
    "frame": (str, NONE), "notes": (list,),
}  # fmt: skip
# those that folders of 0.1 do not have
LATER_FACTS: dict[str, tuple[type, ...]] = {
    "row_order": (str, NONE), "time_zoned": (bool, NONE), "users_key": (str,), "items_key": (str,), "all_items": (bool,),
}  # fmt: skip
ID_TYPES = (pa.int64(), pa.large_string())
TABLES = ("user_table", "item_table", "event_table")


def dataset_stored(dataset: Dataset) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray], dict[str, bytes], dict[str, Any]]:
    """Its floating-point arrays, indices, tables and facts."""
    numbers = {f"events {name}": array for name in ("time", "weight") if (array := getattr(dataset, name)) is not None}
    index = {"events item": dataset.item, "events bounds": dataset.bounds}
    tables = {name: _arrow(pa.table({"id": getattr(dataset, name).values})) for name in ("users", "items")}
    tables |= {name: _arrow(getattr(dataset, name)) for name in TABLES if getattr(dataset, name).num_columns}
    return numbers, index, tables, {name: getattr(dataset, name) for name in (*FACTS, *LATER_FACTS)}


def dataset_restored(
    facts: Mapping[str, Any], numbers: Mapping[str, np.ndarray], index: Mapping[str, np.ndarray], tables: Mapping[str, bytes]
) -> Dataset:
    dataset = object.__new__(Dataset)
    facts = {**_before_0_2(facts), **facts}
    for name, kinds in {**FACTS, **LATER_FACTS}.items():
        if not isinstance(facts[name], kinds) or (isinstance(facts[name], bool) and bool not in kinds):
            raise ValueError(f"{name} of the dataset cannot be {facts[name]!r}.")
        setattr(dataset, name, facts[name])
    if dataset.row_order not in (None, *ORDERS):
        raise ValueError(f"row_order of the dataset cannot be {dataset.row_order!r}.")
    if dataset.repeats not in REPEATS or not all(isinstance(note, str) for note in dataset.notes):
        raise ValueError(f"repeats of the dataset must be one of {', '.join(REPEATS)}, and its notes strings.")
    for name, values in (("frame", FRAMES), ("time_unit", UNITS)):
        if getattr(dataset, name) is not None:
            check.choice(name, getattr(dataset, name), values)
    columns = {dataset.user_column, dataset.item_column}
    if len(columns) != 2 or columns & {"history", *RESULT_COLUMNS}:
        raise ValueError(f"the columns of ids cannot be {dataset.user_column!r} and {dataset.item_column!r}.")
    if (dataset.rating is None) != (dataset.at_least is None):
        raise ValueError("rating and at_least of the dataset must be there together.")
    if dataset.at_least is not None:
        check.number("at_least", dataset.at_least, low=-np.inf)
    for name in ("users", "items"):
        ids = table_of(tables[name])["id"]
        if ids.type not in ID_TYPES:
            raise ValueError(f"ids of {name} must be 64-bit integers or strings, got {ids.type}.")
        setattr(dataset, name, Ids.restored(ids))
    item = check_index(index["events item"], 0, dataset.n_items)
    dataset.bounds, dataset.item = check_bounds(index["events bounds"], dataset.n_users, len(item)), item
    dataset.user = np.repeat(np.arange(dataset.n_users, dtype=np.int32), np.diff(dataset.bounds))
    for name in ("time", "weight"):
        array = numbers.get(f"events {name}")
        if array is not None and (array.shape != item.shape or array.dtype.kind not in "if"):
            raise ValueError(f"there must be a {name} for each event, a number, got {array.dtype} {array.shape}.")
        setattr(dataset, name, array)
    for name, n in zip(TABLES, (dataset.n_users, dataset.n_items, len(item)), strict=True):
        table = table_of(tables[name]) if name in tables else pa.table({})
        if table.num_columns and len(table) != n:
            raise ValueError(f"{name} must have {n} rows, got {len(table)}.")
        setattr(dataset, name, table)
    return dataset


def _before_0_2(facts: Mapping[str, Any]) -> dict[str, Any]:
    """What holds of the data in a folder that does not say it."""
    return {
        "row_order": None if facts["timestamp"] else UNSORTED,
        "time_zoned": None,
        "users_key": facts["user_column"],
        "items_key": facts["item_column"],
        "all_items": False,
    }


def _arrow(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def table_of(content: bytes) -> pa.Table:
    """A stored table; an error if it is damaged."""
    for message in pa.ipc.MessageReader.open_stream(content):
        if message.type in ("record batch", "dictionary") and _compressed(message.metadata.to_pybytes(), message.type):
            raise ValueError("a table is compressed, which stored tables never are: it could claim any size.")
    table = pa.ipc.open_stream(content).read_all()
    table.validate(full=True)  # its header may be wrong, though its checksum is right
    return table


def _compressed(metadata: bytes, kind: str) -> bool:
    """Whether the header of a batch (a flatbuffer: tables of offsets) has the field "compression"."""

    def number(at: int, size: int, signed: bool = False) -> int:
        if not 0 <= at <= len(metadata) - size:
            raise ValueError("a table's header points beyond its end.")
        return int.from_bytes(metadata[at : at + size], "little", signed=signed)

    def place(table: int, field: int) -> int:
        """The position of a field of a table; 0 if the table does not have it."""
        offsets = table - number(table, 4, signed=True)
        slot = 4 + 2 * field
        offset = number(offsets + slot, 2) if slot < number(offsets, 2) else 0
        return table + offset if offset else 0

    def inner(table: int, field: int) -> int:
        at = place(table, field)
        return at + number(at, 4)

    batch = inner(number(0, 4), 2)  # Message.header
    return place(inner(batch, 1) if kind == "dictionary" else batch, 3) != 0  # DictionaryBatch.data, RecordBatch.compression
