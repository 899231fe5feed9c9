"""One-hot fields in the order of the rows, and histories by sequence: the same steps as by features and by products."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import everypair as ep
from everypair.columns import fields
from everypair.columns.fields import OneHotField, SparseField
from everypair.columns.history_field import NORMALIZATIONS, HistoryField, Window
from everypair.kernels import pairs, sparse
from everypair.runtime.parallel import SERIAL, Workers
from everypair.towers.steps import one_hot

seeds = st.integers(0, 10**6)


def in_runs(random: np.random.Generator, n_runs: int, longest: int) -> dict[str, Any]:
    """Events of users one after the other: columns that are theirs, some levels missing, and others that change all the time."""
    lengths = random.integers(1, longest + 1, n_runs)
    user, n = np.repeat(np.arange(n_runs), lengths), int(lengths.sum())
    group = random.integers(-1, 2, n_runs)
    previous = random.integers(-1, 4, n)
    return {"user": user, "group": ep.Levels(group[user], 2), "previous": ep.Levels(previous, 4), "place": random.integers(0, 3, n)}


def feedback_of(random: np.random.Generator, n: int, n_items: int, kind: str) -> ep.Feedback:
    """One pair for each context, or several or none, with weights of their own; contexts that stand for more than one."""
    if kind == "events":
        return ep.Feedback(np.arange(n), random.integers(0, n_items, n), shape=(n, n_items))
    cells = np.argwhere(random.random((n, n_items)) < 0.4)
    cells = np.array([[0, 0]]) if len(cells) == 0 else cells
    if kind == "events with weights":
        cells = np.stack([np.arange(n), random.integers(0, n_items, n)], axis=1)
    y, alpha = random.normal(1.0, 0.3, len(cells)), random.uniform(0.01, 3.0, len(cells))
    weight = random.uniform(0.0, 2.0, n)
    return ep.Feedback(cells[:, 0], cells[:, 1], y, alpha, shape=(n, n_items), context_weight=weight)


KINDS = ["events", "events with weights", "pairs with weights"]


def fit(model: type, feedback: ep.Feedback, contexts: Any, **settings: Any) -> Any:
    common = {"epochs": 3, "regularization": 0.1, "regularization_exponent": 0.5, "unobserved_weight": 0.1, "dtype": "float64"}
    return model(2, **{**common, **settings}).fit(feedback, contexts=contexts)


def assert_same_fit(one: Any, other: Any, tolerance: float) -> None:
    for name, value in one.parameters_.items():
        np.testing.assert_allclose(value, other.parameters_[name], rtol=tolerance, atol=tolerance, err_msg=name)
    np.testing.assert_allclose([r.objective for r in one.history_], [r.objective for r in other.history_], rtol=tolerance)


@pytest.mark.parametrize("model", [ep.FM, ep.MFSI])
@pytest.mark.parametrize("kind", KINDS)
@given(seed=seeds)
def test_rows_and_runs_take_the_steps_of_features(model: type, kind: str, seed: int) -> None:
    """By features is the walk along the columns of a sparse matrix: here of one that says nothing of levels."""
    random = np.random.default_rng(seed)
    contexts = in_runs(random, 4, 12)
    feedback = feedback_of(random, len(contexts["user"]), 3, kind)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(one_hot, "LENGTH", 1)
        by_run = fit(model, feedback, contexts)
        patch.setattr(one_hot, "LENGTH", 10**9)
        by_row = fit(model, feedback, contexts)
        patch.setattr(OneHotField, "by_row", False)
        by_feature = fit(model, feedback, contexts)
    assert_same_fit(by_run, by_feature, 1e-6)
    assert_same_fit(by_row, by_feature, 1e-6)
    for fitted in (by_run, by_row):
        objectives = [record.objective for record in fitted.history_]
        assert all(b <= a * (1 + 1e-12) for a, b in itertools.pairwise(objectives))


@pytest.mark.parametrize("model", [ep.FM, ep.MFSI])
@pytest.mark.parametrize("kind", KINDS)
def test_single_precision(model: type, kind: str) -> None:
    random = np.random.default_rng(3)
    contexts = in_runs(random, 40, 30)
    feedback = feedback_of(random, len(contexts["user"]), 5, kind)
    single, double = (fit(model, feedback, contexts, dtype=dtype) for dtype in ("float32", "float64"))
    np.testing.assert_allclose([r.objective for r in single.history_], [r.objective for r in double.history_], rtol=1e-4)


@given(seed=seeds)
def test_stages_are_the_fields_in_order(seed: int) -> None:
    random = np.random.default_rng(seed)
    columns = in_runs(random, 3, 8)
    fields = {name: OneHotField(getattr(column, "codes", column), 12) for name, column in columns.items()}
    found = one_hot.stages(ep.Features(fields))
    assert [field for stage in found for field, _ in stage.fields] == list(fields.values())
    assert [at.start for stage in found for _, at in stage.fields] == [0, 12, 24, 36]
    for stage in found:
        if stage.runs is not None:
            for (field, _), codes in zip(stage.fields, stage.runs.codes, strict=True):
                np.testing.assert_array_equal(np.repeat(codes, np.diff(stage.runs.bounds)), field.codes)  # type: ignore[attr-defined]


@given(seed=seeds)
def test_levels_are_their_matrix(seed: int) -> None:
    random = np.random.default_rng(seed)
    codes = random.integers(-1, 4, 9)
    field, X = OneHotField(codes, 4), np.eye(5)[codes][:, :4]
    v, z, W = random.normal(size=4), random.normal(size=9), random.normal(size=(3, 4))
    np.testing.assert_array_equal(field.toarray(), X)
    for squared in ("", "_squared"):
        np.testing.assert_allclose(getattr(field, f"multiply{squared}")(v, SERIAL), X @ v)
        np.testing.assert_allclose(getattr(field, f"multiply{squared}_transposed")(z, SERIAL), X.T @ z, atol=1e-12)
    np.testing.assert_allclose(field.columns.apply(sparse.multiply, z, SERIAL), X.T @ z, atol=1e-12)
    out = np.ones((3, 9))
    field.add_products(W, out, SERIAL)
    np.testing.assert_allclose(out, 1 + W @ X.T)
    index = random.integers(0, 9, 5)
    np.testing.assert_array_equal(field.take(index).toarray(), X[index])
    for row in range(9):
        there, values = field.entries(row)
        np.testing.assert_array_equal(there, np.flatnonzero(X[row]))
        np.testing.assert_array_equal(values, np.ones(len(there)))


def test_matrices_of_ones_are_levels() -> None:
    assert isinstance(fields.as_field("a", np.eye(3, dtype=int)), OneHotField)
    assert isinstance(fields.as_field("a", 2 * np.eye(3, dtype=int)), SparseField)
    assert isinstance(fields.as_field("a", np.array([[1, 1], [0, 1]])), SparseField)
    np.testing.assert_array_equal(fields.as_field("a", np.array([[0, 1], [0, 0]])).toarray(), [[0, 1], [0, 0]])


def test_many_levels_are_walked_by_feature() -> None:
    """Where sums by level of every range would cost more than the rows."""
    n = 4 * fields.RANGE
    assert OneHotField(np.arange(n) % 100, 100).by_row
    assert not OneHotField(np.arange(n), n).by_row
    assert OneHotField(np.arange(50), 50).by_row


@given(seeds, st.sampled_from([np.float32, np.float64]), st.booleans(), st.booleans())
def test_slopes_of_events(seed: int, dtype: type, many: bool, lost: bool) -> None:
    """Rows with one pair each: as rows with any number of pairs."""
    random = np.random.default_rng(seed)
    n = int(random.integers(1, 2 * pairs.CACHE_ROWS))
    index, indptr = random.integers(0, 5, n).astype(np.int32), np.arange(n + 1)
    psi = random.normal(size=(2, 5)).astype(dtype)
    psi[:, :2] = 0.0
    scores, phi, product_f, product_q = random.normal(size=(4, n)).astype(dtype)
    a: Any = random.normal(size=n).astype(dtype) if many else 0.9
    b: Any = random.normal(size=n).astype(dtype) if many else 1.0
    m: Any = 0.0 if lost else random.uniform(0, 1, n).astype(dtype) if many else 0.1
    observed, implicit = pairs.Observed(indptr, index, a, b, scores), pairs.Implicit(m, product_f, 0.7)
    found, expected = np.ones((2, n), dtype), np.ones((2, n), dtype)
    pairs.slopes_by_event(0, n, observed, psi[0], implicit, 1e-5, *found)
    pairs.slopes(0, n, observed, psi[0][index], implicit, 1e-5, *expected)
    tolerance = 1e-5 if dtype is np.float32 else 1e-12
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)
    both = pairs.ImplicitPair(m, product_f, product_q, 0.7, 0.2, 0.6)
    state, other = np.ones((8, n), dtype), np.ones((8, n), dtype)
    pairs.slopes_pair_by_event(0, n, observed, *psi, both, 1e-5, phi, state)
    pairs.slopes_pair(0, n, observed, psi[0][index], psi[1][index], both, 1e-5, phi, other)
    np.testing.assert_allclose(state, other, rtol=tolerance, atol=tolerance)
    moved = scores.copy()
    pairs.move_pair_by_event(0, n, index, *psi, phi, product_f, moved)
    pairs.move_pair(0, n, indptr, psi[0][index], psi[1][index], phi, product_f, scores)
    np.testing.assert_allclose(moved, scores, rtol=tolerance, atol=tolerance)


def random_history(
    random: np.random.Generator, n_users: int, longest: int, n_items: int, window: Window, timed: bool = False
) -> HistoryField:
    """A row for some of the events, in order: the history of each is what the user did before."""
    lengths = random.integers(0, longest + 1, n_users)
    bounds = np.append(0, np.cumsum(lengths))
    user = np.repeat(np.arange(n_users), lengths)
    some = np.flatnonzero(random.random(bounds[-1]) < 0.8) if bounds[-1] else np.empty(0, int)
    items = random.integers(0, n_items, bounds[-1]).astype(np.int32)
    clock = np.concatenate([np.zeros(0), *(np.cumsum(random.random(n)) for n in lengths)]) if timed else None
    return HistoryField(items, bounds, bounds[user][some], some, n_items, window, clock)


windows = st.builds(Window, st.integers(0, 6), st.sampled_from([1.0, 0.9, 0.3]), st.sampled_from(NORMALIZATIONS))


@pytest.mark.parametrize("model", [ep.FM, ep.MFSI])
@pytest.mark.parametrize("kind", KINDS)
@given(window=windows, seed=seeds)
def test_a_history_by_sequence_takes_the_steps_of_products(model: type, kind: str, window: Window, seed: int) -> None:
    random = np.random.default_rng(seed)
    history = random_history(random, 4, 12, 3, window, timed=seed % 2 == 1)
    n = history.shape[0]
    if n == 0:
        return
    feedback, other = feedback_of(random, n, 3, kind), random.integers(0, 3, n)
    assert history.sequences is not None
    settings = {"regularization": 0.3, "rotate": False}
    by_sequence = fit(model, feedback, {"history": history, "other": other}, **settings)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(HistoryField, "sequences", None)
        by_products = fit(model, feedback, {"history": history, "other": other}, **settings)
    objectives = [[record.objective for record in fitted.history_] for fitted in (by_sequence, by_products)]
    np.testing.assert_allclose(*objectives, rtol=1e-6)
    assert all(b <= a * (1 + 1e-12) for a, b in itertools.pairwise(objectives[0]))


def test_rows_in_no_order_have_products_alone() -> None:
    items, bounds = np.array([0, 1, 2, 0], np.int32), np.array([0, 2, 4])
    window = Window(0, 1.0, "sqrt")
    in_order = HistoryField(items, bounds, np.array([0, 0, 2, 2]), np.array([0, 1, 2, 4]), 3, window)
    assert in_order.sequences is not None
    assert in_order.take(np.array([2, 3, 0, 1])).sequences is None
    assert in_order.take(np.array([1, 0])).sequences is None


@pytest.mark.full  # loops that check bounds are compiled in another way: multiply-adds at the end of a range are not always fused
@pytest.mark.parametrize("model", [ep.FM, ep.MFSI])
def test_the_same_bits_on_any_number_of_threads(model: type) -> None:
    random = np.random.default_rng(0)
    contexts = in_runs(random, 2_000, 30)
    n = len(contexts["user"])
    bounds = np.append(np.flatnonzero(np.append(True, np.diff(contexts["user"]) > 0)), n)
    items = random.integers(0, 50, n).astype(np.int32)
    contexts["history"] = HistoryField(items, bounds, bounds[contexts["user"]], np.arange(n), 50, Window(7, 0.9, "sqrt"))
    assert len(contexts["history"].sequences.ranges) > 3
    feedback = ep.Feedback(np.arange(n), items)
    found = [
        {name: value.tobytes() for name, value in fit(model, feedback, contexts, epochs=2, n_threads=n_threads).parameters_.items()}
        for n_threads in (1, 2, 4)
    ]
    assert found[0] == found[1] == found[2]


@given(seed=seeds, n_threads=st.integers(1, 4))
def test_sums_by_level_do_not_depend_on_the_threads(seed: int, n_threads: int) -> None:
    random = np.random.default_rng(seed)
    field = OneHotField(random.integers(-1, 7, 30_000), 7)
    assert len(field.ranges) > 2
    z = random.normal(size=30_000).astype(np.float32)
    with Workers(n_threads) as workers:
        assert field.multiply_transposed(z, workers).tobytes() == field.multiply_transposed(z, SERIAL).tobytes()
