"""Towers whose derivatives JAX finds agree with those written by hand."""

from __future__ import annotations

import copy
import importlib
import sys
from pathlib import Path

import numpy as np
import pytest

import everypair as ep

from bumps import Bumps

pytest.importorskip("jax", reason="needs the extra 'jax'")


def derived() -> type:
    import jax.numpy as jnp

    from everypair.jax import Differentiable

    class DerivedBumps(Differentiable):
        def __init__(self, factors: int) -> None:
            self.factors = self.n_dims = factors

        start, coordinates = Bumps.start, Bumps.coordinates

        def formula(self, p: dict, rows: ep.towers.Rows) -> object:
            codes = rows.levels("user").codes
            away = rows.values("time") - jnp.where(codes >= 0, p["place"][codes], 0.0)
            return jnp.exp(-away * away)[:, None] * p["height"]

    return DerivedBumps


ROWS = {"user": np.array([0, 1, 2, 1, -1, 2, 2, 1]), "time": np.linspace(-1.0, 1.0, 8)}


@pytest.mark.full
def test_it_is_a_right_tower() -> None:
    ep.testing.check_tower(derived()(3), ROWS)


def test_derivatives_are_those_of_the_formula() -> None:
    one, other = (ep.testing._Check(tower(3), ROWS, 0, "context", 0).smooth() for tower in (Bumps, derived()))
    for at in (entries.at for entries in one.coordinate_entries):
        by_hand, found = (tower.derivatives(tower.parameter_values, tower.rows, at) for tower in (one, other))
        first, second = np.zeros((8, 3)), np.zeros((8, 3))
        dims = slice(by_hand.start, by_hand.start + by_hand.first.shape[1])
        first[:, dims] = by_hand.first
        second[:, dims] = 0.0 if by_hand.second is None else by_hand.second
        np.testing.assert_allclose(found.first, first, rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(found.second, second, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_it_trains_as_the_one_written_by_hand(dtype: str) -> None:
    random = np.random.default_rng(0)
    contexts = {"user": random.integers(0, 5, 40), "time": random.normal(size=40)}
    feedback = ep.Feedback(np.arange(40), random.integers(0, 6, 40), shape=(40, 6))

    def objective(tower: ep.towers.Tower) -> list[float]:
        model = ep.Separable(context=tower, item=ep.towers.Embedding(3), epochs=6, unobserved_weight=0.2, dtype=dtype)
        return [epoch.objective for epoch in model.fit(feedback, contexts=contexts).history_]

    np.testing.assert_allclose(objective(derived()(3)), objective(Bumps(3)), rtol=1e-3 if dtype == "float32" else 1e-9)


def test_a_fitted_model_can_be_copied() -> None:
    contexts = {"user": np.array([0, 1, 2, 0]), "time": np.array([0.1, 0.2, 0.3, 0.4])}
    model = ep.Separable(context=derived()(2), item=ep.towers.Embedding(2), epochs=2)
    model.fit(ep.Feedback(np.arange(4), np.arange(4) % 2), contexts=contexts)
    np.testing.assert_array_equal(copy.deepcopy(model).phi_, model.phi_)


@pytest.mark.full
def test_the_example(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "examples"))
    example = importlib.import_module("fading_jax")
    example.main()
    assert float(capsys.readouterr().out.split()[-1]) > 0.9
    for name in ("fading_jax", "fading", "common"):
        sys.modules.pop(name, None)
