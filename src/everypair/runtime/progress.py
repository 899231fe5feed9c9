"""Progress bars on terminals and in notebooks, for work that takes more than a second."""

from __future__ import annotations

import itertools
import sys
import time
from typing import Any
from weakref import WeakSet

from tqdm import tqdm

from everypair.runtime.locks import CopyableLock

DELAY = 1.0  # seconds before a bar appears


def visible() -> bool:
    """Whether someone is looking: in a terminal or a notebook."""
    return _in_notebook() or (sys.stderr is not None and sys.stderr.isatty())


def _in_notebook() -> bool:
    shell = sys.modules.get("IPython")
    if shell is None:
        return False
    current = shell.get_ipython()
    return current is not None and "IPKernelApp" in current.config


class Bar(tqdm):
    """A line on the terminal, below those of other tqdm bars.

    Its lock is its own: that of tqdm is shared with forked processes, one of which may be killed while it holds it. So is the list
    of bars, which a thread of tqdm would watch.
    """

    _lock = CopyableLock()
    _instances = WeakSet()
    monitor_interval = 0

    def __init__(self, **options: Any) -> None:
        with Bar._lock:
            taken = {abs(bar.pos) for bar in Bar._instances if hasattr(bar, "pos")}
            place = next(line for line in itertools.count(len(tqdm._instances)) if line not in taken)  # type: ignore[attr-defined]
            super().__init__(position=place, leave=False, **options)


class Progress:
    """A bar that counts ``total`` units and shows a text beside the count. It is silent outside terminals and notebooks."""

    def __init__(self, total: int, label: str, unit: str = "epoch") -> None:
        self._bar = Bar(total=total, desc=label, unit=unit, delay=DELAY) if visible() else None
        self._begun: float | None = None

    def advance(self, n: int) -> None:
        """Count n more units."""
        if self._bar is not None:
            self._bar.update(n)

    def step(self, text: str) -> None:
        """Show the name of the step that begins, and count the step before it."""
        if self._bar is None:
            return
        if self._begun is not None:
            self._bar.update()
        self._begun = self._begun or time.monotonic()
        self._bar.set_postfix_str(text, refresh=time.monotonic() - self._begun > DELAY)

    def update(self, **facts: float) -> None:
        """Count one unit and show named numbers."""
        if self._bar is not None:
            self._bar.set_postfix_str(", ".join(f"{name} {value:.6g}" for name, value in facts.items()), refresh=False)
            self._bar.update()

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *exc: Any) -> None:
        if self._bar is not None:
            self._bar.close()


class Counter:
    """A line with a label and a count, from the first count until it is hidden. It is silent outside terminals and notebooks."""

    def __init__(self, label: str) -> None:
        self._label, self._count = label, 0
        self._bar: Bar | None = None

    def count(self) -> None:
        """Count one, and show it."""
        self._count += 1
        if self._bar is None and visible():
            self._bar = Bar(desc=self._label, initial=self._count, bar_format="{desc}: {n_fmt}")
        elif self._bar is not None:
            self._bar.update()

    def hide(self) -> None:
        """Remove the line until the next count."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None
