"""The reported objective is the true one: a dense evaluation over all pairs gives the same number."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from everypair import reference

from problems import CONFIDENCES, MODELS, Problem, make, problems


def assert_dense(problem: Problem, model: object, tolerance: float, fixed: tuple[str, ...] = ()) -> None:
    dense = problem.dense(model.parameters_, fixed)
    record = model.history_[-1]
    grams = model.phi_.T @ model.phi_, model.psi_.T @ model.psi_
    scale = dense.objective + problem.scale(grams)
    for part in ("objective", "explicit", "implicit", "l2"):
        assert abs(getattr(record, part) - getattr(dense, part)) <= tolerance * scale, part


@pytest.mark.parametrize("confidence", CONFIDENCES)
@pytest.mark.parametrize("name", MODELS)
@given(data=st.data())
def test_objective_and_parts_equal_the_dense_evaluation(name: str, confidence: str, data: st.DataObject) -> None:
    problem = data.draw(problems(name, confidence))
    orders = [{}, {"rotate": False}] + [{"order": "dimension"}] * (name in ("MF", "MFSI", "FM"))
    assert_dense(problem, problem.fit(epochs=data.draw(st.integers(1, 3)), **data.draw(st.sampled_from(orders))), 1e-9)


@pytest.mark.parametrize("confidence", CONFIDENCES)
@pytest.mark.parametrize("name", MODELS)
@given(data=st.data())
def test_objective_in_float32(name: str, confidence: str, data: st.DataObject) -> None:
    problem = data.draw(problems(name, confidence, positive=True))
    assert_dense(problem, problem.fit(epochs=data.draw(st.integers(1, 4)), dtype="float32"), 1e-4)


@given(problems())
def test_the_reference_agrees_too(problem: Problem) -> None:
    parameters = problem.fit(epochs=1).parameters_
    p = {letter: np.asarray(value, float) for letter, value in parameters.items()}
    found = reference.objective(problem.score(p), problem.dense_feedback, problem.alpha0, p, problem.penalties())
    np.testing.assert_allclose(found, problem.dense(p), rtol=1e-9, atol=1e-9 * problem.feedback.constant)


@given(problems())
def test_scores_are_inner_products_of_the_vectors(problem: Problem) -> None:
    model = problem.fit(epochs=1)
    scores = model.phi_ @ model.psi_.T
    n_contexts, n_items = problem.feedback.shape
    context, item = (x.ravel() for x in np.indices((n_contexts, n_items)))
    np.testing.assert_allclose(model.predict(context, item), scores.ravel(), rtol=1e-12, atol=1e-12)
    if problem.everything is None:
        parameters = {letter: np.asarray(v, float) for letter, v in model.parameters_.items()}
        np.testing.assert_allclose(scores, problem.score(parameters), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", MODELS)
def test_fitted_model_beats_the_zero_model(name: str, seed: int) -> None:
    """For three or more modes the origin is a local minimum: the start must not fall into it."""
    strength = 0.3 if name.startswith("PARAFAC") else 0.02  # where a start near the origin would fall into it
    problem = make(name, seed, n_contexts=6, n_items=6, k=4, strength=strength)
    model = problem.fit(epochs=25)
    assert model.history_[-1].objective < 0.9 * problem.feedback.constant


@given(problems(positive=True))
def test_held_parameters_are_outside_l2(problem: Problem) -> None:
    letter = "H" if "H" in problem.weights else "W"
    start = problem.fit(epochs=1).parameters_[letter]
    model = problem.fit(epochs=2, fixed={letter: start})
    np.testing.assert_array_equal(model.parameters_[letter], start)
    assert_dense(problem, model, 1e-9, fixed=(letter,))
