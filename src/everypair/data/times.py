"""Timestamps as numbers that keep their order: what can be compared with what."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from everypair.data.arrow import cast_or_none, decoded, floats, is_number, is_text, no_nulls
from everypair.data.tables import numbers
from everypair.runtime.wording import named

UNITS = ("us", "ns")  # units of time; the first that is exact is used
LATEST = 2**63 // 1000  # microseconds that fit into 64 bits as nanoseconds
EXACT = 2**53  # integers up to which floats tell from each other


class Times(NamedTuple):
    """Timestamps as numbers.

    Attributes
    ----------
    values : array
    unit : str or None
        None for numbers, which are unchanged; "us" for dates and times, as microseconds since 1970; "ns" where microseconds are not
        exact.
    zoned : bool or None
        Whether times have a time zone; None for numbers, and where files of before 0.2 do not say it.
    """

    values: np.ndarray
    unit: str | None
    zoned: bool | None

    def followed_by(self, new: Times) -> Times:
        """These and the ``new`` ones, in one unit; an error if they cannot be compared."""
        if (self.unit is None) != (new.unit is None):
            kinds = ["numbers" if unit is None else "dates or times" for unit in (self.unit, new.unit)]
            raise TypeError(f"timestamps of the new interactions must be {kinds[0]}, like the earlier ones, got {kinds[1]}.")
        if self.zoned is not None and new.zoned is not None and self.zoned != new.zoned:
            kinds = ["with a time zone" if zoned else "without a time zone" for zoned in (self.zoned, new.zoned)]
            raise TypeError(
                f"timestamps of the new interactions must be {kinds[0]}, like the earlier ones, got times {kinds[1]}: their order "
                f"would be wrong by hours. Convert the new ones."
            )
        unit = "ns" if "ns" in (self.unit, new.unit) else self.unit
        parts = [_in_unit(times.values, times.unit, unit) for times in (self, new)]
        if {part.dtype.kind for part in parts} == {"i", "f"} and max(np.abs(part).max(initial=0) for part in parts) > EXACT:
            kinds = ["integers" if part.dtype.kind == "i" else "floats" for part in parts]
            raise TypeError(
                f"timestamps of the new interactions must be {kinds[0]}, like the earlier ones, got {kinds[1]}: beyond 2**53, "
                f"floats are rounded, and the order would be lost. Convert the new ones."
            )
        return Times(np.concatenate(parts), unit, self.zoned)


def times(values: pa.ChunkedArray, what: str) -> Times:
    """A column of timestamps: numbers, dates, times or ISO 8601 strings."""
    values = decoded(values)
    no_nulls(values, what, f"Drop those rows, or leave out {named('timestamp', 'Dataset')} to use the order of rows.")
    if is_text(values.type):
        values = _parsed(values, what)
    kind = values.type
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        zone = kind.tz if pa.types.is_timestamp(kind) else None
        for unit in UNITS:
            if (exact := cast_or_none(values, pa.timestamp(unit, zone))) is not None:
                return Times(np.asarray(exact.cast(pa.int64()).to_numpy()), unit, zone is not None)
        raise ValueError(f"{what} must lie within 290,000 years of 1970.")
    if pa.types.is_integer(kind):
        if (integers := cast_or_none(values, pa.int64())) is None:
            raise ValueError(f"{what} must fit into 64-bit signed integers.")
        return Times(np.asarray(integers.to_numpy()), None, None)
    if not is_number(kind):
        raise TypeError(f"{what} must hold numbers, dates, times or ISO 8601 strings, got {kind}, such as {values[0].as_py()!r}.")
    if pa.types.is_decimal(kind):
        _refuse_rounding(values, what)
    return Times(numbers(values, what), None, None)


def refuse_mixed_objects(source: Any, name: str, what: str) -> None:
    """Raise if a column of Python objects mixes dates, times with a time zone and times without: Arrow takes all of them for what
    the first is, and drops the rest."""
    if isinstance(source, str | os.PathLike) or not (isinstance(source, Mapping) or hasattr(type(source), "columns")):
        return
    try:
        column = source[name]
    except (KeyError, IndexError, TypeError, ValueError):
        return
    if not isinstance(column, list | tuple) and str(getattr(column, "dtype", None)) != "object":
        return
    first: dict[str, int] = {}
    for row, value in enumerate(column):
        if isinstance(value, dt.date) and value == value:  # not pandas' NaT
            kind = "a time with a time zone" if getattr(value, "tzinfo", None) is not None else "a time without a time zone"
            first.setdefault(kind if isinstance(value, dt.datetime) else "a date", row)
    if len(first) > 1:
        found = " and ".join(f"{kind} in row {row}" for kind, row in first.items())
        raise TypeError(f"{what} must hold values of one kind, got {found}: their order is not known. Convert either.")


def _in_unit(values: np.ndarray, unit: str | None, wanted: str | None) -> np.ndarray:
    """Times in another unit; from microseconds to nanoseconds is the only conversion."""
    if unit == wanted:
        return values
    if np.abs(values).max(initial=0) >= LATEST:
        raise ValueError(
            "new timestamps have nanoseconds, but some timestamps lie before 1678 or after 2262, where 64-bit nanoseconds "
            "overflow: round the new ones to microseconds."
        )
    return values * 1000


def _parsed(strings: pa.ChunkedArray, what: str) -> pa.ChunkedArray:
    """Strings as numbers or times, all of one type."""
    kinds = [pa.int64(), pa.float64(), *(pa.timestamp(unit, zone) for zone in (None, "UTC") for unit in UNITS)]
    for kind in kinds:
        if (found := cast_or_none(strings, kind)) is not None:
            if pa.types.is_floating(kind):
                _refuse_rounding(strings, what)
            return found
    row = max(_first_unlike(strings, kind) for kind in kinds)
    raise ValueError(
        f"{what} cannot be parsed: {strings[row].as_py()!r} in row {row}. Expected are numbers, dates, times, or strings like "
        f"'2024-05-01 12:30:00', all with a time zone or all without."
    )


def _refuse_rounding(values: pa.ChunkedArray, what: str) -> None:
    """Raise if different numbers, written as strings or decimals, are the same float."""
    distinct = values.unique()
    found = floats(distinct)
    order = np.argsort(found)
    for place in np.flatnonzero(found[order][1:] == found[order][:-1]):
        one, other = (distinct[int(at)].as_py() for at in order[place : place + 2])
        if Decimal(one) != Decimal(other):
            raise ValueError(
                f"{what} has {one!s} and {other!s}, which are the same as floats: the order would be lost. Give integers, such as "
                f"nanoseconds."
            )


def _first_unlike(strings: pa.ChunkedArray, kind: pa.DataType) -> int:
    """The first row that cannot be cast, in a column that cannot."""
    low, high = 0, len(strings)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if cast_or_none(strings[low:middle], kind) is None else (middle, high)
    return low
