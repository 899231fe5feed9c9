"""The device of these tests: a GPU where EVERYPAIR_TEST_GPU is set, else the CPU running the same CUDA sources."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from everypair.gpu import device
from everypair.gpu.backend import Backend

from shim_backend import REAL, Shim, needs_compiler


@pytest.fixture(scope="session")
def backend() -> Backend:
    if REAL:
        trouble = device.problem(0)
        if trouble is not None:
            pytest.fail(f"EVERYPAIR_TEST_GPU is set, and the GPU cannot be used: {trouble}")
        return device.cuda(0)
    return Shim()


@pytest.fixture(scope="session", autouse=True)
def as_device(backend: Backend) -> Iterator[None]:
    """What ``device="cuda"`` stands for."""
    with pytest.MonkeyPatch.context() as patch:
        if not REAL:
            patch.setattr(device, "problem", lambda number: None)
            patch.setattr(device, "cuda", lambda number: backend)
        patch.delenv(device.VARIABLE, raising=False)
        yield


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if not REAL and os.path.dirname(__file__) in str(item.path):
            item.add_marker(needs_compiler)
