"""A stopwatch from which parts can be excluded, and the seconds of an epoch from its readings."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any


class Clock:
    """Seconds since its construction, without those of excluded calls."""

    def __init__(self) -> None:
        self._began = time.perf_counter()

    def now(self) -> float:
        return time.perf_counter() - self._began

    def exclude(self, call: Callable[[], Any]) -> Any:
        """The result of a call whose time does not count."""
        began = time.perf_counter()
        result = call()
        self._began += time.perf_counter() - began
        return result


def per_epoch(stamps: Sequence[float]) -> float:
    """Median seconds between the ends of epochs.

    The first epoch includes the preparation of the matrix, and counts only where it is the only one.
    """
    return statistics.median(b - a for a, b in itertools.pairwise(stamps)) if len(stamps) > 1 else stamps[0]
