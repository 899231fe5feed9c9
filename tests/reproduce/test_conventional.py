"""One epoch of iCD equals one epoch of conventional coordinate descent over all pairs, from the same start."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from everypair import reference

from problems import MODELS, Problem, as_float, problems, shown

ONE_BY_ONE: dict[str, Any] = {"rotate": False, "field_solver": "cd"}


def conventional(problem: Problem, start: dict[str, np.ndarray], order: Any, step_size: float = 1.0) -> dict[str, np.ndarray]:
    return reference.coordinate_descent(
        problem.score, start, order, problem.dense_feedback, problem.alpha0, problem.penalties(), step_size
    )


def assert_same(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    for letter, value in expected.items():
        np.testing.assert_allclose(found[letter], value, rtol=1e-8, atol=1e-8 * max(1.0, np.abs(value).max()), err_msg=letter)


@pytest.mark.parametrize("name", MODELS)
@given(data=st.data())
def test_one_epoch_by_side(name: str, data: st.DataObject) -> None:
    problem = data.draw(problems(name, positive=True, max_size=5, max_k=20 if name == "MF" else 3))
    solver = problem.solver(**ONE_BY_ONE)
    start = as_float(shown(solver))
    order = itertools.chain.from_iterable(steps(start) for steps in problem.order.values())
    expected = conventional(problem, start, order)
    list(solver.sweeps())
    assert_same(shown(solver), expected)


@pytest.mark.parametrize("name", ["MF", "MFSI", "FM"])
@given(data=st.data())
def test_one_epoch_by_dimension(name: str, data: st.DataObject) -> None:
    """Algorithms 2 and 3: both sides of a dimension before the next."""
    problem = data.draw(problems(name, positive=True, max_size=5, max_k=3))
    solver = problem.solver(order="dimension", **ONE_BY_ONE)
    start = as_float(shown(solver))
    order = [step for letter in ("b", "w", "h") if letter in problem.order for step in problem.order[letter](start)]
    for f in range(start["W"].shape[1]):
        order += [step for letter in ("W", "H") for step in problem.order[letter](start) if step[1][1] == f]
    expected = conventional(problem, start, order)
    list(solver.sweeps())
    assert_same(shown(solver), expected)


@pytest.mark.parametrize("order", ["side", "dimension"])
@given(data=st.data())
def test_one_epoch_with_held_parameters(order: str, data: st.DataObject) -> None:
    """Any of the letters held: the others step as before, in the same order."""
    name = data.draw(st.sampled_from(MODELS if order == "side" else ["MF", "MFSI", "FM"]))
    problem = data.draw(problems(name, positive=True, max_size=4, max_k=2))
    start = problem.fit(epochs=1, rotate=False).parameters_
    held = data.draw(st.sets(st.sampled_from(list(start)), max_size=len(start) - 1))
    model = problem.fit(epochs=1, order=order, start=start, fixed={letter: start[letter] for letter in held}, **ONE_BY_ONE)
    steps = [step for letter, every in problem.order.items() for step in every(start)]
    if order == "dimension":
        steps.sort(key=lambda step: (-1, "bwh".index(step[0])) if step[0] in "bwh" else (step[1][1], "WH".index(step[0])))
    expected = conventional(problem, as_float(start), (step for step in steps if step[0] not in held))
    assert_same(model.parameters_, expected)


@pytest.mark.parametrize("step_size", [0.5, 0.9])
@given(problem=problems(positive=True, max_size=4, max_k=2))
def test_step_size(problem: Problem, step_size: float) -> None:
    solver = problem.solver(step_size=step_size, **ONE_BY_ONE)
    start = as_float(shown(solver))
    order = itertools.chain.from_iterable(steps(start) for steps in problem.order.values())
    expected = conventional(problem, start, order, step_size)
    list(solver.sweeps())
    assert_same(shown(solver), expected)
