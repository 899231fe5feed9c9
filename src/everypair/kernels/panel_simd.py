r"""The inner loops of the panel sweep in LLVM vector types: see :mod:`everypair.kernels.panel_levels` for what they are part of.

With everything else fixed, moving the vector w of a level by t moves the score of a pair (c, i) of a row with feature value x by

.. math:: x \langle t, z \rangle, \qquad z = \psi_i + \psi_{iq} E_c, \qquad E_c = F_c - x w

in sixteen dimensions: :math:`F_c` is the sum over the row's features, :math:`E_c` what the others have in it, and
:math:`\psi_{iq}` is zero but for a factorization machine (no array then). A *visit* is one row, or one pair, of a level; the
functions called ``..._plain`` define what each leaf does, see :mod:`everypair.kernels.simd`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from everypair.kernels.jit import native_only
from everypair.kernels.simd import CONTRACT, HALF, I32, I64, LANES, VectorCode

GROUPED = 4  # visits whose products are added up together


class PanelPairs(NamedTuple):
    """The observed pairs of a side: the other side's row, the score, and the weights a and b of Lemma 1.

    ``a_step`` and ``b_step`` are 1 for one weight per pair, 0 for one weight in all.
    """

    indices: np.ndarray
    scores: np.ndarray
    a: np.ndarray
    a_step: int
    b: np.ndarray
    b_step: int


class PairVisits(NamedTuple):
    """The pairs of levels, level by level: the row of each, its position, and the row's feature value.

    ``x_step`` is 1 for a value per visit, 0 for one value in all.
    """

    pair_row: np.ndarray
    pair: np.ndarray
    pair_x: np.ndarray
    pair_x_step: int


class RowVisits(NamedTuple):
    """The rows of levels, level by level, and their feature values."""

    row: np.ndarray
    row_x: np.ndarray
    row_x_step: int


class Parts(NamedTuple):
    """Vectors as sums of up to three, of which there are few and which stay in the cache: ``table0[codes0[v]] + ...``, by visit.
    None where there are fewer than three."""

    codes0: Any = None
    table0: Any = None
    codes1: Any = None
    table1: Any = None
    codes2: Any = None
    table2: Any = None


class PanelTables(NamedTuple):
    """Sixteen dimensions of both sides' vectors.

    ``psi`` are those of the other side; ``psi_q`` its partner of our bias dimension, or None without pairwise terms, with a
    ``psi_q_step`` of 0 where it is one number. ``F`` has the factor sum of each row of this side.

    Where rows are many, and their vectors sums of few, ``own`` (in place of F) has what a row's other features add up to, and
    ``other`` (in place of psi) the other side's vectors.
    """

    psi: Any
    psi_q: Any
    psi_q_step: int
    F: Any
    own: Any = None
    other: Any = None


class RowState(NamedTuple):
    """What the implicit part needs of each row, beside F: ``weight = alpha0 m_c``, and ``rest``, the product of J with the
    dimensions that the sweep of a panel does not move. For factorization machines also ``phi_q`` and ``t = (J phi)_q``, else
    None.

    The steps are 0 where there is one weight, or one vector ``rest``, for all rows.
    """

    weight: np.ndarray
    weight_step: int
    rest: np.ndarray
    rest_step: int
    phi_q: Any
    t: Any


class Tile(NamedTuple):
    """Vectors of visits, side by side, with the weights of their squares and of themselves; and psi_q of their pairs."""

    vectors: np.ndarray
    tile_weight: np.ndarray
    residual: np.ndarray
    tile_q: np.ndarray


class EventLevels(NamedTuple):
    """The level of each row of a side of events, one past the last for none, and its feature value; ``x_step`` as for visits."""

    codes: np.ndarray
    x: np.ndarray
    x_step: int


class Moves(NamedTuple):
    """How the vectors of levels moved: from ``base`` by ``delta``, with the product ``along`` of J's column q and delta, and
    ``shift``, what phi_q moves by beside."""

    base: np.ndarray
    delta: np.ndarray
    along: np.ndarray
    shift: np.ndarray


def _sum_of(parts, v):
    """The vector of a visit."""
    total = parts.table0[parts.codes0[v]]
    if parts.codes1 is not None:
        total = total + parts.table1[parts.codes1[v]]
    return total if parts.codes2 is None else total + parts.table2[parts.codes2[v]]


def _rest(tables, c, v, x, base):
    """E: what the other features of row c add up to."""
    return _sum_of(tables.own, v) if tables.F is None else tables.F[c] - x * base


def _other(tables, i, v):
    return tables.psi[i] if tables.other is None else _sum_of(tables.other, v)


def gather_pairs_plain(visits, pairs, tables, base, lo, hi, tile):
    """The vectors z of visits lo:hi, and the weights ``a x^2`` and ``x (a s - b)`` of their squares and of themselves; ``base``
    is the level's vector."""
    _gather_pairs_with(lambda v, *row: _rest(tables, *row), visits, pairs, tables, base, lo, hi, tile)


