"""The values of an attribute in all rows of a group, so that all its members learn the same features."""

from __future__ import annotations

import io

import numpy as np
import pyarrow as pa

from everypair.data.arrow import decoded, is_lists, is_number, pc
from everypair.recommend.stored_dataset import table_of
from everypair.runtime.group import Group

NUMBERS = ("bins", "value")  # kinds of attributes that are numbers, also if these are text
MOST = 2_000_000  # distinct values of an attribute


def values_of_all(group: Group, values: pa.ChunkedArray, kind: str) -> pa.ChunkedArray:
    """All values: numbers as often as they occur, others once, and the entries of lists as lists of one."""
    own = decoded(values)
    if is_lists(own.type):
        entries = own.combine_chunks().flatten().unique()
        own = pa.chunked_array([pa.LargeListArray.from_arrays(np.arange(len(entries) + 1), entries)])
    if is_number(own.type) or kind in NUMBERS:
        counted = own.value_counts()
        table = pa.table({"values": counted.field("values"), "counts": counted.field("counts")})
    else:
        table = pa.table({"values": own if is_lists(own.type) else own.unique()})
    if len(table) > MOST:
        raise ValueError(
            f"an attribute may have up to {MOST:,} distinct values in a shard, got {len(table):,}. Leave it out, or bin it."
        )
    said = [table_of(text) for text in group.gather(_written(table))]
    kinds = {each.schema.field("values").type for each in said if not pa.types.is_null(each.schema.field("values").type)}
    if len(kinds) > 1:
        raise TypeError(f"an attribute has values of different types in different shards: {', '.join(sorted(map(str, kinds)))}.")
    dtype = kinds.pop() if kinds else pa.null()
    everything = pa.concat_tables([each.set_column(0, "values", each["values"].cast(dtype)) for each in said])
    if is_lists(dtype):
        return everything["values"]
    if "counts" not in everything.column_names:
        return _in_order(everything["values"].unique())
    summed = everything.group_by("values").aggregate([("counts", "sum")])
    summed = summed.take(pc.sort_indices(summed["values"]))
    times = np.repeat(np.arange(len(summed)), summed["counts_sum"].to_numpy())
    return summed["values"].take(pa.array(times))


def _in_order(values: pa.Array) -> pa.ChunkedArray:
    return pa.chunked_array([values.take(pc.sort_indices(values))])


def _written(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table.combine_chunks())
    return sink.getvalue()
