"""Arrow columns: what kind of values they hold, and their conversion to plain types and numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

pc: Any = pyarrow.compute  # its functions are generated at import, unknown to type checkers


def is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)


def is_number(kind: pa.DataType) -> bool:
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)


def is_lists(kind: pa.DataType) -> bool:
    return isinstance(kind, pa.ListType | pa.LargeListType | pa.FixedSizeListType | pa.ListViewType | pa.LargeListViewType)


def value_type(kind: pa.DataType) -> pa.DataType:
    """The type of the values of a dictionary; other types unchanged."""
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def decoded(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """The values of a dictionary-encoded column; other columns unchanged."""
    return values.cast(value_type(values.type))


def plain(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """The column in a layout that Arrow's compute functions support: no views, no unusual lists, no nulls inside dictionaries."""
    kind = values.type
    if pa.types.is_dictionary(kind) and pa.types.is_string_view(kind.value_type):
        strings = [chunk.dictionary.cast(pa.large_string()).take(chunk.indices) for chunk in values.chunks]
        return pa.chunked_array(strings, pa.large_string())
    if pa.types.is_dictionary(kind) and any(chunk.dictionary.null_count for chunk in values.chunks):
        return decoded(values)
    if pa.types.is_string_view(kind):
        return values.cast(pa.large_string())
    if is_lists(kind):
        entry = kind.value_type.value_type if pa.types.is_dictionary(kind.value_type) else kind.value_type
        usual = isinstance(kind, pa.ListType | pa.LargeListType) and entry == kind.value_type and not pa.types.is_string_view(entry)
        return values if usual else values.cast(pa.large_list(pa.large_string() if is_text(entry) else entry))
    return values


def no_nulls(values: pa.ChunkedArray, what: str, advice: str) -> None:
    """Raise if entries are missing, naming the first row."""
    if values.null_count:
        row = pc.index(pc.is_null(values), True).as_py()
        raise ValueError(f"{what} must not be missing, but {values.null_count:,} are, the first in row {row}. {advice}")


def floats(values: pa.ChunkedArray) -> np.ndarray:
    """A column of numbers as float64; NaN where they are missing."""
    return np.asarray(decoded(values).cast(pa.float64(), safe=False).to_numpy(), np.float64)


def cast_or_none(values: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray | None:
    """The column cast to a type, None if it cannot be."""
    try:
        return values.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None
