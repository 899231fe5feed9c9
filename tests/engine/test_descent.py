"""No step raises the objective, and at the end every derivative is zero."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import everypair as ep

from problems import MODELS, Problem, as_float, make, problems, shown

OPTIONS: list[dict[str, Any]] = [
    {"field_solver": "block"},
    {"field_solver": "block", "rotate": False},
    {"block_size": 2},
    {"block_size": 5, "rotate": False},
    {"field_solver": "cd"},
    {"field_solver": "cd", "rotate": False},
    {"order": "dimension", "field_solver": "block"},
    {"order": "dimension", "field_solver": "cd"},
]
FIELDLESS = ("MF", "PARAFAC", "PARAFAC all")  # the solver of fields makes no difference to them


CASES = [
    pytest.param(name, options, id=f"{name}, {options}")
    for name in MODELS
    for options in OPTIONS
    if name in ("MF", "MFSI", "FM") or "order" not in options
    if name not in FIELDLESS or options.get("field_solver") != "cd"
]


@pytest.mark.parametrize(("name", "options"), CASES)
@given(data=st.data())
def test_no_sweep_raises_the_objective(name: str, options: dict[str, Any], data: st.DataObject) -> None:
    problem = data.draw(problems(name))
    solver = problem.solver(**options)
    before = solver.value().objective
    for _ in range(4):
        for side in solver.sweeps():
            after = solver.value().objective
            scale = problem.scale((solver.engine.objective.grams["context"], solver.engine.objective.grams["item"]))
            assert after <= before + 1e-10 * (abs(before) + scale), side
            before = after


@given(problems(positive=True), st.floats(0.2, 1.0))
def test_a_smaller_step_still_descends(problem: Problem, step_size: float) -> None:
    objectives = [record.objective for record in problem.fit(epochs=6, step_size=step_size).history_]
    assert all(b <= a * (1 + 1e-10) for a, b in itertools.pairwise(objectives))


@pytest.mark.parametrize("confidence", ["below", "equal", "above"])
def test_confidence_far_below_that_of_unobserved_pairs(confidence: str) -> None:
    """Curvature that is lost in rounding takes its gradient along: no step of noise over lambda."""
    alpha = {"below": 1e-4, "equal": 10.0, "above": 1e4}[confidence]
    feedback = ep.Feedback(np.arange(50), np.zeros(50, int), alpha=alpha, shape=(50, 1))
    for options in ({}, {"block_size": 4}, {"order": "dimension"}, {"rotate": False}):
        model = ep.MF(factors=4, unobserved_weight=10.0, regularization=1e-4, **options).fit(feedback)
        assert model.history_[-1].objective <= 1.01 * feedback.constant
    objectives = [e.objective for e in ep.FM(4, unobserved_weight=10.0, regularization=1e-4, epochs=40).fit(feedback).history_]
    assert max(b - a for a, b in itertools.pairwise(objectives)) <= 1e-3 * feedback.constant


@pytest.mark.full
@pytest.mark.parametrize(("name", "options"), CASES)
@settings(max_examples=2)
@given(seed=st.integers(0, 10**6))
def test_converged_models_are_stationary(name: str, options: dict[str, Any], seed: int) -> None:
    problem = make(name, seed, n_contexts=4, n_items=4, k=2, strength=0.3, alpha0=0.2)
    solver = problem.solver(**options)
    start = gradient(problem, shown(solver))
    before = solver.value().objective
    for _ in range(30_000):
        list(solver.sweeps())
        after = solver.value().objective
        if before - after < 1e-14 * before:
            break
        before = after
    else:
        pytest.fail("no convergence")
    end = gradient(problem, shown(solver))
    assert max(np.abs(g).max() for g in end.values()) <= 1e-5 * max(np.abs(g).max() for g in start.values())


def gradient(problem: Problem, parameters: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Central differences of the dense objective (exact for a quadratic, whatever the step)."""
    p = as_float(parameters)
    out = {}
    for letter, value in p.items():
        out[letter] = np.zeros_like(value)
        for index in np.ndindex(*value.shape):
            theta = value[index]
            value[index] = theta + 0.01
            above = problem.dense(p).objective
            value[index] = theta - 0.01
            below = problem.dense(p).objective
            value[index] = theta
            out[letter][index] = (above - below) / 0.02
    return out
