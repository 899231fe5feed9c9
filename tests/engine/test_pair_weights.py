"""The weights ``a = alpha - alpha0 m_c n_i`` of the observed pairs: computed where rows are swept, kept where dimensions are."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import everypair as ep
from everypair.engine.divergence import DivergedError
from everypair.engine.feedback import explicit_weight
from everypair.engine.objective import Objective
from everypair.runtime.parallel import SERIAL, Workers

ALPHA0 = 0.3
BYTES = 24.0  # per event at the peak, without the arrays of events: indices and order of both sides, and scores twice


def random_feedback(seed: int, **given: bool) -> ep.Feedback:
    random = np.random.default_rng(seed)
    context, item = np.nonzero(random.random((9, 7)) < 0.4)
    if not len(context):
        context, item = np.array([0]), np.array([0])
    chosen: dict[str, Any] = {}
    if given["alpha"]:
        chosen["alpha"] = 0.5 + random.random(len(context))
    if given["m"]:
        chosen["context_weight"] = random.random(9)
    if given["n"]:
        chosen["item_weight"] = random.random(7)
    return ep.Feedback(context, item, random.normal(size=len(context)), shape=(9, 7), **chosen)


@given(st.integers(0, 10**6), st.booleans(), st.booleans(), st.booleans(), st.booleans(), st.booleans())
def test_weights_of_pairs_are_those_of_lemma_1(seed: int, alpha: bool, m: bool, n: bool, merged: bool, listed: bool) -> None:
    """In the order of each side, by context and item or merged."""
    feedback = random_feedback(seed, alpha=alpha, m=m, n=n)
    if merged:
        feedback = feedback.merge_contexts(np.arange(9) // 2)
    objective = Objective(feedback, ALPHA0, np.dtype(np.float64), SERIAL, listed)
    expected = np.broadcast_to(explicit_weight(feedback.alpha, ALPHA0, feedback.unobserved()), len(feedback))
    orders = {"context": slice(None), "item": feedback.by_item.order}
    for side, order in orders.items():
        np.testing.assert_allclose(np.broadcast_to(objective._pairs[side].a, len(feedback)), expected[order], rtol=1e-14)
    covered = np.broadcast_to(feedback.covered_weight(), len(feedback))
    np.testing.assert_array_equal(covered * feedback.weights()[1][feedback.by_context.indices], feedback.unobserved())


@pytest.mark.parametrize("given", [{"alpha": False, "m": False}, {"alpha": True, "m": True}], ids=repr)
def test_sweeps_of_rows_keep_no_weight_per_pair(given: dict[str, bool]) -> None:
    feedback = random_feedback(0, n=True, **given)
    solver = ep.MF(3, regularization=0.0).build_solver(feedback, None, None, Workers(1))
    for epoch in (1, 2, 3):
        list(solver.sweeps(epoch))
    for side in solver.engine.objective._pairs.values():
        assert "a" not in vars(side)
        assert np.ndim(side.other) == (1 if given["m"] or side is solver.engine.objective._pairs["context"] else 0)


def test_weights_too_large_together_are_refused() -> None:
    feedback = ep.Feedback([0], [0], context_weight=[1e30], item_weight=[1e30])
    with pytest.raises(DivergedError, match="too large for float32"):
        ep.MF(2, unobserved_weight=1.0, popularity_exponent=0.0).fit(feedback)


@pytest.mark.full
@pytest.mark.parametrize("ordered", [True, False])
def test_a_fit_takes_few_bytes_per_event(ordered: bool) -> None:
    """With popularity weights, as by default."""
    shape, k = (2_000, 1_500), 4
    random = np.random.default_rng(0)
    cells = random.choice(shape[0] * shape[1], 400_000, replace=False)
    cells = np.sort(cells) if ordered else cells
    context, item = (x.astype(np.int32) for x in np.divmod(cells, shape[1]))
    ep.MF(k, epochs=1, n_threads=1).fit(ep.Feedback(context[:50], item[:50]))  # compiles
    tracemalloc.start()
    try:
        ep.MF(k, epochs=1, n_threads=1).fit(ep.Feedback(context, item, shape=shape))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak / len(cells) < BYTES
