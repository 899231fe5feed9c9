"""``Shim``: a backend that runs CUDA sources on the CPU, compiled by g++ with ``cuda_shim.h``."""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from everypair.gpu.backend import Backend
from everypair.gpu.sources import KERNEL, CudaSource, KernelArgument

HEADER = Path(__file__).with_name("cuda_shim.h")
CTYPES = {np.dtype(np.int32): ctypes.c_int, np.dtype(np.float32): ctypes.c_float, np.dtype(np.float64): ctypes.c_double}
REAL = bool(os.environ.get("EVERYPAIR_TEST_GPU"))  # whether tests of GPUs run on one
FLAGS = ("-O1", "-w", "-std=c++17", "-fPIC", "-shared", "-ffp-contract=off")

needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++ to run CUDA sources on the CPU")


class Shim(Backend):
    """The CPU in the place of a GPU. ``memory`` is how much of it is free."""

    name, device, number = "a CPU in the place of a GPU", "cuda:0", 0

    def __init__(self, memory: int = 2**40) -> None:
        super().__init__()
        self.xp, self.memory = np, memory

    def compile(self, source: CudaSource) -> Mapping[str, Callable[..., None]]:
        library = ctypes.CDLL(str(_built(source)))
        return {name: partial(_launch, getattr(library, f"launch_{name}"), arguments) for name, arguments in source.kernels.items()}

    def upload(self, array: np.ndarray) -> np.ndarray:
        return np.array(array, order="C")

    def download(self, array: Any) -> np.ndarray:
        return np.array(array)

    @property
    def free_bytes(self) -> int:
        return self.memory


def _launch(function: Any, arguments: tuple[KernelArgument, ...], blocks: int, threads: int, values: list[Any]) -> None:
    given = [
        ctypes.c_void_p(value.ctypes.data) if argument.is_array else CTYPES[argument.dtype](value)
        for argument, value in zip(arguments, values, strict=True)
    ]
    function(ctypes.c_int(blocks), ctypes.c_int(threads), *given)


def _built(source: CudaSource) -> Path:
    """A shared library with a function ``launch_<kernel>`` for each kernel; the same text is compiled once."""
    entries = []
    for name, declared in KERNEL.findall(source.text):
        plain = declared.replace("__restrict__", "")
        names = ", ".join(re.findall(r"(\w+)\s*(?:,|$)", plain))
        entries.append(
            f'extern "C" void launch_{name}(int shim_blocks, int shim_threads, {plain}) '
            f"{{ shim_run(shim_blocks, shim_threads, [=] {{ {name}({names}); }}); }}"
        )
    text = '#include "cuda_shim.h"\n' + source.text + "\n".join(entries) + "\n"
    digest = hashlib.sha256((text + HEADER.read_text() + " ".join(FLAGS)).encode()).hexdigest()[:16]
    folder = Path(os.environ.get("EVERYPAIR_SHIM", Path(tempfile.gettempdir()) / f"everypair-shim-{os.getuid()}"))
    library = folder / f"{source.name}-{digest}.so"
    if not library.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as work:
            code, made = Path(work) / "kernels.cpp", Path(work) / "kernels.so"
            code.write_text(text)
            subprocess.run(["g++", *FLAGS, "-I", str(HEADER.parent), str(code), "-o", str(made)], check=True)
            made.replace(library)
    return library
