r"""The sweep of the vectors of levels in sixteen dimensions, a level at a time: one-hot fields are rows of matrix factorization.

Let rows c have level l with value x, and let F be the sum over a row's features, :math:`E = F - x w` what the others have in it.
The score of a pair is linear in the level's vector w: moving it by t moves the score by :math:`x \langle t, z \rangle` with
:math:`z = \psi_i + \psi_{iq} E_c`. In a factorization machine moving w by t also moves the bias dimension of the row,
:math:`\phi_q`, by :math:`x \langle t, E_c \rangle`; without pairwise terms :math:`\psi_{iq}` counts as zero.

With J the other side's Gram, :math:`A` its block of these dimensions, :math:`v = J_{\cdot q}`, :math:`n = J_{qq}`, and
:math:`t_c = (J \phi)_q`, a row's loss has (Lemma 3), besides the observed pairs,

.. math:: \tfrac12 \nabla_F = \alpha_0 m (A F + v \phi_q + r), \qquad \tfrac12 \nabla_{\phi_q} = \alpha_0 m t,

where r is the share of dimensions that do not move. The chain rule gives for w half the gradient and half the curvature

.. math::
    g &= \sum x (a s - b) z + A \textstyle\sum \mu x F + v \sum \mu x \phi_q + \sum \mu x r + \sum \mu x t E \\
    H &= \sum x^2 a z z' + M A + v S' + S v' + n \sum \mu x^2 E E'

with :math:`\mu = \alpha_0 m`, :math:`M = \sum \mu x^2` and :math:`S = \sum \mu x^2 E`; sums of a, b run over pairs, the others
over rows. :math:`\sum \mu x F = M w + \sum \mu x E`. These *moments* are all that sixteen coordinate steps need. Then scores, F,
:math:`\phi_q` and t follow: :math:`t \mathrel{+}= x \langle v, \delta \rangle + n\, d\phi_q`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from everypair.kernels.jit import fill, kernel, leaf, pick
from everypair.kernels.panel_simd import (
    PairVisits,
    PanelPairs,
    PanelTables,
    RowState,
    RowVisits,
    Tile,
    gather_pairs,
    gather_rows,
    move_events,
    move_pairs,
    move_rows,
    pair_rows,
    sum_first,
    sum_outer,
    sum_rest,
    sum_shifts,
)
from everypair.kernels.row_sweep import SHARED
from everypair.kernels.simd import LANES, GramBlock, Moving, Offsets, RowSettings, steps

# The moments of a level, sixteen numbers each: where their rows begin
PAIRS = 0  # over pairs: sums of x (a s - b) z, and of x^2 a z z'
ROWS = PAIRS + 1 + LANES  # over rows: sums of mu x t E, and of mu x^2 E E'
FIRST = ROWS + 1 + LANES  # over rows: sums of mu x^2 E, mu x E, mu x r, and four numbers
SHIFTS = FIRST + 4  # over pairs: what a change of the level's vector adds
SIZE = SHIFTS + 2

TILE = 1_024  # visits whose vectors are gathered at a time


class Visits(NamedTuple):
    """The pairs and rows of groups of rows, group by group; group g has the pairs ``pair_bounds[g]:pair_bounds[g + 1]`` of the
    visits."""

    pairs: PairVisits
    rows: RowVisits
    pair_bounds: np.ndarray
    row_bounds: np.ndarray


class PanelData(NamedTuple):
    """The observed pairs, the vectors, and the state of the rows in a panel of sixteen dimensions; and whether row c has the pair c
    and no other."""

    pairs: PanelPairs
    tables: PanelTables
    state: RowState
    pairwise: bool  # whether psi_q counts
    by_event: bool


class PanelGram(NamedTuple):
    """The other side's Gram in a panel: the block A, and for factorization machines its column v at q and the number J_qq; and what
    ``rest`` of :class:`~everypair.kernels.panel_simd.RowState` is if it is the same for all rows, else zero."""

    A: np.ndarray
    v: np.ndarray
    J_qq: float
    rest: np.ndarray


class GroupPieces(NamedTuple):
    """Groups cut into pieces of fixed size: piece p is number ``part[p]`` of group ``group[p]``; ``long[j]`` is a group with the
    pieces ``bounds[j]:bounds[j + 1]``."""

    long: np.ndarray
    bounds: np.ndarray
    group: np.ndarray
    part: np.ndarray


@leaf
def dot(x, y):
    total = np.float64(0.0)
    for j in range(LANES):
        total += np.float64(x[j]) * y[j]
    return total


@leaf
def new_tile(dtype):
    """Room for visits."""
    return Tile(np.empty((TILE, LANES), dtype), np.empty(TILE, dtype), np.empty(TILE, dtype), np.empty(TILE, dtype))


@leaf
def add_moments(visits, data, base, pairs_from, pairs_to, rows_from, rows_to, shared, tile, linear, out):
    """Moments of some visits; ``shared``: with those that follow a change of ``base``. The last pairs stay in the tile.

    Vectors are gathered before they are summed: a short loop waits for many of them at once, a long one only for a few.
    """
    of_pairs, of_rows, of_first, of_shifts = out[PAIRS:ROWS], out[ROWS:FIRST], out[FIRST:SHIFTS], out[SHIFTS:SIZE]
    for lo in range(rows_from, rows_to, TILE):
        hi = min(lo + TILE, rows_to)
        gather_rows(visits.rows, data.tables, data.state, base, lo, hi, tile, linear, of_first[3])
        sum_first(tile, linear, hi - lo, of_first[:2])
        sum_rest(visits.rows, data.state, linear, lo, hi, of_first[2])
        if data.pairwise:
            sum_outer(tile, hi - lo, of_rows)
        if data.by_event:
            pair_rows(visits.pairs, data.pairs, data.tables, base, lo, hi, tile)
            _sum_pairs(tile, hi - lo, shared and data.pairwise, of_pairs, of_shifts)
    for lo in range(pairs_from, pairs_from if data.by_event else pairs_to, TILE):
        hi = min(lo + TILE, pairs_to)
        gather_pairs(visits.pairs, data.pairs, data.tables, base, lo, hi, tile)
        _sum_pairs(tile, hi - lo, shared and data.pairwise, of_pairs, of_shifts)


@leaf
def _sum_pairs(tile, n, shared, of_pairs, of_shifts):
    sum_outer(tile, n, of_pairs)
    if shared:
        sum_shifts(tile, n, of_shifts)


@leaf
def _move_pairs(visits, data, base, delta, lo, hi, gathered, tile):
    """Scores after the steps of a level; ``gathered``: its pairs are in the tile."""
    for start in range(lo, hi, TILE):
        stop = min(start + TILE, hi)
        if not gathered:
            gather_pairs(visits.pairs, data.pairs, data.tables, base, start, stop, tile)
        move_pairs(visits.pairs, data.pairs, tile, delta, start, stop)


@leaf
def _move_rows(visits, data, gram, base, delta, lo, hi):
    """The state of the rows after the steps of a level: after the scores of all their pairs, which depend on F as it was."""
    move_rows(visits.rows, data.tables, data.state, base, delta, dot(gram.v, delta), gram.J_qq, lo, hi)


@leaf
def _implicit(moments, w, gram, tiny, block):
    """The implicit part of g and H from the moments, as a :class:`~everypair.kernels.simd.GramBlock` of weight one."""
    A, v, n = gram.A, gram.v, gram.J_qq
    T, Q, S, first, rest = moments[ROWS], moments[ROWS + 1 : FIRST], moments[FIRST], moments[FIRST + 1], moments[FIRST + 2]
    M, linear, phi_q = moments[FIRST + 3, 0], moments[FIRST + 3, 1], moments[FIRST + 3, 2]
    for j in range(LANES):
        g = np.float64(0.0)
        row = A[j]
        for i in range(LANES):
            g += row[i] * (M * w[i] + first[i])
        straight, mixed = M * row[j] + n * Q[j, j], 2.0 * v[j] * S[j]
        h = straight + mixed
        if h <= tiny * (straight + abs(mixed)):
            h = np.float64(0.0)
        block.J[0, j] = h
        block.rest[j] = g + v[j] * phi_q + (rest[j] + gram.rest[j] * linear) + T[j] - h * w[j]
        coupled = block.J[1 + j]
        for i in range(LANES):
            coupled[i] = M * row[i] + v[j] * S[i] + S[j] * v[i] + n * Q[j, i]
        coupled[j] = 0.0


@leaf
def step(moments, gram, settings, level, block, W, delta):
    """Coordinate steps on the vector of a level, from its moments."""
    penalty, eta, tiny, lost, _ = settings
    _implicit(moments, W[level], gram, tiny, block)
    row = RowSettings(1.0, np.float64(pick(penalty, level)), eta, tiny, np.float64(pick(lost, level)))
    steps(moments[PAIRS:ROWS], block, row, Moving(W[level], delta), Offsets(0, 0, 0, 0))


@kernel
def sweep(start, stop, visits, data, gram, settings, by_event, W, moves):
    """Coordinate descent on the vectors ``start:stop`` of ``W``, one after the other. Levels with more visits than SHARED are left
    out; ``by_event``: scores and rows are left to :func:`follow_events`.
    """
    dtype = W.dtype
    moments, block = np.empty((SIZE, LANES)), GramBlock(np.empty((LANES + 1, LANES), dtype), True, np.empty(LANES, dtype))
    tile, linear = new_tile(dtype), np.empty(TILE, dtype)
    for level in range(start, stop):
        lo, hi, first, last = visits_of(visits, level)
        if max(hi - lo, last - first) > SHARED:
            continue
        base, delta = moves.base[level], moves.delta[level]
        fill(moments, 0.0)
        add_moments(visits, data, base, lo, hi, first, last, False, tile, linear, moments)
        step(moments, gram, settings, level, block, W, delta)
        if not by_event:
            _move_pairs(visits, data, base, delta, lo, hi, hi - lo <= TILE, tile)
            _move_rows(visits, data, gram, base, delta, first, last)


@kernel
def follow_events(start, stop, levels, data, gram, moves):
    """Scores and rows after the steps of all levels, where every row has one pair: in the order of the rows, whose data lie side by
    side, whereas those of a level may lie anywhere."""
    move_events(levels, data.pairs, data.tables, data.state, moves, gram.J_qq, start, stop)


@leaf
def visits_of(visits, group):
    pairs, rows = visits.pair_bounds, visits.row_bounds
    return pairs[group], pairs[group + 1], rows[group], rows[group + 1]


@leaf
def _visits_of_piece(visits, pieces, p):
    lo, hi, first, last = visits_of(visits, pieces.group[p])
    at = pieces.part[p] * SHARED
    return min(lo + at, hi), min(lo + at + SHARED, hi), min(first + at, last), min(first + at + SHARED, last)


@kernel
def sum_pieces(start, stop, pieces, visits, data, bases, shared, moments):
    """The moments of pieces; ``bases`` are the vectors of all groups."""
    tile, linear = new_tile(bases.dtype), np.empty(TILE, bases.dtype)
    for p in range(start, stop):
        lo, hi, first, last = _visits_of_piece(visits, pieces, p)
        fill(moments[p], 0.0)
        add_moments(visits, data, bases[pieces.group[p]], lo, hi, first, last, shared, tile, linear, moments[p])


@kernel
def step_long(pieces, moments, gram, settings, W, moves):
    """The steps of levels that were cut into pieces, from the moments of these, added up in order."""
    dtype = W.dtype
    block = GramBlock(np.empty((LANES + 1, LANES), dtype), True, np.empty(LANES, dtype))
    for j in range(len(pieces.long)):
        level = pieces.long[j]
        step(total_of_pieces(pieces, j, moments), gram, settings, level, block, W, moves.delta[level])


@leaf
def total_of_pieces(pieces, j, moments):
    """The moments of all pieces of a group, in those of its first."""
    total = moments[pieces.bounds[j]]
    for p in range(pieces.bounds[j] + 1, pieces.bounds[j + 1]):
        more = moments[p]
        for i in range(SIZE):
            for f in range(LANES):
                total[i, f] += more[i, f]
    return total


@kernel
def move_scores(start, stop, pieces, visits, data, moves):
    """Scores after the steps of groups, by pieces."""
    tile = new_tile(moves.base.dtype)
    for p in range(start, stop):
        lo, hi, _, _ = _visits_of_piece(visits, pieces, p)
        group = pieces.group[p]
        _move_pairs(visits, data, moves.base[group], moves.delta[group], lo, hi, False, tile)


@kernel
def move_states(start, stop, pieces, visits, data, gram, moves):
    """The state of rows after :func:`move_scores` of all pieces: the pairs of a row may be in several."""
    for p in range(start, stop):
        _, _, first, last = _visits_of_piece(visits, pieces, p)
        group = pieces.group[p]
        _move_rows(visits, data, gram, moves.base[group], moves.delta[group], first, last)