def pair_rows_plain(visits, pairs, tables, base, lo, hi, tile):
    """:func:`gather_pairs` after :func:`gather_rows` of the same visits, where every row has one pair: E is in the tile."""
    _gather_pairs_with(lambda v, *row: tile.vectors[v - lo].copy(), visits, pairs, tables, base, lo, hi, tile)


def _gather_pairs_with(rest, visits, pairs, tables, base, lo, hi, tile):
    for v in range(lo, hi):
        c, p, x = visits.pair_row[v], visits.pair[v], visits.pair_x[v * visits.pair_x_step]
        i = pairs.indices[p]
        a, b = pairs.a[p * pairs.a_step], pairs.b[p * pairs.b_step]
        z = _other(tables, i, v)
        if tables.psi_q is not None:
            q = tile.tile_q[v - lo] = tables.psi_q[i * tables.psi_q_step]
            z = z + q * rest(v, c, v, x, base)
        tile.vectors[v - lo] = z
        tile.tile_weight[v - lo], tile.residual[v - lo] = a * x * x, x * (a * pairs.scores[p] - b)


def gather_rows_plain(visits, tables, state, base, lo, hi, tile, linear, out):
    """The vectors E of visits lo:hi, the weights ``weight x^2`` of their squares, ``weight x`` (linear), and ``weight x t`` for
    factorization machines. ``out`` adds up ``weight x^2``, ``weight x``, and for these ``weight x phi_q`` and ``weight x t``.
    """
    for v in range(lo, hi):
        c, x = visits.row[v], visits.row_x[v * visits.row_x_step]
        weight = state.weight[c * state.weight_step] * x
        tile.vectors[v - lo], tile.tile_weight[v - lo], linear[v - lo] = _rest(tables, c, v, x, base), weight * x, weight
        out[0] += weight * x
        out[1] += weight
        if tables.psi_q is not None:
            tile.residual[v - lo] = weight * state.t[c]
            out[2] += weight * state.phi_q[c]
            out[3] += weight * state.t[c]


def sum_first_plain(tile, linear, n, out):
    """``out[0] += sum weight v`` and ``out[1] += sum linear v`` over the first n vectors v of a tile."""
    for k in range(n):
        out[0] += tile.tile_weight[k] * tile.vectors[k]
        out[1] += linear[k] * tile.vectors[k]


def sum_rest_plain(visits, state, linear, lo, hi, out):
    """``out += sum linear rest`` over visits lo:hi; where all rows have one ``rest``, the sum of ``linear`` is enough."""
    for v in range(lo, hi if state.rest_step else lo):
        c = visits.row[v]
        out += linear[v - lo] * state.rest[c * LANES : (c + 1) * LANES]


