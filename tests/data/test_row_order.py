"""Rows that are sorted by an id are noticed wherever their order would be taken for that of time."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import everypair as ep
from everypair.data.row_order import BY_ITEM, BY_ITEM_WITHIN_USERS, BY_USER, UNSORTED
from everypair.evaluation import LeaveLast, RandomPerUser
from everypair.evaluation import given as given_split

from settings import COMMON

Columns = dict[str, np.ndarray]


def shuffled(seed: int, users: int = 40, per_user: int = 12, items: int = 30) -> Columns:
    """Events in random order, different items for each user."""
    rng = np.random.default_rng(seed)
    item = np.concatenate([rng.choice(items, per_user, replace=False) for _ in range(users)])
    order = rng.permutation(len(item))
    return {"user": np.repeat(np.arange(users), per_user)[order], "item": item[order]}


def rows(columns: Columns, order: Any) -> Columns:
    return {name: values[order] for name, values in columns.items()}


def in_order(kind: str, columns: Columns) -> Columns:
    """The rows in another order."""
    user, item = columns["user"], columns["item"]
    orders: dict[str, Any] = {
        UNSORTED: slice(None),
        BY_ITEM: np.argsort(item, kind="stable"),
        BY_USER: np.argsort(user, kind="stable"),
        BY_ITEM_WITHIN_USERS: np.lexsort((item, user)),
    }
    return rows(columns, orders[kind])


@given(seed=st.integers(0, 2**32 - 1), kind=st.sampled_from([UNSORTED, BY_ITEM, BY_USER, BY_ITEM_WITHIN_USERS]))
def test_the_order_of_rows_is_recognised(seed: int, kind: str) -> None:
    columns = in_order(kind, shuffled(seed))
    assert ep.Dataset(columns).row_order == kind
    assert ep.Dataset(columns, chronological=True).row_order is None
    assert ep.Dataset({**columns, "t": np.arange(len(columns["user"]))}, timestamp="t").row_order is None


@given(seed=st.integers(0, 2**32 - 1), parts=st.integers(2, 4))
def test_exports_one_after_the_other(seed: int, parts: int) -> None:
    """Each sorted by item."""
    columns = shuffled(seed, users=100)
    part = np.random.default_rng(seed).integers(0, parts, len(columns["user"]))
    assert ep.Dataset(rows(columns, np.lexsort((columns["item"], part)))).row_order == BY_ITEM


@given(seed=st.integers(0, 2**32 - 1))
def test_falling_items_are_sorted_too(seed: int) -> None:
    columns = shuffled(seed)
    assert ep.Dataset(rows(columns, np.lexsort((-columns["item"], columns["user"])))).row_order == BY_ITEM_WITHIN_USERS


@pytest.mark.parametrize("kind", [BY_ITEM, BY_USER, BY_ITEM_WITHIN_USERS])
def test_sorted_rows_are_warned_of_where_their_order_counts(kind: str) -> None:
    dataset = ep.Dataset(in_order(kind, shuffled(1)))
    with pytest.warns(ep.RowOrderWarning, match=f"last row for the last event; but rows are {kind}.*chronological=True"):
        split = LeaveLast().split(dataset)
    assert f"no timestamps: the last event of a user is the last of the rows ({kind})." in split.notes
    for recipe in (ep.Previous(), ep.History(last=5)):
        with pytest.warns(ep.RowOrderWarning, match=f"{type(recipe).__name__}.* takes the rows before .* rows are {kind}"):
            recommender = ep.Recommender(ep.MFSI(**COMMON), [ep.UserId(), recipe]).fit(dataset)
        (note,) = recommender.state.notes
        assert f"follows the order of rows ({kind})" in note
    assert kind in repr(dataset)


@pytest.mark.parametrize("kind", [BY_ITEM, BY_USER, BY_ITEM_WITHIN_USERS])
def test_nothing_is_said_where_the_order_is_known_or_does_not_count(kind: str) -> None:
    columns = in_order(kind, shuffled(1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for dataset in (ep.Dataset(columns, chronological=True), ep.Dataset({**columns, "t": np.arange(480)}, timestamp="t")):
            split = LeaveLast().split(dataset)
            assert not any("timestamps" in note for note in split.notes)
            recommender = ep.Recommender(ep.MFSI(**COMMON), [ep.History()]).fit(split.train)
            assert recommender.state.notes == []
        unordered = ep.Dataset(columns)
        RandomPerUser().split(unordered)
        assert ep.Recommender(ep.MF(**COMMON)).fit(unordered).state.notes == []


def test_unsorted_rows_are_noted_but_not_warned_of() -> None:
    dataset = ep.Dataset(shuffled(1))
    assert "no timestamps: the last event of a user is the last of the rows (unsorted)." in LeaveLast().split(dataset).notes
    (note,) = ep.Recommender(ep.MFSI(**COMMON), [ep.History()]).fit(dataset).state.notes
    assert "follows the order of rows (unsorted)" in note


def test_a_published_split_is_judged_by_its_training_table() -> None:
    columns = shuffled(1)
    train, test = rows(columns, slice(0, 400)), rows(columns, slice(400, None))
    assert given_split(train, test).train.row_order == UNSORTED
    assert given_split(in_order(BY_ITEM, train), test).train.row_order == BY_ITEM
    assert given_split(train, in_order(BY_ITEM, test)).train.row_order == UNSORTED
    assert given_split(train, in_order(BY_ITEM, test), chronological=True).train.row_order is None


def test_the_order_is_remembered(tmp_path: Path) -> None:
    """In files, in parts and with more events."""
    dataset = ep.Dataset(in_order(BY_ITEM, shuffled(1)))
    recommender = ep.Recommender(ep.MF(**COMMON)).fit(dataset)
    recommender.save(tmp_path / "model")
    assert ep.load(tmp_path / "model").dataset_.row_order == BY_ITEM
    assert dataset.subset(np.arange(9)).row_order == BY_ITEM
    more = {"user": [1, 2], "item": [3, 4]}
    assert dataset.extended(more).row_order == BY_ITEM
    assert ep.Dataset(shuffled(1)).extended(in_order(BY_ITEM, shuffled(2))).row_order == BY_ITEM
    assert ep.Dataset(shuffled(1), chronological=True).extended(more).row_order is None


def test_an_update_warns_as_a_fit_does() -> None:
    recommender = ep.Recommender(ep.MFSI(**COMMON), [ep.UserId(), ep.History()]).fit(ep.Dataset(shuffled(1)))
    with pytest.warns(ep.RowOrderWarning, match="rows are sorted by item"):
        recommender.update(in_order(BY_ITEM, shuffled(2)))


def test_time_and_rows_cannot_both_give_the_order() -> None:
    with pytest.raises(ValueError, match=r"chronological=True is for tables without timestamps, got timestamp='t'"):
        ep.Dataset({"user": [1], "item": [1], "t": [1]}, timestamp="t", chronological=True)
