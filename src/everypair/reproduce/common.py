"""What experiments share: rounding, interrupts, and what figures were measured on."""

from __future__ import annotations

import platform
from typing import Any

import numpy as np

import everypair
from everypair.recommender import Recommender
from everypair.runtime.parallel import thread_count


def rounded(value: float) -> str:
    """With two digits that count: more would say more than is known."""
    return f"{value:.2g}" if value < 100 else f"{float(f'{value:.2g}'):,.0f}"


def stop_if_interrupted(recommender: Recommender) -> None:
    """A fit that is interrupted leaves a model; an experiment ends."""
    if getattr(recommender.model, "stop_reason_", None) == "interrupt":
        raise KeyboardInterrupt


def environment() -> dict[str, Any]:
    """What the figures were measured on."""
    import numba
    import scipy

    return {
        "everypair": everypair.__version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "numba": numba.__version__,
        "machine": platform.machine(),
        "threads": thread_count(None),
    }
