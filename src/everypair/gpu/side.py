"""``DeviceSide``: one side of a model on a device, its vectors and their Gram."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import numpy as np

from everypair.gpu import linear
from everypair.gpu.backend import Backend
from everypair.gpu.biases import Biases
from everypair.gpu.pairs import Numbers, Pairs

PANEL = 32  # dimensions in which tables are padded


class OtherSide(NamedTuple):
    """What a sweep needs of the other side: its table of vectors, its Gram in float64, and whether it is diagonal in factors."""

    table: Any
    J: Any
    diagonal: bool


class DeviceSide(ABC):
    """The vectors of a side: a row of factors for each row, and one of zeros past the last, which stands for no pair.

    Rows are padded with zeros to a multiple of 32 numbers; these stay zero. With biases, which factorization machines have, a Gram
    has two dimensions more: the bias of contexts, which meets the 1 of items, and the bias of items, which meets the 1 of contexts.

    Attributes
    ----------
    table : device array
    biases : Biases or None
    unregularized : bool
        Whether there are parameters without L2.
    """

    unregularized = False

    def __init__(self, backend: Backend, side: str, n: int, k: int, eta: float, biases: Biases | None = None) -> None:
        self.backend, self.side, self.n, self.k, self.eta, self.biases = backend, side, n, k, eta, biases
        self.table = backend.xp.zeros((n + 1, padded(k)), np.float32)

    @property
    def stride(self) -> int:
        return self.table.shape[1]

    @property
    def q(self) -> int:
        """The dimension of the biases of this side in Grams."""
        return self.stride + (self.side == "item")

    @property
    def one(self) -> int:
        """The dimension in which this side is 1."""
        return self.stride + (self.side == "context")

    @property
    def bias(self) -> Numbers:
        """What is added to the scores of each row."""
        return Numbers(self.backend.floats(0.0)[0], 0) if self.biases is None else Numbers(self.biases.of_rows, 1)

    @abstractmethod
    def take_parameters(self) -> None:
        """Copy the parameters from the host."""

    @abstractmethod
    def bring_back(self) -> None:
        """Copy the parameters to the host."""

    @abstractmethod
    def place(self) -> None:
        """Compute the vectors of the rows from the parameters."""

    @abstractmethod
    def rotate(self, at: slice, Q: Any) -> None:
        """Multiply the factors ``at`` by an orthogonal matrix."""

    @abstractmethod
    def l2(self) -> Any:
        """L2 of all parameters, as a number on the device."""

    @abstractmethod
    def sweep(self, pairs: Pairs, other: OtherSide) -> None:
        """Step on every parameter once, with the other side fixed; updates scores and vectors."""

    def gram(self, weight: Numbers | None) -> Any:
        xp, factors, stride = self.backend.xp, self.table[:-1], self.stride
        J = linear.gram(xp, factors, None if weight is None else weight.array)
        if self.biases is None:
            return J
        weight, phi_q = weight or Numbers(*self.backend.floats(1.0)), self.biases.of_rows
        mixed = self._by_column("products_of_columns", 2 * stride, phi_q, *weight).reshape(2, stride)
        of_rows, numbers = weight.array.astype(np.float64), phi_q[:-1].astype(np.float64)
        total = of_rows.sum() if weight.step else of_rows[0] * self.n
        whole = xp.zeros((stride + 2, stride + 2), np.float64)
        whole[:stride, :stride] = J
        for sums, dim in zip(mixed, (self.q, self.one), strict=True):
            whole[:stride, dim] = whole[dim, :stride] = sums
        whole[self.q, self.q] = (of_rows * numbers * numbers).sum()
        whole[self.q, self.one] = whole[self.one, self.q] = (of_rows * numbers).sum()
        whole[self.one, self.one] = total
        return whole

    def norms(self, weight: Numbers | None) -> Any:
        """The diagonal of the Gram of the factors."""
        return self._by_column("squares_of_columns", self.stride, *(weight or Numbers(*self.backend.floats(1.0))))

    def _by_column(self, kernel: str, width: int, *arguments: Any) -> Any:
        """Sums of rows by a kernel whose threads have a column each."""
        n_blocks = -(-self.n // ROWS_EACH)
        sums = self.backend.xp.empty((n_blocks, width), np.float64)
        launch = getattr(self.backend.kernels("rows"), kernel)
        launch(n_blocks, min(self.stride, 256), self.n, ROWS_EACH, self.table, self.stride, *arguments, sums)
        return sums.sum(axis=0)


ROWS_EACH = 256  # that a block of threads adds up


def padded(k: int) -> int:
    """Dimensions in whole panels."""
    return -(-k // PANEL) * PANEL
