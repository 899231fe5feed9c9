"""What the solver asks of the place where a fit's data lie: few, coarse operations, so that a side's sweep can run anywhere."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

import numpy as np

from everypair.engine.feedback import Feedback
from everypair.engine.objective import OTHER, ObjectiveValue
from everypair.engine.parameter import Parameter
from everypair.engine.tower import Tower

SIDES = ("context", "item")

__all__ = ["OTHER", "SIDES", "Engine"]


class Engine(ABC):
    """Vectors, Grams, and scores of the observed pairs, and the sweeps that move them.

    The solver calls these operations in the order of Algorithm 1 and touches no array itself. An engine of another kind (a GPU) may
    keep copies of the parameters elsewhere: then :meth:`bring_back` writes them to the towers, where callbacks, checkpoints and the
    fitted model find them.
    """

    def __init__(self, feedback: Feedback, towers: Mapping[str, Tower], alpha0: float, dtype: np.dtype) -> None:
        self.feedback, self.towers, self.alpha0, self.dtype = feedback, dict(towers), alpha0, dtype

    @property
    def parameters(self) -> dict[str, Parameter]:
        """Of both towers, by name."""
        return {name: parameter for tower in self.towers.values() for name, parameter in tower.parameters.items()}

    @property
    @abstractmethod
    def finite(self) -> bool:
        """Whether feedback and weights are numbers in the precision of the fit."""

    @abstractmethod
    def place(self, side: str) -> None:
        """Compute the vectors of a side from its tower's parameters."""

    @abstractmethod
    def update_gram(self, side: str) -> None:
        """Compute J of a side whose vectors have moved."""

    @abstractmethod
    def turn(self, side: str) -> None:
        """Rotate both sides, where their towers can, such that the Gram that ``side`` sees is diagonal. Scores do not change.

        The side's own Gram is out of date until its sweep is done, and not used before.
        """

    @abstractmethod
    def sweep(self, side: str) -> None:
        """Step on every block of a side's parameters once, the other side held; scores and vectors follow."""

    @abstractmethod
    def step(self, side: str, block: int | str) -> None:
        """Step on one block of a side's parameters, and update its Gram: for ``order="dimension"``."""

    @abstractmethod
    def rescore(self) -> None:
        """Compute the scores of the observed pairs from the vectors."""

    @abstractmethod
    def value(self) -> ObjectiveValue:
        """The exact objective."""

    def bring_back(self) -> None:  # noqa: B027
        """Write the parameters to the towers; nothing to do where the towers' own arrays were stepped on."""
