"""Which of 64 numbers reach a bound, as the bits of one integer: three leaves written in LLVM.

Most runs of scores have none that reaches the bound, which a few vector comparisons show; otherwise only those that do are visited.
As in :mod:`everypair.kernels.simd`, the plain twins define what the leaves do, and run where compilation is off or indices are
checked.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from everypair.kernels.jit import native
from everypair.kernels.simd import LANES

BITS = 64


def reaching_plain(values, at, least):
    """Bit j is set where ``values[at + j] >= least``, for j = 0, ..., 63; never for NaN."""
    mask = np.uint64(0)
    for j in range(BITS):
        if values[at + j] >= least:
            mask |= np.uint64(1) << np.uint64(j)
    return mask


def lowest_plain(mask):
    """The position of the lowest bit that is set; there must be one."""
    j = 0
    while not (mask >> np.uint64(j)) & np.uint64(1):
        j += 1
    return j


def count_plain(mask):
    """How many bits are set."""
    found = 0
    while mask:
        mask &= mask - np.uint64(1)
        found += 1
    return found


@intrinsic
def _reaching(typingctx, values, at, least):  # pragma: no cover - compiled
    signature = types.uint64(values, types.intp, values.dtype)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        scalar = context.get_data_type(signature.args[0].dtype)
        vector = ir.VectorType(scalar, LANES)
        undefined = ir.Constant(vector, ir.Undefined)
        bound = builder.insert_element(undefined, args[2], ir.Constant(ir.IntType(32), 0))
        bound = builder.shuffle_vector(bound, undefined, ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES))
        mask = ir.Constant(ir.IntType(BITS), 0)
        for first in range(0, BITS, LANES):
            place = builder.gep(data, [builder.add(args[1], ir.Constant(ir.IntType(64), first))])
            place = builder.bitcast(place, vector.as_pointer())
            values = builder.load(place, align=8 if isinstance(scalar, ir.DoubleType) else 4)
            reached = builder.fcmp_ordered(">=", values, bound)
            bits = builder.zext(builder.bitcast(reached, ir.IntType(LANES)), ir.IntType(BITS))
            mask = builder.or_(mask, builder.shl(bits, ir.Constant(ir.IntType(BITS), first)))
        return mask

    return signature, generate


@intrinsic
def _lowest(typingctx, mask):  # pragma: no cover - compiled
    signature = types.intp(types.uint64)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = ir.FunctionType(ir.IntType(BITS), [ir.IntType(BITS), ir.IntType(1)])
        count = cgutils.get_or_insert_function(builder.module, kind, f"llvm.cttz.i{BITS}")
        return builder.call(count, [args[0], ir.Constant(ir.IntType(1), 1)])

    return signature, generate


@intrinsic
def _count(typingctx, mask):  # pragma: no cover - compiled
    signature = types.intp(types.uint64)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = ir.FunctionType(ir.IntType(BITS), [ir.IntType(BITS)])
        return builder.call(cgutils.get_or_insert_function(builder.module, kind, f"llvm.ctpop.i{BITS}"), [args[0]])

    return signature, generate


reaching = native(_reaching, reaching_plain)
lowest = native(_lowest, lowest_plain)
count = native(_count, count_plain)
