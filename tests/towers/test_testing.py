"""check_tower finds what is wrong, and says where."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import everypair as ep
from everypair import reference
from everypair.towers import Coordinates, Derivatives, Embedding, Rows, Smooth

import broken_towers as broken
from bumps import Bumps

ROWS = {"user": np.array([0, 1, 2, 1, 0, 2, 2, 1]), "time": np.linspace(-1.0, 1.0, 8)}

WRONG: list[Any] = [
    (broken.WrongFirst, ["first derivative by place[slice(None, None, None)]", "row", "dimension", "expected"]),
    (broken.WrongSecond, ["second derivative by place", "row", "dimension"]),
    (broken.SaysLinear, ["second derivative (None means zero) by place"]),
    (broken.Forgets, ["coordinates", "height[0] is stepped on 0 times", "expected once"]),
    (broken.WrongEntry, ["coordinates", "row 1 depends on entry 1", "coordinates say entry 0"]),
    (broken.Nameless, ["Nameless(): first derivative by height[0]"]),
    (broken.TinyColumn, ["first derivative by height[0]"]),
    (broken.SmallBend, ["second derivative by place"]),
    (broken.ArgumentLikeAMethod, ["ArgumentLikeAMethod(3): first derivative by height[0]"]),
    (broken.VanishesAtTheStart, ["first derivative by place"]),
    (broken.Single, ["phi", "returns float32", "float64"]),
    (broken.Nan, ["vectors", "row 1, dimension 0 is nan"]),
    (broken.ByPosition, ["vectors_by_row", "of rows [::-2], phi["]),
    (broken.Unlike, ["bind", "with the same seed"]),
    (broken.KeepsState, ["files", "is a learned value missing from them?", "phi["]),
    (broken.ChangesItself, ["bind", "changed attributes of the description", "seen"]),
    (broken.Uphill, ["step on block 0", "the objective rose from"]),
    (broken.TellsNothing, ["step on block 0", "the moves reported to the view are not those of the vectors", "the score of ("]),
    (broken.Lazy, ["sweep", "context[", "alone could lower it by"]),
    (broken.IgnoresHolding, ["'context' moved although it is fixed", "Parameter.fixed"]),
    (broken.WrongGram, ["gram", "J["]),
    (broken.WrongNorms, ["norms", "J["]),
    (broken.TurnsBack, ["rotate", "phi["]),
    (broken.ByThreads, ["threads", "context[", "different bits on 3 threads and on one"]),
    (broken.WrongVectorsByRow, ["vectors_by_row", "phi["]),
    (broken.WrongDimensions, ["dimensions", "phi_1 of row"]),
    (broken.WrongContributions, ["contributions", "those of row 0 add up to", "expected <phi, psi>"]),
]


@pytest.mark.parametrize(("tower", "words"), WRONG, ids=lambda x: x.__name__ if isinstance(x, type) else "")
def test_what_is_wrong(tower: type, words: list[str]) -> None:
    with pytest.raises(AssertionError) as caught:
        ep.testing.check_tower(tower(3), ROWS)
    for word in words:
        assert word in str(caught.value), str(caught.value)


def test_what_is_right() -> None:
    ep.testing.check_tower(Bumps(3), ROWS)
    ep.testing.check_tower(broken.Plain(3), ROWS)


def test_towers_are_checked_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """In float64, whatever device fits are to run on."""
    monkeypatch.setenv("EVERYPAIR_DEVICE", "cuda")
    ep.testing.check_tower(broken.Plain(3), ROWS)


def test_what_cannot_be_bound() -> None:
    with pytest.raises(ValueError, match=r"phi of WrongShape must have shape \(8, 3\), got \(8, 2\)"):
        ep.testing.check_tower(broken.WrongShape(3), ROWS)
    with pytest.raises(ValueError, match="names the parameter 'hight'; start returned 'height', 'place'"):
        ep.testing.check_tower(broken.WrongName(3), ROWS)
    with pytest.raises(ValueError, match="has 3 entries: set entry to the one that each row depends on"):
        ep.testing.check_tower(broken.NoEntry(3), ROWS)
    with pytest.raises(ValueError, match=r"entry of place.* must hold 8 integers from -1 to 2"):
        ep.testing.check_tower(broken.ShortEntry(3), ROWS)
    with pytest.raises(
        ValueError, match=r"derivatives by height\[0\]: first must have a row for each of 8 rows.*from dimension 3 on"
    ):
        ep.testing.check_tower(broken.WrongWidth(3), ROWS)
    with pytest.raises(ValueError, match="side must be one of 'context', 'item', got 'items'"):
        ep.testing.check_tower(Bumps(3), ROWS, side="items")
    with pytest.raises(TypeError, match="takes a tower, got 3"):
        ep.testing.check_tower(3)  # type: ignore[arg-type]


@pytest.mark.parametrize("step_size", [1.0, 0.5])
def test_newton_steps_descend_from_anywhere(step_size: float) -> None:
    """Far from the minimum the curvature is often negative: Gauss-Newton and halved steps take over."""
    random = np.random.default_rng(0)
    n = 60
    contexts = {"user": random.integers(0, 6, n), "time": random.normal(size=n)}
    feedback = ep.Feedback(np.arange(n), random.integers(0, 5, n), shape=(n, 5))
    for seed in range(5):
        model = ep.Separable(
            context=Bumps(3), item=ep.towers.Embedding(3), init_std=3.0, random_state=seed,
            epochs=8, step_size=step_size, unobserved_weight=0.2, dtype="float64",
        )  # fmt: skip
        objectives = [epoch.objective for epoch in model.fit(feedback, contexts=contexts).history_]
        assert objectives == sorted(objectives, reverse=True)
        assert objectives[-1] < feedback.constant


# what Smooth makes of a formula


class Growth(Smooth):
    """``phi(c) = exp(rate time_c)``, one number for all rows; and a weight per level that may have no rows."""

    n_dims = 2

    def start(self, rows: Rows, normal: Any) -> dict[str, np.ndarray]:
        return {"rate": np.array(0.3), "w": np.ones(rows.levels("user").n)}

    def phi(self, p: dict[str, np.ndarray], rows: Rows) -> np.ndarray:
        return np.stack([np.exp(p["rate"][0] * rows.values("time")), rows.levels("user").spread(p["w"])], axis=1)

    def coordinates(self, p: dict[str, np.ndarray], rows: Rows) -> list[Coordinates]:
        return [Coordinates("rate", 0), Coordinates("w", slice(None), rows.levels("user").codes)]

    def derivatives(self, p: dict[str, np.ndarray], rows: Rows, at: Coordinates) -> Derivatives:
        if at.name == "w":
            return Derivatives(np.ones((rows.n, 1)), start=1)
        time, phi = rows.values("time")[:, None], self.phi(p, rows)[:, :1]
        return Derivatives(time * phi, time * time * phi)


GROWTH = {"user": ep.Levels(ROWS["user"], 5), "time": ROWS["time"]}


@pytest.mark.parametrize("step_size", [1.0, 0.5])
def test_the_step_is_newtons(step_size: float) -> None:
    """``-eta L' / L''`` of the objective over every pair, second derivative of the formula included."""
    problem = ep.testing._Check(Growth(), GROWTH, 0, "context", 0)
    solver = problem.solver()
    tower = solver.towers["context"]
    tower.settings = tower.settings._replace(step_size=step_size)
    rate, h = tower.parameters["rate"].value, 1e-4
    before = rate[0]
    values = []
    for move in (h, 0.0, -h):
        rate[0] = before + move
        values.append(problem.objective(solver))
    rate[0] = before
    slope, curvature = (values[0] - values[2]) / (2 * h), (values[0] - 2 * values[1] + values[2]) / h**2
    assert curvature > 0
    tower.step(solver.engine.objective.side("context"), tower.blocks[0])
    np.testing.assert_allclose(rate[0] - before, -step_size * slope / curvature, rtol=1e-5)


