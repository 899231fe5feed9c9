"""Steps of several fields in one pass over the rows: fields that are constant in groups of rows, the cells, take the moments of
cells alone.

See :mod:`everypair.kernels.panel_levels` for the moments. They are quadratic in E, what other fields add up to: where E changes by
the same vector in all rows of a cell, those of the cell follow, and no row is visited.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from everypair.kernels.jit import fill, kernel, leaf
from everypair.kernels.panel_levels import (
    FIRST,
    PAIRS,
    ROWS,
    SHIFTS,
    SIZE,
    TILE,
    add_moments,
    dot,
    new_tile,
    step,
    total_of_pieces,
    visits_of,
)
from everypair.kernels.simd import LANES, GramBlock


class Cells(NamedTuple):
    """The state of cells while the fields that are constant in them are stepped on in turn.

    ``vectors`` is the sum over these fields, ``moments`` those with E = F - the vectors before the first step; ``moved`` and
    ``shifts`` collect what happens to F and, less what follows from F, to phi_q.
    """

    moments: np.ndarray
    vectors: np.ndarray
    moved: np.ndarray
    shifts: np.ndarray


@kernel
def gather_cells(pieces, of_pieces, moments):
    """The moments of cells from those of their pieces; matrices get their lower left quarter."""
    for j in range(len(pieces.long)):
        total = total_of_pieces(pieces, j, of_pieces)
        _complete(total)
        out = moments[pieces.long[j]]
        for i in range(SIZE):
            for f in range(LANES):
                out[i, f] = total[i, f]


@leaf
def _complete(moments):
    """Fill in the lower left quarter of the matrices, which sums leave out."""
    for start in (PAIRS + 1, ROWS + 1):
        for f in range(LANES):
            for i in range(f):
                moments[start + f, i] = moments[start + i, f]


@leaf
def _add_shifted(m, e, out):
    """The moments with E + e in place of E, added to ``out``."""
    fill_row = m[FIRST + 3]
    M, S, h, eta, rho, tau = fill_row[0], m[FIRST], m[SHIFTS], m[SHIFTS + 1, 0], m[SHIFTS + 1, 1], fill_row[3]
    for j in range(LANES):
        out[PAIRS, j] += m[PAIRS, j] + rho * e[j]
        out[ROWS, j] += m[ROWS, j] + tau * e[j]
        out[FIRST, j] += S[j] + M * e[j]
        out[FIRST + 1, j] += S[j] + M * e[j]
        out[FIRST + 2, j] += m[FIRST + 2, j]
        out[SHIFTS, j] += h[j] + eta * e[j]
        for i in range(LANES):
            out[PAIRS + 1 + j, i] += m[PAIRS + 1 + j, i] + (h[j] * e[i] + e[j] * h[i] + eta * e[j] * e[i])
            out[ROWS + 1 + j, i] += m[ROWS + 1 + j, i] + (S[j] * e[i] + e[j] * S[i] + M * e[j] * e[i])
    for f in range(4):
        out[FIRST + 3, f] += fill_row[f]
    out[SHIFTS + 1, 0] += eta
    out[SHIFTS + 1, 1] += rho


@leaf
def _follow(m, gram, e, delta):
    """The moments of a cell after a field's vector moved by delta: scores, phi_q and t of its rows follow, E does not."""
    numbers, S, h = m[FIRST + 3], m[FIRST], m[SHIFTS]
    M, eta, n = numbers[0], m[SHIFTS + 1, 0], gram.J_qq
    shift, along, moved = dot(e, delta), dot(gram.v, delta), dot(S, delta)
    m[SHIFTS + 1, 1] += dot(h, delta) + eta * shift
    numbers[2] += moved + M * shift
    numbers[3] += M * along + n * (moved + M * shift)
    for j in range(LANES):
        m[PAIRS, j] += dot(m[PAIRS + 1 + j], delta) + h[j] * shift
        m[ROWS, j] += S[j] * along + n * (dot(m[ROWS + 1 + j], delta) + S[j] * shift)
    return shift


