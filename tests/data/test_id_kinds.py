"""Ids are integers or strings in all tables alike: what is known decides, not the rows that a file happens to have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import everypair as ep
from everypair.data import Ids
from everypair.evaluation import given as given_split

TEXTS = st.from_regex(r"-?[0-9]{1,2}|[a-c]", fullmatch=True)
MODEL = ep.MF(factors=2, epochs=1)


def file(folder: Path, stem: str, **columns: list[Any]) -> Path:
    path = folder / f"{stem}.csv"
    pd.DataFrame(columns).to_csv(path, index=False)
    return path


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(TEXTS, min_size=1, max_size=4), st.lists(TEXTS, min_size=1, max_size=4, unique=True))
def test_files_of_one_dataset_agree(tmp_path: Path, users: list[str], people: list[str]) -> None:
    """A user is found in the table of users if the text is the same, and only then."""
    plays = file(tmp_path, "plays", user=users, item=["a"] * len(users))
    dataset = ep.Dataset(plays, users=file(tmp_path, "users", user=people, name=[f"name of {person}" for person in people]))
    assert sorted(map(str, dataset.users)) == sorted(set(users))
    expected = [f"name of {user}" if str(user) in people else None for user in dataset.users]
    assert dataset.user_table["name"].to_pylist() == expected


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(TEXTS, min_size=1, max_size=4), st.lists(TEXTS, min_size=1, max_size=4), st.booleans())
def test_what_is_known_decides_in_an_update(tmp_path: Path, before: list[str], new: list[str], of_users: bool) -> None:
    item = ["a"]
    dataset = ep.Dataset(file(tmp_path, "plays", user=before, item=item * len(before)))
    more = file(tmp_path, "new", user=list(dict.fromkeys(new)), **({} if of_users else {"item": item * len(set(new))}))
    changes = {"users" if of_users else "interactions": more}
    odd = [text for text in new if dataset.users.kind == "integers" and not _is_integer(text)]
    if odd:
        with pytest.raises(
            TypeError, match=f"user ids .* must be integers, like the other ids of the data, but row . has {odd[0]!r}"
        ):
            dataset.extended(**changes)
    else:
        assert sorted(map(str, dataset.extended(**changes).users)) == sorted({*before, *new})


def _is_integer(text: str) -> bool:
    return text.lstrip("-").isdecimal() and str(int(text)) == text


def test_an_update_of_numbers_alone(tmp_path: Path) -> None:
    recommender = ep.Recommender(MODEL).fit(ep.Dataset(file(tmp_path, "plays", user=["u1", "7"], item=["a", "1"])))
    recommender.update(file(tmp_path, "new", user=[7, 8], item=[1, 1]), users=file(tmp_path, "users", user=[8]))
    assert recommender.dataset_.users[:] == ["7", "8", "u1"]
    assert recommender.dataset_.items[:] == ["1", "a"]


def test_attributes_of_an_update_keep_their_text(tmp_path: Path) -> None:
    plays = file(tmp_path, "plays", user=[1, 2], item=["a", "b"], version=["1.10", "1.1"], size=[1, 2])
    dataset = ep.Dataset(plays, users=file(tmp_path, "users", user=[1, 2], zip=["01234", "1234"]))
    new = file(tmp_path, "new", user=[3], item=["a"], version=["1.20"], size=["7"])
    extended = dataset.extended(new, users=file(tmp_path, "more", user=[3], zip=[12345]))
    assert extended.event_table["version"].to_pylist() == ["1.10", "1.1", "1.20"]
    assert extended.user_table["zip"].to_pylist() == ["01234", "1234", "12345"]
    with pytest.raises(
        TypeError, match="column 'size' of interactions must be int64, as in the rest of the data, but row 0 has the text '07'"
    ):
        dataset.extended(file(tmp_path, "new", user=[3], item=["a"], size=["07"]))
    with pytest.raises(TypeError, match="column 'size' of interactions must be int64"):
        dataset.extended({"user": [3], "item": ["a"], "size": ["07"]})


@pytest.mark.parametrize(("train", "test", "kind"), [(["1", "2"], ["1", "x"], "strings"), (["1", "2"], ["2", "3"], "integers")])
def test_parts_of_a_published_split_agree(tmp_path: Path, train: list[str], test: list[str], kind: str) -> None:
    parts = [file(tmp_path, str(j), user=users, item=["a", "b"], zip=["0123", "1"]) for j, users in enumerate((train, test))]
    split = given_split(*parts, tune_share=0.0)
    assert split.train.users.kind == kind
    assert [str(user) for user in split.train.users] == sorted({*train, *test})
    assert split.train.event_table["zip"].to_pylist() == ["0123", "1"]


def test_a_part_with_types_decides(tmp_path: Path) -> None:
    train = pd.DataFrame({"user": ["1", "2"], "item": ["a", "b"], "size": [1.5, 2.5]})
    split = given_split(train, file(tmp_path, "test", user=[1, 2], item=["b", "a"], size=[1, 2]), tune_share=0.0)
    assert split.train.users[:] == ["1", "2"]
    with pytest.raises(TypeError, match=r"column 'user' of test must be int64, .* row 0 has the text 'x'"):
        given_split(train.assign(user=[1, 2]), file(tmp_path, "test", user=["x"], item=["b"], size=[1]))


def test_a_key_of_another_name(tmp_path: Path) -> None:
    plays = {"user": ["x", "y"], "movie": [1, 2]}
    people, movies = {"id": ["y", "x"], "age": [2, 1]}, {"movieId": [2, 1], "title": ["two", "one"]}
    dataset = ep.Dataset(plays, people, movies, item="movie", users_key="id", items_key="movieId")
    assert dataset.user_table.to_pydict() == {"age": [1, 2]}
    assert dataset.item_table.to_pydict() == {"title": ["one", "two"]}
    recommender = ep.Recommender(MODEL).fit(dataset)
    for each in (recommender, ep.load(recommender.save(tmp_path / "model"))):
        each.update({"user": ["z"], "movie": [3]}, {"id": ["z"], "age": [3]}, {"movieId": [3], "title": ["three"]})
        assert each.dataset_.user_table.to_pydict() == {"age": [1, 2, 3]}
        assert each.dataset_.item_table.to_pydict() == {"title": ["one", "two", "three"]}


@given(st.lists(TEXTS, min_size=1), st.integers(-9, 9), st.integers(-9, 9), st.sampled_from([None, 1, 2, -1]))
def test_ids_are_a_sequence(texts: list[str], start: int, stop: int, step: int | None) -> None:
    ids = Ids.of(texts)
    assert list(ids) == ids.tolist() == sorted(set(texts))
    assert ids[start:stop:step] == sorted(set(texts))[start:stop:step]
    assert all(text in ids for text in texts)
    assert "z" not in ids
    assert 5 not in ids
    assert ids[-1] == max(texts)


def test_ids_are_taken_where_lists_are() -> None:
    dataset = ep.Dataset({"user": [3, 5, 9], "item": ["a", "b", "c"]})
    recommender = ep.Recommender(MODEL).fit(dataset)
    everyone = recommender.recommend([3, 5, 9], n=1)
    assert recommender.recommend(dataset.users, n=1).equals(everyone)
    assert recommender.recommend(dataset.users[:2], n=1).equals(everyone[:2])
    assert recommender.recommend(dataset.users, n=2, allow=dataset.items).num_rows == 6
    assert recommender.recommend(dataset.users[:1], n=1, candidates=[dataset.items[2:]])["item"].to_pylist() == ["c"]
    assert recommender.similar_items(dataset.items, n=1).num_rows == 3
    assert np.array(dataset.users[1:]).tolist() == [5, 9]
    assert 5 in dataset.users
    assert "5" not in dataset.users
