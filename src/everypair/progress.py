"""A progress line for what takes more than a second or two; silent when neither a terminal nor a notebook is watching."""

from __future__ import annotations

import sys
from typing import Any

from tqdm import tqdm


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
        self._bar = tqdm(total=total, desc=label, unit=unit, delay=1.0, leave=False, disable=not watched)
        self._begun = False

    def step(self, text: str) -> None:
        """The next step begins: what it is; the one before it is done."""
        if self._begun:
            self._bar.update()
        self._begun = True
        self._bar.set_postfix_str(text, refresh=True)

    def update(self, **facts: float) -> None:
        self._bar.set_postfix_str(", ".join(f"{name} {value:.6g}" for name, value in facts.items()), refresh=False)
        self._bar.update()

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *exc: Any) -> None:
        self._bar.close()
