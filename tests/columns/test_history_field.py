"""A history by running sums equals the matrix it stands for."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import everypair as ep
from everypair.columns.history_field import NORMALIZATIONS, Window
from everypair.runtime.parallel import SERIAL, Workers

from sequences import Sequences, histories

PRODUCTS = ("multiply", "multiply_transposed", "multiply_squared", "multiply_squared_transposed")


windows = st.builds(Window, st.integers(0, 6), st.sampled_from([1.0, 0.9, 0.3]), st.sampled_from([*NORMALIZATIONS, 0.3]))


@given(sequences=histories(), window=windows, seed=st.integers(0, 99))
def test_products_are_those_of_the_matrix(sequences: Sequences, window: Window, seed: int) -> None:
    field, X = sequences.field(window), sequences.matrix(window)
    random = np.random.default_rng(seed)
    v, z = random.normal(size=sequences.n_items), random.normal(size=len(sequences.end))
    expected = (X @ v, X.T @ z, X**2 @ v, (X**2).T @ z)
    for name, value in zip(PRODUCTS, expected, strict=True):
        found = getattr(field, name)(z if name.endswith("transposed") else v, SERIAL)
        np.testing.assert_allclose(found, value, rtol=1e-10, atol=1e-11, err_msg=name)
    np.testing.assert_allclose(field.toarray(), X, rtol=1e-10, atol=1e-12)


@given(sequences=histories(), window=windows, data=st.data())
def test_some_of_the_rows(sequences: Sequences, window: Window, data: st.DataObject) -> None:
    index = np.array(data.draw(st.lists(st.integers(0, len(sequences.end) - 1), min_size=1)))
    np.testing.assert_allclose(sequences.field(window).take(index).toarray(), sequences.matrix(window)[index], atol=1e-12)


def test_what_entered_and_left_again_has_no_weight() -> None:
    """Its rounding would be a weight below zero, and L2 with it."""
    items = np.array([1, 2, 3, 2, 3, 2, 2, 1, 2, 1, 1, 0, 2, 2, 3, 2], np.int32)
    first = np.sort(np.unique(items, return_index=True)[1])
    sequences = Sequences(items, np.array([0, 16]), np.zeros(4, int), first, 4)
    window = Window(4, 0.8, "sqrt")
    found = sequences.field(window).multiply_squared_transposed(np.ones(4), SERIAL)
    expected = (sequences.matrix(window) ** 2).sum(axis=0)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=0.0)


def events(n_users: int, length: int) -> Sequences:
    random = np.random.default_rng(0)
    n = n_users * length
    begin = np.repeat(np.arange(n_users) * length, length)
    return Sequences(random.integers(0, 50, n).astype(np.int32), np.arange(0, n + 1, length), begin, np.arange(n), 50)


@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize("timed", [False, True])
def test_the_same_bits_on_any_number_of_threads(name: str, timed: bool) -> None:
    random = np.random.default_rng(1)
    sequences = events(60, 20)
    if timed:
        sequences = sequences._replace(clock=np.cumsum(random.random((60, 20)), axis=1).ravel())
    x = random.normal(size=len(sequences.end) if name.endswith("transposed") else 50).astype(np.float32)
    found = []
    for threads in (1, 3):
        with Workers(threads, small=1) as workers:
            found.append(getattr(sequences.field(Window(7, 0.9, "sqrt")), name)(x, workers))
    assert found[0].tobytes() == found[1].tobytes()


@pytest.mark.parametrize("window", [Window(7, 0.9, "sqrt"), Window(0, 1.0, "mean")], ids=str)
@pytest.mark.parametrize("timed", [False, True])
def test_panels_are_products_with_sixteen_vectors(window: Window, timed: bool) -> None:
    random = np.random.default_rng(1)
    sequences = events(60, 20)
    if timed:
        sequences = sequences._replace(clock=np.cumsum(random.random((60, 20)), axis=1).ravel())
    field, W = sequences.field(window), random.normal(size=(50, 16))
    assert field.sequences is not None
    out = np.ones((len(sequences.end), 16))
    field.add_panel(W, out, SERIAL)
    np.testing.assert_allclose(out, 1.0 + sequences.matrix(window) @ W, rtol=1e-9, atol=1e-12)


def test_no_matrix_is_built() -> None:
    """Thousands of events in each history: a matrix would have 10^8 entries."""
    sequences = events(2, 10_000)
    field = sequences.field(Window(0, 1.0, "sqrt"))
    own = sum(array.nbytes for array in vars(field).values() if isinstance(array, np.ndarray))
    assert own < 60 * len(sequences.end)
    product = field.multiply(np.ones(50), SERIAL)
    np.testing.assert_allclose(product[1:10_000], np.sqrt(np.arange(1, 10_000)))


@pytest.mark.parametrize("model", [ep.FM, ep.MFSI])
@given(sequences=histories(), window=windows)
def test_models_fit_a_history_as_they_fit_its_matrix(model: type, sequences: Sequences, window: Window) -> None:
    """The same objective, epoch by epoch: a block solve in both cases, but for a matrix with no more than one entry in a row."""
    feedback = ep.Feedback(np.arange(len(sequences.end)), np.arange(len(sequences.end)) % 3, shape=(len(sequences.end), 3))
    settings = {"factors": 2, "epochs": 3, "field_solver": "block", "dtype": "float64", "regularization": 0.3, "rotate": False}
    other = np.arange(len(sequences.end)) % 2
    fitted = [
        model(**settings).fit(feedback, contexts={"history": column, "other": other})
        for column in (sequences.field(window), np.asarray(sequences.matrix(window) + 0.0))
    ]
    objectives = [[epoch.objective for epoch in one.history_] for one in fitted]
    if np.count_nonzero(sequences.matrix(window), axis=1).max() > 1:
        np.testing.assert_allclose(objectives[0], objectives[1], rtol=1e-6)
    assert objectives[0] == sorted(objectives[0], reverse=True)
