"""The contract of all models: constructor, fit, attributes, prediction, recommendation."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone
from threadpoolctl import threadpool_info

import everypair as ep
from everypair.engine.cpu import CpuEngine

from problems import MODELS, make, problems

FEEDBACK = ep.Feedback([0, 0, 1, 1, 2], [0, 1, 0, 1, 2], shape=(4, 3))
EVERY = [*MODELS, "Popularity", "CoView"]


def fitted(name: str, **options: Any) -> Any:
    if name == "Popularity":
        return ep.Popularity().fit(FEEDBACK)
    if name == "CoView":
        return ep.CoView().fit(FEEDBACK, contexts=[0, 1, -1, 2])
    return make(name, seed=1, n_contexts=4, n_items=5).fit(epochs=3, **options)


@pytest.mark.parametrize("name", EVERY)
def test_predict_and_recommend_agree(name: str) -> None:
    model = fitted(name)
    n_contexts, n_items = model._shape()
    scores = model.predict(*(x.ravel() for x in np.indices((n_contexts, n_items)))).reshape(n_contexts, n_items)
    ids, best = model.recommend(np.arange(n_contexts), n=3)
    assert ids.shape == best.shape == (n_contexts, 3)
    expected = np.argsort(-scores, axis=1, kind="stable")[:, :3]
    np.testing.assert_allclose(np.take_along_axis(scores, ids, 1), np.take_along_axis(scores, expected, 1), rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(best, np.take_along_axis(scores, ids, 1), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", EVERY)
def test_recommend_excludes(name: str) -> None:
    model = fitted(name)
    n_contexts, n_items = model._shape()
    exclude = sp.csr_array(np.eye(n_contexts, n_items))
    ids, scores = model.recommend(np.arange(n_contexts), n=n_items, exclude=exclude)
    for c in range(n_contexts):
        assert c not in ids[c]
    assert np.all((ids == -1) == (scores == -np.inf))
    single, _ = model.recommend(0, n=2)
    assert single.shape == (1, 2)
    assert model.recommend([], n=2)[0].shape == (0, 2)


@pytest.mark.parametrize("name", MODELS)
def test_conventions_of_scikit_learn(name: str) -> None:
    problem = make(name)
    model = problem.make(regularization={"default": 0.1})
    parameters = model.get_params()
    copy = clone(model)
    assert copy is not model
    assert repr(copy) == repr(model)
    assert copy.get_params()["regularization"] == {"default": 0.1}
    assert copy.set_params(epochs=2) is copy
    copy.fit(problem.feedback, **problem.arguments)
    assert len(copy.history_) == 2
    assert {key: value for key, value in model.get_params().items() if parameters[key] is not value} == {}
    assert not hasattr(model, "history_")
    assert type(model).__name__ in repr(model)


@pytest.mark.parametrize("name", MODELS)
def test_a_second_fit_starts_afresh(name: str) -> None:
    problem = make(name)
    model = problem.make(epochs=2)
    first = model.fit(problem.feedback, **problem.arguments).parameters_
    second = model.fit(problem.feedback, **problem.arguments).parameters_
    for letter, value in first.items():
        np.testing.assert_array_equal(value, second[letter])
    assert len(model.history_) == 2


@pytest.mark.parametrize("name", MODELS)
def test_seeds(name: str) -> None:
    problem = make(name)
    one, two = (problem.fit(epochs=1, random_state=seed).phi_ for seed in (1, 2))
    assert not np.array_equal(one, two)
    assert not np.array_equal(*(problem.fit(epochs=1, random_state=None).phi_ for _ in range(2)))


@given(problems())
def test_letters_and_start(problem: Any) -> None:
    model = problem.fit(epochs=1)
    expected = {"MF": "W H", "MFSI": "W H", "FM": "b w W h H"}.get(problem.name)
    if expected is None:
        context = "U V" if len(problem.arguments["levels"]) == 2 else "U1 U2 U3"
        expected = f"{'B ' if problem.name.startswith('Tucker') else ''}{context} W"
    assert list(model.parameters_) == expected.split()
    resumed = problem.fit(epochs=1, start=model.parameters_, rotate=False).history_
    straight = problem.fit(epochs=2, rotate=False).history_
    once = problem.fit(epochs=1, rotate=False)
    again = problem.fit(epochs=1, rotate=False, start=once.parameters_).history_
    np.testing.assert_allclose(again[-1][1:5], straight[-1][1:5], rtol=1e-6, atol=1e-6 * problem.scale())
    assert resumed[-1].objective <= model.history_[-1].objective + 1e-9 * (problem.scale() + model.history_[-1].objective)


@pytest.mark.parametrize("name", MODELS)
def test_vectors_of_rows(name: str) -> None:
    """The rows trained on, given again, have the vectors of training; so do rows in another order."""
    problem = make(name, seed=2)
    model = problem.fit(epochs=1)
    contexts = problem.arguments.get("contexts")
    if contexts is None:
        contexts = np.arange(problem.feedback.n_contexts)
    np.testing.assert_allclose(model.context_vectors(contexts), model.phi_, rtol=1e-12)
    items = problem.arguments.get("items")
    if items is None:
        items = np.arange(problem.feedback.n_items)[::-1]
        np.testing.assert_allclose(model.item_vectors(items), model.psi_[::-1], rtol=1e-12)
    else:
        np.testing.assert_allclose(model.item_vectors(items), model.psi_, rtol=1e-12)


def test_without_docstrings() -> None:
    subprocess.run([sys.executable, "-OO", "-c", "import everypair"], check=True)


def test_models_document_their_arguments() -> None:
    for model in (ep.MF, ep.MFSI, ep.FM, ep.PARAFAC, ep.Tucker):
        for argument in model().get_params():
            doc = model.__doc__ or ""
            assert f"\n{argument} :" in doc or f"``{argument}" in doc, argument


def test_attributes_are_copies() -> None:
    """A callback may keep the vectors of the best epoch."""
    kept: list[np.ndarray] = []
    model = ep.MF(2, epochs=3).fit(FEEDBACK, callback=lambda m, _: kept.append(m.phi_))
    assert not np.array_equal(kept[0], kept[2])
    model.phi_[:] = 7.0
    model.parameters_["W"][:] = 7.0
    assert not np.any(model.phi_ == 7.0)


def test_history_has_a_record_per_epoch() -> None:
    history = ep.MF(2, epochs=4).fit(FEEDBACK).history_
    assert [record.epoch for record in history] == [1, 2, 3, 4]
    for record in history:
        np.testing.assert_allclose(record.objective, record.explicit + record.implicit + record.l2)
    assert 0.0 < sum(record.seconds for record in history) < 60.0


def test_tolerance_stops() -> None:
    model = ep.MF(2, epochs=500, tol=1e-3, dtype="float64").fit(FEEDBACK)
    assert model.stop_reason_ == "tol"
    assert 1 < len(model.history_) < 500
    last, before = model.history_[-1].objective, model.history_[-2].objective
    assert before - last < 1e-3 * before
    assert ep.MF(2, epochs=30).fit(FEEDBACK).stop_reason_ == "epochs"


def test_callback_sees_the_model_and_stops() -> None:
    seen = []

    def callback(model: ep.MF, epoch: ep.Epoch) -> bool:
        seen.append((epoch.epoch, model.phi_.shape, len(model.history_), model.recommend(0, 1)[0].shape))
        return epoch.epoch == 3

    model = ep.MF(2, epochs=10).fit(FEEDBACK, callback=callback)
    assert seen == [(e, (4, 2), e, (1, 1)) for e in (1, 2, 3)]
    assert model.stop_reason_ == "callback"


def test_an_exception_in_a_callback_passes_through() -> None:
    def callback(model: ep.MF, epoch: ep.Epoch) -> None:
        raise RuntimeError("mine")

    model = ep.MF(2)
    with pytest.raises(RuntimeError, match="mine"):
        model.fit(FEEDBACK, callback=callback)
    assert model.stop_reason_ == "error"
    assert len(model.history_) == 1
    assert np.all(np.isfinite(model.phi_))


def test_ctrl_c_leaves_a_usable_model() -> None:
    before = signal.getsignal(signal.SIGINT)

    def press(model: ep.MF, epoch: ep.Epoch) -> None:
        if epoch.epoch == 2:
            os.kill(os.getpid(), signal.SIGINT)

    model = ep.MF(2, epochs=100).fit(FEEDBACK, callback=press)
    assert model.stop_reason_ == "interrupt"
    assert len(model.history_) in (2, 3)
    assert np.all(np.isfinite(model.predict([0, 1], [1, 0])))
    assert signal.getsignal(signal.SIGINT) is before


def test_ctrl_c_in_the_middle_of_a_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    sweep, sweeps = CpuEngine.sweep, []

    def press(self: CpuEngine, side: str) -> None:
        sweeps.append(side)
        if len(sweeps) == 5:
            os.kill(os.getpid(), signal.SIGINT)
        sweep(self, side)

    monkeypatch.setattr(CpuEngine, "sweep", press)
    model = ep.MF(2, epochs=100).fit(FEEDBACK)
    assert model.stop_reason_ == "interrupt"
    assert len(sweeps) == 5
    assert np.all(np.isfinite(model.phi_))


def test_an_ignored_ctrl_c_stays_ignored() -> None:
    """A job in the background ignores it."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        model = ep.MF(2, epochs=4).fit(FEEDBACK, callback=lambda *_: os.kill(os.getpid(), signal.SIGINT))
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
    assert model.stop_reason_ == "epochs"
    assert len(model.history_) == 4


