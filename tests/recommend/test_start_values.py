"""A fit of some of the users, on a part of the data, starts where a fit of all does: at values that belong to ids."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import everypair as ep
from everypair.columns.keys import NO_LEVEL
from everypair.models.tower_model import TowerModel
from everypair.recommend.context_batch import ContextBatch
from everypair.recommend.training import Training

USERS = {"id": [f"u{j}" for j in range(9)], "country": ["DE", "FR", None, "US", "FR", "DE", "IT", "US", "AT"]}
ITEMS = {"id": [10 * j + 7 for j in range(8)], "genres": ["a|b", "b", "", "c|a", "d", "e|c", "a", "f"]}
COMMON: dict[str, Any] = {"factors": 3, "epochs": 1, "random_state": 5, "dtype": "float64"}
SEQUENCE = [ep.UserId(), ep.Attributes("country"), ep.Previous(), ep.Previous(2), ep.History()]
DESCRIBED = [ep.ItemId(), ep.Attributes("genres", separator="|")]


def dataset(seed: int, users: list[int]) -> ep.Dataset:
    """Events of these users; a user's events do not depend on which other users there are."""
    items = [np.random.default_rng([seed, u]).permutation(8)[:3] for u in users]
    events = {"user": [USERS["id"][u] for u in users for _ in range(3)], "item": [ITEMS["id"][i] for own in items for i in own]}
    events["timestamp"] = list(range(len(events["user"])))
    return ep.Dataset(
        events,
        users={"user": [USERS["id"][u] for u in users], "country": [USERS["country"][u] for u in users]},
        items={"item": ITEMS["id"], "genres": ITEMS["genres"]},
    )


def started(model: TowerModel, context: list[Any], item: list[Any], data: ep.Dataset) -> tuple[Training, dict[str, np.ndarray]]:
    """The training, and the parameters at the start of its fit."""
    seen: dict[str, np.ndarray] = {}
    build = type(model).build_solver

    def watched(self: TowerModel, *args: Any) -> Any:
        solver = build(self, *args)
        seen.update({name: p.show() for tower in solver.towers.values() for name, p in tower.parameters.items()})
        return solver

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(model), "build_solver", watched)
        training = Training.of(model, {"context": context, "item": item}, "auto", data)
        training.run()
    return training, seen


def by_label(training: Training, side: str, values: np.ndarray) -> dict[tuple[str, str], np.ndarray]:
    """The rows of a parameter by field and name of the feature."""
    data = training.state.dataset
    description = training.state.contexts if side == "context" else training.state.items
    rows = ContextBatch.of_users(data, []) if side == "context" else None
    found, start = {}, 0
    columns = training.columns if side == "context" else training.state.item_columns() or {}
    for name, column in columns.items():
        width = column.n if isinstance(column, ep.Levels) else column.shape[1]
        for j in range(width):
            label = str(data.items[j]) if name == "item" else description.label(rows, name, j)
            found[name, label] = values[start + j]
        start += width
    assert start == len(values)
    return found


@st.composite
def parts(draw: st.DrawFn) -> tuple[ep.Dataset, ep.Dataset]:
    """All users, and some of them."""
    seed = draw(st.integers(0, 10**6))
    some = [0, *draw(st.lists(st.integers(1, 8), max_size=7, unique=True))]
    return dataset(seed, list(range(9))), dataset(seed, some)


def same(whole: dict[Any, np.ndarray], part: dict[Any, np.ndarray]) -> None:
    assert part.keys() <= whole.keys()
    for label, value in part.items():
        np.testing.assert_array_equal(value, whole[label], err_msg=str(label))


@given(parts())
@pytest.mark.parametrize("model", [ep.FM, ep.MFSI])
def test_features_start_by_their_ids_and_levels(model: Any, both: tuple[ep.Dataset, ep.Dataset]) -> None:
    found = [started(model(**COMMON), SEQUENCE, DESCRIBED, data) for data in both]
    for side, letter in (("context", "W"), ("item", "H")):
        whole, part = (by_label(training, side, seen[letter]) for training, seen in found)
        same(whole, part)
        assert len({tuple(value) for value in whole.values()}) == len(whole), "the same item in other fields has other values"


@given(parts())
def test_matrix_factorization_starts_by_ids(both: tuple[ep.Dataset, ep.Dataset]) -> None:
    """Contexts that are users, or previous items, of which there may be none."""
    for recipe in (ep.UserId(), ep.Previous()):
        found = []
        for data in both:
            training, seen = started(ep.MF(**COMMON, init_std=0.3), [recipe], [ep.ItemId()], data)
            (column,) = training.columns.values()
            ids = data.users if isinstance(recipe, ep.UserId) else data.items
            contexts = [NO_LEVEL if code < 0 else ids[code] for code in column.codes]
            assert len(seen["W"]) == len(contexts)
            found.append([dict(zip(names, seen[letter], strict=True)) for names, letter in ((contexts, "W"), (data.items, "H"))])
        for whole, part in zip(*found, strict=True):
            same(whole, part)


@given(parts())
@pytest.mark.parametrize("combinations", ["observed", "all"])
def test_tensors_start_by_ids(combinations: str, both: tuple[ep.Dataset, ep.Dataset]) -> None:
    found = []
    for data in both:
        model = ep.PARAFAC(**COMMON, combinations=combinations)
        _, seen = started(model, [ep.UserId(), ep.Previous()], [ep.ItemId()], data)
        names = {"U": [None, *data.users], "V": [None, *data.items], "W": list(data.items)}
        found.append({(letter, name): row for letter, own in names.items() for name, row in zip(own, seen[letter], strict=True)})
    same(*found)


def test_the_feedback_of_a_fit_has_its_keys() -> None:
    """The model alone, fitted to it, is the same."""
    for recipe in (ep.UserId(), ep.Previous()):
        recommender = ep.Recommender(ep.MF(**COMMON), [recipe]).fit(dataset(2, list(range(9))))
        alone = ep.MF(**COMMON).fit(recommender.feedback_)
        for name, value in recommender.model.parameters_.items():  # type: ignore[attr-defined]
            np.testing.assert_array_equal(alone.parameters_[name], value)


def test_the_order_of_rows_of_a_table_does_not_matter() -> None:
    """Of the interactions, nor of the tables of users and items."""
    whole, turned = dataset(3, list(range(9))), dataset(3, list(range(9))[::-1])
    for model in (ep.FM(**COMMON), ep.MF(**COMMON)):
        context = [ep.UserId()] if isinstance(model, ep.MF) else SEQUENCE
        first, second = (started(model, context, [ep.ItemId()], data)[1] for data in (whole, turned))
        for name, value in first.items():
            np.testing.assert_allclose(second[name], value, rtol=0, atol=1e-13 if name == "H" else 0)
