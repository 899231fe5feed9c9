"""Validation of arguments. Messages name the argument, the value given and the values allowed."""

from __future__ import annotations

import math
import numbers
from typing import Any

import numpy as np
import scipy.sparse as sp

from everypair.runtime.wording import named


def number(name: str, value: Any, *, low: float, high: float = math.inf, open_low: bool = False) -> float:
    """``value`` as a finite float in ``[low, high]`` (``(low, high]`` if ``open_low``)."""
    limits = "" if low == -math.inf else f" {'greater than' if open_low else 'at least'} {low:g}"
    limits += f" and at most {high:g}" if high < math.inf else ""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{named(name)} must be a number{limits}, got {value!r} of type {type(value).__name__}.")
    try:
        value = float(value)
    except OverflowError:
        value = math.inf
    if not math.isfinite(value) or value > high or value < low or (open_low and value == low):
        raise ValueError(f"{named(name)} must be a finite number{limits}, got {value!r}.")
    return value


def integer(name: str, value: Any, *, low: int, high: int | None = None) -> int:
    """``value`` as an int of at least ``low``, and at most ``high`` if given."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError(f"{named(name)} must be an integer of at least {low}, got {value!r} of type {type(value).__name__}.")
    if value < low:
        raise ValueError(f"{named(name)} must be at least {low}, got {value}.")
    if high is not None and int(value) > high:
        raise ValueError(f"{named(name)} must be at most {high:,}, got {int(value):,}.")
    return int(value)


def choice(name: str, value: Any, options: tuple[str, ...]) -> str:
    """``value`` if it is one of ``options``."""
    if not isinstance(value, str) or value not in options:
        raise ValueError(f"{named(name)} must be one of {', '.join(map(repr, options))}, got {value!r}.")
    return value


def indices(name: str, values: Any, size: int | None, *, ndim: int = 1) -> np.ndarray:
    """``values`` as an array of integers in ``[0, size)``."""
    given = array(name, values)
    if given.ndim != ndim:
        raise ValueError(f"{name} must be a {ndim}-dimensional array of integers, got shape {given.shape}.")
    if given.size == 0 and given.dtype.kind != "u":
        given = given.astype(np.int64)
    if given.dtype.kind not in "iu":
        raise TypeError(
            f"{name} must hold integers, got dtype {given.dtype}. Map ids to 0, 1, 2, ... first "
            f"(numpy.unique(ids, return_inverse=True) does)."
        )
    if given.size:
        low, high = given.min(), given.max()
        if low < 0:
            raise ValueError(f"{name} must not be negative, got {low} at position {_first(given == low)}.")
        if size is not None and high >= size:
            raise ValueError(
                f"{name} must be below {size}, got {high} at position {_first(given == high)}. "
                f"Correct the index, or the number of rows it counts."
            )
        if high > np.iinfo(np.int64).max:
            raise ValueError(f"{name} must fit into 64-bit signed integers, got {high} at position {_first(given == high)}.")
    # Narrow and unsigned integers would overflow in arithmetic; kernels take no foreign byte order.
    return given if given.dtype in (np.int32, np.int64) and given.dtype.isnative else given.astype(np.int64)


def reals(name: str, values: Any, length: int, *, positive: bool = False, nonnegative: bool = False) -> np.ndarray:
    """``values`` as a finite 1-d float array of the given length, optionally checked to be positive or non-negative."""
    given = array(name, values)
    if given.ndim != 1 or len(given) != length:
        raise ValueError(f"{name} must be a number or a 1-dimensional array of length {length}, got shape {given.shape}.")
    if given.dtype.kind not in "fiub":
        raise TypeError(f"{name} must hold numbers, got dtype {given.dtype}.")
    if given.dtype not in (np.float32, np.float64) or not given.dtype.isnative:
        given = given.astype(np.float64)
    refuse(name, ~np.isfinite(given), given, "be finite")
    if positive:
        refuse(name, given <= 0, given, "be greater than 0")
    if nonnegative:
        refuse(name, given < 0, given, "not be negative")
    return given


def refuse(name: str, bad: np.ndarray, array: np.ndarray, rule: str) -> None:
    """Raise if any entry is bad, naming the first bad entry and its position."""
    if bad.any():
        place = _first(bad)
        raise ValueError(f"{name} must {rule}, got {array[place]} at position {place} ({int(bad.sum())} such entries).")


def array(name: str, values: Any) -> np.ndarray:
    """``values`` as a dense array without masked entries."""
    if sp.issparse(values):
        raise TypeError(f"{name} must be an array, got a sparse matrix of shape {values.shape}.")
    if np.ma.is_masked(values):
        raise ValueError(f"{name} has masked entries, the first at position {_first(np.ma.getmaskarray(values))}. Fill them.")
    try:
        return np.asarray(values)
    except ValueError as error:
        raise ValueError(f"{name} must be a regular array: {error}") from error


def sparse(name: str, matrix: Any) -> Any:
    """``matrix``, checked: two dimensions, numbers, and indices inside its shape."""
    if matrix.ndim != 2:
        raise ValueError(f"{name} must have two dimensions, got shape {matrix.shape}.")
    if matrix.dtype.kind not in "fiub":
        raise TypeError(f"{name} must hold numbers, got dtype {matrix.dtype}.")
    if matrix.format in ("csr", "csc"):
        across = 1 if matrix.format == "csr" else 0
        bad = (matrix.indices < 0) | (matrix.indices >= matrix.shape[across])
        steps = np.diff(matrix.indptr)
        last = min(len(matrix.indices), len(matrix.data))
        first = matrix.indptr[0] if len(matrix.indptr) else 0
        if len(steps) != matrix.shape[1 - across] or np.any(steps < 0) or first != 0 or matrix.indptr[-1] > last:
            raise ValueError(f"{name} is inconsistent: its indptr does not describe {matrix.shape[1 - across]} rows of its data.")
        if bad.any():
            p = int(np.argmax(bad))
            place = (_row_of(matrix, p), int(matrix.indices[p]))[:: 1 if across else -1]
            raise ValueError(f"{name} of shape {matrix.shape} stores an entry outside its shape, at (row, column) {place}.")
    return matrix


def finite(name: str, csr: Any) -> None:
    """Raise if a CSR matrix stores NaN or infinity, naming the first such entry."""
    bad = ~np.isfinite(csr.data)
    if bad.any():
        p = int(np.argmax(bad))
        raise ValueError(f"{name} must be finite, got {csr.data[p]} in row {_row_of(csr, p)}, column {csr.indices[p]}.")


def _row_of(matrix: Any, p: int) -> int:
    """The compressed row (or column) that stored entry p belongs to."""
    return int(np.searchsorted(matrix.indptr, p, side="right")) - 1


def _first(mask: np.ndarray) -> Any:
    place = np.unravel_index(int(np.argmax(mask)), mask.shape)
    return int(place[0]) if len(place) == 1 else tuple(int(p) for p in place)
