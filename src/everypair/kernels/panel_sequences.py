"""Block steps on the weights of a history in a panel of sixteen dimensions, for rows in the order of sequences.

As :mod:`everypair.kernels.sequences`, with running sums of vectors (:mod:`everypair.kernels.panel_histories`): the data of a
sequence stay in the cache between the product with the history, the pass over its rows and pairs, and the product back, and no
array of all rows is needed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from everypair.kernels.jit import fill, leaf, pick
from everypair.kernels.panel_histories import Adjoints, PanelSequence, SquareSum, Sums, gradient, loss_along, move, product
from everypair.kernels.panel_levels import PanelData
from everypair.kernels.panel_rows import RowGram, advance, gradients, line, products
from everypair.kernels.running_sums import scale_at
from everypair.kernels.sequences import HistorySums, Sequences, longest, of_sequence
from everypair.kernels.simd import LANES


class PanelRows(NamedTuple):
    """The rows of a side in a panel: where the pairs of each begin, and what their loss is made of."""

    indptr: np.ndarray
    data: PanelData
    gram: RowGram


class PanelHistory(NamedTuple):
    """The sequences of a history, and the running sums of its entries and of their squares."""

    sequences: Sequences
    sums: HistorySums


class Direction(NamedTuple):
    """A direction for the weights W of all features: Delta, and for each ``<w, Delta>`` and ``|Delta|^2``, in float64."""

    delta: np.ndarray
    squares: np.ndarray


@leaf
def _square_sum(x):
    return SquareSum(x.decay, x.enter, x.leave, x.scale)


@leaf
def _sequence(sequences, s):
    begin, items, count = of_sequence(sequences, s)
    return PanelSequence(sequences.rows[s], begin, items, count)


@leaf
def history_gradient(start, stop, history, rows, slope, curvature, of_q):
    """For ranges of sequences: ``X'`` times the gradients of rows, ``(X^2)'`` times their curvatures, and for factorization
    machines ``(X^2)'`` times their gradients in the bias dimension."""
    (sequences, sums), (indptr, data, gram) = history, rows
    dtype, squares = data.tables.F.dtype, _square_sum(sums.squares)
    for j in range(start, stop):
        fill(slope[j], 0.0)
        fill(curvature[j], 0.0)
        fill(of_q[j], 0.0)
        most, events = longest(sequences, j)
        of_rows = np.empty((most, LANES), dtype), np.empty((most, LANES), dtype), np.empty(most, dtype)
        room = Adjoints(*of_rows, np.empty((events, LANES), dtype), np.empty((events, LANES), dtype), np.empty(events))
        out = Sums(slope[j], curvature[j], of_q[j])
        for s in range(sequences.ranges[j], sequences.ranges[j + 1]):
            sequence = _sequence(sequences, s)
            gradient(sequence, sums.entries, squares, indptr, data.pairs, data.tables, data.state, gram, room, out)


@leaf
def history_product(start, stop, history, rows, P, out):
    """``X' H X P`` with the curvatures H of rows, for ranges of sequences."""
    (sequences, sums), (indptr, data, gram) = history, rows
    dtype = data.tables.F.dtype
    for j in range(start, stop):
        fill(out[j], 0.0)
        most, events = longest(sequences, j)
        u, adjoint = np.empty((most, LANES), dtype), np.empty((events, LANES), dtype)
        for s in range(sequences.ranges[j], sequences.ranges[j + 1]):
            sequence = _sequence(sequences, s)
            product(
                sequence, sums.entries, indptr, data.pairs, data.tables, data.state, gram, P, u, adjoint, out[j]
            )  # fmt: skip


@leaf
def history_line(start, stop, history, rows, direction, coefficients):
    """The coefficients of the loss along a direction, for ranges of sequences."""
    (sequences, sums), (indptr, data, gram) = history, rows
    squares = _square_sum(sums.squares)
    for j in range(start, stop):
        fill(coefficients[j], 0.0)
        for s in range(sequences.ranges[j], sequences.ranges[j + 1]):
            loss_along(
                _sequence(sequences, s), sums.entries, squares, indptr, data.pairs, data.tables, data.state, gram,
                direction.delta, direction.squares, coefficients[j],
            )  # fmt: skip


@leaf
def history_advance(start, stop, history, rows, direction, length):
    """Move all rows along a direction."""
    (sequences, sums), (indptr, data, gram) = history, rows
    squares = _square_sum(sums.squares)
    for j in range(start, stop):
        for s in range(sequences.ranges[j], sequences.ranges[j + 1]):
            move(
                _sequence(sequences, s), sums.entries, squares, indptr, data.pairs, data.tables, data.state, gram,
                direction.delta, direction.squares, length,
            )  # fmt: skip


@leaf
def add_panel_product(start, stop, sequences, x, W, out):
    """``out += X W`` for the rows of ranges of sequences: running sums in float64, as W may be large beside their differences."""
    total = np.empty(LANES)
    for s in range(sequences.ranges[start], sequences.ranges[stop]):
        begin, items, count = of_sequence(sequences, s)
        rows, done = out[sequences.rows[s] : sequences.rows[s + 1]], 0
        fill(total, 0.0)
        for c in range(len(count)):
            for n in range(done, count[c]):
                entering, decay = W[items[n]], pick(x.decay, begin + n)
                if n >= x.last:
                    leaving, left = W[items[n - x.last]], pick(x.leave, begin + n - x.last)
                    for f in range(LANES):
                        total[f] = decay * total[f] + (entering[f] - left * leaving[f])
                else:
                    for f in range(LANES):
                        total[f] = decay * total[f] + entering[f]
            done, row, scale = count[c], rows[c], x.scale[scale_at(x.decay, x.last, begin, count[c])]
            for f in range(LANES):
                row[f] += scale * total[f]


@leaf
def add_ranges(start, stop, sums, out):
    """The sums of all ranges for items start:stop, added in order."""
    for i in range(start, stop):
        for f in range(out.shape[1]):
            total = np.float64(0.0)
            for j in range(len(sums)):
                total += sums[j, i, f]
            out[i, f] = total


# For other fields: products of all rows at once, and the passes over rows and pairs in ranges of them.


@leaf
def row_gradients(start, stop, rows, slope, curvature, of_q):
    """See :func:`~everypair.kernels.panel_rows.gradients_plain`."""
    indptr, data, gram = rows
    gradients(indptr, data.pairs, data.tables, data.state, gram, start, stop, start, slope, curvature, of_q)


@leaf
def row_products(start, stop, rows, u):
    """See :func:`~everypair.kernels.panel_rows.products_plain`."""
    indptr, data, gram = rows
    products(indptr, data.pairs, data.tables, data.state, gram, start, stop, start, u)


@leaf
def row_line(start, stop, bounds, rows, path, coefficients):
    """See :func:`~everypair.kernels.panel_rows.line_plain`; for ranges of rows."""
    indptr, data, gram = rows
    for j in range(start, stop):
        fill(coefficients[j], 0.0)
        line(
            indptr, data.pairs, data.tables, data.state, gram, bounds[j], bounds[j + 1], bounds[j], path, coefficients[j]
        )  # fmt: skip


@leaf
def row_advance(start, stop, rows, path, length):
    """See :func:`~everypair.kernels.panel_rows.advance_plain`."""
    indptr, data, gram = rows
    advance(indptr, data.pairs, data.tables, data.state, gram, start, stop, start, path, length)
