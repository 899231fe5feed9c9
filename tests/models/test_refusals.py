"""Bad input is refused with a message that names the argument, the value and the place, and nothing is changed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.sparse.linalg import aslinearoperator

import everypair as ep

GOOD = ep.Feedback([0, 1, 2, 2], [0, 1, 0, 2], shape=(3, 3))
NAN = float("nan")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"context": [0, -1]}, ["context", "-1", "position 1"]),
        ({"item": [0, -7]}, ["item", "-7", "position 1"]),
        ({"shape": (1, 2)}, ["context", "below 1", "got 1", "position 1"]),
        ({"shape": (2, 1)}, ["item", "below 1", "got 1", "position 1"]),
        ({"shape": (2, 0)}, ["shape[1]", "at least 1", "0"]),
        ({"shape": 3}, ["shape", "3"]),
        ({"context": [0]}, ["same length", "1 and 2"]),
        ({"context": [], "item": []}, ["empty"]),
        ({"context": [0.5, 1.0]}, ["context", "integers", "float64"]),
        ({"context": ["a", "b"]}, ["context", "integers"]),
        ({"context": [[0, 1]]}, ["context", "1-dimensional", "(1, 2)"]),
        ({"item": [1, 1], "context": [0, 0]}, ["context 0", "item 1", "positions 0 and 1", "duplicates='sum'"]),
        ({"y": [1.0, NAN]}, ["y", "finite", "nan", "position 1"]),
        ({"y": NAN}, ["y", "finite", "nan"]),
        ({"y": [1.0]}, ["y", "length 2", "(1,)"]),
        ({"y": "many"}, ["y", "'many'"]),
        ({"y": ["a", "b"]}, ["y", "numbers"]),
        ({"y": [1e200, 1.0]}, ["overflow"]),
        ({"alpha": 0.0}, ["alpha", "greater than 0", "0.0"]),
        ({"alpha": [1.0, -2.0]}, ["alpha", "greater than 0", "-2.0", "position 1"]),
        ({"alpha": float("inf")}, ["alpha", "inf"]),
        ({"context_weight": [1.0, -1.0]}, ["context_weight", "negative", "-1.0", "position 1"]),
        ({"item_weight": [1.0, NAN]}, ["item_weight", "finite", "position 1"]),
        ({"item_weight": [1.0]}, ["item_weight", "length 2"]),
        ({"y": True}, ["y must be a number, got True"]),
        ({"y": 10**400}, ["y", "finite"]),
        ({"y": np.ma.masked_array([1.0, 2.0], [False, True])}, ["y", "masked", "position 1"]),
        ({"context": np.ma.masked_array([0, 1], [True, False])}, ["context", "masked", "position 0"]),
        ({"context": np.array([0, 2**64 - 1], np.uint64)}, ["context", "64-bit"]),
        ({"duplicates": "keep"}, ["duplicates", "'keep'", "'sum'"]),
    ],
)  # fmt: skip
def test_feedback(arguments: dict[str, Any], words: list[str]) -> None:
    with pytest.raises((ValueError, TypeError)) as caught:
        ep.Feedback(**{"context": [0, 1], "item": [0, 1], **arguments})
    for word in words:
        assert word in str(caught.value), word


def test_feedback_methods() -> None:
    with pytest.raises(TypeError, match="sparse matrix, got list"):
        ep.Feedback.from_scipy([[1]])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="same cells"):
        ep.Feedback.from_scipy(sp.eye_array(2), alpha=sp.csr_array([[0, 1], [1, 0]]))
    with pytest.raises(TypeError, match="alpha must be a number or a sparse matrix"):
        ep.Feedback.from_scipy(sp.eye_array(2), alpha=[1.0, 2.0])
    with pytest.raises(TypeError, match="matrix must hold numbers, got dtype complex128"):
        ep.Feedback.from_scipy(sp.csr_array(np.eye(2, dtype=complex)))
    with pytest.raises(ValueError, match=r"one entry per context \(3\), got 1"):
        GOOD.merge_contexts([0])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"factors": 0}, ["factors", "at least 1", "0"]),
        ({"factors": 2.5}, ["factors", "integer", "2.5"]),
        ({"factors": True}, ["factors", "integer", "True"]),
        ({"unobserved_weight": -0.1}, ["unobserved_weight", "at least 0", "-0.1"]),
        ({"unobserved_weight": NAN}, ["unobserved_weight", "nan"]),
        ({"regularization": -1}, ["regularization", "at least 0", "-1"]),
        ({"regularization": {"W": -1}}, ["regularization['W']", "-1"]),
        ({"regularization": {"W": 1.0}}, ["'H'", "'W'", "'default'"]),
        ({"regularization": {"default": 1.0, "user": 1.0}}, ["'user'", "no parameter or field"]),
        ({"regularization_exponent": "a"}, ["regularization_exponent", "'a'"]),
        ({"popularity_exponent": -0.5}, ["popularity_exponent", "at least 0", "-0.5"]),
        ({"epochs": 0}, ["epochs", "at least 1", "0"]),
        ({"tol": -1.0}, ["tol", "-1.0"]),
        ({"step_size": 0.0}, ["step_size", "greater than 0", "at most 1", "0.0"]),
        ({"step_size": 1.5}, ["step_size", "1.5"]),
        ({"block_size": 0}, ["block_size", "at least 1"]),
        ({"order": "random"}, ["order", "'random'", "'side'"]),
        ({"field_solver": "sgd"}, ["field_solver", "'sgd'"]),
        ({"dtype": "int8"}, ["dtype", "'int8'"]),
        ({"random_state": -1}, ["random_state", "-1"]),
        ({"random_state": "seed"}, ["random_state", "'seed'"]),
        ({"rotate": "no"}, ["rotate", "'no'"]),
        ({"n_threads": 0}, ["n_threads", "at least 1", "0"]),
        ({"init_std": -1.0}, ["init_std", "-1.0"]),
        ({"init_std": 0.0}, ["init_std", "greater than 0"]),
        ({"order": np.array(["side"])}, ["order", "'dimension'"]),
    ],
)  # fmt: skip
def test_model_arguments(options: dict[str, Any], words: list[str]) -> None:
    model = ep.MF(2, epochs=1).fit(GOOD)
    before = model.parameters_, model.history_
    with pytest.raises((ValueError, TypeError)) as caught:
        model.set_params(**options).fit(GOOD)
    for word in words:
        assert word in str(caught.value), word
    np.testing.assert_array_equal(model.parameters_["W"], before[0]["W"])
    assert model.history_ is before[1]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"start": {"Q": np.ones((3, 2))}}, ["start", "'Q'", "W, H"]),
        ({"start": {"W": np.ones((2, 2))}}, ["start['W']", "(3, 2)", "(2, 2)"]),
        ({"fixed": {"W": np.full((3, 2), NAN)}}, ["fixed['W']", "finite", "(0, 0)"]),
        ({"fixed": {"W": np.full((3, 2), "a")}}, ["fixed['W']", "numbers"]),
        ({"fixed": [1]}, ["fixed", "mapping"]),
        ({"start": {"W": np.full((3, 2), 1e39)}}, ["start['W']", "float32", "(0, 0)"]),
        ({"callback": 3}, ["callback", "3"]),
    ],
)  # fmt: skip
def test_fit_arguments(arguments: dict[str, Any], words: list[str]) -> None:
    model = ep.MF(2, epochs=1).fit(GOOD)
    before = model.parameters_
    with pytest.raises((ValueError, TypeError)) as caught:
        model.fit(GOOD, **arguments)
    for word in words:
        assert word in str(caught.value), word
    np.testing.assert_array_equal(model.parameters_["W"], before["W"])


def test_feedback_argument() -> None:
    with pytest.raises(TypeError, match="Feedback or a scipy sparse matrix, got list"):
        ep.MF(2).fit([[1, 0]])


@pytest.mark.parametrize("model", [ep.MFSI, ep.FM])
def test_features(model: type) -> None:
    fit = model(2, epochs=1).fit
    with pytest.raises(ValueError, match="contexts has 2 rows, but the feedback has 3"):
        fit(GOOD, contexts=sp.eye_array(2))
    with pytest.raises(ValueError, match="'a' must be finite, got nan in row 1, column 1"):
        fit(GOOD, contexts={"a": sp.csr_array([[1, 0], [0, NAN], [0, 0]])})
    with pytest.raises(TypeError, match="field 'a' must be a scipy sparse matrix"):
        fit(GOOD, items={"a": "abc"})
    with pytest.raises(TypeError, match="mapping of names to matrices"):
        fit(GOOD, items={})
    with pytest.raises(ValueError, match=r"same number of rows, got {'a': 3, 'b': 2}"):
        ep.Features({"a": sp.eye_array(3), "b": sp.eye_array(2)})
    with pytest.raises(TypeError, match="names of fields must be strings, got 1"):
        ep.Features({1: sp.eye_array(2), "1": sp.eye_array(2)})
    with pytest.raises(ValueError, match=r"regularization\['W'\] is ambiguous"):
        model(2, regularization={"default": 1.0, "W": 1.0}).fit(GOOD, items={"W": sp.eye_array(3)})
    with pytest.raises(TypeError, match="must hold numbers"):
        ep.Features({"a": sp.csr_array(np.eye(2, dtype=complex))})


@pytest.mark.parametrize("column", [-1, 1_000_000])
def test_sparse_matrices_with_indices_outside_their_shape(column: int) -> None:
    """Kernels index with them: they must not get that far."""
    bad = sp.csr_array((3, 3))
    bad.data, bad.indices, bad.indptr = np.ones(3), np.array([0, 1, column]), np.array([0, 1, 2, 3])
    place = rf"outside its shape, at \(row, column\) \(2, {column}\)"
    with pytest.raises(ValueError, match=f"field 'x' of shape .* {place}"):
        ep.MFSI(2).fit(GOOD, contexts={"x": bad})
    with pytest.raises(ValueError, match=f"matrix of shape .* {place}"):
        ep.Feedback.from_scipy(bad)
    with pytest.raises(ValueError, match=f"exclude of shape .* {place}"):
        ep.Popularity().fit(GOOD).recommend(0, exclude=bad)
    transposed = sp.csc_array((3, 3))
    transposed.data, transposed.indices, transposed.indptr = bad.data, bad.indices, bad.indptr
    with pytest.raises(ValueError, match=rf"\(row, column\) \({column}, 2\)"):
        ep.Features({"x": transposed})
    bad.indices, bad.indptr = np.array([0, 1, 2]), np.array([0, 2, 1, 3])
    with pytest.raises(ValueError, match="field 'x' is inconsistent"):
        ep.Features({"x": bad})


def test_masks_and_shapes() -> None:
    masked = np.ma.masked_array(np.ones((3, 2)), np.eye(3, 2))
    with pytest.raises(ValueError, match=r"start\['W'\] has masked entries"):
        ep.MF(2).fit(GOOD, start={"W": masked})
    with pytest.raises(ValueError, match="field 'features' has masked entries"):
        ep.FM(2).fit(GOOD, contexts=masked)
    with pytest.raises(ValueError, match="contexts has masked entries"):
        ep.CoView().fit(GOOD, contexts=np.ma.masked_array([0, 1, 2], [0, 0, 1]))
    with pytest.raises(ValueError, match="y has masked entries"):
        ep.Feedback([0], [0], y=np.ma.masked)
    with pytest.raises(ValueError, match="field 'a' must have two dimensions"):
        ep.Features({"a": sp.coo_array(np.ones(3))})
    with pytest.raises(ValueError, match=r"matrix must be finite, got nan in row 0, column 1"):
        ep.Feedback.from_scipy(sp.csr_array([[0.0, NAN]]))
    with pytest.raises(TypeError, match="contexts must be an array, got a sparse matrix"):
        ep.MF(2, epochs=1).fit(GOOD).context_vectors(sp.eye_array(3))
    with pytest.raises(ValueError, match="context must be a regular array"):
        ep.Feedback([[0], [1, 2]], [0, 1])
    with pytest.raises(AttributeError, match="no attribute 'nothing_'"):
        _ = ep.MF(2, epochs=1).fit(GOOD).nothing_


def test_operators_without_squares() -> None:
    operator = {"op": aslinearoperator(np.eye(3))}
    with pytest.raises(ValueError, match="'op' is an operator without squares"):
        ep.FM(2).fit(GOOD, contexts=operator)
    with pytest.raises(ValueError, match="'op' is an operator without squares"):
        ep.MFSI(2, regularization_exponent=1.0).fit(GOOD, contexts=operator)


@pytest.mark.parametrize("model", [ep.PARAFAC, ep.Tucker])
def test_contexts_of_tensors(model: type) -> None:
    pairs = [[0, 0], [0, 1], [1, 1]]
    with pytest.raises(ValueError, match="contexts has 2 rows, but the feedback has 3"):
        model(2).fit(GOOD, contexts=pairs[:2])
    with pytest.raises(ValueError, match="two or more columns"):
        model(2).fit(GOOD, contexts=[[0], [1], [2]])
    with pytest.raises(ValueError, match="contexts must not be negative, got -1"):
        model(2).fit(GOOD, contexts=[[0, 0], [0, -1], [1, 1]])
    with pytest.raises(ValueError, match=r"contexts\[:, 1\] must be below 1, got 1"):
        model(2).fit(GOOD, contexts=pairs, levels=(2, 1))
    with pytest.raises(TypeError, match="levels must be a sequence of integers"):
        model(2).fit(GOOD, contexts=pairs, levels=3)
    with pytest.raises(ValueError, match="must have 3 columns"):
        model(2).fit(GOOD, contexts=pairs, levels=(2, 1, 1))
    with pytest.raises(ValueError, match=r"\(0, 1\) is at rows 1 and 2"):
        model(2, combinations="all").fit(GOOD, contexts=[[0, 0], [0, 1], [0, 1]])
    with pytest.raises(ValueError, match="cannot be used with context weights"):
        model(2, combinations="all").fit(ep.Feedback([0, 1, 2], [0, 1, 2], context_weight=[1, 1, 1]), contexts=pairs)
    with pytest.raises(ValueError, match="combinations must be one of 'observed', 'all', got 'some'"):
        model(2, combinations="some").fit(GOOD, contexts=pairs)
    with pytest.raises(ValueError, match="order='dimension' is not supported by"):
        model(2, order="dimension").fit(GOOD, contexts=pairs)


def test_tucker_factors() -> None:
    with pytest.raises(ValueError, match="3 numbers: one per context variable and one for the item"):
        ep.Tucker((2, 2)).fit(GOOD, contexts=[[0, 0], [0, 1], [1, 1]])


def test_requests_to_models() -> None:
    with pytest.raises(ep.NotFittedError, match="call fit first"):
        ep.MF(2).predict([0], [0])
    with pytest.raises(ep.NotFittedError, match="call fit first"):
        ep.Popularity().recommend(0)
    model = ep.MF(2, epochs=1).fit(GOOD)
    with pytest.raises(ValueError, match="context must be below 3, got 3 at position 1"):
        model.predict([0, 3], [0, 0])
    with pytest.raises(ValueError, match="same length, got 2 and 1"):
        model.predict([0, 1], [0])
    with pytest.raises(ValueError, match="n must be at least 1, got 0"):
        model.recommend(0, n=0)
    with pytest.raises(TypeError, match="exclude must be a Feedback"):
        model.recommend(0, exclude=[1])
    with pytest.raises(ValueError, match=r"exclude must have the shape of the fit, \(3, 3\), got \(2, 3\)"):
        model.recommend(0, exclude=sp.csr_array((2, 3)))
    with pytest.raises(ValueError, match="MF has no parameter 'alpha'; it has factors"):
        model.set_params(alpha=1)
    with pytest.raises(ValueError, match="fields trained on"):
        ep.FM(2, epochs=1).fit(GOOD, contexts=sp.eye_array(3)).context_vectors(sp.eye_array(2))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = model.nothing


def test_coview_contexts() -> None:
    with pytest.raises(ValueError, match=r"one previous item \(or other level\) per context \(3\)"):
        ep.CoView().fit(GOOD, contexts=[1])
    with pytest.raises(
        ValueError, match=r"contexts must be a level counted from 0 \(below 600\), or -1 for none, got -2 at position 2"
    ):
        ep.CoView().fit(GOOD, contexts=[0, 1, -2])
    with pytest.raises(ValueError, match="got 600 at position 1"):
        ep.CoView().fit(GOOD, contexts=[0, 600, 1])
    with pytest.raises(TypeError, match="integers"):
        ep.CoView().fit(GOOD, contexts=[0.5, 1, 2])


@pytest.mark.parametrize(
    ("feedback", "options", "arguments"),
    [
        ({"y": 1e30}, {}, {}),
        ({"y": 1e39}, {}, {}),
        ({"alpha": 1e39}, {}, {}),
        ({"item_weight": [1e200] * 3}, {}, {}),
        ({}, {"unobserved_weight": 1e300}, {}),
        ({}, {}, {"contexts": np.full((3, 2), 1e39)}),
        ({}, {"regularization_exponent": 0.0}, {"contexts": {"op": aslinearoperator(np.full((3, 2), NAN))}}),
    ],
)
def test_what_does_not_fit_into_the_precision(feedback: Any, options: Any, arguments: Any) -> None:
    """An error instead of a model of NaN, and the model is what it was."""
    model = ep.MFSI(2, epochs=2).fit(GOOD)
    before = model.phi_
    too_large = ep.Feedback([0, 1, 2], [0, 1, 2], **feedback)
    with pytest.raises(ep.DivergedError, match=r"too large for float32.*use dtype='float64'"):
        model.set_params(epochs=5, **options).fit(too_large, **arguments)
    np.testing.assert_array_equal(model.phi_, before)
    assert len(model.history_) == 2
