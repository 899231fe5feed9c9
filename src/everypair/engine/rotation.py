"""When free rows are rotated, and in which order their dimensions are swept then.

A sweep of rows takes a Gram that is not diagonal, for half of what a rotation costs: so they are not rotated in every epoch. The
order of dimensions matters more than how often: see the log of 2026-11-19.
"""

from __future__ import annotations

import numpy as np

from everypair.engine.tower import Tower
from everypair.kernels.simd import LANES

EARLY, PERIOD = 2, 3  # in the first two epochs, then in every third: 1, 2, 4, 7, 10, ...


def swept_by_rows(tower: Tower) -> bool:
    """Whether a sweep is that of free rows."""
    return tower.capabilities.free_rows and tower.describe_blocks() is not None


def in_turn(epoch: int) -> bool:
    """Whether rows are rotated in the epoch of this number: more often at first, when Grams change most."""
    return epoch <= EARLY or epoch % PERIOD == 1


def spread_order(n: int) -> np.ndarray:
    """An order for n ascending eigenvalues: from the largest to the smallest, once in each block of sixteen dimensions.

    In ascending order, the first steps of each epoch would fit with small eigenvalues what large ones explain better.

    >>> spread_order(20).tolist()
    [19, 17, 15, 13, 11, 9, 7, 5, 3, 1, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0]
    """
    blocks = -(-n // LANES)
    return np.concatenate([np.arange(n)[::-1][j::blocks] for j in range(blocks)])


def is_singular(eigenvalues: np.ndarray, dtype: np.dtype) -> bool:
    """Whether a Gram with these eigenvalues, or these entries of its diagonal, is singular but for rounding."""
    return bool(eigenvalues.min() <= np.sqrt(np.finfo(dtype).eps) * eigenvalues.max())