@kernel
def step_cells(bounds, members, cells, gram, settings, W):
    """Coordinate steps on the vectors W of a field: level l has the cells ``members[bounds[l]:bounds[l + 1]]``."""
    dtype = W.dtype
    moments, block = np.empty((SIZE, LANES)), GramBlock(np.empty((LANES + 1, LANES), dtype), True, np.empty(LANES, dtype))
    before, delta, e = np.empty(LANES, dtype), np.empty(LANES, dtype), np.empty(LANES)
    for level in range(len(W)):
        for j in range(LANES):
            before[j] = W[level, j]
        fill(moments, 0.0)
        for g in range(bounds[level], bounds[level + 1]):
            vector = cells.vectors[members[g]]
            for j in range(LANES):
                e[j] = vector[j] - before[j]
            _add_shifted(cells.moments[members[g]], e, moments)
        step(moments, gram, settings, level, block, W, delta)
        for g in range(bounds[level], bounds[level + 1]):
            cell = members[g]
            vector, moved = cells.vectors[cell], cells.moved[cell]
            for j in range(LANES):
                e[j] = vector[j] - before[j]
            cells.shifts[cell] += _follow(cells.moments[cell], gram, e, delta)
            for j in range(LANES):
                vector[j] += delta[j]
                moved[j] += delta[j]


# A field whose levels each lie in one cell, as users in the cells of their attributes.


class NestedLevels(NamedTuple):
    """Levels in the order of their cells, cut into pieces that lie in one cell each: piece p has the levels
    ``level[bounds[p]:bounds[p + 1]]``. ``cell`` and ``long`` are by level: its cell, and its place among the groups that were cut
    (-1 for none)."""

    level: np.ndarray
    bounds: np.ndarray
    cell: np.ndarray
    long: np.ndarray


@kernel
def sweep_nested(start, stop, nested, visits, data, gram, settings, vectors, W, moves, of_long, of_pieces):
    """:func:`sweep` of the levels of pieces ``start:stop``, where E is what fields other than these and those of the cells add up
    to; and the moments of the pieces for :func:`step_cells` after these steps, with the same E shifted by the level's vector.

    ``vectors`` are those of the cells, ``of_long`` the moments of levels that were cut, added up. ``moves.shift`` becomes what
    phi_q moves by beside ``<delta, E>``.
    """
    dtype = W.dtype
    moments, shifted = np.empty((SIZE, LANES)), np.empty((SIZE, LANES))
    block = GramBlock(np.empty((LANES + 1, LANES), dtype), True, np.empty(LANES, dtype))
    tile, linear, e = new_tile(dtype), np.empty(TILE, dtype), np.empty(LANES)
    for p in range(start, stop):
        fill(of_pieces[p], 0.0)
        for at in range(nested.bounds[p], nested.bounds[p + 1]):
            level = nested.level[at]
            lo, hi, first, last = visits_of(visits, level)
            if nested.long[level] >= 0:
                total = of_long[nested.long[level]]
                for i in range(SIZE):
                    for f in range(LANES):
                        moments[i, f] = total[i, f]
            else:
                fill(moments, 0.0)
                add_moments(visits, data, moves.base[level], lo, hi, first, last, True, tile, linear, moments)
            _complete(moments)
            vector, delta = vectors[nested.cell[level]], moves.delta[level]
            fill(shifted, 0.0)
            _add_shifted(moments, vector, shifted)
            step(shifted, gram, settings, level, block, W, delta)
            moves.shift[level] = _follow(moments, gram, vector, delta)
            for j in range(LANES):
                e[j] = W[level, j]
            _add_shifted(moments, e, of_pieces[p])


@kernel
def total_long(pieces, moments, out):
    """The moments of groups that were cut, those of their pieces added up in order."""
    for j in range(len(pieces.long)):
        total = total_of_pieces(pieces, j, moments)
        for i in range(SIZE):
            for f in range(LANES):
                out[j, i, f] = total[i, f]


@kernel
def follow_cells(start, stop, cell, cells, W, moves):
    """The moves of levels ``start:stop`` and those of their cells, as moves of both together."""
    for level in range(start, stop):
        c = cell[level]
        shift = np.float64(moves.shift[level]) + cells.shifts[c]
        for j in range(LANES):
            shift += cells.moved[c, j] * W[level, j]
            moves.delta[level, j] += cells.moved[c, j]
        moves.shift[level] = shift
