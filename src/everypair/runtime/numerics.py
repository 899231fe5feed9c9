"""Numeric conventions of kernels: the type of scalar-or-array arguments, and the tolerance for rounding errors."""

from __future__ import annotations

from typing import Any

import numpy as np

Values = float | np.ndarray  # one number for all rows (or pairs), or an array with a number for each

NEVER = np.nan  # a tolerance that no curvature falls below


def tiny(dtype: Any) -> float:
    """Relative size below which a sum of curvatures is treated as a rounding error."""
    return 64 * float(np.finfo(dtype).eps)
