"""CUDA sources of the package, with their headers inlined, and the signatures of their kernels."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

FOLDER = Path(__file__).parent / "kernels"
INCLUDE = re.compile(r'^#include "([\w.]+)"\n', re.MULTILINE)
KERNEL = re.compile(r'extern "C" __global__ void(?:\s+__launch_bounds__\([^)]*\))?\s+(\w+)\(([^)]*)\)')
TYPES = {
    "int": np.dtype(np.int32),
    "int2": np.dtype(np.int32),  # rows of two
    "int4": np.dtype(np.int32),  # rows of four
    "u32": np.dtype(np.uint32),
    "float": np.dtype(np.float32),
    "float4": np.dtype(np.float32),
    "double": np.dtype(np.float64),
}


class KernelArgument(NamedTuple):
    """An argument of a kernel: an array, or a number, of this type."""

    name: str
    dtype: np.dtype
    is_array: bool


class CudaSource(NamedTuple):
    """The text of a translation unit, and the arguments of its kernels by name."""

    name: str
    text: str
    kernels: Mapping[str, tuple[KernelArgument, ...]]


@cache
def source(name: str, **defined: int) -> CudaSource:
    """The source ``kernels/<name>.cu``, with these macros defined.

    >>> [argument.name for argument in source("rows").kernels["explicit_weights"]][:3]
    ['n_pairs', 'items', 'alpha']
    """
    text = _inlined(f"{name}.cu", set())
    kernels = {kernel: tuple(_argument(a) for a in arguments.split(",")) for kernel, arguments in KERNEL.findall(text)}
    macros = "".join(f"#define {key} {value}\n" for key, value in sorted(defined.items()))
    return CudaSource(
        "_".join([name, *(f"{key.lower()}{value}" for key, value in sorted(defined.items()))]), macros + text, kernels
    )


def _inlined(file: str, seen: set[str]) -> str:
    """A file with the headers that were not included before."""
    seen.add(file)
    text = (FOLDER / file).read_text(encoding="utf-8").replace("#pragma once\n", "")
    return INCLUDE.sub(lambda found: "" if found[1] in seen else _inlined(found[1], seen), text)


def _argument(declaration: str) -> KernelArgument:
    words = declaration.replace("*", " * ").replace("__restrict__", "").replace("const", "").split()
    return KernelArgument(words[-1], TYPES[words[0]], "*" in words)


def checked(kernel: str, arguments: tuple[KernelArgument, ...], values: tuple[object, ...]) -> list[object]:
    """Arrays as they are, and numbers in the type of the argument. A wrong type is a mistake of this package."""
    if len(values) != len(arguments):
        raise TypeError(f"{kernel} takes {len(arguments)} arguments, got {len(values)}.")
    for argument, value in zip(arguments, values, strict=True):
        dtype = getattr(value, "dtype", None)
        if argument.is_array != (getattr(value, "ndim", 0) > 0) or (argument.is_array and dtype != argument.dtype):
            raise TypeError(f"{kernel}: {argument.name} must be {argument}, got {type(value).__name__} of type {dtype}.")
        if argument.is_array and not value.flags.c_contiguous:  # type: ignore[attr-defined]
            raise TypeError(f"{kernel}: {argument.name} is not contiguous.")
    return [v if a.is_array else a.dtype.type(v) for a, v in zip(arguments, values, strict=True)]  # type: ignore[call-overload]
