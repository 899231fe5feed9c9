"""Results in the data frame library that people use."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any, Literal, cast

import narwhals as nw
import pyarrow as pa

Frame = Literal["pandas", "polars", "pyarrow", "modin", "cudf"]
FRAMES = ("pandas", "polars", "pyarrow", "modin", "cudf")  # those that a table can be made in


def frame_of(source: Any) -> str | None:
    """The library of a data frame or column; None where it is neither."""
    if isinstance(source, list | tuple | dict | str | int):  # most often
        return None
    given = nw.from_native(source, pass_through=True, allow_series=True)
    if not isinstance(given, nw.DataFrame | nw.LazyFrame | nw.Series):
        return None
    name = given.implementation.name.lower()
    return name if name in FRAMES else "pyarrow"


def as_frame(table: pa.Table, frame: str | None) -> Any:
    """The table in that library; as an Arrow table where none is named, or it is not there."""
    if frame in (None, "pyarrow") or find_spec(frame) is None:
        return table
    return nw.from_arrow(table, backend=cast(Frame, frame)).to_native()