def test_entries_without_rows() -> None:
    """Without L2 the loss does not depend on them: they are zero."""
    feedback = ep.Feedback(np.arange(8), np.arange(8) % 3)
    model = ep.Separable(context=Growth(), item=Embedding(2), regularization=0.0, epochs=2).fit(feedback, contexts=GROWTH)
    np.testing.assert_array_equal(model.parameters_["w"][3:], 0.0)
    assert np.all(model.parameters_["w"][:3] != 0.0)


def test_weights_of_entries() -> None:
    """For the exponent, an entry weighs what its rows weigh."""
    problem = ep.testing._Check(Growth(), GROWTH, 0, "context", 0)
    parameters = problem.solver().towers["context"].parameters
    weight, _ = problem.feedback.total_weight(ep.testing.ALPHA0)
    by_level = np.bincount(ROWS["user"], weight, 5)
    np.testing.assert_allclose(parameters["w"].penalty, 0.1 * by_level**0.5)
    np.testing.assert_allclose(parameters["rate"].penalty, 0.1 * weight.sum() ** 0.5)


def test_few_evaluations_when_there_is_nothing_to_gain() -> None:
    """A search for a smaller step ends where rounding decides."""
    calls = []

    class Counted(Bumps):
        def phi(self, p: dict[str, np.ndarray], rows: Rows) -> np.ndarray:
            calls.append(1)
            return super().phi(p, rows)

    random = np.random.default_rng(0)
    contexts = {"user": random.integers(0, 200, 600), "time": random.normal(size=600)}
    feedback = ep.Feedback(np.arange(600), random.integers(0, 5, 600), shape=(600, 5))
    model = ep.Separable(context=Counted(1), item=Embedding(1), epochs=30, unobserved_weight=0.2)
    model.fit(feedback, contexts=contexts)
    assert len(calls) < 30 * 15


@pytest.mark.parametrize("alpha0", [0.0, 0.1])
def test_large_vectors_leave_no_rounding_behind(alpha0: float) -> None:
    """Scores that once were huge are computed anew: the objective is that of the parameters."""

    class Huge(Growth):
        def start(self, rows: Rows, normal: Any) -> dict[str, np.ndarray]:
            return {"rate": np.array(0.3), "w": np.full(rows.levels("user").n, 1e7)}

    feedback = ep.Feedback(np.arange(8), np.arange(8) % 3)
    options: dict[str, Any] = {"unobserved_weight": alpha0, "regularization": 0.1, "regularization_exponent": 0.0, "epochs": 10}
    model = ep.Separable(context=Huge(), item=Embedding(2), **options).fit(feedback, contexts=GROWTH)
    mf = ep.MF(2, **options).fit(feedback, start={"W": np.full((8, 2), 1e7), "H": np.ones((3, 2))})
    for fitted in (model, mf):
        p = fitted.parameters_
        scores = fitted.phi_.astype(float) @ fitted.psi_.T.astype(float)
        dense = reference.objective(scores, feedback, alpha0, p, dict.fromkeys(p, 0.1)).objective
        np.testing.assert_allclose(fitted.history_[-1].objective, dense, rtol=1e-3)
