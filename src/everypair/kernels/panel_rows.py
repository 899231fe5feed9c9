r"""Passes over rows in a panel of sixteen dimensions, for fields whose features share rows: a direction U for every row at once.

With everything else fixed the loss of a row is a quadratic in its factor sum F and its bias dimension :math:`\phi_q`. A direction
moves F by :math:`\tau u` and, in a factorization machine, :math:`\phi_q` by :math:`\tau p + \tau^2 r`, with

.. math:: u = X \Delta,\; p = \langle F, u \rangle - X^2 \langle w, \Delta \rangle,\; r = \tfrac12 (|u|^2 - X^2 |\Delta|^2)

so that the loss along it is exactly a polynomial of degree four in :math:`\tau`. The products X are somebody else's: these leaves
take what they gave for rows lo:hi, from position ``at`` on, and go past the pairs of these rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from everypair.kernels.jit import native_only
from everypair.kernels.panel_simd import PanelCode
from everypair.kernels.simd import CONTRACT, I64, LANES


class RowGram(NamedTuple):
    """The other side's Gram in a panel, in the precision of the data: ``A[0]`` is the diagonal of the block, ``A[1:]`` the block
    without it, zero if not ``coupled``; ``v`` its column at q and ``J_qq`` a number, both of factorization machines."""

    A: np.ndarray
    coupled: bool
    v: np.ndarray
    J_qq: float


class Path(NamedTuple):
    """A direction for rows: U, and for factorization machines the products of squares with ``<w, Delta>`` and ``|Delta|^2``."""

    u: np.ndarray
    wu: np.ndarray
    ru: np.ndarray


def _block_times(gram, x):
    return gram.A[0] * x + gram.A[1:] @ x


def _implicit_gradient(tables, state, gram, c):
    g = _block_times(gram, tables.F[c]) + state.rest.reshape(-1, LANES)[c if state.rest_step else 0]
    return g if tables.psi_q is None else g + gram.v * state.phi_q[c]


def gradients_plain(indptr, pairs, tables, state, gram, lo, hi, at, slope, curvature, of_q):
    """Of each row half the gradient with respect to F if :math:`\\phi_q` follows as :math:`\\langle F, u \\rangle`, the diagonal
    of half the curvature, and half the gradient with respect to :math:`\\phi_q` (of factorization machines)."""
    for c in range(lo, hi):
        F, weight = tables.F[c], state.weight[c * state.weight_step]
        g, h, g_q = weight * _implicit_gradient(tables, state, gram, c), weight * gram.A[0], 0.0
        if tables.psi_q is not None:
            g = g + weight * state.t[c] * F
            h = h + weight * (2 * gram.v * F + gram.J_qq * F * F)
            g_q = weight * state.t[c]
        for p in range(indptr[c], indptr[c + 1]):
            i = pairs.indices[p]
            a, b = pairs.a[p * pairs.a_step], pairs.b[p * pairs.b_step]
            z = tables.psi[i] if tables.psi_q is None else tables.psi[i] + tables.psi_q[i * tables.psi_q_step] * F
            residual = a * pairs.scores[p] - b
            g, h = g + residual * z, h + a * z * z
            if tables.psi_q is not None:
                g_q += residual * tables.psi_q[i * tables.psi_q_step]
        slope[at + c - lo], curvature[at + c - lo] = g, np.maximum(h, 0.0)
        if tables.psi_q is not None:
            of_q[at + c - lo] = g_q


def products_plain(indptr, pairs, tables, state, gram, lo, hi, at, u):
    """``u = H_c u`` with the half curvature of each row, if :math:`\\phi_q` moves by :math:`\\langle F, u \\rangle`."""
    for c in range(lo, hi):
        F, weight, x = tables.F[c], state.weight[c * state.weight_step], u[at + c - lo].copy()
        moved = weight * _block_times(gram, x)
        if tables.psi_q is not None:
            q = np.sum(F * x)
            moved = moved + weight * (gram.v * q + F * (np.sum(gram.v * x) + gram.J_qq * q))
        for p in range(indptr[c], indptr[c + 1]):
            i = pairs.indices[p]
            z = tables.psi[i] if tables.psi_q is None else tables.psi[i] + tables.psi_q[i * tables.psi_q_step] * F
            moved = moved + pairs.a[p * pairs.a_step] * np.sum(z * x) * z
        u[at + c - lo] = moved


def _bias_path(tables, path, c, r):
    u = path.u[r]
    return np.sum(tables.F[c] * u) - path.wu[r], 0.5 * (np.sum(u * u) - path.ru[r])


def line_plain(indptr, pairs, tables, state, gram, lo, hi, at, path, out):
    """The coefficients of :math:`\\tau, \\ldots, \\tau^4` of the loss along a path, added to ``out``: for factorization
    machines."""
    for c in range(lo, hi if tables.psi_q is not None else lo):
        r = at + c - lo
        u, weight = path.u[r], np.float64(state.weight[c * state.weight_step])
        p, square = _bias_path(tables, path, c, r)
        t, along = state.t[c], np.sum(gram.v * u)
        out[0] += 2 * weight * (np.sum(_implicit_gradient(tables, state, gram, c) * u) + t * p)
        out[1] += weight * (2 * t * square + np.sum(_block_times(gram, u) * u) + 2 * along * p + gram.J_qq * p * p)
        out[2] += 2 * weight * (along + gram.J_qq * p) * square
        out[3] += weight * gram.J_qq * square * square
        for pair in range(indptr[c], indptr[c + 1]):
            i = pairs.indices[pair]
            a, b = np.float64(pairs.a[pair * pairs.a_step]), pairs.b[pair * pairs.b_step]
            residual, q = a * pairs.scores[pair] - b, np.asarray(tables.psi_q)[i * tables.psi_q_step]
            first, second = np.sum(tables.psi[i] * u) + q * p, q * square
            out[0] += 2 * residual * first
            out[1] += 2 * residual * second + a * first * first
            out[2] += 2 * a * first * second
            out[3] += a * second * second


def advance_plain(indptr, pairs, tables, state, gram, lo, hi, at, path, length):
    """Move scores, F, :math:`\\phi_q` and t by ``length`` along a path."""
    for c in range(lo, hi):
        r = at + c - lo
        u, moved = path.u[r], 0.0
        if tables.psi_q is not None:
            p, square = _bias_path(tables, path, c, r)
            moved = length * p + length * length * square
            state.phi_q[c] += moved
            state.t[c] += length * np.sum(gram.v * u) + gram.J_qq * moved
        for pair in range(indptr[c], indptr[c + 1]):
            i = pairs.indices[pair]
            pairs.scores[pair] += length * np.sum(tables.psi[i] * u)
            if tables.psi_q is not None:
                pairs.scores[pair] += tables.psi_q[i * tables.psi_q_step] * moved
        tables.F[c] += length * u


SHARED = ("indptr", "pairs", "tables", "state", "gram", "lo", "hi", "at")


def _signature(*kinds: Any) -> Any:  # pragma: no cover - compiled
    return types.void(*kinds)


@intrinsic
def _gradients(typingctx, indptr, pairs, tables, state, gram, lo, hi, at, slope, curvature, of_q):  # pragma: no cover - compiled
    n = types.intp

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        code = RowCode(context, builder, signature, args, *SHARED, "slope", "curvature", "of_q")
        with code.rows() as (c, r):
            g, h, g_q = code.row_gradient(c)
            code.store_row("slope", r, g)
            code.store_row("curvature", r, h)
            if code.pairwise:
                builder.store(g_q, code.place("of_q", r))
        return context.get_dummy_value()

    return _signature(indptr, pairs, tables, state, gram, n, n, n, slope, curvature, of_q), generate


@intrinsic
def _products(typingctx, indptr, pairs, tables, state, gram, lo, hi, at, u):  # pragma: no cover - compiled
    n = types.intp

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        code = RowCode(context, builder, signature, args, *SHARED, "u")
        with code.rows() as (c, r):
            code.store_row("u", r, code.row_product(c, code.load_row("u", r)))
        return context.get_dummy_value()

    return _signature(indptr, pairs, tables, state, gram, n, n, n, u), generate


@intrinsic
def _line(typingctx, indptr, pairs, tables, state, gram, lo, hi, at, path, out):  # pragma: no cover - compiled
    n = types.intp

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        code = RowCode(context, builder, signature, args, *SHARED, "path", "out")
        if not code.pairwise:
            return context.get_dummy_value()
        sums = code.zero_numbers(4)
        with code.rows() as (c, r):
            code.row_line(c, code.load_row("u", r), code.value("wu", r), code.value("ru", r), sums)
        code.add_numbers(sums, 0)
        return context.get_dummy_value()

    return _signature(indptr, pairs, tables, state, gram, n, n, n, path, out), generate


@intrinsic
def _advance(typingctx, indptr, pairs, tables, state, gram, lo, hi, at, path, length):  # pragma: no cover - compiled
    n = types.intp

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        code = RowCode(context, builder, signature, args, *SHARED, "path", "length")
        length = code.number("length")
        with code.rows() as (c, r):
            squares = (code.value("wu", r), code.value("ru", r)) if code.pairwise else (None, None)
            code.row_advance(c, code.load_row("u", r), *squares, length)
        return context.get_dummy_value()

    return _signature(indptr, pairs, tables, state, gram, n, n, n, path, types.float64), generate


class _Row(NamedTuple):  # pragma: no cover - compiled
    F: Any
    weight: Any
    c: Any
    t: Any


class _Pair(NamedTuple):  # pragma: no cover - compiled
    psi: Any
    q: Any
    a: Any
    residual: Any


class RowCode(PanelCode):  # pragma: no cover - compiled
    """Code for these leaves: loops over rows and their pairs, and arithmetic by short names."""

    def __init__(self, context: Any, builder: Any, signature: Any, args: Any, *names: str) -> None:
        super().__init__(context, builder, signature, args, *names)
        self.diagonal, self.v = self.lanes("A", I64(0)), self.lanes("v", I64(0))
        self.J_qq = self.number("J_qq")
        self.two = ir.Constant(self.vector, [2.0] * LANES)

    @contextmanager
    def rows(self) -> Iterator[tuple[Any, Any]]:
        """Each row, and its position in what the products gave."""
        with self.over(self["lo"], self["hi"], 1) as c:
            yield c, self.builder.add(self["at"], self.builder.sub(c, self["lo"]))

    def ends(self, c: Any) -> tuple[Any, Any]:
        """Where the pairs of a row begin and end."""
        return self.index("indptr", c), self.index("indptr", self.builder.add(c, I64(1)))

    def row_gradient(self, c: Any) -> tuple[Any, Any, Any]:
        """What :func:`gradients_plain` says of a row."""
        builder, row = self.builder, self.row(c)
        g, h, g_q = self.variable(), self.variable(), self.number_variable()
        self.set(g, self.times(row.weight, self.implicit_gradient(row)))
        self.set(h, self.times(row.weight, self.diagonal))
        if self.pairwise:
            self.add(g, self.times(self.mul(row.weight, row.t), row.F))
            more = self.fma(row.F, self.times(self.J_qq, row.F), builder.fmul(self.two, self.times_vector(self.v, row.F)))
            self.add(h, self.times(row.weight, more))
            builder.store(self.mul(row.weight, row.t), g_q)
        with self.over(*self.ends(c), 1) as p:
            pair = self.pair(p)
            z = self.z(pair, row.F)
            self.add(g, self.times(pair.residual, z))
            self.add(h, self.times_vector(self.times(pair.a, z), z))
            if self.pairwise:
                builder.store(self.fadd(builder.load(g_q), self.mul(pair.residual, pair.q)), g_q)
        curvature, zero = builder.load(h), ir.Constant(self.vector, [0.0] * LANES)
        positive = builder.select(builder.fcmp_ordered(">", curvature, zero), curvature, zero)
        return builder.load(g), positive, builder.load(g_q) if self.pairwise else None

    def row_product(self, c: Any, x: Any) -> Any:
        """``H_c x``, see :func:`products_plain`."""
        row, moved = self.row(c), self.variable()
        of_row = [(row.F, x), (self.v, x)] if self.pairwise else []

        def implicit(dots: list[Any]) -> Any:
            total = self.block_times(x)
            if self.pairwise:
                q, along = dots
                of_F = self.fadd(along, self.mul(self.J_qq, q))
                total = self.builder.fadd(total, self.fma(self.splat(of_F), row.F, self.times(q, self.v)), flags=CONTRACT)
            return self.times(row.weight, total)

        def explicit(pair: _Pair, dot_psi: Any, dots: list[Any]) -> Any:
            product = self.fadd(dot_psi, self.mul(pair.q, dots[0])) if self.pairwise else dot_psi
            return self.times(self.mul(pair.a, product), self.z(pair, row.F))

        with self.one_pair(c) as (one, several, p):
            with one:
                pair = self.pair(p)
                dot_psi, *dots = self.dots((pair.psi, x), *of_row)
                self.set(moved, self.builder.fadd(implicit(dots), explicit(pair, dot_psi, dots), flags=CONTRACT))
            with several:
                dots = self.dots(*of_row) if of_row else []
                self.set(moved, implicit(dots))
                with self.over(*self.ends(c), 1) as p:
                    pair = self.pair(p)
                    self.add(moved, explicit(pair, self.dots((pair.psi, x))[0], dots))
        return self.builder.load(moved)

    def row_line(self, c: Any, u: Any, wu: Any, ru: Any, sums: list[Any]) -> None:
        """Add what :func:`line_plain` says of a row."""
        mul, fadd, two = self.mul, self.fadd, ir.Constant(self.scalar, 2.0)
        row = self.row(c)
        first = (row.F, u), (self.v, u), (u, u), (self.implicit_gradient(row), u)
        bending = self.block_times(u), u

        def implicit(dot_F: Any, along: Any, square_u: Any, gradient: Any, bend: Any) -> tuple[Any, Any]:
            p, square = self.bias_path(wu, ru, dot_F, square_u)
            self.add_number(sums[0], mul(mul(two, row.weight), fadd(gradient, mul(row.t, p))))
            quadratic = fadd(fadd(bend, mul(mul(two, along), p)), mul(self.J_qq, mul(p, p)))
            self.add_number(sums[1], mul(row.weight, fadd(mul(mul(two, row.t), square), quadratic)))
            self.add_number(sums[2], mul(mul(mul(two, row.weight), fadd(along, mul(self.J_qq, p))), square))
            self.add_number(sums[3], mul(mul(row.weight, self.J_qq), mul(square, square)))
            return p, square

        def explicit(pair: _Pair, dot_psi: Any, p: Any, square: Any) -> None:
            first, second = fadd(dot_psi, mul(pair.q, p)), mul(pair.q, square)
            self.add_number(sums[0], mul(mul(two, pair.residual), first))
            self.add_number(sums[1], fadd(mul(mul(two, pair.residual), second), mul(pair.a, mul(first, first))))
            self.add_number(sums[2], mul(mul(two, pair.a), mul(first, second)))
            self.add_number(sums[3], mul(pair.a, mul(second, second)))

        with self.one_pair(c) as (one, several, place):
            with one:
                pair = self.pair(place)
                bend, dot_psi = self.dots(bending, (pair.psi, u))
                dot_F, along, square_u, gradient = self.dots(*first)
                explicit(pair, dot_psi, *implicit(dot_F, along, square_u, gradient, bend))
            with several:
                dot_F, along, square_u, gradient = self.dots(*first)
                p, square = implicit(dot_F, along, square_u, gradient, self.dots(bending)[0])
                with self.over(*self.ends(c), 1) as place:
                    pair = self.pair(place)
                    explicit(pair, self.dots((pair.psi, u))[0], p, square)

    def row_advance(self, c: Any, u: Any, wu: Any, ru: Any, length: Any) -> None:
        """Move a row, see :func:`advance_plain`."""
        F = self.load_row("F", c)
        of_row = [(F, u), (self.v, u), (u, u)] if self.pairwise else []

        def of_bias(dots: list[Any]) -> Any:
            if not self.pairwise:
                return None
            dot_F, along, square_u = dots
            p, square = self.bias_path(wu, ru, dot_F, square_u)
            moved = self.fadd(self.mul(length, p), self.mul(self.mul(length, length), square))
            self.add_at("phi_q", c, moved)
            self.add_at("t", c, self.fadd(self.mul(length, along), self.mul(self.J_qq, moved)))
            return moved

        def of_pair(place: Any, i: Any, dot_psi: Any, moved: Any) -> None:
            change = self.mul(length, dot_psi)
            if self.pairwise:
                change = self.fadd(change, self.mul(self.value("psi_q", i, "psi_q_step"), moved))
            self.add_at("scores", place, change)

        with self.one_pair(c) as (one, several, place):
            with one:
                i = self.index("indices", place)
                dot_psi, *dots = self.dots((self.load_row("psi", i), u), *of_row)
                of_pair(place, i, dot_psi, of_bias(dots))
            with several:
                moved = of_bias(self.dots(*of_row) if of_row else [])
                with self.over(*self.ends(c), 1) as place:
                    i = self.index("indices", place)
                    of_pair(place, i, self.dots((self.load_row("psi", i), u))[0], moved)
        self.store_row("F", c, self.fma(self.splat(length), u, F))

    @contextmanager
    def one_pair(self, c: Any) -> Iterator[tuple[Any, Any, Any]]:
        """Branches for rows that have one pair, and its place, and for others: the sums of one pair are added up with the row's."""
        lo, hi = self.ends(c)
        with self.builder.if_else(self.builder.icmp_signed("==", hi, self.builder.add(lo, I64(1)))) as (one, several):
            yield one, several, lo

    def row(self, c: Any) -> _Row:
        return _Row(self.load_row("F", c), self.value("weight", c, "weight_step"), c, self.value("t", c) if self.pairwise else None)

    def pair(self, p: Any) -> _Pair:
        i, a = self.index("indices", p), self.value("a", p, "a_step")
        residual = self.builder.fsub(self.mul(a, self.value("scores", p)), self.value("b", p, "b_step"), flags=CONTRACT)
        return _Pair(self.load_row("psi", i), self.value("psi_q", i, "psi_q_step") if self.pairwise else None, a, residual)

    def z(self, pair: _Pair, F: Any) -> Any:
        return self.fma(self.splat(pair.q), F, pair.psi) if self.pairwise else pair.psi

    def implicit_gradient(self, row: _Row) -> Any:
        """``(J phi)`` in the dimensions of the panel."""
        rest = self.lanes("rest", self.builder.mul(row.c, self["rest_step"]))
        g = self.builder.fadd(self.block_times(row.F), rest, flags=CONTRACT)
        return self.fma(self.splat(self.value("phi_q", row.c)), self.v, g) if self.pairwise else g

    def block_times(self, x: Any) -> Any:
        """``A x``."""
        builder = self.builder
        total = cgutils.alloca_once(builder, self.vector)
        builder.store(self.times_vector(self.diagonal, x), total)
        with builder.if_then(self["coupled"]):
            for j in range(LANES):
                self.add(total, self.times_vector(self.lane(x, j), self.lanes("A", I64((1 + j) * LANES))))
        return builder.load(total)

    def bias_path(self, wu: Any, ru: Any, dot_F: Any, square_u: Any) -> tuple[Any, Any]:
        """p and r of the path."""
        p = self.builder.fsub(dot_F, wu, flags=CONTRACT)
        half = ir.Constant(self.scalar, 0.5)
        return p, self.mul(half, self.builder.fsub(square_u, ru, flags=CONTRACT))

    def dots(self, *products: tuple[Any, Any]) -> list[Any]:
        """Up to four inner products."""
        return self.totals([self.times_vector(x, y) for x, y in products])

    def variable(self) -> Any:
        return cgutils.alloca_once(self.builder, self.vector)

    def number_variable(self) -> Any:
        return cgutils.alloca_once(self.builder, self.scalar)

    def set(self, place: Any, value: Any) -> None:
        self.builder.store(value, place)

    def add(self, place: Any, value: Any) -> None:
        self.builder.store(self.builder.fadd(self.builder.load(place), value, flags=CONTRACT), place)

    def load_row(self, name: str, r: Any) -> Any:
        return self.lanes(name, self.builder.mul(r, I64(LANES)))

    def store_row(self, name: str, r: Any, vector: Any) -> None:
        self.store(vector, self.place(name, self.builder.mul(r, I64(LANES))))

    def times(self, number: Any, vector: Any) -> Any:
        return self.builder.fmul(self.splat(number), vector, flags=CONTRACT)

    def times_vector(self, x: Any, y: Any) -> Any:
        return self.builder.fmul(x, y, flags=CONTRACT)

    def fma(self, x: Any, y: Any, z: Any) -> Any:
        return self.builder.fadd(self.builder.fmul(x, y, flags=CONTRACT), z, flags=CONTRACT)

    def mul(self, x: Any, y: Any) -> Any:
        return self.builder.fmul(x, y, flags=CONTRACT)

    def fadd(self, x: Any, y: Any) -> Any:
        return self.builder.fadd(x, y, flags=CONTRACT)


gradients = native_only(_gradients, gradients_plain)
products = native_only(_products, products_plain)
line = native_only(_line, line_plain)
advance = native_only(_advance, advance_plain)
