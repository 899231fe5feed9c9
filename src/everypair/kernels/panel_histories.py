"""Passes over the rows of a sequence in a panel of sixteen dimensions: the running sums of its history, and what they meet in rows.

The running sum of vectors stays in registers, and goes into the pass over a row and its pairs without a detour through memory. See
:mod:`everypair.kernels.panel_rows` for the rows and :mod:`everypair.kernels.sequences` for the sums; the functions called
``..._plain`` define what each leaf does. ``lo`` is the first row of the sequence, ``begin`` its first event; ``items`` and
``count`` belong to the sequence alone; ``x2`` sums up the squares of entries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic, register_jitable

from everypair.kernels.jit import native_only, pick
from everypair.kernels.panel_rows import Path, RowCode, advance_plain, gradients_plain, line_plain, products_plain
from everypair.kernels.running_sums import scale_at
from everypair.kernels.simd import I64, LANES


class PanelSequence(NamedTuple):
    """A sequence as these leaves take it."""

    lo: int
    begin: int
    items: np.ndarray
    count: np.ndarray


class SquareSum(NamedTuple):
    """:class:`~everypair.kernels.running_sums.RunningSum` for squares, by other names."""

    decay2: Any
    enter2: Any
    leave2: Any
    scale2: np.ndarray


class Adjoints(NamedTuple):
    """Room for gradients, curvatures and gradients in the bias dimension: of rows, and with respect to the sums after events."""

    of_g: np.ndarray
    of_h: np.ndarray
    of_bias: np.ndarray
    adjoint: np.ndarray
    adjoint_h: np.ndarray
    adjoint_q: np.ndarray


class Sums(NamedTuple):
    """Sums by item."""

    slope: np.ndarray
    curvature: np.ndarray
    of_q: np.ndarray


@register_jitable
def _forward(sequence, decay, last, enter, leave, scale, W, out):
    """``out = X W`` for the rows of a sequence, the first of which is ``out[0]``."""
    begin, items, count = sequence.begin, sequence.items, sequence.count
    total, done = np.zeros(W.shape[1]), 0
    for c in range(len(count)):
        for n in range(done, count[c]):
            total = pick(decay, begin + n) * total + pick(enter, begin + n) * W[items[n]]
            if n >= last:
                total = total - pick(leave, begin + n - last) * W[items[n - last]]
        done = count[c]
        out[c] = total * scale[scale_at(decay, last, begin, count[c])]


@register_jitable
def _backward(sequence, decay, last, enter, leave, scale, Z, out):
    """``out += X' Z`` for the rows of a sequence, the first of which is ``Z[0]``: the transpose of :func:`_forward`."""
    begin, items, count = sequence.begin, sequence.items, sequence.count
    c, end, total, adjoint = len(count), len(items), np.zeros(Z.shape[1]), np.zeros((len(items), Z.shape[1]))
    for n in range(end - 1, -1, -1):
        while c > 0 and count[c - 1] > n:
            c -= 1
            total = total + scale[scale_at(decay, last, begin, count[c])] * Z[c]
        adjoint[n] = total
        out[items[n]] += pick(enter, begin + n) * total
        if n < end - last:
            out[items[n]] -= pick(leave, begin + n) * adjoint[n + last]
        total = pick(decay, begin + n) * total


def gradient_plain(sequence, x, x2, indptr, pairs, tables, state, gram, room, out):
    """Add ``X'`` times the gradients of rows, ``(X^2)'`` times their curvatures and times their gradients in the bias dimension to
    the sums by item."""
    n = len(sequence.count)
    g, h, g_q = np.zeros((n, LANES)), np.zeros((n, LANES)), np.zeros((n, 1))
    gradients_plain(indptr, pairs, tables, state, gram, sequence.lo, sequence.lo + n, 0, g, h, g_q[:, 0])
    _backward(sequence, x.decay, x.last, x.enter, x.leave, x.scale, g, out.slope)
    _backward(sequence, x2.decay2, x.last, x2.enter2, x2.leave2, x2.scale2, h, out.curvature)
    if tables.psi_q is not None:
        _backward(sequence, x2.decay2, x.last, x2.enter2, x2.leave2, x2.scale2, g_q, out.of_q.reshape(-1, 1))


