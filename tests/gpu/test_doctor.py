"""``everypair doctor --gpu`` finds nothing on a device that works, and what does not."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from commands import done, run

from everypair.cli import gpu_checks
from everypair.cli.gpu_checks import Size, checks
from everypair.gpu import device, linear, topn
from everypair.gpu.backend import Backend
from everypair.gpu.rows import FreeRows

from shim_backend import REAL

SMALL = Size(n_users=540, n_items=24, events=4.0, k=34, n=5, n_listed=30)
NAMES = list(checks(device.cuda(0) if REAL else None, SMALL))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_found_on_a_device_that_works(name: str, backend: Backend) -> None:
    assert checks(backend, SMALL)[name]() is None


def test_the_command_shows_the_device_and_its_checks(monkeypatch: pytest.MonkeyPatch, backend: Backend) -> None:
    selected = {"one": lambda: None, "two": lambda: "1 is not 2"}
    monkeypatch.setattr(gpu_checks, "checks", lambda gpu: selected if gpu is backend else None)
    result = run("doctor", "--gpu", "--json")
    assert result.exit_code == 1
    found = json.loads(result.stdout)
    assert found["gpu"] == backend.facts
    assert [check["trouble"] for check in found["checks"]] == [None, "1 is not 2"]
    del selected["two"]
    assert f"device: {backend.name}\n" in done("doctor", "--gpu").stdout


def test_without_a_gpu_it_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "problem", lambda number: f"there is no GPU number {number}")
    monkeypatch.setenv("EVERYPAIR_DEVICE", "cuda:3")
    result = run("doctor", "--gpu")
    assert result.exit_code == 1
    assert "no GPU can be checked: there is no GPU number 3." in result.stderr


def test_a_sweep_that_is_left_out(monkeypatch: pytest.MonkeyPatch, backend: Backend) -> None:
    sweep = FreeRows.sweep
    monkeypatch.setattr(FreeRows, "sweep", lambda self, *args: sweep(self, *args) if self.side == "item" else None)
    for name in (*NAMES[:3], NAMES[4]):
        assert checks(backend, SMALL)[name]() is not None


def test_a_gram_that_is_off(monkeypatch: pytest.MonkeyPatch, backend: Backend) -> None:
    gram = linear.gram
    monkeypatch.setattr(linear, "gram", lambda *args: 1.001 * gram(*args))
    assert "and on the CPU" in str(checks(backend, SMALL)[NAMES[4]]())


def test_lists_that_are_off(monkeypatch: pytest.MonkeyPatch, backend: Backend) -> None:
    lists = topn.GpuTopN.lists

    def reversed_lists(self: Any, *args: Any) -> Any:
        codes, scores, left = lists(self, *args)
        return np.ascontiguousarray(codes[:, ::-1]), scores, left

    monkeypatch.setattr(topn.GpuTopN, "lists", reversed_lists)
    assert "differ" in str(checks(backend, SMALL)[NAMES[-1]]())
