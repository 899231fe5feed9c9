"""``fallback="popular"``: unknown users too, and never in silence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import everypair as ep

from logs import logs
from settings import COMMON

MODELS: dict[str, tuple[Any, list[Any]]] = {
    "MF": (ep.MF(**COMMON), [ep.UserId()]),
    "FM": (ep.FM(**COMMON), [ep.UserId(), ep.Attributes("country")]),
    "MFSI": (ep.MFSI(**COMMON), [ep.UserId(), ep.Attributes("country")]),
    "PARAFAC": (ep.PARAFAC(**COMMON), [ep.UserId(), ep.Previous()]),
    "CoView": (ep.CoView(), [ep.Previous()]),
    "Popularity": (ep.Popularity(), [ep.UserId()]),
}
WARNED = pytest.mark.filterwarnings("ignore::everypair.FallbackWarning")


@pytest.fixture(scope="module")
def dataset() -> ep.Dataset:
    return ep.datasets.youtube_like(40, 20, seed=5, events_per_user=6)


def fitted(name: str, dataset: ep.Dataset) -> ep.Recommender:
    model, context = MODELS[name]
    return ep.Recommender(model, context).fit(dataset)


@WARNED
@pytest.mark.parametrize("name", MODELS)
def test_an_unknown_user_is_a_request_with_nothing_but_an_id(name: str, dataset: ep.Dataset) -> None:
    """And the lists of the others are what they are without it."""
    recommender = fitted(name, dataset)
    users = [dataset.users[3], "nobody", dataset.users[1]]
    found = recommender.recommend(users, n=4, fallback="popular").to_pylist()
    assert [row["user"] for row in found] == [user for user in users for _ in range(4)]
    asked = recommender.recommend(requests=[{"user": user} for user in users], n=4, fallback="popular").to_pylist()
    assert [(row["item"], row["score"]) for row in found] == [(row["item"], row["score"]) for row in asked]


@pytest.mark.parametrize("name", MODELS)
def test_without_the_fallback_they_are_refused(name: str, dataset: ep.Dataset) -> None:
    recommender = fitted(name, dataset)
    with pytest.raises(ValueError, match=r"1 of 2 are not, such as 'nobody'.* by a request, or use fallback='popular'"):
        recommender.recommend([dataset.users[0], "nobody"])
    for other in (lambda: recommender.similar_users(["nobody"]), lambda: recommender.explain("nobody", dataset.items[0])):
        with pytest.raises(ValueError, match="such as 'nobody'") as refused:
            other()
        assert "fallback" not in str(refused.value)


@given(log=logs(max_items=6), data=st.data())
def test_their_number_is_told(log: ep.Dataset, data: st.DataObject) -> None:
    recommender = ep.Recommender(ep.MF(2, epochs=1)).fit(log)
    known = log.users.values.to_pylist()
    users = data.draw(st.lists(st.sampled_from([*known, "nobody", "no one"]), min_size=1, max_size=8))
    unknown = [user for user in users if user not in known]
    popular = np.argsort(-np.bincount(log.item, minlength=log.n_items), kind="stable")
    options: dict[str, Any] = {"n": 1, "fallback": "popular", "exclude_seen": False}
    if not unknown:
        recommender.recommend(users, **options)
        return
    message = f"{len(unknown)} of {len(users)} lists have the most popular items, such as that of user {unknown[0]!r}"
    with pytest.warns(ep.FallbackWarning, match=message):
        found = recommender.recommend(users, **options).to_pylist()
    assert {row["item"] for row in found if row["user"] in unknown} == {log.items[int(popular[0])]}
    assert recommender.unknown_ == {"user": len(unknown)}


def test_a_model_with_item_biases_says_that_it_ranks_by_these(dataset: ep.Dataset) -> None:
    with pytest.warns(ep.FallbackWarning, match="1 of 2 lists are of users that the data do not have, such as 'nobody': FM ranks"):
        fitted("FM", dataset).recommend([dataset.users[0], "nobody"], n=3, fallback="popular")


def test_requests_and_files_tell_it_too(dataset: ep.Dataset, tmp_path: Path) -> None:
    recommender = fitted("MF", dataset)
    with pytest.warns(ep.FallbackWarning, match="1 of 2 lists have the most popular items, such as that of request 1: MF knows"):
        recommender.recommend(requests=[{"user": dataset.users[0]}, {}], n=3, fallback="popular")
    out = tmp_path / "all.parquet"
    with pytest.warns(ep.FallbackWarning, match="1 of 2 lists have the most popular items, such as that of user 'nobody'"):
        recommender.recommend_all(out, 3, users=["nobody", dataset.users[0]])
    assert pq.read_table(out)["user"].to_pylist() == ["nobody"] * 3 + [dataset.users[0]] * 3


def test_a_recommender_that_refuses_unknown_values_refuses_unknown_users(dataset: ep.Dataset) -> None:
    strict = ep.Recommender(ep.MF(**COMMON), unknown="error").fit(dataset)
    with pytest.raises(ValueError, match="such as 'nobody'"):
        strict.recommend(["nobody"], fallback="popular")
