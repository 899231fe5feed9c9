"""check_tower finds what is wrong, and says where."""

from __future__ import annotations

from typing import Any

import broken_towers as broken
import numpy as np
import pytest

import everypair as ep

ROWS = {"user": np.array([0, 1, 2, 1, 0, 2, 2, 1]), "time": np.linspace(-1.0, 1.0, 8)}

WRONG: list[Any] = [
    (broken.WrongFirst, ["first derivative by place[slice(None, None, None)]", "row", "dimension", "expected"]),
    (broken.WrongSecond, ["second derivative by place", "row", "dimension"]),
    (broken.SaysLinear, ["second derivative (None says zero) by place"]),
    (broken.Forgets, ["coordinates", "height[0] comes up 0 times", "expected once"]),
    (broken.WrongEntry, ["coordinates", "row 1 depends on entry 1", "said to be 0"]),
    (broken.Nan, ["vectors", "row 1, dimension 0 is nan"]),
    (broken.ByPosition, ["lookup", "of rows [::-2], phi["]),
    (broken.Unlike, ["bind", "with the same seed"]),
    (broken.KeepsState, ["files", "is something it learns not among them?", "phi["]),
    (broken.ChangesItself, ["bind", "changed the description", "seen"]),
    (broken.Uphill, ["step on block 0", "the objective rose from"]),
    (broken.TellsNothing, ["step on block 0", "told of other moves than the parameters made", "the score of ("]),
    (broken.Lazy, ["sweep", "context[", "alone could lower it by"]),
    (broken.IgnoresHolding, ["'context' moved though it was held", "Parameter.fixed"]),
    (broken.WrongGram, ["gram", "J["]),
    (broken.WrongNorms, ["norms", "J["]),
    (broken.TurnsBack, ["rotate", "phi["]),
    (broken.ByThreads, ["threads", "context[", "other bits on 3 threads than on one"]),
    (broken.WrongLookup, ["lookup", "phi["]),
    (broken.WrongDimensions, ["dimensions", "phi_1 of row"]),
]


@pytest.mark.parametrize(("tower", "words"), WRONG, ids=lambda x: x.__name__ if isinstance(x, type) else "")
def test_what_is_wrong(tower: type, words: list[str]) -> None:
    with pytest.raises(AssertionError) as caught:
        ep.testing.check_tower(tower(3), ROWS)
    for word in words:
        assert word in str(caught.value), str(caught.value)


def test_what_is_right() -> None:
    ep.testing.check_tower(broken.Bumps(3), ROWS)
    ep.testing.check_tower(broken.Plain(3), ROWS)


def test_what_cannot_be_bound() -> None:
    with pytest.raises(ValueError, match=r"phi of WrongShape must have shape \(8, 3\), got \(8, 2\)"):
        ep.testing.check_tower(broken.WrongShape(3), ROWS)
    with pytest.raises(ValueError, match="names the parameter 'hight'; start made 'height', 'place'"):
        ep.testing.check_tower(broken.WrongName(3), ROWS)
    with pytest.raises(ValueError, match="has 3 entries: say which of them each row depends on"):
        ep.testing.check_tower(broken.NoEntry(3), ROWS)
    with pytest.raises(ValueError, match=r"entry of place.* must hold 8 integers from -1 to 2"):
        ep.testing.check_tower(broken.ShortEntry(3), ROWS)
    with pytest.raises(
        ValueError, match=r"derivatives by height\[0\]: first must have a row for each of 8 rows.*from dimension 3 on"
    ):
        ep.testing.check_tower(broken.WrongWidth(3), ROWS)
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
            context=broken.Bumps(3), item=ep.towers.Embedding(3), init_std=3.0, random_state=seed,
            epochs=8, step_size=step_size, unobserved_weight=0.2, dtype="float64",
        )  # fmt: skip
        objectives = [epoch.objective for epoch in model.fit(feedback, contexts=contexts).history_]
        assert objectives == sorted(objectives, reverse=True)
        assert objectives[-1] < feedback.constant
