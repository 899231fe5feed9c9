"""No step raises the objective, and at the end every derivative is zero."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
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


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@given(problem=problems())
def test_no_sweep_raises_the_objective(problem: Problem, options: dict[str, Any]) -> None:
    if options.get("order") == "dimension" and problem.name.split()[0] in ("PARAFAC", "Tucker"):
        options = {key: value for key, value in options.items() if key != "order"}
    solver = problem.solver(**options)
    before = solver.value().objective
    for _ in range(4):
        for side in solver.sweeps():
            after = solver.value().objective
            scale = problem.scale((solver.objective.grams["context"], solver.objective.grams["item"]))
            assert after <= before + 1e-10 * (abs(before) + scale), side
            before = after


@given(problems(positive=True), st.floats(0.2, 1.0))
def test_a_smaller_step_still_descends(problem: Problem, step_size: float) -> None:
    history = problem.fit(epochs=6, step_size=step_size).history_
    assert history[-1].objective <= history[0].objective * (1 + 1e-10)


@pytest.mark.full
@pytest.mark.parametrize("options", OPTIONS[:6:2], ids=str)
@pytest.mark.parametrize("name", MODELS)
def test_converged_models_are_stationary(name: str, options: dict[str, Any]) -> None:
    problem = make(name, seed=3, n_contexts=4, n_items=4, k=2, strength=0.3, alpha0=0.2)
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
