"""Columns of vectors as features of contexts and items."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import everypair as ep
from everypair.recommend.recipe_syntax import as_text, recipe

from settings import COMMON

WIDTH = 6
BOTH: dict[str, Any] = {"context": [ep.UserId(), ep.Vectors("taste")], "item": [ep.ItemId(), ep.Vectors("text")]}


def tables(n_users: int = 40, n_items: int = 30, length: int = 8, seed: int = 0) -> dict[str, Any]:
    """Users choose items whose topics they like; vectors are noisy mixtures of tastes and of topics."""
    random = np.random.default_rng(seed)
    topics, tastes = random.normal(size=(n_items, 3)), random.normal(size=(n_users, 3))
    item = np.argsort(-2.0 * tastes @ topics.T - random.gumbel(size=(n_users, n_items)), axis=1)[:, :length]
    text = topics @ random.normal(size=(3, WIDTH)) + 0.1 * random.normal(size=(n_items, WIDTH))
    taste = tastes @ random.normal(size=(3, WIDTH)) + 0.1 * random.normal(size=(n_users, WIDTH))
    return {
        "interactions": {"user": np.repeat(np.arange(n_users), length), "item": item.ravel()},
        "users": {"user": np.arange(n_users), "taste": [*taste[:-1].tolist(), None]},
        "items": pa.table({"item": np.arange(n_items), "text": pa.array(text.tolist(), pa.list_(pa.float32(), WIDTH))}),
    }


def dataset_of(**options: Any) -> ep.Dataset:
    return ep.Dataset(**{**tables(), **options}, chronological=True)


@pytest.fixture(scope="module")
def dataset() -> ep.Dataset:
    return dataset_of()


@pytest.mark.parametrize("solver", ["block", "cd"])
@pytest.mark.parametrize("model", [ep.FM, ep.MFSI])
def test_a_fit_is_that_of_the_matrix(model: Any, solver: str, dataset: ep.Dataset) -> None:
    """Standardised by hand, on arrays; start values of ids differ, so only these fields are there."""
    recipes = {"context": [ep.Vectors("taste")], "item": [ep.Vectors("text")]}
    fitted = ep.Recommender(model(**COMMON, field_solver=solver), **recipes).fit(dataset)
    columns = {}
    for name, table in (("taste", dataset.user_table), ("text", dataset.item_table)):
        rows = [row for row in table[name].to_pylist() if row is not None]
        centered = np.array(rows, np.float32).astype(float) - np.mean(np.array(rows, np.float32).astype(float), axis=0)
        scaled = centered / np.sqrt(np.mean(np.sum(centered**2, axis=1)))
        columns[name] = np.array([np.zeros(WIDTH)] * len(table))
        columns[name][: len(scaled)] = scaled.astype(np.float32)
    feedback = ep.Feedback(dataset.user.astype(int), dataset.item.astype(int), shape=(dataset.n_users, dataset.n_items))
    plain = model(**COMMON, field_solver=solver).fit(
        feedback, contexts={"taste": columns["taste"]}, items={"text": columns["text"]}
    )
    found, expected = ([epoch.objective for epoch in of.history_] for of in (fitted.model, plain))
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert found == sorted(found, reverse=True)


def test_items_without_events_are_ranked_by_their_vectors() -> None:
    """Better than any order that knows nothing of them."""
    all_of = tables(n_users=200, n_items=60)
    old = all_of["interactions"]["item"] < 40
    train = {name: column[old] for name, column in all_of["interactions"].items()}
    data = ep.Dataset(train, all_of["users"], all_of["items"], all_items=True, chronological=True)
    model = ep.MFSI(factors=8, epochs=6, regularization=0.01, n_threads=1)
    fitted = ep.Recommender(model, item=[ep.ItemId(), ep.Vectors("text")]).fit(data)
    scores = fitted.context_vectors(data.users.values.to_pylist()) @ fitted.item_vectors()[40:].T
    user, item = (all_of["interactions"][name][~old] for name in ("user", "item"))
    rank = (scores[user] > scores[user, item - 40][:, None]).sum(axis=1)
    assert rank.mean() < 6.5  # of 20 new items; 9.5 by chance


def test_explanations_files_requests_and_new_items(dataset: ep.Dataset, tmp_path: Path) -> None:
    fitted = ep.Recommender(ep.FM(**COMMON), **BOTH).fit(dataset)
    why = fitted.explain(3, 4)
    assert why.score == pytest.approx((fitted.context_vectors([3]) @ fitted.item_vectors().T)[0, 4], abs=1e-9)
    assert ("taste", f"vector of {WIDTH}") in {(row["field"], row["value"]) for row in why.contributions}
    loaded = ep.load(fitted.save(tmp_path / "model"))
    request = {"user": 3, "taste": dataset.user_table["taste"][3].as_py()}
    for one in (fitted, loaded):
        np.testing.assert_array_equal(one.context_vectors(requests=[request]), fitted.context_vectors([3]))
    loaded.add_items({"item": [99], "text": [dataset.item_table["text"][7].as_py()]})
    assert loaded.item_vectors().shape[0] == dataset.n_items + 1
    assert loaded.recommend(requests=[{"taste": None}, {"taste": [1] * WIDTH}], n=2).num_rows == 4


def test_the_same_bits_on_any_number_of_threads(dataset: ep.Dataset) -> None:
    found = [ep.Recommender(ep.MFSI(**COMMON, n_threads=n), **BOTH).fit(dataset).item_vectors().tobytes() for n in (1, 2)]
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ([[1.0, 2.0]] * 39 + [[1.0]], "lists of 2 numbers each, got one of 1"),
        ([[1.0, float("inf")]] * 40, "finite numbers, got inf"),
        ([[1.0, None]] * 40, "finite numbers"),
        ([["a"]] * 40, "must hold lists of numbers"),
        ([1.0] * 40, "must hold lists of numbers"),
    ],
)
def test_other_columns_are_refused(column: list[Any], message: str) -> None:
    data = dataset_of(users={"user": np.arange(40), "taste": column})
    with pytest.raises((TypeError, ValueError), match=message):
        ep.Recommender(ep.MFSI(**COMMON), context=[ep.Vectors("taste")]).fit(data)


def test_a_request_with_a_wrong_vector_is_refused(dataset: ep.Dataset) -> None:
    fitted = ep.Recommender(ep.MFSI(**COMMON), context=[ep.Vectors("taste")]).fit(dataset)
    with pytest.raises(ValueError, match="lists of 6 numbers each, got one of 2"):
        fitted.recommend(requests=[{"taste": [1.0, 2.0]}])


@pytest.mark.parametrize("arguments", [((), {}), ((3,), {}), (("text",), {"standardize": 1})])
def test_wrong_arguments_are_refused(arguments: tuple[Any, Any]) -> None:
    with pytest.raises(TypeError):
        ep.Vectors(*arguments[0], **arguments[1])


@pytest.mark.parametrize("text", ["vectors:text", "vectors:text,image,standardize=False"])
def test_they_are_written_as_strings(text: str) -> None:
    assert as_text(recipe(text)) == text
