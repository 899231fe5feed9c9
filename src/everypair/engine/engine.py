"""``Engine``, the interface between the solver and the hardware: few, coarse operations on vectors, Grams and scores."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext

import numpy as np

from everypair.engine.feedback import Feedback
from everypair.engine.objective import OPPOSITE, ObjectiveValue
from everypair.engine.parameter import Parameter
from everypair.engine.tower import Tower

SIDES = ("context", "item")

__all__ = ["OPPOSITE", "SIDES", "Engine"]


class Engine(ABC):
    """Holds vectors, Grams and scores of the observed pairs, and runs the sweeps that change them.

    The solver calls these operations in the order of Algorithm 1 and touches no array itself. An engine for other hardware (a GPU)
    may hold copies of the parameters: :meth:`bring_back` then writes them to the towers, where callbacks, checkpoints and the
    fitted model read them.
    """

    device = "cpu"

    def __init__(self, feedback: Feedback, towers: Mapping[str, Tower], alpha0: float, dtype: np.dtype) -> None:
        self.feedback, self.towers, self.alpha0, self.dtype = feedback, dict(towers), alpha0, dtype

    def active(self) -> AbstractContextManager[None]:
        """While it is, the work of this thread goes to the engine's device."""
        return nullcontext()

    @property
    def parameters(self) -> dict[str, Parameter]:
        """The parameters of both towers by name."""
        return {name: parameter for tower in self.towers.values() for name, parameter in tower.parameters.items()}

    @property
    @abstractmethod
    def finite(self) -> bool:
        """Whether feedback and weights are finite in the precision of the fit."""

    def take_parameters(self) -> None:  # noqa: B027
        """Read the parameters of the towers; nothing to do for engines that step on the towers' arrays."""

    @abstractmethod
    def place(self, side: str) -> None:
        """Compute the vectors of a side from its tower's parameters."""

    @abstractmethod
    def update_gram(self, side: str) -> None:
        """Compute the Gram J of a side after its vectors moved."""

    @abstractmethod
    def turn(self, side: str, epoch: int = 1) -> None:
        """Rotate both sides, where their towers can, such that the other side's Gram is diagonal. Scores do not change.

        An engine may leave this out in some epochs, by their number alone, so that a resumed run does the same.

        The Gram of ``side`` itself is not updated: its sweep does not use it, and :meth:`update_gram` follows.
        """

    @abstractmethod
    def sweep(self, side: str) -> None:
        """Step on every block of a side's parameters once, with the other side fixed; updates scores and vectors."""

    @abstractmethod
    def step(self, side: str, block: int | str) -> None:
        """Step on one block of a side's parameters, and update its Gram: for ``order="dimension"``."""

    @abstractmethod
    def rescore(self) -> None:
        """Compute the scores of the observed pairs from the vectors."""

    @abstractmethod
    def value(self) -> ObjectiveValue:
        """The exact objective."""

    @property
    @abstractmethod
    def size(self) -> float:
        """The size of the terms of the last :meth:`value`, which may have cancelled: what its rounding errors are relative to."""

    def bring_back(self) -> None:  # noqa: B027
        """Write the parameters to the towers; nothing to do for engines that step on the towers' arrays."""

    def agreed(self, decision: bool) -> bool:
        """A decision of this process as that of all processes of the fit: true if any of them decided so."""
        return decision
