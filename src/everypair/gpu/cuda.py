"""``Cuda``: a GPU of this machine, through CuPy (the extras ``gpu`` and ``gpu12``)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, partial
from importlib import import_module
from typing import Any

import numpy as np

from everypair.gpu.backend import Backend
from everypair.gpu.sources import CudaSource

CAPABILITY = (8, 0)  # the first that multiplies TF32 numbers on tensor cores
FORKED = (
    "this process was forked from one that had started CUDA, which works in that one only. "
    "Start processes with multiprocessing's 'spawn' or 'forkserver'"
)


class Cuda(Backend):
    """The GPU of this number, with its current memory pool and stream."""

    def __init__(self, number: int = 0) -> None:
        cupy: Any = import_module("cupy")

        super().__init__()
        self.xp, self.number = cupy, number
        self._device = cupy.cuda.Device(number)
        properties = cupy.cuda.runtime.getDeviceProperties(number)
        self.device = f"cuda:{number}"
        self.name = f"{properties['name'].decode()} ({self.device})"

    @contextmanager
    def active(self) -> Iterator[None]:
        with self._device:
            yield

    def compile(self, source: CudaSource) -> Mapping[str, Callable[..., None]]:
        module = self.xp.RawModule(code=source.text, options=("-std=c++17",), backend="nvrtc")
        return {name: partial(_launch, module.get_function(name)) for name in source.kernels}

    def upload(self, array: np.ndarray) -> Any:
        return self.xp.asarray(array)

    def download(self, array: Any) -> np.ndarray:
        return self.xp.asnumpy(array)

    @property
    def facts(self) -> dict[str, str]:
        runtime = self.xp.cuda.runtime
        with self.active():
            free, total = runtime.memGetInfo()
        numbers = runtime.driverGetVersion(), runtime.runtimeGetVersion()
        driver, cuda = (f"{number // 1000}.{number % 1000 // 10}" for number in numbers)
        return {
            **super().facts,
            "compute capability": f"{self._device.compute_capability[:-1]}.{self._device.compute_capability[-1]}",
            "memory": f"{total / 1e9:.1f} GB, {free / 1e9:.1f} GB free",
            "CUDA": f"{cuda}, driver for up to {driver}",
            "CuPy": self.xp.__version__,
        }

    @property
    def free_bytes(self) -> int:
        pool = self.xp.get_default_memory_pool()
        unused = pool.free_bytes()
        on_card = self.xp.cuda.runtime.memGetInfo()[0] + unused
        limit = pool.get_limit()
        return min(on_card, limit - pool.used_bytes()) if limit else on_card


def _launch(function: Any, blocks: int, threads: int, values: list[Any]) -> None:
    function((blocks,), (threads,), tuple(values))


def problem(number: int) -> str | None:
    """Why this GPU cannot be used; None if it can."""
    return FORKED if _started_in not in (None, os.getpid()) else _problem(number)


_started_in: int | None = None  # the process that started CUDA, by looking for GPUs


@cache
def _problem(number: int) -> str | None:
    global _started_in
    try:
        cupy: Any = import_module("cupy")
    except ImportError:
        return "CuPy is not installed: pip install 'everypair[gpu]' (CUDA 13) or 'everypair[gpu12]' (CUDA 12)"
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        return f"CUDA finds no GPU ({error})"
    _started_in = os.getpid()
    if number >= count:
        return f"there is no GPU number {number}: this machine has {count}, numbered from 0"
    digits = cupy.cuda.Device(number).compute_capability
    capability = int(digits[:-1]), int(digits[-1])
    if capability < CAPABILITY:
        needed = ".".join(map(str, CAPABILITY))
        return f"its compute capability is {'.'.join(map(str, capability))}, and {needed} or later (Ampere) is needed"
    return None


@cache
def cuda(number: int) -> Cuda:
    """The GPU of this number: one object in a process, which keeps its compiled kernels."""
    return Cuda(number)
