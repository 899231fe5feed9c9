"""How kernels are compiled, and :func:`pick`, which lets a scalar stand for a constant array."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numba.core import types
from numba.extending import intrinsic, overload

# Sums may be reordered and fused (they vectorise), but NaN and infinity keep their meaning.
FASTMATH = {"reassoc", "contract", "nsz", "arcp"}

# ``fastmath`` is explicit: a function that leaves it open takes it from whichever caller is compiled first.
kernel = numba.njit(cache=True, nogil=True, error_model="numpy", fastmath=False)
leaf = numba.njit(cache=True, nogil=True, error_model="numpy", fastmath=FASTMATH)


def pick(value: Any, p: int) -> Any:
    """``value[p]``, or ``value`` itself when it is a scalar: a constant costs no memory per pair."""
    return value if np.ndim(value) == 0 else value[p]


@overload(pick, inline="always")
def _pick(value, p):  # pragma: no cover - runs inside the compiler
    if isinstance(value, types.Array):
        return lambda value, p: value[p]
    return lambda value, p: value


def part(value: Any, start: int, stop: int) -> Any:
    """``value[start:stop]``, or ``value`` itself when it is a scalar.

    Loops over a slice from 0 vectorise; loops over ``start + p`` do not, as the index might be negative.
    """
    return value if np.ndim(value) == 0 else value[start:stop]


@overload(part, inline="always")
def _part(value, start, stop):  # pragma: no cover - runs inside the compiler
    if isinstance(value, types.Array):
        return lambda value, start, stop: value[start:stop]
    return lambda value, start, stop: value


@intrinsic
def _fused(typing, a, b, c):  # pragma: no cover - runs inside the compiler
    def build(context, builder, signature, values):
        return builder.fma(*values)

    return types.float64(types.float64, types.float64, types.float64), build


def fused(a: Any, b: Any, c: Any) -> Any:
    """``a b + c``, rounded once: a plain sum may be fused by the compiler or not, and kernels that do the same differ in bits."""
    return a * b + c


@overload(fused, inline="always")
def _overloaded(a, b, c):  # pragma: no cover - runs inside the compiler
    return lambda a, b, c: _fused(a, b, c)  # type: ignore[call-arg]


def native(compiled: Any, plain: Any) -> Any:
    """A leaf in LLVM's own terms; its plain twin where compilation is off, and where indices are to be checked: vector loads check
    nothing."""
    return kernel(plain) if numba.config.DISABLE_JIT or numba.config.BOUNDSCHECK else compiled  # type: ignore[attr-defined]


@leaf
def fill(array, value):
    """``array[:] = value`` for a vector or a matrix, in loops: somewhat faster to compile than the assignment."""
    if array.ndim == 1:
        for j in range(len(array)):
            array[j] = value
    else:
        for i in range(array.shape[0]):
            for j in range(array.shape[1]):
                array[i, j] = value