def test_a_handler_that_python_did_not_install_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """It could not be put back: Python does not know it."""
    monkeypatch.setattr(signal, "getsignal", lambda number: None)
    monkeypatch.setattr(signal, "signal", lambda *_: pytest.fail("it was replaced"))
    assert ep.MF(2, epochs=2).fit(FEEDBACK).stop_reason_ == "epochs"


def test_a_handler_that_a_callback_installs_stays() -> None:
    before = signal.getsignal(signal.SIGINT)

    def mine(number: int, frame: Any) -> None: ...

    try:
        ep.MF(2, epochs=2).fit(FEEDBACK, callback=lambda *_: signal.signal(signal.SIGINT, mine) is None)
        assert signal.getsignal(signal.SIGINT) is mine
    finally:
        signal.signal(signal.SIGINT, before)


def test_fits_in_several_threads_at_once() -> None:
    expected = ep.MF(3, epochs=3, n_threads=2).fit(FEEDBACK).phi_
    found: list[np.ndarray] = []

    def work() -> None:
        found.append(ep.MF(3, epochs=3, n_threads=2).fit(FEEDBACK).phi_)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    for phi in found:
        np.testing.assert_array_equal(phi, expected)


def test_a_sparse_matrix_will_do() -> None:
    matrix = sp.csr_array(np.array([[1.0, 0.0], [1.0, 1.0]]))
    np.testing.assert_array_equal(ep.MF(2, epochs=2).fit(matrix).phi_, ep.MF(2, epochs=2).fit(ep.Feedback.from_scipy(matrix)).phi_)


