"""``FitState``: the result of a model's fit, that is the towers with their parameters and the history of the epochs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from everypair.engine.parameter import Parameter
from everypair.engine.solver import Epoch
from everypair.engine.tower import Tower

CUT_SHORT = {"interrupt": "interrupted", "error": "ended by an error"}  # reasons to stop that are no end of a fit


class CutShortWarning(UserWarning):
    """A fit that was interrupted, or ended by an error, is saved or opened."""


def cut_short(stop_reason: str, done: int, epochs: int) -> str | None:
    """How a fit was cut short in one of its epochs; None if it was not."""
    how = CUT_SHORT.get(stop_reason)
    return None if how is None else f"its fit was {how} in epoch {done:,} of {epochs:,}"


@dataclass(eq=False)
class FitState:
    """The result of a fit in one object: a model is fitted if it has one, and the next fit replaces it.

    Attributes
    ----------
    towers : dict of Tower
        The bound towers of "context" and "item".
    shape : (int, int)
        Number of contexts and of items.
    unobserved_weight : float
    item_weight : array or None
    history : list of Epoch
    stop_reason : str
    device : str or None
        The device of the fit; None if it was not in this process.
    """

    towers: dict[str, Tower]
    shape: tuple[int, int]
    unobserved_weight: float
    item_weight: np.ndarray | None
    history: list[Epoch] = field(default_factory=list)
    stop_reason: str = "running"
    device: str | None = None

    @property
    def parameters(self) -> dict[str, Parameter]:
        """The parameters of both towers by name."""
        return {name: parameter for tower in self.towers.values() for name, parameter in tower.parameters.items()}

    def values(self) -> dict[str, np.ndarray]:
        """The arrays of the parameters themselves, not copies."""
        return {name: parameter.value for name, parameter in self.parameters.items()}

    def load(self, values: dict[str, Any]) -> None:
        """Set the parameters to values in the shape users see."""
        for name, parameter in self.parameters.items():
            parameter.load(values[name])
