"""Edges of fits on a GPU: what the CPU does, with the same words where it refuses."""

from __future__ import annotations

import os
import signal
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import everypair as ep

from profiles import EXAMPLES
from shim_backend import REAL

FEW = settings(max_examples=EXAMPLES if REAL else max(EXAMPLES // 2, 4))


def outcome(model: ep.MF, feedback: ep.Feedback, **options: Any) -> tuple[np.ndarray | None, str]:
    """The objectives of a fit, or why it was refused."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(feedback, **options)
    except Exception as error:
        return None, f"{type(error).__name__}: {error}"
    return np.array([epoch.objective for epoch in model.history_]), model.stop_reason_


def assert_the_same(feedback: ep.Feedback, near: float = 1e-5, fit: dict[str, Any] | None = None, **options: Any) -> None:
    (gpu, said), (cpu, expected) = (outcome(ep.MF(**options, device=device), feedback, **(fit or {})) for device in ("cuda", "cpu"))
    assert (gpu is None) == (cpu is None), (said, expected)
    if gpu is None or cpu is None:
        assert said.split(":")[0] == expected.split(":")[0]
        return
    assert said == expected
    np.testing.assert_allclose(gpu, cpu, rtol=near, atol=near * feedback.constant)


@given(
    n_users=st.integers(1, 5),
    n_items=st.integers(1, 5),
    seed=st.integers(0, 10**6),
    k=st.integers(1, 3),
    alpha0=st.sampled_from([0.0, 0.3, 1.0, 2.0]),
    exponent=st.sampled_from([0.0, 0.5, 1.0]),
    size=st.sampled_from([1e-3, 1.0, 1e4]),
    step_size=st.sampled_from([1.0, 0.3]),
)
@FEW
def test_the_smallest_problems(
    n_users: int, n_items: int, seed: int, k: int, alpha0: float, exponent: float, size: float, step_size: float
) -> None:
    """One row, rows without pairs, one dimension, every pair observed, a >= alpha0 and a < alpha0, large and small scores."""
    random = np.random.default_rng(seed)
    seen = random.random((n_users, n_items)) < random.choice([0.3, 1.0])
    seen[random.integers(n_users), random.integers(n_items)] = True
    feedback = ep.Feedback(
        *np.nonzero(seen), y=size * random.normal(size=seen.sum()), alpha=random.uniform(0.1, 3.0, seen.sum()), shape=seen.shape
    )
    options: dict[str, Any] = {"unobserved_weight": alpha0, "regularization_exponent": exponent, "step_size": step_size}
    options |= {"rotate": False}  # what a rotation by rounding does is not the same
    assert_the_same(feedback, 1e-4, factors=k, epochs=3, regularization=0.1, popularity_exponent=0.0, **options)


FEEDBACK = ep.Feedback([0, 0, 1, 2, 3], [0, 1, 1, 2, 0], shape=(6, 4))


@pytest.mark.parametrize("zero", [[0.0, 1.0, 2.0, 0.5], [0.0, 0.0, 0.0, 1.0]])
def test_items_of_weight_zero(zero: list[float]) -> None:
    feedback = ep.Feedback([0, 0, 1, 2, 3], [0, 1, 1, 2, 0], shape=(6, 4), item_weight=np.array(zero))
    assert_the_same(feedback, factors=3, epochs=4, unobserved_weight=0.2, popularity_exponent=0.0)


def start(value: float = 0.1) -> dict[str, np.ndarray]:
    return {"W": np.full((6, 2), value), "H": np.full((4, 2), 0.2)}


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e30, 1e38])
def test_start_values_that_are_no_numbers_or_too_large(value: float) -> None:
    assert_the_same(FEEDBACK, factors=2, epochs=2, fit={"start": start(value)})


@pytest.mark.parametrize("y", [1e15, 1e25, 1e38, 1e60])
def test_scores_of_any_size(y: float) -> None:
    assert_the_same(ep.Feedback([0, 0, 1, 2], [0, 1, 1, 2], y=y), factors=2, epochs=2)


@pytest.mark.parametrize("sides", ["W", "H", "WH"])
def test_fixed_sides(sides: str) -> None:
    both = start()
    assert_the_same(FEEDBACK, factors=2, epochs=3, fit={"fixed": {side: both[side] for side in sides}})
    fitted = ep.MF(2, epochs=3, device="cuda").fit(FEEDBACK, fixed={side: both[side] for side in sides})
    for side in sides:
        np.testing.assert_array_equal(fitted.parameters_[side], both[side].astype(np.float32))


def test_tolerance_ends_both() -> None:
    assert_the_same(FEEDBACK, factors=2, epochs=40, tol=1e-2)


def test_ctrl_c_keeps_what_was_done() -> None:
    """The signal arrives during the third epoch; the fit ends well with what it has."""
    model = ep.MF(2, epochs=50, device="cuda")

    def stop(model: ep.MF, epoch: ep.Epoch) -> None:
        if epoch.epoch == 2:
            os.kill(os.getpid(), signal.SIGINT)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(FEEDBACK, callback=stop)
    assert model.stop_reason_ == "interrupt"
    assert 2 <= len(model.history_) < 50
    again = ep.MF(2, epochs=len(model.history_), device="cuda").fit(FEEDBACK)
    np.testing.assert_array_equal(model.parameters_["W"], again.parameters_["W"])


@pytest.mark.parametrize("every", [2, 3, 7])
def test_checkpoints_of_errors_go_on_elsewhere(every: int, tmp_path: Path) -> None:
    """An error in a callback leaves the last checkpoint that was due, which any device continues."""

    def fail(model: ep.MF, epoch: ep.Epoch) -> None:
        if epoch.epoch == 5:
            raise KeyError("broken")

    with pytest.raises(KeyError):
        ep.MF(2, epochs=8, device="cuda").fit(FEEDBACK, checkpoint=tmp_path / "c", every=every, callback=fail)
    resumed = ep.MF(2, epochs=8, device="cpu").fit(FEEDBACK, checkpoint=tmp_path / "c", every=every)
    whole = ep.MF(2, epochs=8, device="cuda").fit(FEEDBACK)
    objectives = [[epoch.objective for epoch in model.history_] for model in (resumed, whole)]
    np.testing.assert_allclose(*objectives, rtol=1e-5)
    assert [epoch.epoch for epoch in resumed.history_] == list(range(1, 9))


def test_two_models_at_a_time() -> None:
    """A fit within the callback of another."""
    inner: list[ep.MF] = []

    def fit_another(model: ep.MF, epoch: ep.Epoch) -> None:
        inner.append(ep.MF(3, epochs=2, device="cuda").fit(FEEDBACK))

    outer = ep.MF(2, epochs=3, device="cuda").fit(FEEDBACK, callback=fit_another)
    np.testing.assert_array_equal(outer.parameters_["W"], ep.MF(2, epochs=3, device="cuda").fit(FEEDBACK).parameters_["W"])
    np.testing.assert_array_equal(inner[0].parameters_["H"], inner[-1].parameters_["H"])
