"""What a fit is said to take of a device's memory is what it takes."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import everypair as ep
from everypair.engine.solver import ICD
from everypair.gpu import linear
from everypair.gpu.backend import Backend
from everypair.gpu.engine import GpuEngine
from everypair.gpu.memory import needed_bytes
from everypair.gpu.sources import CudaSource
from everypair.runtime.parallel import SERIAL

from shim_backend import REAL


class Counted(np.ndarray):
    """An array whose bytes are counted from when it is made until it is freed."""

    now = most = 0

    def __array_finalize__(self, made_from: Any) -> None:
        if self.base is None and self.flags.owndata:
            Counted._made(self)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, out: Any = (), **options: Any) -> Any:
        plain = [[each.view(np.ndarray) if isinstance(each, Counted) else each for each in values] for values in (inputs, out)]
        result = getattr(ufunc, method)(*plain[0], **options, **({"out": tuple(plain[1])} if out else {}))
        if out or not isinstance(result, np.ndarray):
            return out[0] if out else result
        Counted._made(result)
        return result.view(Counted)

    def __setitem__(self, key: Any, value: Any) -> None:
        """Without the copy of indices that NumPy makes."""
        self.view(np.ndarray)[key.view(np.ndarray) if isinstance(key, Counted) else key] = value

    @staticmethod
    def _made(array: np.ndarray) -> None:
        Counted.now += array.nbytes
        Counted.most = max(Counted.most, Counted.now)
        weakref.finalize(array, Counted._freed, array.nbytes)

    @staticmethod
    def _freed(n_bytes: int) -> None:
        Counted.now -= n_bytes


class CountingArrays:
    """NumPy, whose new arrays are counted."""

    def __getattr__(self, name: str) -> Any:
        found = getattr(np, name)
        return partial(self._counted, found) if name in ("empty", "zeros") else found

    def asnumpy(self, array: Any) -> np.ndarray:
        return np.asarray(array)

    def take(self, array: Any, indices: Any, out: Any = None) -> Any:
        """Without the copies that NumPy makes."""
        found = self._counted(np.empty, len(indices), array.dtype) if out is None else out
        found.view(np.ndarray)[:] = array.view(np.ndarray)[indices.view(np.ndarray)]
        return found

    def matmul(self, a: Any, b: Any, **more: Any) -> Any:
        """With the copy that CuPy makes of a transposed stack of matrices."""
        copied = None
        if a.ndim > 2 and not a.flags.c_contiguous:
            copied = self._counted(np.empty, a.shape, a.dtype)
            copied[...] = a
        return np.matmul(a if copied is None else copied, b, **more)

    def _counted(self, make: Callable[..., Any], shape: Any, dtype: Any = np.float64) -> Counted:
        array = np.ndarray.__new__(Counted, shape, dtype)
        array[...] = 0
        return array


class CountingBackend(Backend):
    """A device that computes nothing in its kernels, and counts the bytes of its arrays."""

    name, device, number = "a device that counts", "cuda:0", 0

    def __init__(self) -> None:
        super().__init__()
        self.xp = CountingArrays()
        gc.collect()
        Counted.most = Counted.now = 0

    def compile(self, source: CudaSource) -> Mapping[str, Callable[..., None]]:
        return {name: lambda blocks, threads, values: None for name in source.kernels}

    def upload(self, array: np.ndarray) -> Any:
        copy = np.ndarray.__new__(Counted, array.shape, array.dtype)
        copy[...] = array
        return copy

    @property
    def free_bytes(self) -> int:
        return 2**40

    def download(self, array: Any) -> np.ndarray:
        return np.asarray(array).copy()


def pairs(n_users: int, n_items: int, n: int, **options: Any) -> ep.Feedback:
    """Some items have thousands of pairs."""
    random = np.random.default_rng(0)
    items = (n_items * random.random(n) ** 3).astype(np.int64)
    keys = np.unique(random.integers(0, n_users, n) * n_items + items)
    given: dict[str, Any] = {
        name: random.uniform(0.5, 2.0, len(keys)) if value is ... else value for name, value in options.items()
    }
    return ep.Feedback(keys // n_items, keys % n_items, shape=(n_users, n_items), **given)


CPU_ONLY = pytest.mark.skipif(REAL, reason="counts NumPy's arrays")
PAIRS, ROWS = (9_000, 1_500, 450_000), (30_000, 200, 45_000)
CASES: dict[str, tuple[Callable[[], ep.Feedback], dict[str, Any]]] = {
    "plain": (lambda: pairs(*PAIRS), {"popularity_exponent": 0.0}),
    "popularity": (lambda: pairs(*PAIRS), {}),
    "confidences": (lambda: pairs(*PAIRS, alpha=..., y=...), {"popularity_exponent": 0.0}),
    "weights": (lambda: pairs(*PAIRS, alpha=..., context_weight=np.full(PAIRS[0], 0.5)), {}),
    "merged": (lambda: pairs(*PAIRS).merge_contexts(np.arange(PAIRS[0]) // 2), {}),
    "observed pairs alone": (lambda: pairs(*PAIRS, alpha=...), {"unobserved_weight": 0.0}),
    "many rows": (lambda: pairs(*ROWS), {"factors": 40}),
    "without L2": (lambda: pairs(*ROWS), {"regularization": 0.0}),
    "few pairs": (lambda: pairs(50_000, 30_000, 60_000), {"rotate": False}),
}


@CPU_ONLY
@pytest.mark.parametrize("case", CASES)
def test_the_estimate_is_at_most_a_tenth_too_large(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear, "SEGMENT", 2**16)
    monkeypatch.setattr(linear, "CHUNK", 256)
    make, options = CASES[case]
    most, parts = counted(ep.MF(**{"factors": 32, **options}), make())
    assert most <= sum(parts.values()) <= 1.1 * most, (most, parts)


@CPU_ONLY
@pytest.mark.parametrize("model", [ep.MFSI, ep.FM])
@pytest.mark.parametrize("events", [True, False])
def test_features_take_no_more_than_is_said(model: Any, events: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear, "SEGMENT", 2**16)
    monkeypatch.setattr(linear, "CHUNK", 256)
    n, n_users, n_items = 30_000, 3_000, 500
    random = np.random.default_rng(0)
    item, user = random.integers(0, n_items, n), np.sort(random.integers(0, n_users, n))
    rows = n if events else n_users

    def one_hot(codes: np.ndarray, levels: int) -> Any:
        return sp.csr_array((np.ones(rows), (np.arange(rows), codes)), shape=(rows, levels))

    who = user if events else np.arange(n_users)
    contexts = ep.Features({"user": one_hot(who, n_users), "age": one_hot(who % 7, 7)})
    feedback = ep.Feedback(np.arange(n) if events else user, item, shape=(rows, n_items), duplicates="sum")
    most, parts = counted(model(20), feedback, contexts)
    assert most <= sum(parts.values()) <= 1.5 * most, (most, parts)


def counted(model: Any, feedback: ep.Feedback, contexts: Any = None) -> tuple[int, dict[str, int]]:
    """The largest number of bytes during two epochs, and what they were said to be."""
    solver = model.build_solver(feedback, contexts, None, SERIAL)
    backend = CountingBackend()
    engine, alpha0 = solver.engine, solver.engine.alpha0
    parts = needed_bytes(engine.feedback, engine.towers, alpha0)
    on_device = GpuEngine(engine.feedback, engine.towers, alpha0, backend, rotate=bool(model.rotate))
    solver = ICD(on_device)
    for epoch in (1, 9):  # with and without rotations
        for _ in solver.sweeps(epoch):
            pass
        on_device.rescore()
        solver.value()
    on_device.bring_back()
    return Counted.most, parts