def product_plain(sequence, x, indptr, pairs, tables, state, gram, P, u, adjoint, out):
    """Add ``X' H X P`` with the curvatures H of rows to ``out``."""
    n = len(sequence.count)
    moved = np.zeros((n, LANES), P.dtype)
    _forward(sequence, x.decay, x.last, x.enter, x.leave, x.scale, P, moved)
    products_plain(indptr, pairs, tables, state, gram, sequence.lo, sequence.lo + n, 0, moved)
    _backward(sequence, x.decay, x.last, x.enter, x.leave, x.scale, moved, out)


@register_jitable
def _path(sequence, x, x2, delta, squares):
    n = len(sequence.count)
    u, of_squares = np.zeros((n, LANES), delta.dtype), np.zeros((n, 2))
    _forward(sequence, x.decay, x.last, x.enter, x.leave, x.scale, delta, u)
    if squares is not None:
        _forward(sequence, x2.decay2, x.last, x2.enter2, x2.leave2, x2.scale2, squares, of_squares)
    return Path(u, of_squares[:, 0], of_squares[:, 1])


def loss_along_plain(sequence, x, x2, indptr, pairs, tables, state, gram, delta, squares, out):
    """Add the coefficients of the loss along a direction to ``out``; ``squares`` has ``<w, Delta>`` and ``|Delta|^2`` by item."""
    path = _path(sequence, x, x2, delta, squares)
    line_plain(indptr, pairs, tables, state, gram, sequence.lo, sequence.lo + len(sequence.count), 0, path, out)


def move_plain(sequence, x, x2, indptr, pairs, tables, state, gram, delta, squares, length):
    """Move the rows along a direction."""
    path = _path(sequence, x, x2, delta, squares)
    advance_plain(indptr, pairs, tables, state, gram, sequence.lo, sequence.lo + len(sequence.count), 0, path, length)


ROWS = ("indptr", "pairs", "tables", "state", "gram")


@intrinsic
def _gradient(typingctx, sequence, x, x2, indptr, pairs, tables, state, gram, room, out):  # pragma: no cover - compiled
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        code = _HistoryCode(context, builder, signature, args, "sequence", "x", "x2", *ROWS, "room", "out")
        found = [_Transposed("adjoint", "slope", ""), _Transposed("adjoint_h", "curvature", "2")]
        if code.pairwise:
            found.append(_Transposed("adjoint_q", "of_q", "2", single=True))
        with code.over(I64(0), code.length("count"), 1) as r:  # forwards: rows come from memory as they lie there
            g, h, g_q = code.row_gradient(builder.add(code["lo"], r))
            code.store_row("of_g", r, g)
            code.store_row("of_h", r, h)
            if code.pairwise:
                builder.store(g_q, code.place("of_bias", r))

        def of_row(r: Any) -> list[Any]:
            vectors = [code.load_row("of_g", r), code.load_row("of_h", r)]
            return [*vectors, code.value("of_bias", r)] if code.pairwise else vectors

        code.backward(of_row, found)
        return context.get_dummy_value()

    return types.void(sequence, x, x2, indptr, pairs, tables, state, gram, room, out), generate


@intrinsic
def _product(typingctx, sequence, x, indptr, pairs, tables, state, gram, P, u, adjoint, out):  # pragma: no cover - compiled
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        code = _HistoryCode(context, builder, signature, args, "sequence", "x", *ROWS, "P", "u", "adjoint", "out")
        for r, c, moved, _ in code.forward("P"):
            code.store_row("u", r, code.row_product(c, moved))
        code.backward(lambda r: [code.load_row("u", r)], [_Transposed("adjoint", "out", "")])
        return context.get_dummy_value()

    return types.void(sequence, x, indptr, pairs, tables, state, gram, P, u, adjoint, out), generate


DIRECTION = ("sequence", "x", "x2", *ROWS, "delta", "squares")


