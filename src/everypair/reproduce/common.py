"""Helpers of the experiments: rounding, interrupts, and the environment of a measurement."""

from __future__ import annotations

import platform
from typing import Any

import numpy as np

import everypair
from everypair.recommender import Recommender
from everypair.runtime.parallel import thread_count


def rounded(value: float) -> str:
    """A value with two significant digits, the precision of the measurements."""
    return f"{value:.2g}" if value < 100 else f"{float(f'{value:.2g}'):,.0f}"


def stop_if_interrupted(recommender: Recommender) -> None:
    """Raise KeyboardInterrupt if the fit was interrupted: it returns normally, but an experiment should end."""
    if getattr(recommender.model, "stop_reason_", None) == "interrupt":
        raise KeyboardInterrupt


def environment() -> dict[str, Any]:
    """Versions and machine, stored with the results."""
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
