"""Fits on a GPU: those of the CPU, but for the rounding of float32."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import everypair as ep
from everypair.gpu import tasks

from problems import CONFIDENCES, Problem, make, problems
from profiles import EXAMPLES
from shim_backend import REAL

FEW = settings(max_examples=EXAMPLES if REAL else max(EXAMPLES // 3, 4))


def log(n_users: int = 60, n_items: int = 45, seed: int = 0, **options: Any) -> ep.Feedback:
    """Users of very different activity, and an item that everyone has."""
    random = np.random.default_rng(seed)
    seen = random.random((n_users, n_items)) < random.random((n_users, 1)) ** 2
    seen[:, 0] = True
    return ep.Feedback(*np.nonzero(seen), shape=(n_users, n_items), **options)


def objectives(model: ep.MF) -> np.ndarray:
    return np.array([epoch.objective for epoch in model.history_])


def parts(model: ep.MF) -> np.ndarray:
    return np.array([(epoch.explicit, epoch.implicit, epoch.l2) for epoch in model.history_])


@given(data=st.data(), k=st.integers(1, 70), rotate=st.booleans())
@FEW
def test_the_objective_is_that_of_the_cpu(data: st.DataObject, k: int, rotate: bool) -> None:
    problem = data.draw(problems("MF", positive=True))
    options: dict[str, Any] = {"factors": k, "dtype": "float32", "epochs": 3, "rotate": rotate}
    on_gpu, on_cpu = problem.fit(device="cuda", **options), problem.fit(device="cpu", **options)
    scale = objectives(on_cpu) + problem.feedback.constant
    assert on_gpu.device_ == "cuda:0"
    np.testing.assert_allclose(objectives(on_gpu) / scale, objectives(on_cpu) / scale, rtol=0, atol=1e-5)


@pytest.mark.parametrize("confidence", CONFIDENCES)
@given(seed=st.integers(0, 10**6), weighted=st.booleans())
@settings(max_examples=3)
def test_the_objective_is_that_of_a_dense_evaluation(confidence: str, seed: int, weighted: bool) -> None:
    problem = make("MF", seed=seed, confidence=confidence, weighted=weighted)
    model = problem.fit(device="cuda", dtype="float32", epochs=3, factors=5)
    dense, last = problem.dense(model.parameters_), model.history_[-1]
    scale = dense.objective + problem.feedback.constant
    np.testing.assert_allclose(np.array(last[1:5]) / scale, np.array(dense) / scale, rtol=0, atol=1e-5)


@given(problems("MF"))
@FEW
def test_no_sweep_raises_the_objective(problem: Problem) -> None:
    solver = problem.solver(device="cuda", dtype="float32")
    before = solver.value().objective
    for epoch in (1, 2, 3):
        for side in solver.sweeps(epoch):
            solver.engine.rescore()
            after = solver.value().objective
            assert after <= before + 1e-6 * (solver.engine.size + abs(before)), side
            before = after


@pytest.mark.parametrize("options", [{}, {"popularity_exponent": 0.0}, {"regularization": 0.0}, {"step_size": 0.5}], ids=str)
def test_long_rows_are_cut(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces are added up: the objective is that of the CPU; without L2 it is compared where rounding does not decide."""
    monkeypatch.setattr(tasks, "PIECE", 16)
    settings: dict[str, Any] = {"factors": 36, "epochs": 3, **options}
    feedback = log(**({"alpha": np.linspace(0.5, 2.0, len(log()))} if not options else {}))
    on_gpu, on_cpu = ep.MF(device="cuda", **settings).fit(feedback), ep.MF(**settings).fit(feedback)
    np.testing.assert_allclose(objectives(on_gpu), objectives(on_cpu), rtol=1e-5 if options.get("regularization") != 0.0 else 1e-3)
    assert all(after <= before * (1 + 1e-6) for before, after in pairwise(objectives(on_gpu)))
    np.testing.assert_allclose(parts(on_gpu), parts(on_cpu), rtol=1e-2)


