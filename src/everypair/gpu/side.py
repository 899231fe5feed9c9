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
        xp, factors = self.backend.xp, self.table[:-1]
        of_rows = None if weight is None else weight.array
        J = linear.gram(xp, factors, of_rows)
        if self.biases is None:
            return J
        beside = xp.stack([self.biases.of_rows[:-1], xp.ones(self.n, np.float32)], axis=1)
        mixed, own = linear.products(xp, factors, beside, of_rows), linear.gram(xp, beside, of_rows)
        whole = xp.zeros((self.stride + 2, self.stride + 2), np.float64)
        dims = [self.q, self.one]
        whole[: self.stride, : self.stride] = J
        for j, dim in enumerate(dims):
            whole[: self.stride, dim] = whole[dim, : self.stride] = mixed[:, j]
            for i, other in enumerate(dims):
                whole[dim, other] = own[j, i]
        return whole

    def norms(self, weight: Numbers | None) -> Any:
        """The diagonal of the Gram of the factors."""
        n_blocks = -(-self.n // ROWS_EACH)
        sums = self.backend.xp.empty((n_blocks, self.stride), np.float64)
        weight = weight or Numbers(*self.backend.floats(1.0))
        threads = min(self.stride, 256)
        self.backend.kernels("rows").squares_of_columns(
            n_blocks, threads, self.n, ROWS_EACH, self.table, self.stride, *weight, sums
        )
        return sums.sum(axis=0)


ROWS_EACH = 256  # that a block of threads adds up


def padded(k: int) -> int:
    """Dimensions in whole panels."""
    return -(-k // PANEL) * PANEL
