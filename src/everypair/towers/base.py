"""What a tower is: one side of a k-separable model, ``phi(c; theta)``, and the steps on its parameters."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from everypair.feedback import Values
from everypair.objective import Side
from everypair.parallel import SERIAL, Workers
from everypair.vectors import Vectors


@dataclass
class Parameter:
    """An array of parameters, and the L2 weight ``lambda_theta`` of its entries (broadcast against them).

    Fixed parameters are held: not stepped on, not rotated, outside L2.
    """

    value: np.ndarray
    penalty: Values
    fixed: bool = False
    transposed: bool = False  # stored as (dimensions, features), shown as (features, dimensions)

    def l2(self) -> float:
        if self.fixed:
            return 0.0
        if np.ndim(self.penalty) == 0:
            rows = self.value if self.value.ndim == 2 else self.value.reshape(1, -1)
            return float(self.penalty * np.sum(np.einsum("rf,rf->r", rows, rows), dtype=np.float64))
        return float(np.sum(self.penalty * np.square(self.value, dtype=np.float64)))

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape users see."""
        return self.value.shape[::-1] if self.transposed else self.value.shape

    def show(self) -> np.ndarray:
        """A copy, in the shape users see."""
        return np.array(self.value.T if self.transposed else self.value, order="C")

    def load(self, value: Any) -> None:
        value = np.asarray(value, self.value.dtype)
        self.value[...] = value.T if self.transposed else value


class Tower(ABC):
    """One side of a model: parameters, the vectors they give, and exact steps on them.

    A tower knows no loss: it steps on its parameters given the derivatives of the loss with respect to its vectors, which it
    asks of a :class:`~everypair.objective.Side`, and tells the side how its vectors moved.

    ``parameters`` maps letters to :class:`Parameter`. ``blocks`` lists what :meth:`step` can be asked to update, in order.
    """

    n_dims: int
    step_size: float = 1.0
    parameters: dict[str, Parameter]

    @abstractmethod
    def vectors(self, workers: Workers = SERIAL) -> Vectors:
        """``phi`` of every row, from the parameters."""

    @abstractmethod
    def vectors_of(self, name: str, rows: Any) -> np.ndarray:
        """``phi`` of other rows than those trained on (n x K); ``name`` is what messages call them."""

    def lookup(self) -> Callable[[np.ndarray], np.ndarray]:
        """A function from row numbers to ``phi`` of those rows: computed for them alone where the tower can."""
        rows = self.vectors().rows
        return lambda index: rows[index]

    @property
    @abstractmethod
    def blocks(self) -> Sequence[Any]:
        """The blocks of free parameters of a sweep, in order."""

    @abstractmethod
    def step(self, side: Side, block: Any) -> None:
        """Lower the loss over one block of parameters."""

    def sweep(self, side: Side) -> None:
        """Every block once: the loop over the side's parameters in Algorithm 1."""
        for block in self.blocks:
            self.step(side, block)

    def gram(self, vectors: Vectors, weight: Values, workers: Workers) -> np.ndarray:
        """``J = sum_c weight_c phi(c) phi(c)'`` over all rows the tower stands for."""
        return vectors.gram(weight, workers)

    def norms(self, vectors: Vectors, weight: Values, workers: Workers) -> np.ndarray:
        """The diagonal of :meth:`gram`."""
        return vectors.norms(weight, workers)

    @property
    def rotatable(self) -> int:
        """How many leading dimensions may be turned by an orthogonal matrix, if the other tower turns along; 0: none."""
        return 0

    def rotate(self, Q: np.ndarray, vectors: Vectors, workers: Workers) -> None:
        """Turn the parameters such that the rotatable dimensions of ``phi`` become ``phi Q``, and its vectors along."""
        raise NotImplementedError(f"{type(self).__name__} cannot be rotated")

    def l2(self) -> float:
        """``sum lambda_theta theta^2`` over the free parameters."""
        return sum(parameter.l2() for parameter in self.parameters.values())
