"""Keys: what a row or a level is, wherever it is in a table. Random start values are functions of them.

A key is a 64-bit number, such as a hash of an id. Where nothing is known of rows but their order, a row's key is its number.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from everypair.runtime import validation as check

Keys = np.ndarray | range  # of uint64; a range: the numbers of rows
NO_LEVEL = 2**64 - 1  # the key of a row for "no level"


def as_keys(argument: str, keys: Any, n: int) -> Keys:
    """Keys, checked: an integer of 64 bits for each of n rows; negative ones as their two's complement."""
    array = np.arange(keys.start, keys.stop, keys.step) if isinstance(keys, range) else check.array(argument, keys)
    if array.dtype.kind not in "iu":
        raise TypeError(f"{argument} must hold integers of 64 bits, got dtype {array.dtype}. Hash the ids, or leave keys out.")
    if array.shape != (n,):
        raise ValueError(f"{argument} must have one key for each of {n:,} rows, got shape {array.shape}.")
    return keys if isinstance(keys, range) else key_array(array)


def key_array(keys: Keys) -> np.ndarray:
    """Keys as an array of uint64."""
    if isinstance(keys, range):
        return np.arange(keys.start, keys.stop, keys.step, dtype=np.uint64)
    return keys.astype(np.uint64, copy=False)
