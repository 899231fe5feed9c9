"""The self-test of ``everypair doctor`` finds what is broken."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

import everypair as ep
from everypair.cli import selftest
from everypair.engine.solver import ICD

FALLS, DENSE, THREADS, SAVED = selftest.checks()


def trouble(name: str) -> str | None:
    return selftest.checks()[name]()


def test_a_solver_that_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert trouble(FALLS) is None
    monkeypatch.setattr(ICD, "sweeps", lambda self, epoch=1: iter(()))
    assert "it went" in str(trouble(FALLS))


@pytest.mark.parametrize("left_out", ["context", "item"])
def test_a_solver_that_leaves_a_side_out(monkeypatch: pytest.MonkeyPatch, left_out: str) -> None:
    sweeps = ICD.sweeps

    def one_sided(self: ICD, epoch: int = 1) -> Iterator[str]:
        values = [parameter.value for parameter in self.towers[left_out].parameters.values()]
        before = [value.copy() for value in values]
        for side in sweeps(self, epoch):
            if side == left_out:
                for value, old in zip(values, before, strict=True):
                    value[...] = old
                self.begin()
            yield side

    monkeypatch.setattr(ICD, "sweeps", one_sided)
    found = str(trouble(FALLS))
    assert "should have gone" in found or "the objective rose" in found


def test_an_objective_that_is_another(monkeypatch: pytest.MonkeyPatch) -> None:
    value = ICD.value
    monkeypatch.setattr(ICD, "value", lambda self: value(self)._replace(objective=value(self).objective * 1.001))
    assert "is not" in str(trouble(DENSE))


@pytest.mark.full
def test_threads_that_give_other_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    sweeps = ICD.sweeps

    def uneven(self: ICD, epoch: int = 1) -> Iterator[str]:
        if self.engine.workers.n_threads == 2:
            next(iter(self.towers["item"].parameters.values())).value.flat[0] += 1e-3
        yield from sweeps(self, epoch)

    monkeypatch.setattr(ICD, "sweeps", uneven)
    assert "differ" in str(trouble(THREADS))


def test_a_model_that_is_loaded_as_another(monkeypatch: pytest.MonkeyPatch) -> None:
    load = ep.load

    def other(*args: Any, **options: Any) -> ep.Recommender:
        loaded = load(*args, **options)
        for parameter in loaded.model.state.towers["item"].parameters.values():  # type: ignore[attr-defined]
            parameter.value = -parameter.value
        return loaded

    assert trouble(SAVED) is None
    monkeypatch.setattr(ep, "load", other)
    assert trouble(SAVED) == "they differ"


def test_ctrl_c_is_no_trouble_of_a_check(monkeypatch: pytest.MonkeyPatch) -> None:
    sweeps = ICD.sweeps

    def pressed(self: ICD, epoch: int = 1) -> Iterator[str]:
        os.kill(os.getpid(), signal.SIGINT)
        return sweeps(self, epoch)

    monkeypatch.setattr(ICD, "sweeps", pressed)
    for name in (FALLS, DENSE, SAVED):
        with pytest.raises(KeyboardInterrupt):
            trouble(name)
