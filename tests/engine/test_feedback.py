"""Observed pairs: both compressed views, and merged events and contexts that keep the loss."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

import everypair as ep
from everypair import reference

seeds = st.integers(0, 10**6)


def random_pairs(seed: int, repeated: bool) -> tuple[np.random.Generator, np.ndarray, np.ndarray, tuple[int, int]]:
    random = np.random.default_rng(seed)
    shape = (int(random.integers(1, 7)), int(random.integers(1, 7)))
    cells = random.integers(0, shape[0] * shape[1], random.integers(1, 20))
    cells = cells if repeated else random.permutation(np.unique(cells))
    return random, *np.unravel_index(cells, shape), shape


@given(seeds)
def test_both_views_hold_the_pairs(seed: int) -> None:
    random, context, item, shape = random_pairs(seed, repeated=False)
    y = random.normal(size=len(context))
    feedback = ep.Feedback(context, item, y, 2.0, shape=shape)
    dense = np.zeros(shape)
    dense[context, item] = 2.0 * y
    by_context, by_item = feedback.by_context, feedback.by_item
    found = sp.csr_array((feedback.b, by_context.indices, by_context.indptr), shape=shape)
    np.testing.assert_allclose(found.toarray(), dense)
    transposed = sp.csr_array((feedback.b[by_item.order], by_item.indices, by_item.indptr), shape=shape[::-1])
    np.testing.assert_allclose(transposed.toarray(), dense.T)
    assert all(np.all(np.diff(row) > 0) for row in np.split(by_context.indices, by_context.indptr[1:-1]))
    assert len(feedback) == len(context)


@given(seeds)
def test_summed_events_keep_the_loss(seed: int) -> None:
    """Repeated pairs: the loss is the sum over events, plus the pairs that never occurred."""
    random, context, item, shape = random_pairs(seed, repeated=True)
    y, alpha = random.normal(size=len(context)), random.uniform(0.1, 2.0, len(context))
    feedback = ep.Feedback(context, item, y, alpha, shape=shape, duplicates="sum")
    scores = random.normal(size=shape)
    seen = np.zeros(shape, bool)
    seen[context, item] = True
    expected = np.sum(alpha * (scores[context, item] - y) ** 2) + 0.3 * np.sum(scores[~seen] ** 2)
    np.testing.assert_allclose(reference.objective(scores, feedback, 0.3).objective, expected)


@given(seeds, st.booleans())
def test_merged_contexts_keep_the_objective_and_its_parts(seed: int, weighted: bool) -> None:
    random, context, item, shape = random_pairs(seed, repeated=False)
    y, alpha = random.normal(size=len(context)), random.uniform(0.1, 2.0, len(context))
    m = random.uniform(0.5, 2.0, shape[0]) if weighted else None
    n = random.uniform(0.5, 2.0, shape[1]) if weighted else None
    feedback = ep.Feedback(context, item, y, alpha, shape=shape, context_weight=m, item_weight=n)
    groups = random.integers(0, 3, shape[0])
    merged = feedback.merge_contexts(groups)
    scores = random.normal(size=(merged.n_contexts, shape[1]))
    before = reference.objective(scores[groups], feedback, 0.3)
    after = reference.objective(scores, merged, 0.3)
    np.testing.assert_allclose(after, before, rtol=1e-12, atol=1e-12)
    again = merged.merge_contexts(np.zeros(merged.n_contexts, int))
    same = np.tile(scores[:1], (merged.n_contexts, 1))
    np.testing.assert_allclose(
        reference.objective(scores[:1], again, 0.3), reference.objective(same, merged, 0.3), rtol=1e-12, atol=1e-12
    )


@given(seeds, st.floats(0.0, 2.0), st.booleans())
def test_unobserved_pairs_of_popular_items_weigh_more(seed: int, exponent: float, weighted: bool) -> None:
    random, context, item, shape = random_pairs(seed, repeated=False)
    n = random.uniform(0.0, 2.0, shape[1]) if weighted else None
    feedback = ep.Feedback(context, item, shape=shape, item_weight=n)
    before = feedback.weights()[1].copy()
    popular = feedback.by_popularity(exponent)
    after = popular.weights()[1]
    np.testing.assert_allclose(after.sum(), before.sum())
    times = np.maximum(np.bincount(item, minlength=shape[1]), 1.0) ** exponent
    np.testing.assert_allclose(after * (before * times).sum(), before * times * before.sum(), atol=1e-12)
    np.testing.assert_array_equal(feedback.weights()[1], before)  # the feedback itself stays as it is
    groups = random.integers(0, 3, shape[0])
    np.testing.assert_allclose(feedback.merge_contexts(groups).by_popularity(exponent).weights()[1], after)  # events count


def test_weights_of_nothing_stay_so() -> None:
    nothing = ep.Feedback([0, 1], [0, 1], item_weight=np.zeros(2)).by_popularity(0.5)
    np.testing.assert_array_equal(nothing.weights()[1], [0.0, 0.0])


@given(seeds, st.sampled_from([0.0, 1.0]))
def test_training_on_merged_contexts_is_training_on_the_unmerged(seed: int, exponent: float) -> None:
    """Contexts with equal features: the same parameters, objective by objective."""
    random, context, item, shape = random_pairs(seed, repeated=False)
    feedback = ep.Feedback(context, item, 1.0, 1.5, shape=shape)
    groups = random.permutation(np.arange(shape[0]) % 3)
    X = sp.csr_array(random.normal(size=(groups.max() + 1, 3)))
    model = ep.FM(2, regularization=0.1, regularization_exponent=exponent, dtype="float64", epochs=3, random_state=seed)
    unmerged = model.fit(feedback, contexts=X[groups]).history_
    merged = model.fit(feedback.merge_contexts(groups), contexts=X).history_
    for a, b in zip(unmerged, merged, strict=True):
        np.testing.assert_allclose(a[1:5], b[1:5], rtol=1e-7, atol=1e-9)


def test_scalars_cost_no_memory_per_pair() -> None:
    feedback = ep.Feedback([0, 1], [1, 0], y=2.0, alpha=3.0)
    assert feedback.alpha == 3.0
    assert feedback.b == 6.0
    assert feedback.unobserved() == 1.0
    assert feedback.constant == 2 * 3.0 * 4.0


def test_from_scipy_takes_stored_values_as_y() -> None:
    matrix = sp.csr_array(([1.0, 0.0, 3.0], ([0, 1, 1], [2, 0, 1])), shape=(2, 3))
    feedback = ep.Feedback.from_scipy(matrix, alpha=2.0)
    assert feedback.shape == (2, 3)
    assert len(feedback) == 3  # a stored zero is an observation
    np.testing.assert_allclose(feedback.b, [2.0, 0.0, 6.0])
    weights = sp.csr_array(([1.0, 2.0, 3.0], ([0, 1, 1], [2, 0, 1])), shape=(2, 3))
    np.testing.assert_allclose(ep.Feedback.from_scipy(matrix, alpha=weights).alpha, [1.0, 2.0, 3.0])
    assert ep.Feedback.from_scipy(sp.coo_array(matrix != 0)).b == 1.0


def test_from_scipy_does_not_touch_the_matrix() -> None:
    matrix = sp.csr_array(([1.0, 1.0], ([0, 0], [2, 0])), shape=(1, 3))
    before = matrix.indices.copy()
    ep.Feedback.from_scipy(matrix)
    np.testing.assert_array_equal(matrix.indices, before)


def same_pairs(feedback: ep.Feedback, other: ep.Feedback) -> None:
    for view, expected in ((feedback.by_context, other.by_context), (feedback.by_item, other.by_item)):
        for array, wanted in zip(view, expected, strict=True):
            np.testing.assert_array_equal(array, wanted)
    assert feedback.shape == other.shape
    np.testing.assert_array_equal(feedback.b, other.b)
    np.testing.assert_array_equal(feedback.context_count, other.context_count)
    np.testing.assert_array_equal(feedback.item_count, other.item_count)


@given(st.integers(0, 2**32 - 1), st.booleans())
def test_every_way_to_the_same_pairs(seed: int, weighted: bool) -> None:
    """Sorted or not, as arrays or as a matrix of any format, with one value for all or one each: the same two views."""
    random = np.random.default_rng(seed)
    shape = (int(random.integers(1, 8)), int(random.integers(1, 8)))
    cells = random.permutation(shape[0] * shape[1])[: random.integers(1, shape[0] * shape[1] + 1)]
    y = random.integers(1, 5, len(cells)).astype(float) if weighted else np.full(len(cells), 2.0)
    order = np.argsort(cells)
    expected = ep.Feedback(cells[order] // shape[1], cells[order] % shape[1], y[order] if weighted else 2.0, shape=shape)
    dense = np.zeros(shape)
    dense[cells // shape[1], cells % shape[1]] = y
    np.testing.assert_array_equal(expected.by_context.indices, dense.nonzero()[1])
    np.testing.assert_array_equal(expected.by_item.indices, dense.T.nonzero()[1])
    np.testing.assert_array_equal(expected.rows[expected.by_item.order], expected.by_item.indices)
    same_pairs(ep.Feedback(cells // shape[1], cells % shape[1], y if weighted else 2.0, shape=shape), expected)
    matrix = sp.coo_array((y, (cells // shape[1], cells % shape[1])), shape=shape)
    if len(np.unique(y)) > 1 or not weighted:
        for kind in ("coo", "csr", "csc"):
            same_pairs(ep.Feedback.from_scipy(matrix.asformat(kind)), expected)


def test_a_matrix_whose_rows_are_not_sorted_though_it_says_so() -> None:
    matrix = sp.csr_array(([1, 1, 1], [0, 2, 1], [0, 3]), shape=(1, 3))
    assert not matrix.has_sorted_indices
    matrix.has_sorted_indices = matrix.has_canonical_format = True
    np.testing.assert_array_equal(ep.Feedback.from_scipy(matrix).by_context.indices, [0, 1, 2])


def test_a_matrix_with_room_for_more() -> None:
    matrix = sp.csr_array((2, 3))
    matrix.data, matrix.indices, matrix.indptr = np.array([1.0, 1.0, np.nan]), np.array([2, 0, 0]), np.array([0, 1, 2])
    feedback = ep.Feedback.from_scipy(matrix)
    assert len(feedback) == 2
    assert feedback.b == 1.0


def test_the_matrix_may_change_afterwards() -> None:
    matrix = sp.csr_array(np.eye(3))
    feedback = ep.Feedback.from_scipy(matrix)
    matrix.indices[:] = 0
    np.testing.assert_array_equal(feedback.by_context.indices, [0, 1, 2])


def test_small_integers_add_up() -> None:
    matrix = sp.coo_array((np.full(300, 1, np.int8), (np.zeros(300, int), np.zeros(300, int))), shape=(1, 2))
    assert ep.Feedback.from_scipy(matrix).b == 300.0


@pytest.mark.parametrize("kind", [np.int16, np.uint8, np.int64, np.uint64])
def test_any_integer_type(kind: type) -> None:
    feedback = ep.Feedback(np.array([0, 2], kind), np.array([1, 0], kind))
    assert feedback.shape == (3, 2)


@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.int16, np.dtype(">i4"), np.int64])
def test_any_integer_type_of_levels(kind: type) -> None:
    """More contexts than a small type can count."""
    n = 300
    contexts = np.stack([np.arange(n) // 100, np.arange(n) % 100], axis=1)
    feedback = ep.Feedback(np.arange(n), np.arange(n) % 7)
    found, expected = (ep.PARAFAC(2, epochs=3).fit(feedback, c).phi_ for c in (contexts.astype(kind), contexts))
    np.testing.assert_array_equal(found, expected)


def test_weights_are_copies() -> None:
    weight = np.ones(2)
    feedback = ep.Feedback([0, 1], [0, 1], context_weight=weight)
    weight[0] = -5.0
    assert feedback.context_weight[0] == 1.0


def test_merged_events_count_as_often_as_they_occurred() -> None:
    """Summed in one context, or in contexts merged later: the same L2 with an exponent."""
    summed = ep.Feedback([0, 0, 0], [0, 0, 1], duplicates="sum")
    merged = ep.Feedback([0, 1, 2], [0, 0, 1]).merge_contexts([0, 0, 0])
    np.testing.assert_array_equal(summed.context_count, merged.context_count)
    np.testing.assert_array_equal(summed.item_count, merged.item_count)


def test_float32_values_are_multiplied_in_float64() -> None:
    y, alpha = np.float32([0.1, 0.3]), np.float32([0.7, 0.9])
    np.testing.assert_array_equal(ep.Feedback([0, 1], [0, 1], y, alpha).b, alpha.astype(float) * y.astype(float))
    weight = np.float32([0.3, 0.7])
    fits = [
        ep.MF(2, epochs=3, dtype="float64").fit(
            ep.Feedback(
                [0, 1, 1], [0, 1, 0], alpha=kind(np.float32([0.7, 0.9, 0.1])), context_weight=kind(weight), item_weight=kind(weight)
            )
        )
        for kind in (np.float32, np.float64)
    ]
    assert fits[0].history_[-1][1:5] == fits[1].history_[-1][1:5]
