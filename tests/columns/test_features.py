"""Features: fields, operators and products with them."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse.linalg import LinearOperator, aslinearoperator

import everypair as ep
from everypair.columns.features import feature_weights
from everypair.columns.fields import Field, OnesField, as_field
from everypair.engine.side import Side
from everypair.runtime.parallel import SERIAL
from everypair.towers.kron import KronField, StackedField

seeds = st.integers(0, 10**6)


class Squared(LinearOperator):
    """An operator that also knows its squared entries."""

    def __init__(self, matrix: np.ndarray) -> None:
        super().__init__(np.float64, matrix.shape)
        self._matrix = matrix

    def _matvec(self, v: np.ndarray) -> np.ndarray:
        return self._matrix @ v

    def _rmatvec(self, z: np.ndarray) -> np.ndarray:
        return self._matrix.T @ z

    @property
    def squared(self) -> LinearOperator:
        return aslinearoperator(self._matrix**2)


def assert_products(field: Field, X: np.ndarray, random: np.random.Generator) -> None:
    v, z = random.normal(size=X.shape[1]), random.normal(size=X.shape[0])
    np.testing.assert_allclose(field.multiply(v, SERIAL), X @ v, atol=1e-12)
    np.testing.assert_allclose(field.multiply_transposed(z, SERIAL), X.T @ z, atol=1e-12)
    np.testing.assert_allclose(field.multiply_squared(v, SERIAL), X**2 @ v, atol=1e-12)
    np.testing.assert_allclose(field.multiply_squared_transposed(z, SERIAL), (X**2).T @ z, atol=1e-12)


@given(seeds)
def test_fields_multiply_like_their_matrices(seed: int) -> None:
    random = np.random.default_rng(seed)
    X = np.where(random.random((5, 4)) < 0.5, random.normal(size=(5, 4)), 0.0)
    assert_products(as_field("a", X), X, random)
    assert_products(as_field("a", sp.coo_array(X)), X, random)
    assert_products(as_field("a", Squared(X)), X, random)
    assert_products(OnesField(5), np.ones((5, 1)), random)
    U, V, W = random.normal(size=(3, 2)), random.normal(size=(4, 3)), random.normal(size=(2, 2))
    levels = [random.integers(0, len(table), 5) for table in (U, V, W)]
    kron = np.einsum("ca,cb,cd->cabd", U[levels[0]], V[levels[1]], W[levels[2]]).reshape(5, -1)
    field = KronField([U, V, W], levels)
    assert_products(field, kron, random)
    np.testing.assert_allclose(np.array(list(field.iterate_columns())).T, kron)
    assert_products(StackedField(field, field), np.vstack([kron, kron]), random)


@given(seeds, st.sampled_from(["MFSI", "FM"]))
def test_an_operator_is_its_matrix(seed: int, name: str) -> None:
    random = np.random.default_rng(seed)
    X = np.where(random.random((5, 4)) < 0.6, random.normal(size=(5, 4)), 0.0)
    X[:, :2] += 0.1  # more than one feature in a row: solved as a block
    feedback = ep.Feedback([0, 1, 2, 3, 4], [0, 1, 0, 2, 1])
    model = getattr(ep, name)(2, epochs=3, dtype="float64", regularization_exponent=1.0, field_solver="block")
    matrix, operator = (model.fit(feedback, contexts={"x": x}).history_[-1] for x in (X, Squared(X)))
    np.testing.assert_allclose(matrix[1:5], operator[1:5], rtol=1e-8)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Side, "sweep_panels", lambda *args: False)
        clear, always = (
            model.set_params(field_solver=solver).fit(feedback, contexts={"x": Squared(X)}).history_[-1]
            for solver in ("block", "cd")
        )
    assert always[1:5] == clear[1:5]


def test_an_operator_without_squares_goes_without_a_preconditioner() -> None:
    X = np.random.default_rng(0).normal(size=(5, 4))
    feedback = ep.Feedback([0, 1, 2, 3, 4], [0, 1, 0, 2, 1])
    model = ep.MFSI(2, epochs=20, regularization_exponent=0.0, dtype="float64")
    history = model.fit(feedback, contexts={"x": aslinearoperator(X)}).history_
    objectives = [record.objective for record in history]
    assert all(b <= a * (1 + 1e-12) for a, b in itertools.pairwise(objectives))


@pytest.mark.parametrize("field_solver", ["block", "cd"])
def test_kinds_of_features(field_solver: str) -> None:
    feedback = ep.Feedback([0, 1, 2], [0, 1, 0])
    matrix = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    forms: list[Any] = [
        matrix, sp.csr_array(matrix), sp.csc_matrix(matrix), {"features": matrix}, ep.Features({"features": matrix}),
        matrix.astype(np.float32), matrix.astype(bool),
    ]  # fmt: skip
    fits = [ep.FM(2, epochs=2, field_solver=field_solver).fit(feedback, contexts=form).phi_ for form in forms]
    for phi in fits[1:]:  # products with a dense block and with a sparse one are added up in another order
        np.testing.assert_allclose(phi, fits[0], rtol=0.0 if field_solver == "cd" else 1e-5)


def test_one_hot_fields_are_recognised() -> None:
    assert as_field("a", sp.eye_array(3)).one_hot
    assert as_field("a", np.array([[0.0, 2.0], [0.0, 0.0]])).one_hot
    assert not as_field("a", np.ones((2, 2))).one_hot


def test_weights_of_features() -> None:
    features = ep.Features({"a": np.array([[1.0, 2.0], [0.0, 1.0]])})
    np.testing.assert_allclose(feature_weights(features, np.array([3.0, 5.0]), 1.0)["a"], [3.0, 17.0])
    np.testing.assert_allclose(feature_weights(features, np.array([3.0, 5.0]), 0.0)["a"], [1.0, 1.0])


@pytest.mark.parametrize("name", ["MFSI", "FM"])
def test_new_rows(name: str) -> None:
    """Vectors of rows never seen are those of a training row with the same features."""
    feedback = ep.Feedback([0, 1, 2], [0, 1, 0])
    matrix = sp.csr_array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    model = getattr(ep, name)(2, epochs=2).fit(feedback, contexts={"x": matrix}, items={"z": matrix[:2]})
    np.testing.assert_array_equal(model.context_vectors({"x": matrix[[2, 0, 2, 1]]}), model.phi_[[2, 0, 2, 1]])
    np.testing.assert_array_equal(model.item_vectors({"z": matrix[[1, 1]]}), model.psi_[[1, 1]])


def test_features_are_not_touched() -> None:
    """Unsorted, with a stored zero, and read-only: what products of sparse matrices look like."""
    parts = np.array([2.0, 1.0, 0.0, 3.0]), np.array([1, 0, 1, 0]), np.array([0, 2, 3, 4])
    for part in parts:
        part.flags.writeable = False
    X = sp.csr_array(parts, shape=(3, 2), copy=False)
    before = X.toarray()
    ep.FM(2, epochs=1).fit(ep.Feedback([0, 1, 2], [0, 1, 0]), contexts=X)
    np.testing.assert_array_equal(X.toarray(), before)


def test_order_of_fields_does_not_matter() -> None:
    A, B = np.array([[1.0], [0.0], [1.0]]), np.array([[0.0, 1.0], [1.0, 1.0], [0.0, 0.0]])
    model = ep.MFSI(2, epochs=1).fit(ep.Feedback([0, 1, 2], [0, 1, 0]), contexts={"a": A, "b": B})
    np.testing.assert_array_equal(model.context_vectors({"b": B, "a": A}), model.phi_)


@pytest.mark.parametrize("name", ["MFSI", "FM"])
def test_no_features_at_all(name: str) -> None:
    model = getattr(ep, name)(2, epochs=2).fit(ep.Feedback([0, 1], [0, 1]), contexts=sp.csr_array((2, 0)))
    assert np.isfinite(model.history_[-1].objective)


class Broken:
    """Returns one number where three are due."""

    shape = (3, 2)

    def matvec(self, v: np.ndarray) -> np.ndarray:
        return np.ones(1)

    def rmatvec(self, z: np.ndarray) -> np.ndarray:
        return np.ones(2)


def test_operators_that_return_the_wrong_shape() -> None:
    feedback = ep.Feedback([0, 1, 2], [0, 1, 0])
    model = ep.MFSI(2, epochs=2, regularization_exponent=0.0).fit(feedback)
    before = model.phi_
    with pytest.raises(ValueError, match=r"field 'x': matvec of an operator of shape \(3, 2\) must return .* \(3,\), got \(1,\)"):
        model.fit(feedback, contexts={"x": Broken()})
    np.testing.assert_array_equal(model.phi_, before)
    assert model.stop_reason_ == "epochs"


def test_operators_have_no_rows_to_take() -> None:
    X = np.array([[1.0, 1.0], [0.0, 1.0], [1.0, 0.0]])
    model = ep.MFSI(2, epochs=1).fit(ep.Feedback([0, 1, 2], [0, 1, 0]), contexts={"x": Squared(X)})
    assert model.recommend([0, 2], n=2)[0].shape == (2, 2)
