"""Conversion of result tables to the data frame library of the input."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any, Literal, cast

import narwhals as nw
import pyarrow as pa

Frame = Literal["pandas", "polars", "pyarrow", "modin", "cudf"]
FRAMES = ("pandas", "polars", "pyarrow", "modin", "cudf")  # libraries that a table can be converted to


def frame_of(source: Any) -> str | None:
    """The library of a data frame or series, \"pyarrow\" for those that results cannot be converted to; None for other objects."""
    if isinstance(source, list | tuple | dict | str | int):  # the common case, faster than narwhals
        return None
    given = nw.from_native(source, pass_through=True, allow_series=True)
    if not isinstance(given, nw.DataFrame | nw.LazyFrame | nw.Series):
        return None
    name = given.implementation.name.lower()
    return name if name in FRAMES else "pyarrow"


def as_frame(table: pa.Table, frame: str | None) -> Any:
    """The table as a data frame of a library; the Arrow table itself if none is named, or if it is not installed."""
    if frame in (None, "pyarrow"):
        return table
    if frame not in FRAMES:  # before it is looked for, which imports the packages of a dotted name
        raise ValueError(f"frame must be one of {', '.join(map(repr, FRAMES))}, got {frame!r}.")
    if find_spec(frame) is None:
        return table
    return nw.from_arrow(table, backend=cast(Frame, frame)).to_native()
