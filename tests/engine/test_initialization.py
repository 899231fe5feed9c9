"""Where matrix factorization starts."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import assume, given
from hypothesis import strategies as st

import everypair as ep
from everypair.engine.initialization import item_vectors
from everypair.engine.start_values import Stream
from everypair.runtime.parallel import Workers
from everypair.towers import Embedding


@given(seed=st.integers(0, 10**6), many=st.booleans())
def test_sums_of_signs(seed: int, many: bool) -> None:
    """The formula, densely: also for contexts and items without feedback, and where y is 0."""
    random = np.random.default_rng(seed)
    cells = np.flatnonzero(random.random((6, 7)) < 0.3)
    y = random.integers(-1, 3, len(cells)).astype(float) if many else np.ones(len(cells))
    assume(len(cells) > 0)
    feedback = ep.Feedback(cells // 7, cells % 7, y if many else 1.0, 2.0, shape=(6, 7))
    B = sp.coo_array((2.0 * y, (cells // 7, cells % 7)), (6, 7)).toarray()
    found = item_vectors(feedback, 3, np.dtype("float64"), seed, "H", Workers(1))
    signs = np.ones((6, 3))
    Stream(seed, "signs", "H").multiply_by_signs(signs, range(6))
    left, right = (np.abs(B).sum(axis=axis) for axis in (1, 0))
    scaled = B * np.where(left > 0, left, 1)[:, None] ** -0.25 * np.where(right > 0, right, 1) ** -0.25
    expected = scaled.T @ signs
    assume(expected.any(axis=0).all())  # signs may cancel: then there are others
    length = np.sqrt((expected**2).sum() / 7)
    np.testing.assert_allclose(found, expected / length, atol=1e-12)


def test_few_signs_may_cancel() -> None:
    """Two contexts of one item: a start at the origin would stay there."""
    for seed in range(8):
        model = ep.MF(2, epochs=5, regularization=0.001, random_state=seed).fit(ep.Feedback([0, 1], [0, 0]))
        assert model.predict([0], [0])[0] > 0.5


def test_signs_of_few_dimensions_are_held_at_a_time() -> None:
    """Those of all would take as much memory as the parameters of the contexts, which are there by then."""
    n, factors = 20_000, 64
    feedback = ep.Feedback(np.arange(n), np.arange(n) % 100, shape=(n, 100))
    with Workers(1) as workers:
        item_vectors(feedback, factors, np.dtype("float32"), 0, "H", workers)  # compiles
        tracemalloc.start()
        try:
            item_vectors(feedback, factors, np.dtype("float32"), 0, "H", workers)
            assert tracemalloc.get_traced_memory()[1] < n * factors * 4 / 2
        finally:
            tracemalloc.stop()


def test_which_models_start_from_the_feedback() -> None:
    """Free vectors on both sides, unless their size is given, they are given, or step in a way of their own."""
    feedback = ep.Feedback(np.arange(50) % 10, np.arange(50) % 7, shape=(11, 8), duplicates="sum")

    class Other(Embedding):
        pass

    def start(model: ep.MF | ep.Separable) -> dict[str, np.ndarray]:
        solver = model.build_solver(feedback, None, None, Workers(1))
        return {side: solver.towers[side].vectors().rows.copy() for side in ("context", "item")}

    drawn = start(ep.MF(4, random_state=3))
    assert not drawn["context"].any()
    assert not drawn["item"][7].any()
    assert drawn["item"][:7].any(axis=1).all()
    np.testing.assert_allclose(np.mean(np.sum(drawn["item"] ** 2, axis=1)), 1.0, rtol=1e-6)
    for model in (ep.MF(4, init_std=0.5), ep.Separable(context=Other(4), item=Embedding(4))):
        assert all(vectors.all() for vectors in start(model).values())


@pytest.mark.parametrize("threads", [1, 2])
def test_the_first_epoch_begins_there(threads: int) -> None:
    random = np.random.default_rng(0)
    cells = np.unique(random.integers(0, 300 * 200, 3_000))
    feedback = ep.Feedback(cells // 200, cells % 200, shape=(300, 200))
    settings = {"unobserved_weight": 0.05, "regularization": 0.1, "random_state": 0, "n_threads": threads}
    ours = ep.MF(8, epochs=2, **settings).fit(feedback).history_
    theirs = ep.MF(8, epochs=2, init_std=8**-0.5, **settings).fit(feedback).history_
    assert ours[0].objective < theirs[0].objective
    assert ours[1].objective < theirs[1].objective