def test_fields_and_letters_have_their_own_regularization() -> None:
    fields = {"user": sp.eye_array(4), "kind": sp.csr_array(np.eye(2)[[0, 1, 0, 1]])}

    def l2(strengths: Any) -> tuple[float, dict[str, np.ndarray]]:
        settings = {"regularization": strengths, "regularization_exponent": 0.0, "dtype": "float64"}
        model = ep.FM(2, epochs=1, **settings).fit(FEEDBACK, contexts=fields)
        return model.history_[-1].l2, {letter: value**2 for letter, value in model.parameters_.items()}

    found, p = l2({"default": 0.5, "user": 0.1, "W.kind": 0.2, "b": 0.3, "H": 0.4})
    expected = (
        0.3 * p["b"].sum()
        + 0.1 * (p["w"][:4].sum() + p["W"][:4].sum())
        + 0.5 * p["w"][4:].sum()
        + 0.2 * p["W"][4:].sum()
        + 0.5 * p["h"].sum()
        + 0.4 * p["H"].sum()
    )
    np.testing.assert_allclose(found, expected)


@pytest.mark.parametrize("field_solver", ["block", "cd"])
@pytest.mark.parametrize("name", ["MF", "MFSI", "FM"])
def test_rows_and_features_without_support_are_zero_without_l2(name: str, field_solver: str) -> None:
    """Explicit coordinate descent knows nothing of them: zero, not what they happened to start as."""
    feedback = ep.Feedback([0, 1, 1], [0, 1, 0], shape=(3, 3))
    features = sp.csr_array([[1.0, 0, 0, 0, 0], [1, 1, 0, 0, 0], [0, 0, 0, 1, 1]])  # feature 2: nobody; 3, 4: no feedback
    arguments = {} if name == "MF" else {"contexts": features}
    settings = {"unobserved_weight": 0.0, "regularization": 0.0, "epochs": 2, "dtype": "float64", "random_state": 2}
    model = getattr(ep, name)(2, field_solver=field_solver, **settings)
    W = model.fit(feedback, **arguments).parameters_["W"]
    np.testing.assert_array_equal(W[2:], 0.0)
    assert np.all(np.any(W[:2] != 0.0, axis=1))
    np.testing.assert_allclose(model.predict([0, 1, 1], [0, 1, 0]), 1.0, atol=0.2)


