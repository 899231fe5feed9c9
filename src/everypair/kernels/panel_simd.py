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

from everypair.kernels.jit import native
from everypair.kernels.simd import AHEAD, CONTRACT, HALF, I32, I64, LANES, VectorCode

GROUPED = 4  # visits whose products are added up together


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


class PanelTables(NamedTuple):
    """Sixteen dimensions of the other side's vectors and of this side's factor sums F; ``psi_q`` is the other side's partner of our
    bias dimension, or None without pairwise terms."""

    psi: np.ndarray
    psi_q: Any
    F: np.ndarray


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


def sum_pairs_plain(visits, pairs, tables, base, lo, hi, out):
    """``out[0] += sum (a s - b) x z`` and ``out[1 + j] += sum a x^2 z_j z`` over visits lo:hi; ``base`` is the level's vector.

    A quarter of the matrix is left out, its lower left.
    """
    for v in range(lo, hi):
        c, p, x = visits.pair_row[v], visits.pair[v], visits.pair_x[v * visits.pair_x_step]
        i = pairs.indices[p]
        a, b = pairs.a[p * pairs.a_step], pairs.b[p * pairs.b_step]
        z = tables.psi[i] * 1.0
        if tables.psi_q is not None:
            z = z + tables.psi_q[i] * (tables.F[c] - x * base)
        out[0] += x * (a * pairs.scores[p] - b) * z
        for j in range(LANES):
            needed = j // HALF * HALF
            out[1 + j, needed:] += z[j] * (x * x * a * z[needed:])


def sum_rows_plain(visits, tables, state, base, lo, hi, out):
    """``out[0] += sum weight x t E`` and ``out[1 + j] += sum weight x^2 E_j E`` over visits lo:hi: for factorization machines
    alone.

    A quarter of the matrix is left out, its lower left.
    """
    for v in range(lo, hi if tables.psi_q is not None else lo):
        c, x = visits.row[v], visits.row_x[v * visits.row_x_step]
        weight = state.weight[c * state.weight_step]
        E = tables.F[c] - x * base
        out[0] += weight * x * state.t[c] * E
        for j in range(LANES):
            needed = j // HALF * HALF
            out[1 + j, needed:] += E[j] * (weight * x * x * E[needed:])


def sum_first_plain(visits, tables, state, base, lo, hi, out):
    """Sums over visits lo:hi: ``out[0] += weight x^2 E``, ``out[1] += weight x E`` and ``out[2] += weight x rest``; ``out[3]`` has
    those of ``weight x^2``, ``weight x``, and of ``weight x phi_q`` and ``weight x t`` for factorization machines.
    """
    for v in range(lo, hi):
        c, x = visits.row[v], visits.row_x[v * visits.row_x_step]
        weight = state.weight[c * state.weight_step] * x
        E = tables.F[c] - x * base
        out[0] += weight * x * E
        out[1] += weight * E
        out[2] += weight * state.rest.reshape(-1, LANES)[c if state.rest_step else 0]
        out[3, 0] += weight * x
        out[3, 1] += weight
        if tables.psi_q is not None:
            out[3, 2] += weight * state.phi_q[c]
            out[3, 3] += weight * state.t[c]


def sum_shifts_plain(visits, pairs, tables, base, lo, hi, out):
    """``out[0] += sum a psi_q z``, ``out[1, 0] += sum a psi_q^2`` and ``out[1, 1] += sum (a s - b) psi_q`` over visits lo:hi: by
    these the sums of :func:`sum_pairs` change when ``base`` does. For factorization machines alone, and features of value one.
    """
    for v in range(lo, hi if tables.psi_q is not None else lo):
        c, p = visits.pair_row[v], visits.pair[v]
        i = pairs.indices[p]
        a, b, q = pairs.a[p * pairs.a_step], pairs.b[p * pairs.b_step], np.asarray(tables.psi_q)[i]
        out[0] += a * q * (tables.psi[i] + q * (tables.F[c] - base))
        out[1, 0] += a * q * q
        out[1, 1] += (a * pairs.scores[p] - b) * q


