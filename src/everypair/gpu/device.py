"""Which device a fit runs on: what ``device=`` says, and whether a GPU can do it."""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import NamedTuple

import numpy as np

from everypair.engine.dimensions import BIAS
from everypair.engine.feedback import Feedback
from everypair.engine.tower import Tower
from everypair.gpu.backend import Backend
from everypair.gpu.cuda import cuda, problem
from everypair.gpu.levels import side_blocks
from everypair.runtime.progress import visible
from everypair.runtime.wording import named, setting

VARIABLE = "EVERYPAIR_DEVICE"  # the device of models that name none
CPU, AUTO, CUDA = "cpu", "auto", "cuda"
NUMBERED = re.compile(r"cuda:(\d{1,3})")
LARGEST = 2**31 - 1  # pairs, rows and columns that kernels can number

LOG = logging.getLogger("everypair")


class DeviceError(RuntimeError):
    """A GPU was asked for, and cannot be used."""


class Device(NamedTuple):
    """The CPU (``gpu`` is None), or a GPU."""

    gpu: Backend | None = None

    def active(self) -> AbstractContextManager[None]:
        """While it is, allocations and launches go to this device."""
        return nullcontext() if self.gpu is None else self.gpu.active()


class Job(NamedTuple):
    """What decides whether a GPU can run a fit."""

    model: str
    feedback: Feedback
    towers: Mapping[str, Tower]
    alpha0: float
    dtype: np.dtype
    order: str
    processes: int = 1


def requested(device: str | None) -> str:
    """The device that is asked for, checked: that of the argument, else of the environment, else the CPU."""
    where, value = named("device"), device
    if device is None:
        where, value = f"the environment variable {VARIABLE}", os.environ.get(VARIABLE) or CPU
    if not isinstance(value, str):
        raise TypeError(f"{where} must be a string or None, got {value!r} of type {type(value).__name__}.")
    if value not in (CPU, AUTO, CUDA) and not NUMBERED.fullmatch(value):
        raise ValueError(f"{where} must be 'cpu', 'auto', 'cuda' or 'cuda:1' (any number), got {value!r}.")
    return value


def number_of(wanted: str) -> int:
    """The number of the GPU that a checked name stands for."""
    found = NUMBERED.fullmatch(wanted)
    return int(found[1]) if found else 0


def choose(device: str | None, job: Job) -> Device:
    """The device of a fit.

    "auto" takes a GPU if there is one that can run the fit, and says which device it took and why. "cuda" raises
    :class:`DeviceError` with the reason if it cannot.
    """
    wanted = requested(device)
    if wanted == CPU:
        return Device()
    number = number_of(wanted)
    reason = refusal(job) or problem(number)
    gpu = None if reason else cuda(number)
    if gpu is not None:
        with gpu.active():
            reason = too_large(job, gpu.free_bytes)
    if wanted == AUTO:
        chosen = Device(None if reason else gpu)
        announce(f"{job.model} runs on the CPU: {reason}." if reason else f"{job.model} runs on {gpu.name}.")  # type: ignore[union-attr]
        return chosen
    if reason:
        raise DeviceError(f"{setting('device', wanted)} cannot be used: {reason}. On the CPU: {setting('device', CPU)}.")
    return Device(gpu)


def for_ranking(device: str | None) -> Backend | None:
    """The GPU that ``device=`` asks for, if it is there: lists are the same without it."""
    wanted = CPU if _on_cpu.get() else requested(device)
    if wanted == CPU:
        return None
    number = number_of(wanted)
    return None if problem(number) else cuda(number)


_on_cpu: ContextVar[bool] = ContextVar("on_cpu", default=False)


@contextmanager
def ranked_on_cpu() -> Iterator[None]:
    """Rank on the CPU in this block, whatever models and the environment say."""
    token = _on_cpu.set(True)
    try:
        yield
    finally:
        _on_cpu.reset(token)


def refusal(job: Job) -> str | None:
    """Why no GPU can run a fit, whatever its memory; None if one can."""
    if job.dtype != np.float32:
        return f"GPUs compute in float32, and {named('dtype')} is {job.dtype.name}"
    if job.order != "side":
        return f"{setting('order', job.order)} runs on the CPU only"
    if job.processes > 1:
        return f"a fit of {job.processes} processes runs on the CPU only"
    largest = max(len(job.feedback), *job.feedback.shape)
    if largest > LARGEST:
        return f"there are {largest:,} pairs or rows, and a GPU takes up to {LARGEST:,}"
    for side, tower in job.towers.items():
        if tower.settings.block_size != 1:
            return f"{setting('block_size', tower.settings.block_size)} runs on the CPU only"
        if tower.capabilities.free_rows and tower.describe_blocks() is not None:
            continue
        found = side_blocks(tower, job.feedback.shape[side == "item"])
        if isinstance(found, str):
            return f"the {side} tower {found}: {tower!r}"
        if tower.settings.field_solver == "cd":
            return f"{setting('field_solver', 'cd')} runs on the CPU only"
    biased = [BIAS in tower.dimension_kinds for tower in job.towers.values()]
    return "one of the towers is a factorization machine, and the other is not" if biased[0] != biased[1] else None


def too_large(job: Job, free: int) -> str | None:
    """Why a fit does not fit into this much memory; None if it does."""
    from everypair.gpu.memory import needed_bytes

    parts = needed_bytes(job.feedback, job.towers, job.alpha0)
    needed = sum(parts.values())
    if needed <= free:
        return None
    sizes = ", ".join(f"{_size(size)} for {name}" for name, size in parts.items())
    return f"it needs {_size(needed)} of the GPU's memory ({sizes}), and {_size(free)} are free"


def _size(n_bytes: int) -> str:
    return f"{n_bytes / 1e9:.2f} GB" if n_bytes >= 1e8 else f"{n_bytes / 1e6:.2f} MB"


def announce(text: str) -> None:
    """Say what was chosen: in the log, and, if it was not said before, on terminals and in notebooks."""
    LOG.info(text)
    if visible() and text not in _said:
        _said.add(text)
        print(text, file=sys.stderr)


_said: set[str] = set()