def test_blas_runs_on_one_thread_during_a_fit_only() -> None:
    def threads() -> set[int]:
        return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}

    before, during = threads(), []
    ep.MF(2, epochs=1).fit(FEEDBACK, callback=lambda *_: during.append(threads()))
    assert during == [{1}]
    assert threads() == before


@given(st.integers(0, 10**6))
def test_popularity_counts(seed: int) -> None:
    problem = make("MF", seed)
    model = ep.Popularity().fit(problem.feedback)
    dense = np.zeros(problem.feedback.shape)
    dense[problem.feedback.rows, problem.feedback.by_context.indices] = problem.feedback.b
    np.testing.assert_allclose(model.popularity_, dense.sum(axis=0))


def test_coview_is_the_most_frequent_next_item() -> None:
    previous = [0, 0, 0, 1, -1, 3]
    feedback = ep.Feedback([0, 1, 2, 3, 4, 5], [1, 2, 2, 0, 0, 0], shape=(6, 4))
    model = ep.CoView().fit(feedback, contexts=previous)
    ids, _ = model.recommend(np.arange(6), n=4)
    assert ids[0].tolist() == [2, 1, 0, 3]  # seen after 0: 2 twice, 1 once; then by popularity
    assert ids[3].tolist() == [0, 2, 1, 3]
    assert ids[4].tolist() == [0, 2, 1, 3]  # no previous item: popularity alone
    np.testing.assert_allclose(model.predict([0, 0, 4], [2, 3, 0]), [2 + 1 / 6, 0.0, 1 / 4])
    rare = ep.CoView().fit(ep.Feedback([0, 1, 2, 3, 4], [1, 1, 0, 0, 0], alpha=0.01, shape=(5, 6)), contexts=[5, 5, 5, -1, -1])
    assert rare.recommend(0, n=2)[0].tolist() == [[1, 0]]  # however little a pair weighs, counts come first
    sums = ep.Feedback([0, 1, 2, 3, 4, 5, 6], [0, 0, 0, 1, 1, 1, 1], y=[0.1, 0.2, 0.3, 0.3, 0.2, 0.1, 5.0], shape=(7, 3))
    equal = ep.CoView().fit(sums, contexts=[2, 2, 2, 2, 2, 2, -1])
    assert equal.recommend(0, n=2)[0].tolist() == [[1, 0]]  # equal but for rounding: the more popular first
    identity = ep.CoView().fit(ep.Feedback([0, 0, 1], [1, 2, 0], y=[1.0, 2.0, 1.0]))
    assert identity.recommend([0, 1], n=1)[0].tolist() == [[2], [0]]


@pytest.mark.parametrize("n", [3, 700])
def test_recommend_fills_up(n: int) -> None:
    """Always n columns, found by insertion or by sorting."""
    feedback = ep.Feedback([0, 0, 1], [0, 1, 1], y=[2.0, 1.0, 1.0])
    ids, scores = ep.Popularity().fit(feedback).recommend([0, 1], n=n, exclude=sp.csr_array([[1, 0], [0, 0]]))
    assert ids.shape == scores.shape == (2, n)
    assert ids[:, :3].tolist() == [[1, -1, -1], [0, 1, -1]]
    assert np.all(scores[:, 2:] == -np.inf)


