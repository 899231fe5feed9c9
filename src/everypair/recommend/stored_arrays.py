"""The arrays and facts that a fitted model is stored as, and checks of those that were read from a file."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from everypair.data import Dataset
from everypair.runtime import validation as check


class Stored(NamedTuple):
    """A fitted model in a file: floating-point arrays, arrays of integers and booleans that are used as indices, and facts."""

    numbers: dict[str, np.ndarray]
    index: dict[str, np.ndarray]
    facts: dict[str, Any]


def check_index(index: np.ndarray, low: int, high: int) -> np.ndarray:
    """``index`` if it is a vector of integers from ``low`` to ``high - 1``."""
    if index.ndim != 1 or index.dtype.kind != "i" or index.min(initial=low) < low or index.max(initial=low) >= high:
        raise ValueError(f"stored integers must be a list of numbers from {low} to {high - 1}: they are damaged.")
    return index


def check_bounds(bounds: np.ndarray, n: int, end: int) -> np.ndarray:
    """``bounds`` if they are where each of n parts begins, and last the end of all of them."""
    check_index(bounds, 0, end + 1)
    if len(bounds) != n + 1 or bounds[0] != 0 or bounds[-1] != end or np.any(bounds[1:] < bounds[:-1]):
        raise ValueError(f"stored bounds must rise from 0 to {end}, one for each of {n} parts and one more: they are damaged.")
    return bounds


def check_floats(numbers: np.ndarray, n: int) -> np.ndarray:
    """``numbers`` if they are a vector of n floating-point numbers."""
    if numbers.shape != (n,) or numbers.dtype.kind != "f":
        raise ValueError(f"stored numbers must be {n}, got {numbers.dtype} of shape {numbers.shape}: they are damaged.")
    return numbers


def check_contexts(count: Any, dataset: Dataset) -> int:
    """``count`` if a fit to the events of a dataset may have so many contexts: memory is taken for each."""
    return check.integer("contexts", count, low=0, high=len(dataset) + dataset.n_users)


def check_flag(name: str, flag: Any) -> bool:
    """``flag`` if it is true or false."""
    if not isinstance(flag, bool):
        raise TypeError(f"{name} must be true or false, got {flag!r}.")
    return flag


def check_text(name: str, text: Any) -> str:
    """``text`` if it is a string."""
    if not isinstance(text, str):
        raise TypeError(f"{name} must be a string, got {text!r}.")
    return text