def test_each_coordinate_ends_at_its_minimum() -> None:
    """A sweep of one side alone, without a rotation, against one coordinate at a time in float64."""
    feedback, k, alpha0, l2 = log(12, 9), 34, 0.05, 0.1
    random = np.random.default_rng(1)
    start = {"W": random.normal(0, 0.3, (12, k)), "H": random.normal(0, 0.3, (9, k))}
    model = ep.MF(
        k, unobserved_weight=alpha0, regularization=l2, regularization_exponent=0.0, popularity_exponent=0.0, rotate=False
    )
    model.set_params(epochs=1, device="cuda").fit(feedback, start={"W": start["W"]}, fixed={"H": start["H"]})
    W, H = (start[name].astype(np.float32).astype(np.float64) for name in ("W", "H"))
    seen = np.zeros((12, 9), bool)
    seen[feedback.rows, feedback.by_context.indices] = True
    for row, w in enumerate(W):
        X = H[seen[row]]
        A = (1 - alpha0) * X.T @ X + alpha0 * H.T @ H + l2 * np.eye(k)
        for f in range(k):
            w[f] -= (A[f] @ w - X[:, f].sum()) / A[f, f]
    np.testing.assert_allclose(model.parameters_["W"], W, atol=2e-5)
    np.testing.assert_array_equal(model.parameters_["H"], start["H"].astype(np.float32))


def test_merged_contexts_and_repeated_pairs() -> None:
    groups = np.arange(60) % 17
    feedback = log().merge_contexts(groups)
    assert feedback.covered is not None
    options: dict[str, Any] = {"factors": 8, "epochs": 3, "unobserved_weight": 0.2}
    np.testing.assert_allclose(
        parts(ep.MF(device="cuda", **options).fit(feedback)), parts(ep.MF(**options).fit(feedback)), rtol=1e-4
    )


def test_the_same_bits_in_every_run() -> None:
    one, two = (ep.MF(40, epochs=3, device="cuda").fit(log()) for _ in range(2))
    assert [epoch[:5] for epoch in one.history_] == [epoch[:5] for epoch in two.history_]
    for name, value in one.parameters_.items():
        np.testing.assert_array_equal(value, two.parameters_[name])


def test_callbacks_see_the_parameters_of_their_epoch() -> None:
    seen = []

    def look(model: ep.MF, epoch: ep.Epoch) -> bool:
        seen.append(float(np.abs(model.parameters_["W"]).sum()))
        return epoch.epoch == 3

    model = ep.MF(5, epochs=9, device="cuda").fit(log(), callback=look)
    assert model.stop_reason_ == "callback"
    assert len(set(seen)) == 3
    assert seen[-1] == float(np.abs(model.parameters_["W"]).sum())


@pytest.mark.parametrize(("first", "then"), [("cuda", "cuda"), ("cuda", "cpu"), ("cpu", "cuda")])
def test_a_checkpoint_goes_on_on_either_device(first: str, then: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {"factors": 5, "epochs": 6}
    ep.MF(**{**options, "epochs": 3}, device=first).fit(log(), checkpoint=tmp_path / "c", every=2)
    resumed = ep.MF(**options, device=then).fit(log(), checkpoint=tmp_path / "c", every=2)
    whole = ep.MF(**options, device=then).fit(log())
    np.testing.assert_allclose(objectives(resumed), objectives(whole), rtol=1e-5)
    if first == then:
        np.testing.assert_array_equal(resumed.parameters_["W"], whole.parameters_["W"])


def test_an_error_in_a_callback_keeps_the_epochs_so_far() -> None:
    model = ep.MF(5, epochs=9, device="cuda")

    def fail(model: ep.MF, epoch: ep.Epoch) -> None:
        if epoch.epoch == 2:
            raise KeyError("broken")

    with pytest.raises(KeyError, match="broken"):
        model.fit(log(), callback=fail)
    short = ep.MF(5, epochs=2, device="cuda").fit(log())
    np.testing.assert_array_equal(model.parameters_["H"], short.parameters_["H"])


def test_a_recommender_fits_evaluates_and_answers(tmp_path: Path) -> None:
    data = ep.datasets.youtube_like(60, 30, seed=0, events_per_user=6.0)
    split = ep.evaluation.LeaveLast().split(data)
    on_gpu, on_cpu = (ep.Recommender(ep.MF(4, epochs=4, device=device)).fit(split.train) for device in ("cuda", "cpu"))
    assert on_gpu.model.device_ == "cuda:0"
    figures = [ep.evaluation.evaluate(recommender, split.test)["ndcg@10"] for recommender in (on_gpu, on_cpu)]
    assert figures[0] == pytest.approx(figures[1], abs=0.02)
    again = ep.load(on_gpu.save(tmp_path / "model"))
    users = list(data.users)[:5]
    assert again.recommend(users=users, n=3).equals(on_gpu.recommend(users=users, n=3))