def move_pairs_plain(visits, pairs, tables, base, delta, shift, lo, hi):
    """``scores += x <delta, z> + psi_q shift`` for visits lo:hi."""
    for v in range(lo, hi):
        c, p, x = visits.pair_row[v], visits.pair[v], visits.pair_x[v * visits.pair_x_step]
        i = pairs.indices[p]
        moved = np.sum(delta * tables.psi[i]) * x
        if tables.psi_q is not None:
            moved += tables.psi_q[i] * (x * np.sum(delta * (tables.F[c] - x * base)) + shift)
        pairs.scores[p] += moved


def move_rows_plain(visits, tables, state, base, delta, shift, along, J_qq, lo, hi):
    """``F += x delta``; and with ``u = x <delta, E> + shift``, ``phi_q += u`` and ``t += x along + J_qq u``, for visits lo:hi."""
    for v in range(lo, hi):
        c, x = visits.row[v], visits.row_x[v * visits.row_x_step]
        if tables.psi_q is not None:
            u = x * np.sum(delta * (tables.F[c] - x * base)) + shift
            state.phi_q[c] += u
            state.t[c] += x * along + J_qq * u
        tables.F[c] += x * delta


@intrinsic
def _sum_pairs(typingctx, visits, pairs, tables, base, lo, hi, out):  # pragma: no cover - compiled
    n = types.intp
    signature = types.void(visits, pairs, tables, base, n, n, out)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        code = PanelCode(context, builder, signature, args, "visits", "pairs", "tables", "base", "lo", "hi", "out")
        base = code.base()

        def visit(v: Any) -> tuple[Any, Any, Any]:
            c, p, x = code.index("pair_row", v), code.index("pair", v), code.value("pair_x", v, "pair_x_step")
            z = code.partner(c, code.index("indices", p), x, base)
            a, b = code.value("a", p, "a_step"), code.value("b", p, "b_step")
            xa = builder.fmul(x, a, flags=CONTRACT)
            residual = builder.fsub(
                builder.fmul(xa, code.value("scores", p), flags=CONTRACT), builder.fmul(x, b, flags=CONTRACT), flags=CONTRACT
            )
            return z, builder.fmul(x, xa, flags=CONTRACT), residual

        def fetch(near: Any, far: Any) -> None:
            code.prefetch("psi", code.index("indices", code.index("pair", near)))
            p = code.index("pair", far)
            for name, step in (("indices", None), ("scores", None), ("a", "a_step"), ("b", "b_step")):
                code.prefetch(name, p if step is None else builder.mul(p, code[step]))
            if code.pairwise:
                code.prefetch("F", code.index("pair_row", far))

        code.add_outer(visit, fetch, "pair")
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def _sum_rows(typingctx, visits, tables, state, base, lo, hi, out):  # pragma: no cover - compiled
    n = types.intp
    signature = types.void(visits, tables, state, base, n, n, out)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        code = PanelCode(context, builder, signature, args, "visits", "tables", "state", "base", "lo", "hi", "out")
        if not code.pairwise:
            return context.get_dummy_value()
        base = code.base()

        def visit(v: Any) -> tuple[Any, Any, Any]:
            c, x = code.index("row", v), code.value("row_x", v, "row_x_step")
            weight = builder.fmul(x, code.value("weight", c, "weight_step"), flags=CONTRACT)
            residual = builder.fmul(weight, code.value("t", c), flags=CONTRACT)
            return code.rest(c, x, base), builder.fmul(x, weight, flags=CONTRACT), residual

        def fetch(near: Any, far: Any) -> None:
            c = code.index("row", far)
            for name in ("F", "t", "phi_q"):
                code.prefetch(name, c)

        code.add_outer(visit, fetch, "row")
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def _sum_first(typingctx, visits, tables, state, base, lo, hi, out):  # pragma: no cover - compiled
    n = types.intp
    signature = types.void(visits, tables, state, base, n, n, out)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        code = PanelCode(context, builder, signature, args, "visits", "tables", "state", "base", "lo", "hi", "out")
        base, vectors, numbers = code.base(), code.zeros(3), code.zero_numbers(4)
        with code.over(code["lo"], code["hi"], 1) as v:
            c, x = code.index("row", v), code.value("row_x", v, "row_x_step")
            weight = builder.fmul(x, code.value("weight", c, "weight_step"), flags=CONTRACT)
            square, E = builder.fmul(x, weight, flags=CONTRACT), code.rest(c, x, base)
            code.add_to(vectors[0], code.splat(square), E)
            code.add_to(vectors[1], code.splat(weight), E)
            code.add_to(vectors[2], code.splat(weight), code.lanes("rest", builder.mul(c, code["rest_step"])))
            code.add_number(numbers[0], square)
            code.add_number(numbers[1], weight)
            if code.pairwise:
                code.add_number(numbers[2], builder.fmul(weight, code.value("phi_q", c), flags=CONTRACT))
                code.add_number(numbers[3], builder.fmul(weight, code.value("t", c), flags=CONTRACT))
        code.add_sums([builder.load(place) for place in vectors])
        code.add_numbers(numbers, 3 * LANES)
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def _sum_shifts(typingctx, visits, pairs, tables, base, lo, hi, out):  # pragma: no cover - compiled
    n = types.intp
    signature = types.void(visits, pairs, tables, base, n, n, out)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        code = PanelCode(context, builder, signature, args, "visits", "pairs", "tables", "base", "lo", "hi", "out")
        if not code.pairwise:
            return context.get_dummy_value()
        base, vectors, numbers = code.base(), code.zeros(1), code.zero_numbers(2)
        with code.over(code["lo"], code["hi"], 1) as v:
            c, p = code.index("pair_row", v), code.index("pair", v)
            i = code.index("indices", p)
            a, b, q = code.value("a", p, "a_step"), code.value("b", p, "b_step"), code.value("psi_q", i)
            z = code.partner(c, i, ir.Constant(code.scalar, 1.0), base)
            weight = builder.fmul(a, q, flags=CONTRACT)
            code.add_to(vectors[0], code.splat(weight), z)
            code.add_number(numbers[0], builder.fmul(weight, q, flags=CONTRACT))
            residual = builder.fsub(builder.fmul(a, code.value("scores", p), flags=CONTRACT), b, flags=CONTRACT)
            code.add_number(numbers[1], builder.fmul(residual, q, flags=CONTRACT))
        code.add_sums([builder.load(place) for place in vectors])
        code.add_numbers(numbers, LANES)
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def _move_pairs(typingctx, visits, pairs, tables, base, delta, shift, lo, hi):  # pragma: no cover - compiled
    n = types.intp
    signature = types.void(visits, pairs, tables, base, delta, types.float64, n, n)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        names = ("visits", "pairs", "tables", "base", "delta", "shift", "lo", "hi")
        code = PanelCode(context, builder, signature, args, *names)
        base, delta, shift = code.base(), code.lanes("delta", I64(0)), code.number("shift")

        def some(places: list[Any]) -> None:
            rows, moves = [], []
            for v in places:
                c, p, x = code.index("pair_row", v), code.index("pair", v), code.value("pair_x", v, "pair_x_step")
                i = code.index("indices", p)
                rows.append((p, i, x))
                z = code.partner(c, i, x, base)
                moves.append(builder.fmul(delta, z, flags=CONTRACT))
            totals = code.totals(moves)
            for (p, i, x), total in zip(rows, totals, strict=True):
                moved = builder.fmul(x, total, flags=CONTRACT)
                if code.pairwise:
                    moved = builder.fadd(moved, builder.fmul(code.value("psi_q", i), shift, flags=CONTRACT), flags=CONTRACT)
                code.add_at("scores", p, moved)

        code.in_groups(some)
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def _move_rows(typingctx, visits, tables, state, base, delta, shift, along, J_qq, lo, hi):  # pragma: no cover - compiled
    n, number = types.intp, types.float64
    signature = types.void(visits, tables, state, base, delta, number, number, number, n, n)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        names = ("visits", "tables", "state", "base", "delta", "shift", "along", "J_qq", "lo", "hi")
        code = PanelCode(context, builder, signature, args, *names)
        base, delta = code.base(), code.lanes("delta", I64(0))
        shift, along, J_qq = (code.number(name) for name in ("shift", "along", "J_qq"))

        def some(places: list[Any]) -> None:
            rows, moves = [], []
            for v in places:
                c, x = code.index("row", v), code.value("row_x", v, "row_x_step")
                rows.append((c, x))
                if code.pairwise:
                    moves.append(builder.fmul(delta, code.rest(c, x, base), flags=CONTRACT))
                place = code.place("F", builder.mul(c, I64(LANES)))
                moved = builder.fadd(code.load(place), builder.fmul(code.splat(x), delta, flags=CONTRACT), flags=CONTRACT)
                code.store(moved, place)
            if code.pairwise:
                for (c, x), total in zip(rows, code.totals(moves), strict=True):
                    u = builder.fadd(builder.fmul(x, total, flags=CONTRACT), shift, flags=CONTRACT)
                    code.add_at("phi_q", c, u)
                    t = builder.fadd(builder.fmul(x, along, flags=CONTRACT), builder.fmul(J_qq, u, flags=CONTRACT), flags=CONTRACT)
                    code.add_at("t", c, t)

        code.in_groups(some)
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

    def rest(self, c: Any, x: Any, base: Any) -> Any:
        """``E = F_c - x w``."""
        own = self.builder.fmul(self.splat(x), base, flags=CONTRACT)
        return self.builder.fsub(self.lanes("F", self.builder.mul(c, I64(LANES))), own, flags=CONTRACT)

    def partner(self, c: Any, i: Any, x: Any, base: Any) -> Any:
        """``z = psi_i + psi_iq E_c``."""
        psi = self.lanes("psi", self.builder.mul(i, I64(LANES)))
        if not self.pairwise:
            return psi
        share = self.builder.fmul(self.splat(self.value("psi_q", i)), self.rest(c, x, base), flags=CONTRACT)
        return self.builder.fadd(psi, share, flags=CONTRACT)

    def prefetch(self, name: str, row: Any) -> None:
        """Fetch an entry, or the vector of a row, that will be needed soon."""
        vectors = self.kind(name).ndim == 2
        self.prefetch_at(self.place(name, self.builder.mul(row, I64(LANES)) if vectors else row))

    def add_at(self, name: str, at: Any, moved: Any) -> None:
        place = self.place(name, at)
        self.builder.store(self.builder.fadd(self.builder.load(place), moved), place)

    def add_outer(self, visit: Callable[[Any], tuple[Any, Any, Any]], fetch: Callable[[Any, Any], None], visited: str) -> None:
        """``out[0] += sum residual v`` and ``out[1 + j] += sum weight v_j v``, in float64 after the last visit.

        ``fetch`` gets a visit some way ahead and one further ahead: what is loaded to know what to fetch was fetched before.
        """
        builder = self.builder
        sums = self.zero_sums()
        last = builder.sub(builder.extract_value(self.array(visited).shape, 0), I64(1))
        with self.over(self["lo"], self["hi"], 1) as v:
            ahead = [builder.add(v, I64(visits)) for visits in (AHEAD // 2, AHEAD)]
            fetch(*(builder.select(builder.icmp_signed("<", v, last), v, last) for v in ahead))
            vector, weight, residual = visit(v)
            self.add_outer_product(sums, vector, self.splat(weight), self.splat(residual))
        self.add_sums(self.found(sums))

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


sum_pairs = native(_sum_pairs, sum_pairs_plain)
sum_rows = native(_sum_rows, sum_rows_plain)
sum_first = native(_sum_first, sum_first_plain)
sum_shifts = native(_sum_shifts, sum_shifts_plain)
move_pairs = native(_move_pairs, move_pairs_plain)
move_rows = native(_move_rows, move_rows_plain)
