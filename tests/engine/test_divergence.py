"""A fit never raises its objective and ends finite, whatever the settings; where the precision does not allow it, it says so."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import everypair as ep
from everypair.engine import divergence
from everypair.runtime.parallel import SERIAL

from problems import CONFIDENCES, MODELS, Problem, make

ALONE = ["MF", "PARAFAC", "PARAFAC all"]  # every vector on its own: its steps are held back where their gradient is rounding
OF_ITEMS = {"MF": {"H"}, "MFSI": {"H"}, "FM": {"h", "H"}, "sum of towers": {"H"}, "towers of towers": {"H"}}


@st.composite
def extremes(draw: st.DrawFn, name: str) -> tuple[Problem, dict[str, Any]]:
    """Problems with more dimensions than data, with L2 on one side, on both or on none."""
    n_contexts, n_items = draw(st.sampled_from([(1, 9), (9, 1), (5, 7), (1, 1)]))
    strength, l2_on = draw(st.sampled_from([1e-6, 0.02, 1.0])), draw(st.sampled_from(["context", "item", "both", "none"]))
    problem = make(
        name,
        draw(st.integers(0, 10**6)),
        n_contexts,
        n_items,
        k=draw(st.sampled_from([1, 3, 20, 40])),
        confidence=draw(st.sampled_from(CONFIDENCES)),
        weighted=draw(st.booleans()),
        strength=strength,
        alpha0=draw(st.sampled_from([0.0, 1e-6, 0.1, 1.0])),
        positive=draw(st.booleans()),
    )
    of_items = OF_ITEMS.get(name, {"W"})
    held = {letter: l2_on == "both" or l2_on == ("item" if letter in of_items else "context") for letter in problem.weights}
    regularization = {letter: strength if yes else 0.0 for letter, yes in held.items()}
    return problem, {"regularization": regularization, "dtype": draw(st.sampled_from(["float32", "float64"])), "epochs": 8}


def fitted(problem: Problem, options: dict[str, Any]) -> None:
    """A fit whose objective does not rise and whose parameters are finite."""
    start = problem.solver(**options).value().objective
    model = problem.fit(**options)
    objectives = np.array([start, *(epoch.objective for epoch in model.history_)])
    lowest = np.minimum.accumulate(objectives)[:-1]
    scores = problem.score({name: np.asarray(value, float) for name, value in model.parameters_.items()})
    size = problem.feedback.constant + lowest + problem.alpha0 * 4.0 * np.sum(scores**2)  # rows weigh at most 2 each
    assert np.all(objectives[1:] - lowest <= divergence.ROUNDING[options["dtype"]] * size)
    assert all(np.all(np.isfinite(value)) for value in model.parameters_.values())


@pytest.mark.parametrize("name", MODELS)
@given(data=st.data())
def test_fits_descend_or_are_refused(name: str, data: st.DataObject) -> None:
    problem, options = data.draw(extremes(name))
    refusal = None
    try:
        fitted(problem, options)
    except ep.DivergedError as error:
        refusal = str(error)
    if refusal is not None:
        assert name not in ALONE, refusal
        assert "rescale them" in refusal
        assert ("dtype='float64'" in refusal) == (options["dtype"] == "float32")
        assert ("set regularization above 0" in refusal) == (0.0 in options["regularization"].values())


@pytest.mark.parametrize("block_size", [1, 4])
@pytest.mark.parametrize("rotate", [True, False])
def test_without_l2_on_one_side(rotate: bool, block_size: int) -> None:
    """A context with one pair leaves all dimensions but one of the item to rounding: they stay where they are."""
    feedback = ep.Feedback([0], [3], shape=(1, 40))
    plain: dict[str, Any] = {"regularization_exponent": 0, "popularity_exponent": 0, "rotate": rotate, "block_size": block_size}
    found = {}
    for dtype in ("float32", "float64"):
        model = ep.MF(32, unobserved_weight=0.1, regularization={"W": 0.02, "H": 0.0}, dtype=dtype, **plain).fit(feedback)
        assert np.abs(model.parameters_["H"]).max() < 10.0
        found[dtype] = [epoch.objective for epoch in model.history_]
    np.testing.assert_allclose(found["float32"], found["float64"], rtol=1e-3)


def test_small_start_values_are_no_rounding() -> None:
    """A step is rounding by what it does to the loss, not by the size of the vectors it meets."""
    feedback = ep.Feedback([0, 0, 1, 2], [0, 1, 1, 2], shape=(3, 4))
    for k in (1, 3):
        model = ep.MF(k, unobserved_weight=0.1, regularization=0.0, popularity_exponent=0.0, epochs=60, init_std=1e-12).fit(
            feedback
        )
        usual = ep.MF(k, unobserved_weight=0.1, regularization=0.0, popularity_exponent=0.0, epochs=60, dtype="float64").fit(
            feedback
        )
        assert model.history_[-1].objective <= 1.05 * usual.history_[-1].objective + 1e-3


def wide(seed: int) -> ep.Feedback:
    """Large values, and weights that differ by six orders of magnitude."""
    random = np.random.default_rng(seed)
    cells = np.argwhere(random.random((50, 30)) < 0.2)
    y, alpha = random.uniform(0.0, 1e4, len(cells)), 10.0 ** random.uniform(-3.0, 3.0, len(cells))
    return ep.Feedback(cells[:, 0], cells[:, 1], y, alpha, shape=(50, 30))


WIDE: dict[str, Any] = {"unobserved_weight": 0.01, "regularization_exponent": 0.0, "popularity_exponent": 0.0}


@pytest.mark.parametrize("strength", [0.0, 0.01])
def test_an_objective_that_rises_is_refused(strength: float) -> None:
    """The pairwise terms of a factorization machine are differences of squares, here of numbers too large for float32."""
    advice = "use dtype='float64', set regularization above 0, or rescale" if strength == 0.0 else "use dtype='float64', or rescale"
    usual = ep.FM(8, **WIDE, epochs=2, regularization=1.0).fit(wide(0))
    before = usual.phi_
    with pytest.raises(ep.DivergedError, match=rf"rose from .* to .* in epoch \d+.*too large for float32.*To continue, {advice}"):
        usual.set_params(epochs=16, regularization=strength).fit(wide(0))
    np.testing.assert_array_equal(usual.phi_, before)
    model = ep.FM(8, **WIDE, regularization=strength, dtype="float64").fit(wide(0))
    assert np.all(np.diff([epoch.objective for epoch in model.history_]) < 0.0)


def test_an_exact_fit_may_vary() -> None:
    """Without L2 the objective may reach zero, with factors so large that rounding keeps it from staying there."""
    options = {"epochs": 30, "dtype": "float64", "block_size": 4}
    problem = make("PARAFAC all", 61741, 27, 42, 8, "equal", False, 0.0, 0.0, 1.0, False)
    objectives = [epoch.objective for epoch in problem.fit(random_state=316, **options).history_]
    assert objectives[-1] <= 1e-9 * problem.feedback.constant
    assert max(np.diff(objectives)) > 1e-14 * problem.feedback.constant


def test_small_rises_do_not_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each epoch is compared with the lowest, not with the one before."""
    seen = []
    monkeypatch.setattr("everypair.engine.solver.has_risen", lambda objective, lowest, engine: seen.append((objective, lowest)))
    objectives = [epoch.objective for epoch in ep.MF(2, epochs=4).fit(ep.Feedback([0, 1], [0, 1])).history_]
    assert [objective for objective, _ in seen] == objectives
    assert [lowest for _, lowest in seen[1:]] == np.minimum.accumulate(objectives)[:-1].tolist()


def test_what_rounding_explains() -> None:
    """In proportion to the terms of the objective, which may cancel; not to the objective."""
    solver = ep.MF(2).build_solver(ep.Feedback([0, 1], [0, 1]), None, None, SERIAL)
    engine = solver.engine
    assert solver.value().objective <= engine.size
    tolerance = divergence.ROUNDING["float32"] * (engine.size + 1.0)
    assert not divergence.has_risen(1.0 + 0.9 * tolerance, 1.0, engine)
    assert divergence.has_risen(1.0 + 1.1 * tolerance, 1.0, engine)
