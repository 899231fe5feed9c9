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

from everypair.kernels.jit import native
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
        code = _RowCode(context, builder, signature, args, *SHARED, "slope", "curvature", "of_q")
        g, h, g_q = code.variable(), code.variable(), code.number_variable()
        with code.rows() as (c, r):
            row = code.row(c)
            code.set(g, code.times(row.weight, code.implicit_gradient(row)))
            code.set(h, code.times(row.weight, code.diagonal))
            if code.pairwise:
                code.add(g, code.times(code.mul(row.weight, row.t), row.F))
                more = code.fma(row.F, code.times(code.J_qq, row.F), builder.fmul(code.two, code.times_vector(code.v, row.F)))
                code.add(h, code.times(row.weight, more))
                builder.store(code.mul(row.weight, row.t), g_q)
            with code.pairs(c) as p:
                pair = code.pair(p)
                z = code.z(pair, row.F)
                code.add(g, code.times(pair.residual, z))
                code.add(h, code.times_vector(code.times(pair.a, z), z))
                if code.pairwise:
                    builder.store(code.fadd(builder.load(g_q), code.mul(pair.residual, pair.q)), g_q)
            code.store_row("slope", r, builder.load(g))
            curvature = builder.load(h)
            zero = ir.Constant(code.vector, [0.0] * LANES)
            code.store_row("curvature", r, builder.select(builder.fcmp_ordered(">", curvature, zero), curvature, zero))
            if code.pairwise:
                builder.store(builder.load(g_q), code.place("of_q", r))
        return context.get_dummy_value()

    return _signature(indptr, pairs, tables, state, gram, n, n, n, slope, curvature, of_q), generate


@intrinsic
def _products(typingctx, indptr, pairs, tables, state, gram, lo, hi, at, u):  # pragma: no cover - compiled
    n = types.intp

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        code = _RowCode(context, builder, signature, args, *SHARED, "u")
        moved = code.variable()
        with code.rows() as (c, r):
            row, x = code.row(c), code.load_row("u", r)
            total = code.block_times(x)
            if code.pairwise:
                q, along = code.dots((row.F, x), (code.v, x))
                of_F = code.fadd(along, code.mul(code.J_qq, q))
                total = builder.fadd(total, code.fma(code.splat(of_F), row.F, code.times(q, code.v)), flags=CONTRACT)
            code.set(moved, code.times(row.weight, total))
            with code.pairs(c) as p:
                pair = code.pair(p)
                z = code.z(pair, row.F)
                (product,) = code.dots((z, x))
                code.add(moved, code.times(code.mul(pair.a, product), z))
            code.store_row("u", r, builder.load(moved))
        return context.get_dummy_value()

    return _signature(indptr, pairs, tables, state, gram, n, n, n, u), generate


@intrinsic
def _line(typingctx, indptr, pairs, tables, state, gram, lo, hi, at, path, out):  # pragma: no cover - compiled
    n = types.intp

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        code = _RowCode(context, builder, signature, args, *SHARED, "path", "out")
        if not code.pairwise:
            return context.get_dummy_value()
        sums = code.zero_numbers(4)
        mul, fadd, two = code.mul, code.fadd, ir.Constant(code.scalar, 2.0)
        with code.rows() as (c, r):
            row, u = code.row(c), code.load_row("u", r)
            dot_F, along, square_u, gradient = code.dots((row.F, u), (code.v, u), (u, u), (code.implicit_gradient(row), u))
            (bend,) = code.dots((code.block_times(u), u))
            p, square = code.bias_path(r, dot_F, square_u)
            code.add_number(sums[0], mul(mul(two, row.weight), fadd(gradient, mul(row.t, p))))
            quadratic = fadd(fadd(bend, mul(mul(two, along), p)), mul(code.J_qq, mul(p, p)))
            code.add_number(sums[1], mul(row.weight, fadd(mul(mul(two, row.t), square), quadratic)))
            code.add_number(sums[2], mul(mul(mul(two, row.weight), fadd(along, mul(code.J_qq, p))), square))
            code.add_number(sums[3], mul(mul(row.weight, code.J_qq), mul(square, square)))
            with code.pairs(c) as place:
                pair = code.pair(place)
                (dot_psi,) = code.dots((pair.psi, u))
                first, second = fadd(dot_psi, mul(pair.q, p)), mul(pair.q, square)
                code.add_number(sums[0], mul(mul(two, pair.residual), first))
                code.add_number(sums[1], fadd(mul(mul(two, pair.residual), second), mul(pair.a, mul(first, first))))
                code.add_number(sums[2], mul(mul(two, pair.a), mul(first, second)))
                code.add_number(sums[3], mul(pair.a, mul(second, second)))
        code.add_numbers(sums, 0)
        return context.get_dummy_value()

    return _signature(indptr, pairs, tables, state, gram, n, n, n, path, out), generate


@intrinsic
def _advance(typingctx, indptr, pairs, tables, state, gram, lo, hi, at, path, length):  # pragma: no cover - compiled
    n = types.intp

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        code = _RowCode(context, builder, signature, args, *SHARED, "path", "length")
        length = code.number("length")
        with code.rows() as (c, r):
            F, u, moved = code.load_row("F", c), code.load_row("u", r), ir.Constant(code.scalar, 0.0)
            if code.pairwise:
                dot_F, along, square_u = code.dots((F, u), (code.v, u), (u, u))
                p, square = code.bias_path(r, dot_F, square_u)
                moved = code.fadd(code.mul(length, p), code.mul(code.mul(length, length), square))
                code.add_at("phi_q", c, moved)
                code.add_at("t", c, code.fadd(code.mul(length, along), code.mul(code.J_qq, moved)))
            with code.pairs(c) as place:
                i = code.index("indices", place)
                (dot_psi,) = code.dots((code.load_row("psi", i), u))
                change = code.mul(length, dot_psi)
                if code.pairwise:
                    change = code.fadd(change, code.mul(code.value("psi_q", i, "psi_q_step"), moved))
                code.add_at("scores", place, change)
            code.store_row("F", c, code.fma(code.splat(length), u, F))
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


class _RowCode(PanelCode):  # pragma: no cover - compiled
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

    @contextmanager
    def pairs(self, c: Any) -> Iterator[Any]:
        with self.over(self.index("indptr", c), self.index("indptr", self.builder.add(c, I64(1))), 1) as p:
            yield p

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

    def bias_path(self, r: Any, dot_F: Any, square_u: Any) -> tuple[Any, Any]:
        """p and r of :class:`Path`."""
        p = self.builder.fsub(dot_F, self.value("wu", r), flags=CONTRACT)
        half = ir.Constant(self.scalar, 0.5)
        return p, self.mul(half, self.builder.fsub(square_u, self.value("ru", r), flags=CONTRACT))

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


gradients = native(_gradients, gradients_plain)
products = native(_products, products_plain)
line = native(_line, line_plain)
advance = native(_advance, advance_plain)
