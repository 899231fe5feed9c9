"""A history in a request that the model does not use is no silent no-op."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

import everypair as ep
from everypair.service.served_model import ServedModel

from settings import COMMON

UNUSED: dict[str, tuple[Any, list[Any]]] = {
    "FM": (ep.FM(**COMMON), [ep.UserId(), ep.Attributes("country")]),
    "MFSI": (ep.MFSI(**COMMON), [ep.Attributes("country")]),
    "MF of a country": (ep.MF(**COMMON), [ep.Attributes("country")]),
}
USED: dict[str, tuple[Any, list[Any]]] = {
    "MF": (ep.MF(**COMMON), [ep.UserId()]),
    "FM": (ep.FM(**COMMON), [ep.UserId(), ep.History()]),
    "MFSI": (ep.MFSI(**COMMON), [ep.Attributes("country"), ep.Previous()]),
    "CoView": (ep.CoView(), [ep.Previous()]),
}


@pytest.fixture(scope="module")
def dataset() -> ep.Dataset:
    return ep.datasets.youtube_like(60, 30, seed=5, events_per_user=8)


def request_of(dataset: ep.Dataset) -> dict[str, Any]:
    return {"country": "DE", "history": [dataset.items[0], dataset.items[1]]}


@pytest.mark.parametrize("name", UNUSED)
def test_it_is_warned_of(name: str, dataset: ep.Dataset) -> None:
    recommender = ep.Recommender(*UNUSED[name]).fit(dataset)
    with pytest.warns(ep.UnusedHistoryWarning, match=f"{name.split()[0]} .* does not use the 'history' of requests") as caught:
        recommender.recommend(requests=[{"country": "DE"}, request_of(dataset)], n=3)
    assert caught[0].filename == __file__
    with pytest.warns(ep.UnusedHistoryWarning):
        recommender.explain(item=dataset.items[2], request=request_of(dataset))
    answer = ServedModel(recommender).recommend(request=request_of(dataset), n=3)
    assert "does not use the 'history' of requests" in answer["note"]


@pytest.mark.parametrize("name", UNUSED)
def test_requests_without_a_history_have_nothing_to_warn_of(name: str, dataset: ep.Dataset) -> None:
    recommender = ep.Recommender(*UNUSED[name]).fit(dataset)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        recommender.recommend(requests=[{"country": "DE"}, {"user": dataset.users[0], "history": []}], n=3)
        recommender.recommend(dataset.users[0], n=3)
    assert ServedModel(recommender).recommend(request={"country": "DE"}, n=3)["note"] is None


def test_popularity_has_no_use_for_contexts_by_its_nature(dataset: ep.Dataset) -> None:
    ep.Recommender(ep.Popularity()).fit(dataset).recommend(requests=[request_of(dataset)], n=3)


@pytest.mark.filterwarnings("ignore::everypair.FallbackWarning")
@pytest.mark.parametrize("name", USED)
def test_nor_do_models_that_use_it(name: str, dataset: ep.Dataset) -> None:
    recommender = ep.Recommender(*USED[name]).fit(dataset)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with_history = recommender.recommend(requests=[request_of(dataset)], n=3)
    without = recommender.recommend(requests=[{"country": "DE"}], n=3, fallback="popular", exclude_seen=False)
    assert not with_history["score"].equals(without["score"])
