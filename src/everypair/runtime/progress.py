"""A progress line for what takes more than a second or two; silent when neither a terminal nor a notebook is watching."""

from __future__ import annotations

import sys
import time
from typing import Any

from tqdm import tqdm

DELAY = 1.0  # seconds


def _in_notebook() -> bool:
    shell = sys.modules.get("IPython")
    if shell is None:
        return False
    current = shell.get_ipython()
    return current is not None and "IPKernelApp" in current.config


class Progress:
    """Counts epochs and shows the objective, or other steps and what they are; appears after a second."""

    def __init__(self, total: int, label: str, unit: str = "epoch") -> None:
        watched = _in_notebook() or sys.stderr.isatty()
        self._bar = tqdm(total=total, desc=label, unit=unit, delay=DELAY, leave=False, disable=not watched)
        self._begun: float | None = None

    def advance(self, n: int) -> None:
        """So many more are done."""
        self._bar.update(n)

    def step(self, text: str) -> None:
        """The next step begins: what it is; the one before it is done."""
        if self._begun is not None:
            self._bar.update()
        self._begun = self._begun or time.monotonic()
        self._bar.set_postfix_str(text, refresh=time.monotonic() - self._begun > DELAY)

    def update(self, **facts: float) -> None:
        self._bar.set_postfix_str(", ".join(f"{name} {value:.6g}" for name, value in facts.items()), refresh=False)
        self._bar.update()

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *exc: Any) -> None:
        self._bar.close()
