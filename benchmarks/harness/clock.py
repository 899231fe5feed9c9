"""A clock that can be stopped, and what its stamps say."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any


class Clock:
    """Seconds since it was made, those beside it left out."""

    def __init__(self) -> None:
        self._began = time.perf_counter()

    def now(self) -> float:
        return time.perf_counter() - self._began

    def beside(self, call: Callable[[], Any]) -> Any:
        """Something that does not count."""
        began = time.perf_counter()
        result = call()
        self._began += time.perf_counter() - began
        return result


def per_epoch(stamps: Sequence[float]) -> float:
    """The median of the seconds between ends of epochs; the first one, which begins with the matrix, counts only if it is alone."""
    return statistics.median(b - a for a, b in itertools.pairwise(stamps)) if len(stamps) > 1 else stamps[0]
