"""Checks on what users give. Every message says what was given, what was expected and what to do."""

from __future__ import annotations

import math
import numbers
from typing import Any

import numpy as np


def number(name: str, value: Any, *, low: float, high: float = math.inf, open_low: bool = False) -> float:
    """``value`` as a finite float in ``[low, high]`` (``(low, high]`` if ``open_low``)."""
    limits = "" if low == -math.inf else f" {'greater than' if open_low else 'at least'} {low:g}"
    limits += f" and at most {high:g}" if high < math.inf else ""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} must be a number{limits}, got {value!r} of type {type(value).__name__}.")
    try:
        value = float(value)
    except OverflowError:
        value = math.inf
    if not math.isfinite(value) or value > high or value < low or (open_low and value == low):
        raise ValueError(f"{name} must be a finite number{limits}, got {value!r}.")
    return value


def integer(name: str, value: Any, *, low: int) -> int:
    """``value`` as an int of at least ``low``."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError(f"{name} must be an integer of at least {low}, got {value!r} of type {type(value).__name__}.")
    if value < low:
        raise ValueError(f"{name} must be at least {low}, got {value}.")
    return int(value)


def choice(name: str, value: Any, options: tuple[str, ...]) -> str:
    """``value`` if it is one of ``options``."""
    if value not in options:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, options))}, got {value!r}.")
    return value


def indices(name: str, values: Any, size: int | None, *, ndim: int = 1) -> np.ndarray:
    """``values`` as an array of integers in ``[0, size)``."""
    array = _unmasked(name, values)
    if array.ndim != ndim:
        raise ValueError(f"{name} must be a {ndim}-dimensional array of integers, got shape {array.shape}.")
    if array.size == 0 and array.dtype.kind != "u":
        array = array.astype(np.int64)
    if array.dtype.kind not in "iu":
        raise TypeError(
            f"{name} must hold integers, got dtype {array.dtype}. Map ids to 0, 1, 2, ... first "
            f"(numpy.unique(ids, return_inverse=True) does)."
        )
    if array.size:
        low, high = array.min(), array.max()
        if low < 0:
            raise ValueError(f"{name} must not be negative, got {low} at position {_first(array == low)}.")
        if size is not None and high >= size:
            raise ValueError(
                f"{name} must be below {size}, got {high} at position {_first(array == high)}. "
                f"Give a larger shape, or correct the index."
            )
        if high > np.iinfo(np.int64).max:
            raise ValueError(f"{name} must fit into 64-bit signed integers, got {high} at position {_first(array == high)}.")
    # Small, unsigned and foreign integers would overflow or not compile where they are counted with.
    return array if array.dtype in (np.int32, np.int64) and array.dtype.isnative else array.astype(np.int64)


def reals(name: str, values: Any, length: int, *, positive: bool = False, nonnegative: bool = False) -> np.ndarray:
    """``values`` as a 1-d float array of the given length, finite, and positive or non-negative if asked."""
    array = _unmasked(name, values)
    if array.ndim != 1 or len(array) != length:
        raise ValueError(f"{name} must be a number or a 1-dimensional array of length {length}, got shape {array.shape}.")
    if array.dtype.kind not in "fiub":
        raise TypeError(f"{name} must hold numbers, got dtype {array.dtype}.")
    if array.dtype not in (np.float32, np.float64) or not array.dtype.isnative:
        array = array.astype(np.float64)
    refuse(name, ~np.isfinite(array), array, "be finite")
    if positive:
        refuse(name, array <= 0, array, "be greater than 0")
    if nonnegative:
        refuse(name, array < 0, array, "not be negative")
    return array


def refuse(name: str, bad: np.ndarray, array: np.ndarray, rule: str) -> None:
    """Raise if any entry is bad, naming the first one and its place."""
    if bad.any():
        place = _first(bad)
        raise ValueError(f"{name} must {rule}, got {array[place]} at position {place} ({int(bad.sum())} such in all).")


def _unmasked(name: str, values: Any) -> np.ndarray:
    if np.ma.is_masked(values):
        raise ValueError(f"{name} has masked entries, the first at position {_first(np.ma.getmaskarray(values))}. Leave them out.")
    return np.asarray(values)


def _first(mask: np.ndarray) -> Any:
    place = np.unravel_index(int(np.argmax(mask)), mask.shape)
    return int(place[0]) if len(place) == 1 else tuple(int(p) for p in place)
