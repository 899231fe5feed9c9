"""How kernels are compiled, and helpers by which a number stands for a constant array."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from numba.core import types
from numba.extending import intrinsic, overload

from everypair.kernels.compilation import watch_compilation
from everypair.kernels.compile_cache import keep_safely

# Sums may be reordered and fused (they vectorise), but NaN and infinity keep their meaning.
FASTMATH = {"reassoc", "contract", "nsz", "arcp"}


watch_compilation()


def compiled(function: Callable[..., Any], fastmath: Any) -> Any:
    # ``fastmath`` is always set: Numba compiles a function that leaves it open with the option of whichever caller comes first.
    found: Any = numba.njit(cache=True, nogil=True, error_model="numpy", fastmath=fastmath)(function)
    cache = getattr(found, "_cache", None)
    if cache is not None:
        keep_safely(cache)
    return found


def kernel(function: Callable[..., Any]) -> Any:
    """Compile a function; sums keep their order."""
    return compiled(function, False)


def leaf(function: Callable[..., Any]) -> Any:
    """Compile a function whose sums may be reordered and fused."""
    return compiled(function, FASTMATH)


def inlined(function: Callable[..., Any]) -> Any:
    """A function whose source is copied into its callers: in an inner loop a call, with tuples of arrays above all, costs more."""
    return numba.njit(inline="always")(function)


def pick(value: Any, p: int) -> Any:
    """``value[p]``, or ``value`` itself if it is a number: a constant costs no memory per pair."""
    return value if np.ndim(value) == 0 else value[p]


@overload(pick, inline="always")
def _pick(value, p):  # pragma: no cover - runs inside the compiler
    if isinstance(value, types.Array):
        return lambda value, p: value[p]
    return lambda value, p: value


def slice_of(value: Any, start: int, stop: int) -> Any:
    """``value[start:stop]``, or ``value`` itself if it is a number.

    Loops over a slice from 0 vectorise; loops over ``start + p`` do not, as the index might be negative.
    """
    return value if np.ndim(value) == 0 else value[start:stop]


@overload(slice_of, inline="always")
def _slice_of(value, start, stop):  # pragma: no cover - runs inside the compiler
    if isinstance(value, types.Array):
        return lambda value, start, stop: value[start:stop]
    return lambda value, start, stop: value


@intrinsic
def _fused(typing, a, b, c):  # pragma: no cover - runs inside the compiler
    def build(context, builder, signature, values):
        return builder.fma(*values)

    return types.float64(types.float64, types.float64, types.float64), build


def fused(a: Any, b: Any, c: Any) -> Any:
    """``a b + c``, rounded once. The compiler may fuse a plain sum in one kernel and not in another, and bits would differ."""
    return a * b + c


@overload(fused, inline="always")
def _overloaded(a, b, c):  # pragma: no cover - runs inside the compiler
    return lambda a, b, c: _fused(a, b, c)  # type: ignore[call-arg]


def native(compiled: Any, plain: Any) -> Any:
    """A leaf written in LLVM; its plain twin where compilation is off or indices are checked, as vector loads check nothing."""
    return kernel(plain) if numba.config.DISABLE_JIT or numba.config.BOUNDSCHECK else compiled  # type: ignore[attr-defined]


def native_only(compiled: Any, plain: Any) -> Any:
    """As :func:`native`, for a twin that Numba cannot compile: NumPy checks its indices where compilation is off, and nothing
    else does."""
    return plain if numba.config.DISABLE_JIT else compiled  # type: ignore[attr-defined]


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
