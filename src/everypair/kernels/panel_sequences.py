"""Block steps on the weights of a history in a panel of sixteen dimensions, for rows in the order of sequences.

As :mod:`everypair.kernels.sequences`, with running sums of vectors: the data of a sequence stay in the cache between the product
with the history, the pass over its rows and pairs, and the product back, and no array of all rows is needed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from everypair.kernels.jit import fill, leaf, pick
from everypair.kernels.panel_levels import PanelData
from everypair.kernels.panel_rows import Path, RowGram, advance, gradients, line, products
from everypair.kernels.sequences import HistorySums, Sequences, backward, forward, longest, of_sequence
from everypair.kernels.simd import LANES, add_vector, scale_vector


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
    """A direction for the weights W of all items: Delta, and by item ``<w, Delta>`` and ``|Delta|^2``."""

    delta: np.ndarray
    wd: np.ndarray
    dd: np.ndarray


@leaf
def _forward(sequences, x, s, W, total, out):
    """``out = X W`` for the rows of sequence s, the first of which is ``out[0]``; ``total`` is room for a vector."""
    begin, items, count = of_sequence(sequences, s)
    fill(total, 0.0)
    done = 0
    for c in range(len(count)):
        for n in range(done, count[c]):
            scale_vector(x.decay, total, 0, total, 0)
            add_vector(pick(x.enter, begin + n), W, items[n], total, 0)
            if n >= x.last:
                add_vector(-pick(x.leave, begin + n - x.last), W, items[n - x.last], total, 0)
        done = count[c]
        scale_vector(x.scale[min(count[c], x.last)], total, 0, out, c)


@leaf
def _backward(sequences, x, s, Z, total, adjoint, out):
    """``out += X' Z`` for the rows of sequence s, the first of which is ``Z[0]``: the transpose of :func:`_forward`."""
    begin, items, count = of_sequence(sequences, s)
    fill(total, 0.0)
    c, end = len(count), len(items)
    for n in range(end - 1, -1, -1):
        scale_vector(x.decay, total, 0, total, 0)
        while c > 0 and count[c - 1] > n:
            c -= 1
            add_vector(x.scale[min(count[c], x.last)], Z, c, total, 0)
        scale_vector(1.0, total, 0, adjoint, n)
        add_vector(pick(x.enter, begin + n), total, 0, out, items[n])
        if n < end - x.last:
            add_vector(-pick(x.leave, begin + n), adjoint, n + x.last, out, items[n])


@leaf
def history_gradient(start, stop, history, rows, pairwise, slope, curvature, of_q):
    """For ranges of sequences: ``X'`` times the gradients of rows, ``(X^2)'`` times their curvatures, and for factorization
    machines ``(X^2)'`` times their gradients in the bias dimension."""
    (sequences, sums), (indptr, data, gram) = history, rows
    dtype = data.tables.F.dtype
    for j in range(start, stop):
        fill(slope[j], 0.0)
        fill(curvature[j], 0.0)
        fill(of_q[j], 0.0)
        most, events = longest(sequences, j)
        g, h, g_q = np.empty((most, LANES), dtype), np.empty((most, LANES), dtype), np.empty(most, dtype)
        total, adjoint, single = np.empty((1, LANES), dtype), np.empty((events, LANES), dtype), np.empty(events)
        for s in range(sequences.ranges[j], sequences.ranges[j + 1]):
            lo, hi = sequences.rows[s], sequences.rows[s + 1]
            gradients(indptr, data.pairs, data.tables, data.state, gram, lo, hi, 0, g, h, g_q)
            _backward(sequences, sums.entries, s, g, total, adjoint, slope[j])
            _backward(sequences, sums.squares, s, h, total, adjoint, curvature[j])
            if pairwise:
                backward(sequences, sums.squares, s, g_q[: hi - lo], single, of_q[j])


@leaf
def history_product(start, stop, history, rows, P, out):
    """``X' H X P`` with the curvatures H of rows, for ranges of sequences."""
    (sequences, sums), (indptr, data, gram) = history, rows
    dtype = data.tables.F.dtype
    for j in range(start, stop):
        fill(out[j], 0.0)
        most, events = longest(sequences, j)
        u, total, adjoint = np.empty((most, LANES), dtype), np.empty((1, LANES), dtype), np.empty((events, LANES), dtype)
        for s in range(sequences.ranges[j], sequences.ranges[j + 1]):
            lo, hi = sequences.rows[s], sequences.rows[s + 1]
            _forward(sequences, sums.entries, s, P, total, u)
            products(indptr, data.pairs, data.tables, data.state, gram, lo, hi, 0, u)
            _backward(sequences, sums.entries, s, u, total, adjoint, out[j])


@leaf
def _path(history, direction, s, pairwise, total, path):
    """The path of the rows of a sequence."""
    sequences, sums = history
    _forward(sequences, sums.entries, s, direction.delta, total, path.u)
    if pairwise:
        forward(sequences, sums.squares, s, direction.wd, path.wu)
        forward(sequences, sums.squares, s, direction.dd, path.ru)


@leaf
def history_line(start, stop, history, rows, direction, coefficients):
    """The coefficients of the loss along a direction, for ranges of sequences."""
    sequences, (indptr, data, gram) = history.sequences, rows
    dtype = data.tables.F.dtype
    for j in range(start, stop):
        fill(coefficients[j], 0.0)
        most, _ = longest(sequences, j)
        path = Path(np.empty((most, LANES), dtype), np.empty(most, dtype), np.empty(most, dtype))
        total = np.empty((1, LANES), dtype)
        for s in range(sequences.ranges[j], sequences.ranges[j + 1]):
            lo, hi = sequences.rows[s], sequences.rows[s + 1]
            _path(history, direction, s, True, total, path)
            line(indptr, data.pairs, data.tables, data.state, gram, lo, hi, 0, path, coefficients[j])


@leaf
def history_advance(start, stop, history, rows, direction, pairwise, length):
    """Move all rows along a direction."""
    sequences, (indptr, data, gram) = history.sequences, rows
    dtype = data.tables.F.dtype
    for j in range(start, stop):
        most, _ = longest(sequences, j)
        path = Path(np.empty((most, LANES), dtype), np.empty(most, dtype), np.empty(most, dtype))
        total = np.empty((1, LANES), dtype)
        for s in range(sequences.ranges[j], sequences.ranges[j + 1]):
            lo, hi = sequences.rows[s], sequences.rows[s + 1]
            _path(history, direction, s, pairwise, total, path)
            advance(indptr, data.pairs, data.tables, data.state, gram, lo, hi, 0, path, length)


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
