"""Two leaves in LLVM vector types, for the row sweep: sixteen dimensions at a time, accumulators in registers.

The compiler does not keep a 16 x 16 array in registers across a loop, so the two inner loops are written in its own terms:
:func:`accumulate` becomes sixteen fused multiply-adds per pair and nothing else where vectors have 16 lanes, and the same code
is lowered to what other processors have. ``accumulate_plain`` and ``update_plain`` say what they do; tests compare them, and they
stand in where compilation is off.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from everypair.kernels.jit import kernel

LANES = 16
CONTRACT = ("contract", "reassoc", "nsz")


def accumulate_plain(indices, psi, lo, hi, first, scores, a, a_step, b, b_step, out):
    """``out[0] += sum (a s - b) v`` and ``out[1 + j] += sum a v_j v`` over pairs lo:hi, with ``v = psi[i, first:first + 16]``.

    The sums over these pairs are in the precision of the data, ``out`` is in float64.
    ``a_step`` and ``b_step`` are 1 for one weight per pair, 0 for one weight in all.
    """
    for p in range(lo, hi):
        v = psi[indices[p], first : first + LANES]
        out[0] += (a[p * a_step] * scores[p] - b[p * b_step]) * v
        for j in range(LANES):
            out[1 + j] += v[j] * (a[p * a_step] * v)


def update_plain(indices, psi, lo, hi, first, scores, delta):
    """``scores += <delta, v>`` for pairs lo:hi."""
    for p in range(lo, hi):
        scores[p] += np.sum(delta * psi[indices[p], first : first + LANES])


@intrinsic
def _accumulate(typingctx, indices, psi, lo, hi, first, scores, a, a_step, b, b_step, out):  # pragma: no cover - compiled
    signature = types.void(indices, psi, types.intp, types.intp, types.intp, scores, a, types.intp, b, types.intp, out)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        loop = _Pairs(context, builder, signature, args)
        first, a_step, b_step = args[4], args[7], args[9]
        zero = ir.Constant(loop.vector, [0.0] * LANES)
        sums = [cgutils.alloca_once_value(builder, zero) for _ in range(LANES + 1)]
        with loop.over() as (p, _):
            v = loop.load_vector(p, first)
            s = loop.load(5, p)
            a = loop.load(6, builder.mul(p, a_step))
            b = loop.load(8, builder.mul(p, b_step))
            residual = builder.fsub(builder.fmul(a, s, flags=CONTRACT), b, flags=CONTRACT)
            _add_product(builder, sums[0], _splat(builder, residual), v)
            weighted = builder.fmul(_splat(builder, a), v, flags=CONTRACT)
            for j in range(LANES):
                lane = builder.extract_element(v, ir.Constant(ir.IntType(32), j))
                _add_product(builder, sums[1 + j], _splat(builder, lane), weighted)
        double = ir.VectorType(ir.DoubleType(), LANES)
        for j, total in enumerate(sums):
            place = builder.gep(loop.data(10), [ir.Constant(ir.IntType(64), j * LANES)])
            place = builder.bitcast(place, double.as_pointer())
            more = builder.load(total)
            more = more if isinstance(loop.scalar, ir.DoubleType) else builder.fpext(more, double)
            builder.store(builder.fadd(builder.load(place, align=8), more), place, align=8)
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def _update(typingctx, indices, psi, lo, hi, first, scores, delta):  # pragma: no cover - compiled
    signature = types.void(indices, psi, types.intp, types.intp, types.intp, scores, delta)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        loop = _Pairs(context, builder, signature, args)
        step = loop.load_lanes(loop.data(6))
        kind = ir.FunctionType(loop.scalar, [loop.scalar, loop.vector])
        name = f"llvm.vector.reduce.fadd.v{LANES}f{64 if isinstance(loop.scalar, ir.DoubleType) else 32}"
        reduce = cgutils.get_or_insert_function(builder.module, kind, name)
        with loop.over() as (p, _):
            product = builder.fmul(step, loop.load_vector(p, args[4]), flags=CONTRACT)
            moved = builder.call(reduce, [ir.Constant(loop.scalar, -0.0), product], fastmath=CONTRACT)
            place = builder.gep(loop.data(5), [p])
            builder.store(builder.fadd(builder.load(place), moved, flags=CONTRACT), place)
        return context.get_dummy_value()

    return signature, generate


class _Pairs:  # pragma: no cover - compiled
    """Code for a loop over pairs. The first arguments are their indices, the other side's vectors, and the range lo, hi."""

    def __init__(self, context: Any, builder: Any, signature: Any, args: Any) -> None:
        self._context, self._builder, self._types, self._args = context, builder, signature.args, args
        self.scalar = context.get_data_type(self._types[1].dtype)
        self.vector = ir.VectorType(self.scalar, LANES)
        self.align = 8 if isinstance(self.scalar, ir.DoubleType) else 4
        self.stride = builder.extract_value(self._array(1).shape, 1)

    def over(self) -> Any:
        return cgutils.for_range_slice(self._builder, self._args[2], self._args[3], ir.Constant(ir.IntType(64), 1))

    def data(self, argument: int) -> Any:
        return self._array(argument).data

    def load(self, argument: int, position: Any) -> Any:
        return self._builder.load(self._builder.gep(self.data(argument), [position]))

    def pointer(self, p: Any, first: Any) -> Any:
        """Where ``psi[indices[p], first]`` lies."""
        builder = self._builder
        row = builder.sext(self.load(0, p), ir.IntType(64)) if self._types[0].dtype.bitwidth < 64 else self.load(0, p)
        return builder.gep(self.data(1), [builder.add(builder.mul(row, self.stride), first)])

    def load_vector(self, p: Any, first: Any) -> Any:
        """``psi[indices[p], first:first + 16]``."""
        return self.load_lanes(self.pointer(p, first))

    def load_lanes(self, pointer: Any) -> Any:
        return self._builder.load(self._builder.bitcast(pointer, self.vector.as_pointer()), align=self.align)

    def _array(self, argument: int) -> Any:
        return self._context.make_array(self._types[argument])(self._context, self._builder, self._args[argument])


def _splat(builder: Any, value: Any) -> Any:  # pragma: no cover - compiled
    vector = ir.VectorType(value.type, LANES)
    undefined = ir.Constant(vector, ir.Undefined)
    one = builder.insert_element(undefined, value, ir.Constant(ir.IntType(32), 0))
    return builder.shuffle_vector(one, undefined, ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES))


def _add_product(builder: Any, place: Any, x: Any, y: Any) -> None:  # pragma: no cover - compiled
    builder.store(builder.fadd(builder.load(place), builder.fmul(x, y, flags=CONTRACT), flags=CONTRACT), place)


# Where indices are to be checked, the plain twins are compiled instead: vector loads check nothing.
_vectors = not (numba.config.DISABLE_JIT or numba.config.BOUNDSCHECK)  # type: ignore[attr-defined]
accumulate: Callable[..., None] = _accumulate if _vectors else kernel(accumulate_plain)
update: Callable[..., None] = _update if _vectors else kernel(update_plain)
