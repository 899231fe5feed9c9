"""Numbers as kernels take them, and the size below which one is nothing but rounding."""

from __future__ import annotations

from typing import Any

import numpy as np

Values = float | np.ndarray  # one number for all rows (or pairs), or an array with one for each

NEVER = np.nan  # a tolerance that no curvature falls below


def tiny(dtype: Any) -> float:
    """Relative size below which a sum of curvatures is taken for rounding."""
    return 64 * float(np.finfo(dtype).eps)
