r"""A field of features for the history of a user: products by running sums, without a matrix.

.. math::

    x_{cl} = \frac{1}{N_c} \sum_{j :\; i_j = l} \gamma^{\,t - j}

over the events :math:`i_1, \dots, i_t` before a context (or the last few of them), with a decay :math:`\gamma \le 1`; with the
times :math:`\tau` of events and a half-life h, each weight is multiplied by :math:`2^{-(\tau_t - \tau_j) / h}`. :math:`N_c` is the
sum of the weights to a power. Along a user's events both ``X v`` and ``X' z`` are running sums: O(events), whatever the length of
the history.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from everypair.columns.fields import Compressed, Field, ranges_with_sums
from everypair.kernels import running_sums, sparse
from everypair.kernels.order import grouped
from everypair.kernels.panel_sequences import add_panel_product
from everypair.kernels.running_sums import RunningSum
from everypair.kernels.sequences import HistorySums, Sequences, add_product
from everypair.kernels.simd import LANES
from everypair.runtime.cached import cached_property
from everypair.runtime.group import Group
from everypair.runtime.parallel import SERIAL, Workers

POWERS = {"sqrt": 0.5, "mean": 1.0, "none": 0.0}
NORMALIZATIONS = tuple(POWERS)


class Window(NamedTuple):
    """How a history counts: its last few events or all (0), their decay, and the power of the sum of weights that divides them."""

    last: int
    decay: float
    normalize: str | float

    @property
    def power(self) -> float:
        return POWERS[self.normalize] if isinstance(self.normalize, str) else self.normalize

    def first(self, begin: np.ndarray, end: np.ndarray) -> np.ndarray:
        """The position of the first event of each history ``begin:end`` that counts."""
        return np.maximum(begin, end - self.last) if self.last else begin


class HistoryField(Field):
    """A feature per item: its share of a row's history.

    Parameters
    ----------
    items : array of integers
        The items of all sequences, end to end.
    bounds : array of integers
        Where each sequence begins in ``items``, and the end of the last one.
    begin, end : arrays of integers
        The history of each row: ``items[begin:end]``, where ``begin`` is the beginning of a sequence.
    n_items : int
    window : Window
    clock : array, optional
        The time of each event since the first of its sequence, in half-lives: weights halve with each, besides their decay by
        events.
    """

    one_hot = False
    few_features = True
    has_rows = True
    visits = 0  # events and rows that products have visited

    def __init__(
        self,
        items: np.ndarray,
        bounds: np.ndarray,
        begin: np.ndarray,
        end: np.ndarray,
        n_items: int,
        window: Window,
        clock: np.ndarray | None = None,
    ) -> None:
        self.shape = (len(end), n_items)
        self.window, self._clock = window, clock
        self._items, self._begin, self._end = items, begin, end
        self._events = Compressed(bounds, items, 1.0)
        self._last = window.last or max(len(items), 1)  # longer than any sequence: nothing ever leaves

    @property
    def _bounds(self) -> np.ndarray:
        return self._events.arrays.indptr

    @property
    def _counted(self) -> np.ndarray:
        """How many events of each history count."""
        return self._end - self.window.first(self._begin, self._end)

    @property
    def _position(self) -> np.ndarray:
        """That of the last event of each history, -1 for none."""
        return np.where(self._end > self._begin, self._end - 1, -1)

    @property
    def n_events(self) -> int:
        """Events that count in the histories of all rows: the non-zeros of the matrix, if none repeats."""
        return int(self._counted.sum())

    @cached_property
    def _by_item(self) -> Compressed:
        """The positions of each item."""
        indptr, positions = grouped(self._items, self.shape[1], np.int64 if len(self._items) >= 2**31 else np.int32)
        return Compressed(indptr, positions, 1.0)

    @cached_property
    def sequences(self) -> Sequences | None:
        """The rows as sequences, for block steps; None where rows are not in the order of sequences, or where there are too many
        items for ranges of sequences to have sums of their own."""
        bounds, ranges = self._bounds, ranges_with_sums(len(self._items) + len(self._end), self.shape[1])
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
    def unseen(self) -> np.ndarray:
        """Which items are in no row's history."""
        return self.multiply_squared_transposed(np.ones(self.shape[0]), SERIAL) <= 0.0

    def divide(self, group: Group) -> None:
        self.unseen = group.total((~self.unseen).astype(np.float64)) <= 0.0

    @property
    def sums(self) -> HistorySums:
        """The running sums of entries and of their squares."""
        return HistorySums(self._entries, self._squares)

    @cached_property
    def _entries(self) -> RunningSum:
        decay, last = self.window.decay, self._last
        if self._clock is None:
            return RunningSum(
                decay, last, 1.0, decay**last, self._scale_of(_total(np.arange(self._counted.max(initial=0) + 1), decay))
            )
        fades = decay * self._faded_since(1)
        sums, leave, n = np.zeros(len(fades) + 1), decay**last * self._faded_since(last), len(fades)
        fades, leave = np.append(fades, 0.0), np.append(leave[min(last, n) :], np.zeros(min(last, n)))
        weights = RunningSum(fades, last, 1.0, leave, sums)
        running_sums.running(0, len(self._bounds) - 1, self._bounds, np.zeros(n, np.int32), weights, np.ones(1), sums[1:])
        return weights._replace(scale=self._scale_of(sums))

    def _scale_of(self, total: np.ndarray) -> np.ndarray:
        """The factors of histories with these sums of weights."""
        return np.maximum(total, 1e-300) ** -self.window.power * (total > 0)

    def _faded_since(self, back: int) -> np.ndarray:
        """By how much each event has halved that came so many before one, up to the first of its sequence."""
        assert self._clock is not None
        n = len(self._clock)
        before = np.maximum(np.arange(n) - back, np.repeat(self._bounds[:-1], np.diff(self._bounds)))
        return np.exp2(self._clock[before] - self._clock)

    @property
    def _scale_at(self) -> np.ndarray:
        """Where the scale of each row is: see :func:`~everypair.kernels.running_sums.scale_at`."""
        return self._counted if self._clock is None else self._end

    @cached_property
    def _squares(self) -> RunningSum:
        """What a repeated item adds to its square depends on when it occurred before."""
        x = self._entries
        enter, leave = np.ones(len(self._items)), np.zeros(len(self._items))
        repeats = running_sums.square_coefficients(self._bounds, self._items, self.shape[1], x, self._halvings, enter, leave)
        coefficients = (enter, leave) if repeats else (1.0, x.leave**2 if self._clock is not None else (x.decay**2) ** x.last)
        return RunningSum(x.decay**2, x.last, *coefficients, x.scale**2)

    @property
    def _halvings(self) -> np.ndarray | None:
        """How often the weight of a sequence's first event has halved at each event; None without a clock."""
        if self._clock is None:
            return None
        step = np.arange(len(self._items)) - np.repeat(self._bounds[:-1], np.diff(self._bounds))
        return self._clock - step * np.log2(self.window.decay)

    def count_visits(self, products: int) -> None:
        """Add the visits of so many products to ``visits``."""
        self.visits += products * (len(self._items) + self.shape[0])

    def take(self, index: np.ndarray) -> HistoryField:
        """The rows ``index``."""
        return HistoryField(
            self._items, self._bounds, self._begin[index], self._end[index], self.shape[1], self.window, self._clock
        )

    def toarray(self) -> np.ndarray:
        return np.stack([self.multiply(column, SERIAL) for column in np.eye(self.shape[1])], axis=1)

    def entries(self, row: int) -> tuple[np.ndarray, np.ndarray]:
        """The items of a row's history and their shares; those of a repeated item are added up."""
        first, end = int(self.window.first(self._begin[row], self._end[row])), int(self._end[row])
        weight = self.window.decay ** np.arange(end - first - 1, -1, -1, dtype=np.float64)
        if self._clock is not None and end > first:
            weight *= np.exp2(self._clock[first:end] - self._clock[end - 1])
        items, place = np.unique(self._items[first:end], return_inverse=True)
        return items, np.bincount(place, weight, len(items)) * self._entries.scale[self._scale_at[row]]

    def content(self) -> Iterator[Any]:
        yield from (self.shape, *self.window, self._items, self._bounds, self._begin, self._end)
        if self._clock is not None:
            yield self._clock

    def multiply(self, v: np.ndarray, workers: Workers) -> np.ndarray:
        return self._forward(v, self._entries, workers)

    def add_products(self, W: np.ndarray, out: np.ndarray, workers: Workers) -> None:
        if self.sequences is None:
            super().add_products(W, out, workers)
            return
        for w, sums in zip(W, out, strict=True):
            self.count_visits(1)
            workers.run(add_product, range(len(self.sequences.ranges)), self.sequences, self._entries, w, sums)

    def add_rows(self, start: int, stop: int, W: np.ndarray, out: np.ndarray) -> None:
        running_sums.add_history(start, stop, self._items, self._begin, self._end, self._entries, W, out)

    def add_panel(self, W: np.ndarray, out: np.ndarray, workers: Workers) -> None:
        if self.sequences is None or out.shape[1] != LANES:
            super().add_panel(W, out, workers)
            return
        self.count_visits(1)
        workers.run(add_panel_product, range(len(self.sequences.ranges)), self.sequences, self._entries, W, out)

    def multiply_transposed(self, z: np.ndarray, workers: Workers) -> np.ndarray:
        return self._backward(z, self._entries, workers)

    def multiply_squared(self, v: np.ndarray, workers: Workers) -> np.ndarray:
        return self._forward(v, self._squares, workers)

    def multiply_squared_transposed(self, z: np.ndarray, workers: Workers) -> np.ndarray:
        found = self._backward(z, self._squares, workers)
        if np.ndim(self._squares.enter) == 0 and self._clock is None:
            return found
        # An event that entered and left again may leave its rounding behind, and L2 weights made of it would be negative.
        entered = self._backward(np.abs(z), self._squares._replace(leave=0.0), workers)
        return np.where(np.abs(found) > 1e-12 * entered, found, 0.0).astype(z.dtype)

    def _forward(self, v: np.ndarray, x: RunningSum, workers: Workers) -> np.ndarray:
        self.count_visits(1)
        if self.sequences is not None:
            out = np.zeros(self.shape[0], v.dtype)
            workers.run(add_product, range(len(self.sequences.ranges)), self.sequences, x, v, out)
            return out
        sums = np.empty(len(self._items))
        workers.run(running_sums.running, self._events.ranges(workers), self._bounds, self._items, x, v, sums)
        out = np.empty(self.shape[0], v.dtype)
        workers.run(running_sums.take_at, workers.even(len(out)), self._position, sums, x.scale[self._scale_at], out)
        return out

    def _backward(self, z: np.ndarray, x: RunningSum, workers: Workers) -> np.ndarray:
        self.count_visits(1)
        sums = np.zeros(len(self._items))
        running_sums.add_at(self._position, z, x.scale[self._scale_at], sums)
        workers.run(running_sums.running_transposed, self._events.ranges(workers), self._bounds, x, sums)
        return self._by_item.apply(sparse.multiply, sums, workers).astype(z.dtype, copy=False)


def _total(counted: np.ndarray, decay: float) -> np.ndarray:
    """The sum of the weights of so many events."""
    return counted.astype(np.float64) if decay == 1 else np.expm1(counted * np.log(decay)) / (decay - 1)