def sum_outer_plain(tile, n, out):
    """``out[0] += sum residual v`` and ``out[1 + j] += sum weight v_j v`` over the first n vectors v of a tile.

    A quarter of the matrix is left out, its lower left.
    """
    for k in range(n):
        v = tile.vectors[k]
        out[0] += tile.residual[k] * v
        for j in range(LANES):
            needed = j // HALF * HALF
            out[1 + j, needed:] += v[j] * (tile.tile_weight[k] * v[needed:])


def sum_shifts_plain(tile, n, out):
    """``out[0] += sum a psi_q z``, ``out[1, 0] += sum a psi_q^2`` and ``out[1, 1] += sum (a s - b) psi_q`` over the first n pairs
    of a tile: by these the sums of :func:`sum_outer` change when ``base`` does. For factorization machines alone, and features of
    value one.
    """
    for k in range(n):
        q = tile.tile_q[k]
        out[0] += tile.tile_weight[k] * q * tile.vectors[k]
        out[1, 0] += tile.tile_weight[k] * q * q
        out[1, 1] += tile.residual[k] * q


def move_pairs_plain(visits, pairs, tile, delta, lo, hi):
    """``scores += x <delta, z>`` for visits lo:hi, whose vectors z are in the tile."""
    for v in range(lo, hi):
        pairs.scores[visits.pair[v]] += visits.pair_x[v * visits.pair_x_step] * np.sum(delta * tile.vectors[v - lo])


def move_rows_plain(visits, tables, state, base, delta, along, J_qq, lo, hi):
    """``F += x delta``; and with ``u = x <delta, E>``, ``phi_q += u`` and ``t += x along + J_qq u``, for visits lo:hi."""
    for v in range(lo, hi):
        c, x = visits.row[v], visits.row_x[v * visits.row_x_step]
        if tables.psi_q is not None:
            u = x * np.sum(delta * _rest(tables, c, v, x, base))
            state.phi_q[c] += u
            state.t[c] += x * along + J_qq * u
        if tables.F is not None:
            tables.F[c] += x * delta


def move_events_plain(rows, pairs, tables, state, moves, J_qq, lo, hi):
    """Scores, F, phi_q and t of rows lo:hi that have one pair each, after the steps of all levels; in the order of the rows."""
    for c in range(lo, hi):
        level, x, i = rows.codes[c], rows.x[c * rows.x_step], pairs.indices[c]
        if level >= len(moves.delta):
            continue
        delta = moves.delta[level]
        moved = x * np.sum(delta * tables.psi[i])
        if tables.psi_q is not None:
            u = x * np.sum(delta * _rest(tables, c, c, x, moves.base[level])) + moves.shift[level]
            moved += tables.psi_q[i * tables.psi_q_step] * u
            state.phi_q[c] += u
            state.t[c] += x * moves.along[level] + J_qq * u
        pairs.scores[c] += moved
        if tables.F is not None:
            tables.F[c] += x * delta


def _gathering_pairs(held: bool) -> Any:
    """``held``: whether the tile has E already."""

    @intrinsic
    def gather(typingctx, visits, pairs, tables, base, lo, hi, tile):  # pragma: no cover - compiled
        n = types.intp
        signature = types.void(visits, pairs, tables, base, n, n, tile)

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            names = ("visits", "pairs", "tables", "base", "lo", "hi", "tile")
            code = PanelCode(context, builder, signature, args, *names, precision="scores")
            base = code.base()
            with code.over(code["lo"], code["hi"], 1) as v:
                c, p, x = code.index("pair_row", v), code.index("pair", v), code.value("pair_x", v, "pair_x_step")
                a, b, i = code.value("a", p, "a_step"), code.value("b", p, "b_step"), code.index("indices", p)
                xa, k = builder.fmul(x, a, flags=CONTRACT), builder.sub(v, code["lo"])
                residual = builder.fsub(
                    builder.fmul(xa, code.value("scores", p), flags=CONTRACT), builder.fmul(x, b, flags=CONTRACT), flags=CONTRACT
                )
                z = code.other(i, v)
                if code.pairwise:
                    q = code.value("psi_q", i, "psi_q_step")
                    builder.store(q, code.place("tile_q", k))
                    rest = code.lanes("vectors", builder.mul(k, I64(LANES))) if held else code.rest(c, v, x, base)
                    z = builder.fadd(z, builder.fmul(code.splat(q), rest, flags=CONTRACT), flags=CONTRACT)
                code.put(k, z, builder.fmul(x, xa, flags=CONTRACT), residual)
            return context.get_dummy_value()

        return signature, generate

    return gather


