"""Progress bars on terminals and in notebooks, for work that takes more than a second."""

from __future__ import annotations

import sys
import time
from typing import Any

from tqdm import tqdm

DELAY = 1.0  # seconds before a bar appears


def _in_notebook() -> bool:
    shell = sys.modules.get("IPython")
    if shell is None:
        return False
    current = shell.get_ipython()
    return current is not None and "IPKernelApp" in current.config


class Progress:
    """A bar that counts ``total`` units and shows a text beside the count. It is silent outside terminals and notebooks."""

    def __init__(self, total: int, label: str, unit: str = "epoch") -> None:
        visible = _in_notebook() or sys.stderr.isatty()
        self._bar = tqdm(total=total, desc=label, unit=unit, delay=DELAY, leave=False, disable=not visible)
        self._begun: float | None = None

    def advance(self, n: int) -> None:
        """Count n more units."""
        self._bar.update(n)

    def step(self, text: str) -> None:
        """Show the name of the step that begins, and count the step before it."""
        if self._begun is not None:
            self._bar.update()
        self._begun = self._begun or time.monotonic()
        self._bar.set_postfix_str(text, refresh=time.monotonic() - self._begun > DELAY)

    def update(self, **facts: float) -> None:
        """Count one unit and show named numbers."""
        self._bar.set_postfix_str(", ".join(f"{name} {value:.6g}" for name, value in facts.items()), refresh=False)
        self._bar.update()

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *exc: Any) -> None:
        self._bar.close()