@pytest.mark.parametrize("name", MODELS)
def test_scores_of_some_rows_only(name: str) -> None:
    problem = make(name, seed=3)
    model = problem.fit(epochs=1)
    rows = np.array([2, 0, 2])
    np.testing.assert_allclose(model.state.towers["context"].vectors_by_row()(rows), model.phi_[rows], rtol=1e-12)
    np.testing.assert_allclose(model.state.towers["item"].vectors_by_row()(rows), model.psi_[rows], rtol=1e-12)


@given(st.integers(0, 10**6), st.booleans(), st.booleans())
def test_a_weight_that_depends_on_the_data(seed: int, weighted: bool, merged: bool) -> None:
    """All pairs together weigh ten times as much as those observed, none more than one of them; the fit is that with the number."""
    random = np.random.default_rng(seed)
    context, item = np.nonzero(random.random((7, 5)) < random.choice([0.05, 0.4]))
    if not len(context):
        return
    alpha = random.uniform(0.5, 2.0, len(context)) if weighted else 1.5
    weights = {"context_weight": random.uniform(0.5, 2.0, 7), "item_weight": random.uniform(0.5, 2.0, 5)} if weighted else {}
    feedback = ep.Feedback(context, item, 1.0, alpha, (7, 5), **weights)
    total = np.broadcast_to(alpha, len(context)).sum()
    m, n = feedback.weights()
    expected = min(10 * total / (m.sum() * n.sum()), total / len(context) / n.max())
    if merged and not weighted:
        feedback = feedback.merge_contexts(np.arange(7) // 2)
    for cls in (ep.MF, ep.MFSI, ep.FM):
        model = cls(2, epochs=2, popularity_exponent=0.0).fit(feedback)
        assert model.unobserved_weight == "auto"
        assert model.unobserved_weight_ == pytest.approx(expected, rel=1e-12)
        same = cls(2, epochs=2, unobserved_weight=model.unobserved_weight_, popularity_exponent=0.0).fit(feedback)
        np.testing.assert_array_equal(model.phi_, same.phi_)
        popular = cls(2, epochs=1, popularity_exponent=0.8).fit(feedback)
        assert popular.unobserved_weight_ * popular.item_weight_.max() <= (1 + 1e-12) * total / len(context)


@given(st.integers(0, 10**6), st.floats(0.1, 1.5))
def test_a_fit_by_popularity_is_one_on_weighted_feedback(seed: int, exponent: float) -> None:
    random = np.random.default_rng(seed)
    context, item = np.nonzero(random.random((7, 5)) < 0.4)
    feedback = ep.Feedback(np.append(context, 0), np.append(item, 0), shape=(7, 5), duplicates="sum")
    for cls in (ep.MF, ep.MFSI, ep.FM):
        model = cls(2, epochs=2, popularity_exponent=exponent).fit(feedback)
        same = cls(2, epochs=2, popularity_exponent=0.0).fit(feedback.by_popularity(exponent))
        np.testing.assert_array_equal(model.phi_, same.phi_)
        assert model.history_[-1].objective == same.history_[-1].objective
        np.testing.assert_array_equal(model.item_weight_, feedback.by_popularity(exponent).item_weight)
    assert ep.MF(2, epochs=1, popularity_exponent=0.0).fit(feedback).item_weight_ is None


def test_a_weight_that_is_no_number() -> None:
    with pytest.raises(ValueError, match="unobserved_weight must be a number or 'auto', got 'often'"):
        ep.MF(2, unobserved_weight="often").fit(FEEDBACK)


def test_weights_of_nothing_and_of_everything() -> None:
    nothing = ep.Feedback([0, 1], [0, 1], item_weight=np.zeros(2))
    assert ep.MF(2, epochs=1).fit(nothing).unobserved_weight_ == 0.0
    with pytest.raises(ValueError, match="'auto' cannot be used with combinations='all': give a number"):
        ep.PARAFAC(2, unobserved_weight="auto", combinations="all").fit(FEEDBACK, contexts=np.zeros((FEEDBACK.n_contexts, 2), int))
