"""Numeric conventions of kernels: the type of scalar-or-array arguments, and the tolerance for rounding errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Values = float | np.ndarray  # one number for all rows (or pairs), or an array with a number for each

SUMMED_AT_ONCE = 2**18  # numbers
CACHE_LINE = 64  # bytes
NEVER = np.nan  # a tolerance that no curvature falls below


def aligned(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """An empty array that begins where a line of the cache does: rows of 64 bytes are then in one line each, not in two."""
    dtype = np.dtype(dtype)
    size = int(np.prod(shape)) * dtype.itemsize
    memory = np.empty(size + CACHE_LINE, np.uint8)
    start = -memory.ctypes.data % CACHE_LINE
    return memory[start : start + size].view(dtype).reshape(shape)


def pairwise_sum(term: Callable[[int, int], np.ndarray], n: int) -> float:
    """The sum of an array of float64 of which ``term(start, stop)`` gives a range: the bits of ``np.sum`` without the whole array.

    NumPy adds halves, and halves of halves, down to blocks of 128 numbers; large halves are taken apart here in the same way.
    """
    return _pairwise(term, 0, n)


def _pairwise(term: Callable[[int, int], np.ndarray], start: int, stop: int) -> float:
    if stop - start <= SUMMED_AT_ONCE:
        return float(np.sum(term(start, stop)))
    half = (stop - start) // 2
    middle = start + half - half % 8  # where NumPy cuts: its inner loop takes eight numbers at a time
    return _pairwise(term, start, middle) + _pairwise(term, middle, stop)


def tiny(dtype: Any) -> float:
    """Relative size below which a sum of curvatures is treated as a rounding error."""
    return 64 * float(np.finfo(dtype).eps)


def lost_decrease(dtype: Any) -> float:
    """Decrease of the loss by a step, relative to the size of what its gradient is made of, below which the gradient is rounding.

    A step on w with gradient g and curvature h lowers the loss by ``g^2 / h``. The error of g is in proportion to ``sqrt(h E)``, by
    Cauchy and Schwarz, with E the sum of ``alpha (|s| + |y|)^2``: so this test does not depend on the scale of w, as a test of g
    alone would. Where L2 holds w, a step of rounding over curvature does no harm; where nothing does, w would run away.
    """
    return tiny(dtype) ** 2