@intrinsic
def _loss_along(typingctx, sequence, x, x2, indptr, pairs, tables, state, gram, delta, squares, out):  # pragma: no cover - compiled
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        code = _HistoryCode(context, builder, signature, args, *DIRECTION, "out")
        if not code.pairwise:
            return context.get_dummy_value()
        sums = code.zero_numbers(4)
        for _, c, u, of_squares in code.forward("delta", "squares"):
            code.row_line(c, u, *of_squares, sums)
        code.add_numbers(sums, 0)
        return context.get_dummy_value()

    return types.void(sequence, x, x2, indptr, pairs, tables, state, gram, delta, squares, out), generate


@intrinsic
def _move(typingctx, sequence, x, x2, indptr, pairs, tables, state, gram, delta, squares, length):  # pragma: no cover - compiled
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        code = _HistoryCode(context, builder, signature, args, *DIRECTION, "length")
        length = code.number("length")
        for _, c, u, of_squares in code.forward("delta", "squares" if code.pairwise else None):
            code.row_advance(c, u, *of_squares, length)
        return context.get_dummy_value()

    return types.void(sequence, x, x2, indptr, pairs, tables, state, gram, delta, squares, types.float64), generate


class _Transposed(NamedTuple):  # pragma: no cover - compiled
    """A product with X', or with the transposed squares (``which`` is "2"): the names of its room and of the sums by item."""

    adjoint: str
    out: str
    which: str
    single: bool = False  # a number by item, in float64


