"""When rows are rotated and in which order, and that epochs without a rotation are exact, too."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import everypair as ep
from everypair.engine.cpu import CpuEngine
from everypair.engine.rotation import in_turn, spread_order, swept_by_rows
from everypair.runtime.parallel import Workers
from everypair.towers import Embedding

from problems import make

EPOCHS = 8
TURNED = [1, 2, 4, 7]


@pytest.fixture
def turned(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, str]]:
    """The epochs and sides of the rotations that are done from now on."""
    found: list[tuple[int, str]] = []
    turn, rotate = CpuEngine.turn, CpuEngine._rotate
    now: list[Any] = []

    def turning(engine: CpuEngine, side: str, epoch: int = 1) -> None:
        now[:] = [(epoch, side)]
        turn(engine, side, epoch)

    def rotating(engine: CpuEngine, at: slice, Q: np.ndarray) -> None:
        found.extend(now)
        rotate(engine, at, Q)

    monkeypatch.setattr(CpuEngine, "turn", turning)
    monkeypatch.setattr(CpuEngine, "_rotate", rotating)
    return found


def test_rows_are_rotated_often_at_first(turned: list[tuple[int, str]]) -> None:
    make("MF", 0).fit(epochs=EPOCHS, regularization=0.1)
    assert turned == [(epoch, side) for epoch in TURNED for side in ("context", "item")]
    assert [epoch for epoch in range(1, EPOCHS + 1) if in_turn(epoch)] == TURNED


@pytest.mark.parametrize("name", ["MFSI", "FM"])
def test_features_are_rotated_in_every_epoch(name: str, turned: list[tuple[int, str]]) -> None:
    make(name, 0).fit(epochs=4, regularization=0.1)
    assert sorted({epoch for epoch, _ in turned}) == [1, 2, 3, 4]


def test_a_tower_with_steps_of_its_own_is_not_swept_by_rows() -> None:
    class Slow(Embedding):
        def step(self, view: Any, block: int) -> None:
            super().step(view, block)

    feedback = ep.Feedback([0, 1, 1], [0, 0, 1])
    for tower, expected in ((Embedding(2), True), (Slow(2), False), (Embedding(2, "column"), False)):
        contexts = {"column": np.array([0, 1])} if tower.column else None
        model = ep.Separable(context=tower, item=Embedding(2))
        engine = model.build_solver(feedback, contexts, None, Workers(1)).engine
        assert swept_by_rows(engine.towers["context"]) == expected


@pytest.mark.parametrize("ended", range(1, EPOCHS))
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_resumed_fit_rotates_in_the_same_epochs(ended: int, dtype: str, tmp_path: Path, turned: list[tuple[int, str]]) -> None:
    random = np.random.default_rng(1)
    seen = np.argwhere(random.random((30, 20)) < 0.3)
    feedback = ep.Feedback(*seen.T)

    def fit(epochs: int) -> ep.MF:
        return ep.MF(20, epochs=epochs, dtype=dtype).fit(feedback, checkpoint=tmp_path / "run")

    whole = ep.MF(20, epochs=EPOCHS, dtype=dtype).fit(feedback)
    undisturbed = turned.copy()
    turned.clear()
    fit(ended)
    resumed = fit(EPOCHS)
    assert turned == undisturbed
    np.testing.assert_array_equal(resumed.phi_, whole.phi_)
    np.testing.assert_array_equal(resumed.psi_, whole.psi_)
    assert [epoch[:5] for epoch in resumed.history_] == [epoch[:5] for epoch in whole.history_]


@given(st.integers(1, 300))
def test_each_block_begins_with_a_large_eigenvalue(n: int) -> None:
    order = spread_order(n)
    assert sorted(order.tolist()) == list(range(n))
    blocks = -(-n // 16)
    assert np.count_nonzero(np.diff(order) > 0) == blocks - 1  # in each, from the largest to the smallest
    starts = np.concatenate([[0], np.flatnonzero(np.diff(order) > 0) + 1])
    assert sorted(order[starts].tolist()) == list(range(n - blocks, n))


@given(st.integers(0, 10**6), st.sampled_from([1, 17, 40]), st.sampled_from(["float32", "float64"]))
def test_the_objective_is_that_of_all_pairs_after_each_epoch(seed: int, factors: int, dtype: str) -> None:
    """And never rises, whether rows were rotated or not; popular items and context weights included."""
    random = np.random.default_rng(seed)
    dense = random.random((12, 9)) < 0.4
    dense[0, 0] = True
    m, n = random.random(12) + 0.1, random.random(9) + 0.1
    feedback = ep.Feedback(*np.nonzero(dense), context_weight=m, item_weight=n, shape=dense.shape)
    settings: dict[str, Any] = {"unobserved_weight": 0.2, "regularization": 0.05, "regularization_exponent": 0.0}
    found: list[float] = []

    def after(model: ep.MF, epoch: ep.Epoch) -> None:
        scores = model.phi_.astype(np.float64) @ model.psi_.T
        pairs = np.where(dense, (scores - 1) ** 2, 0.2 * np.outer(m, n) * scores**2)
        l2 = 0.05 * float(np.sum(np.square(model.phi_)) + np.sum(np.square(model.psi_)))
        found.append(epoch.objective)
        np.testing.assert_allclose(epoch.objective, pairs.sum() + l2, rtol=1e-4 if dtype == "float32" else 1e-9)

    ep.MF(factors, epochs=EPOCHS, dtype=dtype, popularity_exponent=0.0, **settings).fit(feedback, callback=after)
    slack = 1e-5 if dtype == "float32" else 1e-12
    assert all(after <= before * (1 + slack) for before, after in itertools.pairwise(found))
