"""Models that contain each other agree where they should."""

from __future__ import annotations

from typing import Any
from unittest import mock

import numpy as np
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

import everypair as ep
from everypair.engine import cpu
from everypair.engine.objective import OPPOSITE

from problems import make

PLAIN: dict[str, Any] = {
    "rotate": False,
    "epochs": 3,
    "dtype": "float64",
    "unobserved_weight": 0.2,
    "regularization": 0.1,
    "regularization_exponent": 0.5,
    "popularity_exponent": 0.0,
}

seeds = st.integers(0, 10**6)


def random_feedback(seed: int, n_contexts: int = 6, n_items: int = 5) -> tuple[ep.Feedback, np.random.Generator]:
    problem = make("MF", seed, n_contexts, n_items, weighted=bool(seed % 2))
    return problem.feedback, np.random.default_rng(seed)


def assert_same_scores(one: Any, other: Any) -> None:
    np.testing.assert_allclose(one.phi_ @ one.psi_.T, other.phi_ @ other.psi_.T, rtol=1e-9, atol=1e-9)
    for a, b in zip(one.history_, other.history_, strict=True):
        np.testing.assert_allclose(a.objective, b.objective, rtol=1e-9)


@given(seeds, st.sampled_from([{}, {"order": "dimension"}, {"rotate": True}]))
def test_mfsi_with_identity_features_is_mf(seed: int, options: dict[str, Any]) -> None:
    feedback, random = random_feedback(seed)
    start = {"W": random.normal(size=(6, 3)), "H": random.normal(size=(5, 3))}
    settings = {**PLAIN, **options}
    with mock.patch.object(cpu, "swept_by_rows", return_value=False):  # both rotated in every epoch, and in the same order
        mf = ep.MF(3, **settings).fit(feedback, start=start)
        mfsi = ep.MFSI(3, **settings).fit(feedback, contexts=sp.eye_array(6), items=sp.eye_array(5), start=start)
    assert_same_scores(mf, mfsi)


@given(seeds)
def test_mfsi_without_features_is_mf(seed: int) -> None:
    feedback, _ = random_feedback(seed)
    settings = {**PLAIN, "random_state": seed}
    np.testing.assert_array_equal(ep.MF(3, **settings).fit(feedback).phi_, ep.MFSI(3, **settings).fit(feedback).phi_)


@given(seeds)
def test_parafac_with_v_held_at_ones_is_mf(seed: int) -> None:
    feedback, random = random_feedback(seed)
    start = {"W": random.normal(size=(6, 3)), "H": random.normal(size=(5, 3))}
    mf = ep.MF(3, **PLAIN).fit(feedback, start=start)
    contexts = np.stack([np.arange(6), np.zeros(6, int)], axis=1)
    tensor = ep.PARAFAC(3, **PLAIN).fit(feedback, contexts, start={"U": start["W"], "W": start["H"]}, fixed={"V": np.ones((1, 3))})
    assert_same_scores(mf, tensor)


@given(seeds, st.sampled_from(["observed", "all"]))
def test_tucker_with_superdiagonal_core_held_is_parafac(seed: int, combinations: str) -> None:
    problem = make("PARAFAC all" if combinations == "all" else "PARAFAC", seed, k=3)
    random = np.random.default_rng(seed)
    sizes = problem.arguments["levels"]
    letters = ["U", "V"] if len(sizes) == 2 else ["U1", "U2", "U3"]
    start = {letter: random.normal(size=(n, 3)) for letter, n in zip(letters, sizes, strict=True)}
    start["W"] = random.normal(size=(problem.feedback.n_items, 3))
    core = np.zeros((3,) * (len(sizes) + 1))
    core[(np.arange(3),) * core.ndim] = 1.0
    settings = {**PLAIN, "combinations": combinations}
    parafac = ep.PARAFAC(3, **settings).fit(problem.feedback, **problem.arguments, start=start)
    tucker = ep.Tucker(3, **settings).fit(problem.feedback, **problem.arguments, start=start, fixed={"B": core})
    assert_same_scores(parafac, tucker)


@given(seeds, st.sampled_from([{}, {"order": "dimension"}]))
def test_fm_without_biases_and_one_feature_each_is_mfsi(seed: int, options: dict[str, Any]) -> None:
    feedback, random = random_feedback(seed)
    X = sp.csr_array(np.eye(4)[random.integers(0, 4, 6)])
    Z = sp.csr_array(np.eye(3)[random.integers(0, 3, 5)])
    start = {"W": random.normal(size=(4, 3)), "H": random.normal(size=(3, 3))}
    settings = {**PLAIN, **options}
    mfsi = ep.MFSI(3, **settings).fit(feedback, X, Z, start=start)
    fm = ep.FM(3, **settings).fit(feedback, X, Z, start=start, fixed={"b": [0.0], "w": np.zeros(4), "h": np.zeros(3)})
    assert_same_scores(mfsi, fm)


@given(seeds, st.sampled_from(["PARAFAC", "Tucker"]), st.sampled_from(["block", "cd"]))
def test_all_combinations_is_observed_when_every_one_is_listed(seed: int, name: str, field_solver: str) -> None:
    sizes = (2, 3)
    random = np.random.default_rng(seed)
    contexts = random.permutation(np.argwhere(np.ones(sizes)))
    feedback = make("MF", seed, 6, 5).feedback
    settings = {**PLAIN, "random_state": seed, "field_solver": field_solver, "rotate": bool(seed % 2)}
    model = {"PARAFAC": ep.PARAFAC, "Tucker": ep.Tucker}[name]
    both = [model(2, combinations=c, **settings).fit(feedback, contexts) for c in ("observed", "all")]
    assert_same_scores(*both)


@given(seeds)
def test_unobserved_weight_zero_is_explicit_coordinate_descent(seed: int) -> None:
    """Pairs that were not observed have no influence then."""
    feedback, _ = random_feedback(seed)
    wide = ep.Feedback(feedback.rows, feedback.by_context.indices, feedback.b / feedback.alpha, feedback.alpha, shape=(6, 9))
    settings = {**PLAIN, "unobserved_weight": 0.0, "regularization_exponent": 0.0}
    start = np.random.default_rng(seed).normal(size=(6, 2))
    ones = {"W": start, "H": np.ones((5, 2))}
    more = {"W": start, "H": np.ones((9, 2))}
    narrow_model = ep.MF(2, **settings).fit(feedback, start=ones)
    wide_model = ep.MF(2, **settings).fit(wide, start=more)
    np.testing.assert_allclose(narrow_model.phi_, wide_model.phi_, rtol=1e-9)
    assert narrow_model.history_[-1].implicit == 0.0


@given(seeds)
def test_rotation_leaves_the_model_alone(seed: int) -> None:
    """Turning both sides changes no score and no objective."""
    problem = make(["MF", "MFSI", "FM", "Tucker", "Tucker all"][seed % 5], seed)
    solver = problem.solver()
    before, scores = solver.value(), solver.engine.objective.vectors
    scores = scores["context"].rows @ scores["item"].rows.T
    for side in ("item", "context"):
        solver.engine.turn(OPPOSITE[side])
        solver.engine.update_gram("context")
        solver.engine.update_gram("item")
        after = solver.engine.objective.vectors
        np.testing.assert_allclose(after["context"].rows @ after["item"].rows.T, scores, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(solver.value(), before, rtol=1e-9, atol=1e-9)