_gather_pairs, _pair_rows = _gathering_pairs(False), _gathering_pairs(True)


@intrinsic
def _gather_rows(typingctx, visits, tables, state, base, lo, hi, tile, linear, out):  # pragma: no cover - compiled
    n = types.intp
    signature = types.void(visits, tables, state, base, n, n, tile, linear, out)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        names = ("visits", "tables", "state", "base", "lo", "hi", "tile", "linear", "out")
        code = PanelCode(context, builder, signature, args, *names, precision="weight")
        base, numbers = code.base(), code.zero_numbers(4)
        with code.over(code["lo"], code["hi"], 1) as v:
            c, x, k = code.index("row", v), code.value("row_x", v, "row_x_step"), builder.sub(v, code["lo"])
            weight = builder.fmul(x, code.value("weight", c, "weight_step"), flags=CONTRACT)
            square = builder.fmul(x, weight, flags=CONTRACT)
            code.store(code.rest(c, v, x, base), code.place("vectors", builder.mul(k, I64(LANES))))
            builder.store(square, code.place("tile_weight", k))
            builder.store(weight, code.place("linear", k))
            code.add_number(numbers[0], square)
            code.add_number(numbers[1], weight)
            if code.pairwise:
                of_t = builder.fmul(weight, code.value("t", c), flags=CONTRACT)
                builder.store(of_t, code.place("residual", k))
                code.add_number(numbers[2], builder.fmul(weight, code.value("phi_q", c), flags=CONTRACT))
                code.add_number(numbers[3], of_t)
        code.add_numbers(numbers, 0)
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def _sum_first(typingctx, tile, linear, n, out):  # pragma: no cover - compiled
    signature = types.void(tile, linear, types.intp, out)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        code = PanelCode(context, builder, signature, args, "tile", "linear", "n", "out", precision="vectors")
        sums = code.zeros(2)
        with code.over(I64(0), code["n"], 1) as k:
            vector = code.lanes("vectors", builder.mul(k, I64(LANES)))
            code.add_to(sums[0], code.splat(code.value("tile_weight", k)), vector)
            code.add_to(sums[1], code.splat(code.value("linear", k)), vector)
        code.add_sums([builder.load(place) for place in sums])
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def _sum_rest(typingctx, visits, state, linear, lo, hi, out):  # pragma: no cover - compiled
    n = types.intp
    signature = types.void(visits, state, linear, n, n, out)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        code = PanelCode(context, builder, signature, args, "visits", "state", "linear", "lo", "hi", "out", precision="rest")
        with builder.if_then(builder.icmp_signed("!=", code["rest_step"], I64(0))):
            sums = code.zeros(1)
            with code.over(code["lo"], code["hi"], 1) as v:
                place = builder.mul(code.index("row", v), I64(LANES))
                weight = code.value("linear", builder.sub(v, code["lo"]))
                code.add_to(sums[0], code.splat(weight), code.lanes("rest", place))
            code.add_sums([builder.load(sums[0])])
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def _sum_outer(typingctx, tile, n, out):  # pragma: no cover - compiled
    signature = types.void(tile, types.intp, out)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        code = PanelCode(context, builder, signature, args, "tile", "n", "out", precision="vectors")
        sums = code.zero_sums()
        with code.over(I64(0), code["n"], 1) as k:
            vector = code.lanes("vectors", builder.mul(k, I64(LANES)))
            weight, residual = code.splat(code.value("tile_weight", k)), code.splat(code.value("residual", k))
            code.add_outer_product(sums, vector, weight, residual)
        code.add_sums(code.found(sums))
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def _sum_shifts(typingctx, tile, n, out):  # pragma: no cover - compiled
    signature = types.void(tile, types.intp, out)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        code = PanelCode(context, builder, signature, args, "tile", "n", "out", precision="vectors")
        vectors, numbers = code.zeros(1), code.zero_numbers(2)
        with code.over(I64(0), code["n"], 1) as k:
            q = code.value("tile_q", k)
            weight = builder.fmul(code.value("tile_weight", k), q, flags=CONTRACT)
            code.add_to(vectors[0], code.splat(weight), code.lanes("vectors", builder.mul(k, I64(LANES))))
            code.add_number(numbers[0], builder.fmul(weight, q, flags=CONTRACT))
            code.add_number(numbers[1], builder.fmul(code.value("residual", k), q, flags=CONTRACT))
        code.add_sums([builder.load(place) for place in vectors])
        code.add_numbers(numbers, LANES)
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def _move_pairs(typingctx, visits, pairs, tile, delta, lo, hi):  # pragma: no cover - compiled
    n = types.intp
    signature = types.void(visits, pairs, tile, delta, n, n)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        code = PanelCode(context, builder, signature, args, "visits", "pairs", "tile", "delta", "lo", "hi", precision="vectors")
        delta = code.lanes("delta", I64(0))

        def some(places: list[Any]) -> None:
            rows = [builder.mul(builder.sub(v, code["lo"]), I64(LANES)) for v in places]
            totals = code.totals([builder.fmul(delta, code.lanes("vectors", row), flags=CONTRACT) for row in rows])
            for v, total in zip(places, totals, strict=True):
                moved = builder.fmul(code.value("pair_x", v, "pair_x_step"), total, flags=CONTRACT)
                code.add_at("scores", code.index("pair", v), moved)

        code.in_groups(some)
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def _move_rows(typingctx, visits, tables, state, base, delta, along, J_qq, lo, hi):  # pragma: no cover - compiled
    n, number = types.intp, types.float64
    signature = types.void(visits, tables, state, base, delta, number, number, n, n)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        names = ("visits", "tables", "state", "base", "delta", "along", "J_qq", "lo", "hi")
        code = PanelCode(context, builder, signature, args, *names, precision="weight")
        base, delta = code.base(), code.lanes("delta", I64(0))
        along, J_qq = (code.number(name) for name in ("along", "J_qq"))

        def some(places: list[Any]) -> None:
            rows, moves = [], []
            for v in places:
                c, x = code.index("row", v), code.value("row_x", v, "row_x_step")
                rows.append((c, x))
                if code.pairwise:
                    moves.append(builder.fmul(delta, code.rest(c, v, x, base), flags=CONTRACT))
                if code.has("F"):
                    code.advance_row(c, x, delta)
            if code.pairwise:
                for (c, x), total in zip(rows, code.totals(moves), strict=True):
                    code.advance_bias(c, builder.fmul(x, total, flags=CONTRACT), builder.fmul(x, along, flags=CONTRACT), J_qq)

        code.in_groups(some)
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def _move_events(typingctx, rows, pairs, tables, state, moves, J_qq, lo, hi):  # pragma: no cover - compiled
    n = types.intp
    signature = types.void(rows, pairs, tables, state, moves, types.float64, n, n)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        names = ("rows", "pairs", "tables", "state", "moves", "J_qq", "lo", "hi")
        code = PanelCode(context, builder, signature, args, *names, precision="scores")
        J_qq, levels = code.number("J_qq"), builder.extract_value(code.array("delta").shape, 0)
        with code.over(code["lo"], code["hi"], 1) as c:
            level = code.index("codes", c)
            with builder.if_then(builder.icmp_signed("<", level, levels)):
                x, i, at = code.value("x", c, "x_step"), code.index("indices", c), builder.mul(level, I64(LANES))
                delta = code.lanes("delta", at)
                products = [builder.fmul(delta, code.lanes("psi", builder.mul(i, I64(LANES))), flags=CONTRACT)]
                if code.pairwise:
                    products.append(builder.fmul(delta, code.rest(c, c, x, code.lanes("base", at)), flags=CONTRACT))
                total, *of_bias = code.totals(products)
                moved = builder.fmul(x, total, flags=CONTRACT)
                if code.pairwise:
                    u = builder.fadd(builder.fmul(x, of_bias[0], flags=CONTRACT), code.value("shift", level), flags=CONTRACT)
                    moved = builder.fadd(
                        moved, builder.fmul(code.value("psi_q", i, "psi_q_step"), u, flags=CONTRACT), flags=CONTRACT
                    )
                    code.advance_bias(c, u, builder.fmul(x, code.value("along", level), flags=CONTRACT), J_qq)
                code.add_at("scores", c, moved)
                if code.has("F"):
                    code.advance_row(c, x, delta)
        return context.get_dummy_value()

    return signature, generate