class _HistoryCode(RowCode):  # pragma: no cover - compiled
    """Code for these leaves: running sums along a sequence."""

    def forward(self, table: str, squares: str | None = None) -> Iterator[tuple[Any, Any, Any, tuple[Any, Any]]]:
        """For each row its position in the sequence, itself, and its sums of vectors and of two numbers. A generator: the code of
        the caller's loop is written once, into the loop over rows."""
        builder, last = self.builder, self["last"]
        total, done = self.zeros(1)[0], cgutils.alloca_once_value(builder, I64(0))
        two = ir.VectorType(ir.DoubleType(), 2)
        total2 = cgutils.alloca_once_value(builder, ir.Constant(two, [0.0, 0.0]))

        def add(n: Any, name: str, sign: float) -> None:
            item, p = self.index("items", n), builder.add(self["begin"], n)
            factor = builder.fmul(self._factor(name, p), ir.Constant(ir.DoubleType(), sign))
            self.add(total, self.times(self.cast(factor), self.load_row(table, item)))
            if squares is not None:
                factor = builder.fmul(self._factor(name + "2", p), ir.Constant(ir.DoubleType(), sign))
                place = builder.bitcast(self.place(squares, builder.mul(item, I64(2))), two.as_pointer())
                self.add(total2, builder.fmul(self._pair_of(factor), builder.load(place, align=8)))

        self._clear([total, total2], [self.vector, two])
        builder.store(I64(0), done)
        with self.over(I64(0), self.length("count"), 1) as r:
            until = self.index("count", r)
            with self.over(builder.load(done), until, 1) as n:
                p = builder.add(self["begin"], n)
                builder.store(self.times(self.cast(self._factor("decay", p)), builder.load(total)), total)
                if squares is not None:
                    builder.store(builder.fmul(self._pair_of(self._factor("decay2", p)), builder.load(total2)), total2)
                add(n, "enter", 1.0)
                with builder.if_then(builder.icmp_signed(">=", n, last)):
                    add(builder.sub(n, last), "leave", -1.0)
            builder.store(until, done)
            at = self._scale_at(until)
            moved, of_squares = self.times(self.cast(self.value("scale", at)), builder.load(total)), (None, None)
            if squares is not None:
                both = builder.fmul(self._pair_of(self.value("scale2", at)), builder.load(total2))
                of_squares = tuple(self.cast(builder.extract_element(both, ir.IntType(32)(j))) for j in range(2))
            yield r, builder.add(self["lo"], r), moved, of_squares

    def backward(self, of_row: Callable[[Any], list[Any]], products: list[_Transposed]) -> None:
        """Transposed products of what ``of_row`` says of each row, from the last to the first."""
        builder, end, rows = self.builder, self.length("items"), self.length("count")
        kinds = [ir.DoubleType() if product.single else self.vector for product in products]
        totals = [cgutils.alloca_once(builder, kind) for kind in kinds]
        above = cgutils.alloca_once_value(builder, end)
        self._clear(totals, kinds)
        builder.store(end, above)

        def events(down_to: Any) -> None:
            start = builder.load(above)
            with self.over(down_to, start, 1) as position:
                n = builder.sub(builder.sub(builder.add(down_to, start), I64(1)), position)
                leaves = builder.icmp_signed("<", n, builder.sub(end, self["last"]))
                item, p = self.index("items", n), builder.add(self["begin"], n)
                for product, total in zip(products, totals, strict=True):
                    self._share(product, n, item, p, leaves, builder.load(total))
                    faded = self._scaled(self._factor("decay" + product.which, p), builder.load(total))
                    builder.store(faded, total)

        with self.over(I64(0), rows, 1) as position:
            r = builder.sub(builder.sub(rows, I64(1)), position)
            count = self.index("count", r)
            events(count)
            builder.store(count, above)
            at = self._scale_at(count)
            for product, total, value in zip(products, totals, of_row(r), strict=True):
                wide = self._double(value) if product.single else value
                self.add(total, self._scaled(self.value("scale" + product.which, at), wide))
        events(I64(0))

    def _share(self, product: _Transposed, n: Any, item: Any, p: Any, leaves: Any, total: Any) -> None:
        """Add the share of event n to its item's sum."""
        builder, width = self.builder, I64(1 if product.single else LANES)
        share = cgutils.alloca_once(builder, total.type)
        builder.store(self._scaled(self._factor("enter" + product.which, p), total), share)
        self._put(self.place(product.adjoint, builder.mul(n, width)), total, product.single)
        with builder.if_then(leaves):
            later = self.place(product.adjoint, builder.mul(builder.add(n, self["last"]), width))
            gone = builder.load(later) if product.single else self.load(later)
            factor = builder.fneg(self._factor("leave" + product.which, p))
            self.add(share, self._scaled(factor, gone))
        place, found = self.place(product.out, builder.mul(item, width)), builder.load(share)
        if product.single:
            builder.store(self.cast(builder.fadd(self._double(builder.load(place)), found)), place)
        else:
            self.store(builder.fadd(self.load(place), found), place)

    def _put(self, place: Any, value: Any, single: bool) -> None:
        if single:
            self.builder.store(value, place)
        else:
            self.store(value, place)

    def _scaled(self, factor: Any, value: Any) -> Any:
        """The product with a number in float64."""
        return self.times(self.cast(factor), value) if value.type == self.vector else self.mul(factor, value)

    def _factor(self, name: str, p: Any) -> Any:
        return self.value(name, p) if isinstance(self.kind(name), types.Array) else self[name]

    def _scale_at(self, count: Any) -> Any:
        """See :func:`~everypair.kernels.running_sums.scale_at`."""
        if isinstance(self.kind("decay"), types.Array):
            return self.builder.add(self["begin"], count)
        return self.builder.select(self.builder.icmp_signed("<", count, self["last"]), count, self["last"])

    def length(self, name: str) -> Any:
        """Of an array."""
        return self.builder.extract_value(self.array(name).shape, 0)

    def _double(self, value: Any) -> Any:
        return value if isinstance(self.scalar, ir.DoubleType) else self.builder.fpext(value, ir.DoubleType())

    def _pair_of(self, number: Any) -> Any:
        """The number, twice."""
        two = ir.Constant(ir.VectorType(ir.DoubleType(), 2), ir.Undefined)
        for j in range(2):
            two = self.builder.insert_element(two, number, ir.IntType(32)(j))
        return two

    def _clear(self, places: list[Any], kinds: list[Any]) -> None:
        """Set variables to zero: they are made once per function, but this code may run once per sequence."""
        for place, kind in zip(places, kinds, strict=True):
            zero = 0.0 if isinstance(kind, ir.DoubleType) else [0.0] * kind.count
            self.builder.store(ir.Constant(kind, zero), place)


gradient = native_only(_gradient, gradient_plain)
product = native_only(_product, product_plain)
loss_along = native_only(_loss_along, loss_along_plain)
move = native_only(_move, move_plain)
