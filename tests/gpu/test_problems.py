"""Why a GPU cannot be used: what CuPy says of the machine, and processes that are forked from one that uses a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from forks import ended_well, fork, forks_beside_threads

import everypair as ep
from everypair.gpu import cuda, device, topn
from everypair.gpu.device import DeviceError
from everypair.ranking import rank as ranking
from everypair.ranking.rank import InnerProducts, ItemVectors, rank
from everypair.runtime.parallel import SERIAL

from shim_backend import REAL

FEEDBACK = ep.Feedback([0, 0, 1, 2], [0, 1, 1, 2])


class FakeError(Exception):
    """That of CuPy."""


def machine(count: int | None, capability: str = "90") -> Any:
    """CuPy on a machine with so many GPUs; None: one without a driver."""

    def device_count() -> int:
        if count is None:
            raise FakeError("no driver")
        return count

    runtime = SimpleNamespace(getDeviceCount=device_count, CUDARuntimeError=FakeError)
    card = SimpleNamespace(compute_capability=capability)
    return SimpleNamespace(cuda=SimpleNamespace(runtime=runtime, Device=lambda number: card))


@pytest.fixture
def looked_for(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A function that makes CuPy find a machine, and asks for a GPU of it."""
    monkeypatch.setattr(cuda, "_started_in", None)

    def look(found: Any, number: int = 0) -> str | None:
        def imported(name: str) -> Any:
            if found is None:
                raise ImportError(name)
            return found

        cuda._problem.cache_clear()
        monkeypatch.setattr(cuda, "import_module", imported)
        return cuda.problem(number)

    yield look
    cuda._problem.cache_clear()


def test_reasons(looked_for: Any) -> None:
    assert looked_for(None).startswith("CuPy is not installed: pip install 'everypair[gpu]'")
    assert looked_for(machine(None)) == "CUDA finds no GPU (no driver)"
    assert looked_for(machine(2), number=2) == "there is no GPU number 2: this machine has 2, numbered from 0"
    assert looked_for(machine(1, "75")) == "its compute capability is 7.5, and 8.0 or later (Ampere) is needed"
    assert looked_for(machine(1, "100")) is None


@forks_beside_threads
def test_cuda_does_not_survive_a_fork(looked_for: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert looked_for(machine(1)) is None
    monkeypatch.setattr(device, "problem", cuda.problem)
    monkeypatch.setattr(ranking, "pays", lambda n_rows, n_items, n: n <= topn.MOST)
    random = np.random.default_rng(0)
    phi, psi = (random.normal(size=(n, 4)).astype(np.float32) for n in (3, 9))
    items = ItemVectors(psi, device="cuda")
    before = rank(InnerProducts(phi, items), 2, SERIAL)  # on the GPU, which has the vectors from then on

    def work() -> None:
        assert cuda.problem(0) == cuda.FORKED
        with pytest.raises(DeviceError, match="forked from one that had started CUDA"):
            ep.MF(2, device="cuda").fit(FEEDBACK)
        assert ep.MF(2, device="auto").fit(FEEDBACK).device_ == "cpu"
        monkeypatch.setattr(topn.GpuTopN, "lists", None)
        assert all(np.array_equal(one, two) for one, two in zip(rank(InnerProducts(phi, items), 2, SERIAL), before, strict=True))

    assert ended_well(fork(work))
    assert cuda.problem(0) is None


@forks_beside_threads
def test_a_process_that_found_no_gpu_may_fork(looked_for: Any) -> None:
    reason = looked_for(machine(None))

    def work() -> None:
        assert cuda.problem(0) == reason

    assert ended_well(fork(work))


@pytest.mark.skipif(REAL, reason="takes the GPU away")
def test_rows_are_ranked_on_the_cpu_where_the_gpu_is_full(monkeypatch: pytest.MonkeyPatch, backend: Any) -> None:
    items = ItemVectors(np.ones((9, 4), np.float32), device="cuda")
    monkeypatch.setattr(backend, "memory", 10**6)
    assert items.table is None
    monkeypatch.setattr(backend, "memory", 2**40)
    assert items.table is not None


def test_a_fit_of_several_processes_runs_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("everypair.runtime.group.Group.size", 2)
    with pytest.raises(DeviceError, match="a fit of 2 processes runs on the CPU only"):
        ep.MF(2, device="cuda").fit(FEEDBACK)
