"""A clock that can be stopped."""

from __future__ import annotations

import time
from collections.abc import Callable
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