class PanelCode(VectorCode):  # pragma: no cover - compiled
    """Code for these leaves: vectors of rows and pairs by name."""

    @property
    def pairwise(self) -> bool:
        return not isinstance(self.kind("psi_q"), types.NoneType)

    def base(self) -> Any:
        return self.lanes("base", I64(0))

    def lanes(self, name: str, at: Any) -> Any:
        return self.load(self.place(name, at))

    def place(self, name: str, at: Any) -> Any:
        return self.builder.gep(self.data(name), [at])

    def index(self, name: str, at: Any) -> Any:
        """An entry of an array of integers, as a 64-bit number."""
        found, kind = self.builder.load(self.place(name, at)), self.kind(name).dtype
        if kind.bitwidth == 64:
            return found
        return self.builder.sext(found, I64) if kind.signed else self.builder.zext(found, I64)

    def value(self, name: str, at: Any, step: str | None = None) -> Any:
        """An entry of an array of numbers; ``step`` names the factor of its position."""
        return self.builder.load(self.place(name, at if step is None else self.builder.mul(at, self[step])))

    def number(self, name: str) -> Any:
        return self.cast(self[name])

    def has(self, name: str) -> bool:
        return not isinstance(self.kind(name), types.NoneType)

    def rest(self, c: Any, v: Any, x: Any, base: Any) -> Any:
        """``E = F_c - x w``, or the sum of the parts of the row's other features."""
        if not self.has("F"):
            return self.sum_of("own", v)
        own = self.builder.fmul(self.splat(x), base, flags=CONTRACT)
        return self.builder.fsub(self.lanes("F", self.builder.mul(c, I64(LANES))), own, flags=CONTRACT)

    def sum_of(self, parts: str, v: Any) -> Any:
        """The vector of a visit as a sum of parts."""
        total = None
        for j in range(3):
            if self.has(f"{parts}.codes{j}"):
                row = self.builder.mul(self.index(f"{parts}.codes{j}", v), I64(LANES))
                more = self.lanes(f"{parts}.table{j}", row)
                total = more if total is None else self.builder.fadd(total, more)
        return total

    def other(self, i: Any, v: Any) -> Any:
        """``psi_i``, or the sum of its parts."""
        return self.lanes("psi", self.builder.mul(i, I64(LANES))) if self.has("psi") else self.sum_of("other", v)

    def add_at(self, name: str, at: Any, moved: Any) -> None:
        place = self.place(name, at)
        self.builder.store(self.builder.fadd(self.builder.load(place), moved), place)

    def put(self, k: Any, vector: Any, weight: Any, residual: Any) -> None:
        """The entry k of the tile."""
        self.store(vector, self.place("vectors", self.builder.mul(k, I64(LANES))))
        self.builder.store(weight, self.place("tile_weight", k))
        self.builder.store(residual, self.place("residual", k))

    def advance_row(self, c: Any, x: Any, delta: Any) -> None:
        """``F += x delta``."""
        place = self.place("F", self.builder.mul(c, I64(LANES)))
        moved = self.builder.fmul(self.splat(x), delta, flags=CONTRACT)
        self.store(self.builder.fadd(self.load(place), moved, flags=CONTRACT), place)

    def advance_bias(self, c: Any, u: Any, along: Any, J_qq: Any) -> None:
        """``phi_q += u`` and ``t += along + J_qq u``."""
        self.add_at("phi_q", c, u)
        self.add_at("t", c, self.builder.fadd(along, self.builder.fmul(J_qq, u, flags=CONTRACT), flags=CONTRACT))

    def add_sums(self, sums: list[Any]) -> None:
        """``out[j] += sums[j]``, in float64."""
        builder, double = self.builder, ir.VectorType(ir.DoubleType(), LANES)
        for j, total in enumerate(sums):
            place = builder.bitcast(self.place("out", I64(j * LANES)), double.as_pointer())
            more = total if total.type == double else builder.fpext(total, double)
            builder.store(builder.fadd(builder.load(place, align=8), more), place, align=8)

    def zeros(self, n: int) -> list[Any]:
        """Places for sums of vectors."""
        zero = ir.Constant(self.vector, [0.0] * LANES)
        return [cgutils.alloca_once_value(self.builder, zero) for _ in range(n)]

    def zero_numbers(self, n: int) -> list[Any]:
        """Places for sums of numbers, in float64."""
        return [cgutils.alloca_once_value(self.builder, ir.Constant(ir.DoubleType(), 0.0)) for _ in range(n)]

    def add_number(self, place: Any, number: Any) -> None:
        double = number if isinstance(self.scalar, ir.DoubleType) else self.builder.fpext(number, ir.DoubleType())
        self.builder.store(self.builder.fadd(self.builder.load(place), double), place)

    def add_numbers(self, numbers: list[Any], at: int) -> None:
        """``out.flat[at + j] += numbers[j]``."""
        for j, number in enumerate(numbers):
            place = self.place("out", I64(at + j))
            self.builder.store(self.builder.fadd(self.builder.load(place), self.builder.load(number)), place)

    def in_groups(self, some: Callable[[list[Any]], None]) -> None:
        """``some`` of the visits at a time: four, and one by one those that are left."""
        builder, lo, hi = self.builder, self["lo"], self["hi"]
        whole = builder.sub(hi, builder.srem(builder.sub(hi, lo), I64(GROUPED)))
        with builder.if_then(builder.icmp_signed("<", lo, hi)):
            with self.over(lo, whole, GROUPED) as v:
                some([builder.add(v, I64(j)) for j in range(GROUPED)])
            with self.over(whole, hi, 1) as v:
                some([v])

    def totals(self, vectors: list[Any]) -> list[Any]:
        """The sum of the lanes of each of up to four vectors."""
        zero = ir.Constant(self.vector, [0.0] * LANES)
        added = self.add_lanes(*vectors, *[zero] * (GROUPED - len(vectors)))
        return [self.builder.extract_element(added, I32(j)) for j in range(len(vectors))]


gather_pairs = native_only(_gather_pairs, gather_pairs_plain)
pair_rows = native_only(_pair_rows, pair_rows_plain)
gather_rows = native_only(_gather_rows, gather_rows_plain)
sum_first = native_only(_sum_first, sum_first_plain)
sum_rest = native_only(_sum_rest, sum_rest_plain)
sum_outer = native_only(_sum_outer, sum_outer_plain)
sum_shifts = native_only(_sum_shifts, sum_shifts_plain)
move_pairs = native_only(_move_pairs, move_pairs_plain)
move_rows = native_only(_move_rows, move_rows_plain)
move_events = native_only(_move_events, move_events_plain)
