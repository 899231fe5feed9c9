r"""What was watched so far, as a field of features: products by running sums, no matrix.

.. math::

    x_{cl} = \frac{1}{N_c} \sum_{j :\; i_j = l} \gamma^{\,t - j}

over the past events :math:`i_1, \dots, i_t` of a context (or the last few of them), with a decay :math:`\gamma \le 1`. Along a
user's events both ``X v`` and ``X' z`` are running sums: O(events), whatever the length of the history.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from everypair.columns.fields import Compressed, Field, ranges_with_sums
from everypair.kernels import row_vectors, sparse
from everypair.kernels import running_sums as kernels
from everypair.kernels.order import grouped
from everypair.kernels.sequences import Sequences, Sums, add_product
from everypair.runtime.parallel import SERIAL, Workers

NORMALIZATIONS = ("sqrt", "mean", "none")


class Window(NamedTuple):
    """How the past counts: the last few events or all (0), how fast they fade, and what their weights are divided by."""

    last: int
    decay: float
    normalize: str

    def first(self, begin: np.ndarray, end: np.ndarray) -> np.ndarray:
        """Where what counts of each past begins."""
        return np.maximum(begin, end - self.last) if self.last else begin


class HistoryField(Field):
    """A feature per item: how much of a row's past it makes up.

    Parameters
    ----------
    items : array of integers
        The items of all sequences, end to end.
    bounds : array of integers
        Where each sequence begins in ``items``, and the end of the last one.
    begin, end : arrays of integers
        The past of each row: ``items[begin:end]``, where ``begin`` is the beginning of a sequence.
    n_items : int
    window : Window
    """

    one_hot = False
    few_features = True
    has_rows = True
    visits = 0  # events and rows that products have visited

    def __init__(
        self, items: np.ndarray, bounds: np.ndarray, begin: np.ndarray, end: np.ndarray, n_items: int, window: Window
    ) -> None:
        self.shape = (len(end), n_items)
        self.window = window
        self._items, self._begin, self._end = items, begin, end
        self._sequences = Compressed(bounds, items, 1.0)
        self._position = np.where(end > begin, end - 1, -1)
        counted = np.arange(self._counted.max(initial=0) + 1)
        total = counted.astype(np.float64)
        if window.decay < 1:
            total = np.expm1(counted * np.log(window.decay)) / (window.decay - 1)
        exponent = {"sqrt": -0.5, "mean": -1.0, "none": 0.0}[window.normalize]
        self._scale = np.maximum(total, 1e-300) ** exponent * (total > 0)  # of a past of 0, 1, 2, ... events
        self._last = window.last or max(len(items), 1)  # longer than any sequence: nothing ever leaves

    @property
    def _counted(self) -> np.ndarray:
        """How many events of each past count."""
        return self._end - self.window.first(self._begin, self._end)

    @property
    def n_events(self) -> int:
        """Past events of all rows: the non-zeros of the matrix, if none repeats."""
        return int(self._counted.sum())

    @cached_property
    def _by_item(self) -> Compressed:
        """The positions of each item."""
        indptr, positions = grouped(self._items, self.shape[1], np.int64 if len(self._items) >= 2**31 else np.int32)
        return Compressed(indptr, positions, 1.0)

    @cached_property
    def pasts(self) -> Sequences | None:
        """The rows sequence by sequence, for block steps on all of them: None where they are not in that order, or where there are
        too many items for ranges of sequences to have sums of their own."""
        bounds, ranges = self._sequences.arrays[0], ranges_with_sums(len(self._items) + len(self._end), self.shape[1])
        sequence = np.searchsorted(bounds, self._begin, side="right") - 1
        longer = np.diff(self._end - self._begin) >= 0
        if not ranges or not np.all((np.diff(sequence) > 0) | ((np.diff(sequence) == 0) & longer)):
            return None
        rows = np.searchsorted(sequence, np.arange(len(bounds)))
        work = bounds + rows
        cuts = np.searchsorted(work, np.linspace(0, work[-1], ranges + 1)[1:-1])
        count = (self._end - self._begin).astype(np.uint32)
        return Sequences(
            np.concatenate([[0], cuts, [len(bounds) - 1]]), bounds, rows, count, self._items.astype(np.uint32, copy=False)
        )

    @cached_property
    def nobodys(self) -> np.ndarray:
        """Items that are in no row's past."""
        return self.multiply_squared_transposed(np.ones(self.shape[0]), SERIAL) <= 0.0

    @cached_property
    def entries_add(self) -> Sums:
        """How the entries of a past add up."""
        return Sums(self.window.decay, self._last, 1.0, self.window.decay**self._last, self._scale)

    @cached_property
    def squares_add(self) -> Sums:
        """How their squares do: what an item met again adds depends on when that was."""
        decay = self.window.decay**2
        enter, leave = np.ones(len(self._items)), np.zeros(len(self._items))
        sequences = self._sequences.arrays[:2]
        again = kernels.square_coefficients(*sequences, self.shape[1], self.window.decay, self._last, enter, leave)
        coefficients = (enter, leave) if again else (1.0, decay**self._last)
        return Sums(decay, self._last, *coefficients, self._scale**2)

    def visited(self, products: int) -> None:
        """Count what so many products visit."""
        self.visits += products * (len(self._items) + self.shape[0])

    def take(self, index: np.ndarray) -> HistoryField:
        """Some of the rows."""
        return HistoryField(
            self._items, self._sequences.arrays[0], self._begin[index], self._end[index], self.shape[1], self.window
        )

    def toarray(self) -> np.ndarray:
        return np.stack([self.multiply(column, SERIAL) for column in np.eye(self.shape[1])], axis=1)

    def entries(self, row: int) -> tuple[np.ndarray, np.ndarray]:
        """The items of a row's past, and what each makes up of it: an item met again adds up."""
        first, end = int(self.window.first(self._begin[row], self._end[row])), int(self._end[row])
        weight = self.window.decay ** np.arange(end - first - 1, -1, -1, dtype=np.float64)
        items, place = np.unique(self._items[first:end], return_inverse=True)
        return items, np.bincount(place, weight, len(items)) * self._scale[end - first]

    def content(self) -> Iterator[Any]:
        yield from (self.shape, *self.window, self._items, self._sequences.arrays[0], self._begin, self._end)

    def multiply(self, v: np.ndarray, workers: Workers) -> np.ndarray:
        return self._forward(v, self.entries_add, workers)

    def add_products(self, W: np.ndarray, out: np.ndarray, workers: Workers) -> None:
        if self.pasts is None:
            super().add_products(W, out, workers)
            return
        for w, sums in zip(W, out, strict=True):
            self.visited(1)
            workers.run(add_product, range(len(self.pasts.ranges)), self.pasts, self.entries_add, w, sums)

    def add_rows(self, start: int, stop: int, W: np.ndarray, out: np.ndarray) -> None:
        window = (self._begin, self._end, self._scale, self.window.decay, self._last)
        row_vectors.add_history(start, stop, self._items, *window, W, out)

    def multiply_transposed(self, z: np.ndarray, workers: Workers) -> np.ndarray:
        return self._backward(z, self.entries_add, workers)

    def multiply_squared(self, v: np.ndarray, workers: Workers) -> np.ndarray:
        return self._forward(v, self.squares_add, workers)

    def multiply_squared_transposed(self, z: np.ndarray, workers: Workers) -> np.ndarray:
        found = self._backward(z, self.squares_add, workers)
        if np.ndim(self.squares_add.enter) == 0:
            return found
        # What entered and left again may leave its rounding behind, and a weight below zero would be an L2 weight below zero.
        entered = self._backward(np.abs(z), self.squares_add._replace(leave=0.0), workers)
        return np.where(np.abs(found) > 1e-12 * entered, found, 0.0).astype(z.dtype)

    def _forward(self, v: np.ndarray, add: Sums, workers: Workers) -> np.ndarray:
        self.visited(1)
        if self.pasts is not None:
            out = np.zeros(self.shape[0], v.dtype)
            workers.run(add_product, range(len(self.pasts.ranges)), self.pasts, add, v, out)
            return out
        sums = np.empty(len(self._items))
        sequences = self._sequences
        arguments = (*sequences.arrays[:2], v, add.decay, add.last, add.enter, add.leave, sums)
        workers.run(kernels.running, sequences.ranges(workers), *arguments)
        out = np.empty(self.shape[0], v.dtype)
        workers.run(kernels.take_at, workers.even(len(out)), self._position, sums, add.scale[self._counted], out)
        return out

    def _backward(self, z: np.ndarray, add: Sums, workers: Workers) -> np.ndarray:
        self.visited(1)
        sums = np.zeros(len(self._items))
        kernels.add_at(self._position, z, add.scale[self._counted], sums)
        arguments = (self._sequences.arrays[0], add.decay, add.last, add.enter, add.leave, sums)
        workers.run(kernels.running_back, self._sequences.ranges(workers), *arguments)
        return self._by_item.apply(sparse.multiply, sums, workers).astype(z.dtype, copy=False)
