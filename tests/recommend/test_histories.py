"""Histories at several time scales, by events and by elapsed time: in training, requests, explanations and files."""

from __future__ import annotations

import datetime as dt
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import everypair as ep
from everypair.recommend.context_batch import ContextBatch
from everypair.recommend.description import Description
from everypair.recommend.recipe_syntax import as_text, recipe

from settings import COMMON

START = 1_500_000_000
SCALES = [ep.Previous(), ep.History(decay=0.95), ep.History(decay=0.7), ep.History(decay=1.0, half_life="30d", normalize=0.3)]


@pytest.fixture(scope="module")
def dataset() -> ep.Dataset:
    return ep.datasets.youtube_like(60, 30, seed=5, events_per_user=8)


@pytest.fixture(scope="module")
def fitted(dataset: ep.Dataset) -> ep.Recommender:
    return ep.Recommender(ep.FM(**COMMON), context=[ep.UserId(), *SCALES]).fit(dataset)


@given(
    events=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3), st.integers(0, 40)), min_size=1, max_size=15),
    history=st.builds(
        ep.History,
        last=st.one_of(st.none(), st.integers(1, 4)),
        decay=st.sampled_from([1.0, 0.8]),
        normalize=st.sampled_from(["sqrt", "mean", "none", 0.25]),
        half_life=st.sampled_from(["1d", "36h", 2.0 * 86_400]),
    ),
    unit=st.sampled_from(["s", "ms", "dates"]),
)
def test_features_are_those_of_the_formula(events: list[tuple[int, int, int]], history: ep.History, unit: str) -> None:
    """In training, and in requests with times, by the same numbers; days apart, whatever the unit."""
    user, item, day = (np.array(column) for column in zip(*events, strict=True))
    seconds = START + 86_400 * day
    time = {"s": seconds, "ms": 1000 * seconds, "dates": seconds.astype("datetime64[s]")}[unit]
    half_life: Any = history.half_life
    if not isinstance(half_life, str):
        if unit == "dates":
            return
        half_life *= {"s": 1, "ms": 1000}[unit]
        history = ep.History(history.last, history.decay, history.normalize, half_life=half_life)
    dataset = ep.Dataset({"user": user, "item": item, "t": time}, timestamp="t")
    rows = ContextBatch.of_events(dataset)
    description = Description("context", [history], dataset, rows)
    found = description.columns(rows)["history"].toarray()
    halved = {"1d": 1.0, "36h": 1.5}.get(half_life, 2.0)  # in days
    requests: list[dict[str, Any]] = []
    for row in range(len(dataset)):
        before = np.arange(dataset.bounds[dataset.user[row]], row)
        counted = before if history.last is None else before[-history.last :]
        days = np.sort(day[user == dataset.users[int(dataset.user[row])]])[: len(before)]
        expected = np.zeros(dataset.n_items)
        if len(counted):
            age = (days[-1] - days[len(before) - len(counted) :]) / halved
            weight = history.decay ** np.arange(len(counted))[::-1] * 0.5**age
            np.add.at(expected, dataset.item[counted], weight)
            expected /= weight.sum() ** {"sqrt": 0.5, "mean": 1.0, "none": 0.0}.get(history.normalize, history.normalize)
        np.testing.assert_allclose(found[row], expected, rtol=1e-9, atol=1e-12)
        times = [START + 86_400 * int(each) for each in days]
        dates = [dt.datetime(1970, 1, 1) + dt.timedelta(seconds=t) for t in times]
        written = {"s": times, "ms": [1000 * t for t in times], "dates": dates}
        requests.append({"history": [dataset.items[int(i)] for i in dataset.item[before]], "history_times": written[unit]})
    live = description.columns(ContextBatch.of_requests(requests, dataset))["history"].toarray()
    np.testing.assert_allclose(live, found, rtol=1e-9, atol=1e-12)


def test_several_histories_have_names_of_their_own(fitted: ep.Recommender) -> None:
    assert list(fitted.state.contexts.fields) == ["user", "previous", "history 0.95", "history 0.7", "history 30d by 0.3"]
    assert list(ep.Recommender(ep.FM(**COMMON), context=[ep.History(decay=0.7)]).fit(fitted.dataset_).state.contexts.fields) == [
        "history"
    ]


def test_l2_of_one_of_them(dataset: ep.Dataset) -> None:
    settings = {**COMMON, "regularization": {"default": 0.1, "history 0.95": 3.0}}
    assert ep.Recommender(ep.MFSI(**settings), context=SCALES).fit(dataset).model.history_


def test_the_same_history_twice_is_refused(dataset: ep.Dataset) -> None:
    with pytest.raises(ValueError, match=r"two fields of the context are named 'history 0\.8'"):
        ep.Recommender(ep.MFSI(**COMMON), context=[ep.History(), ep.History()]).fit(dataset)


def test_positions_are_fields(dataset: ep.Dataset) -> None:
    fitted = ep.Recommender(ep.MFSI(**COMMON), context=[ep.Previous(1), ep.Previous(2), ep.Previous(3)]).fit(dataset)
    assert list(fitted.state.contexts.fields) == ["previous", "previous 2", "previous 3"]
    items = [dataset.items[j] for j in range(3)]
    why = fitted.explain(item=dataset.items[5], request={"history": items})
    assert {(s["field"], s["value"]) for s in why.contributions} >= {("previous", items[2]), ("previous 3", items[0])}


def test_contributions_add_up_to_the_score(fitted: ep.Recommender) -> None:
    dataset = fitted.dataset_
    why = fitted.explain(dataset.users[3], dataset.items[4])
    score = (fitted.context_vectors([dataset.users[3]]) @ fitted.item_vectors().T)[0, 4]
    assert why.score == pytest.approx(score, abs=1e-9)
    assert {"history 0.95", "history 0.7", "history 30d by 0.3"} <= set(why.table["field"].to_pylist())


def test_a_request_with_times_is_the_user(fitted: ep.Recommender) -> None:
    dataset = fitted.dataset_
    own = slice(dataset.bounds[7], dataset.bounds[8])
    request = {
        "user": dataset.users[7],
        "country": dataset.user_table["country"][7].as_py(),
        "history": [dataset.items[int(j)] for j in dataset.item[own]],
        "history_times": dataset.time[own].tolist(),
    }
    found = fitted.context_vectors(requests=[request])
    np.testing.assert_allclose(found, fitted.context_vectors([dataset.users[7]]), rtol=1e-12, atol=1e-14)


def test_files_and_updates(fitted: ep.Recommender, tmp_path: Path) -> None:
    dataset = fitted.dataset_
    loaded = ep.load(fitted.save(tmp_path / "model"))
    users = [dataset.users[j] for j in range(5)]
    assert loaded.context == fitted.context
    assert loaded.recommend(users, 5).to_pydict() == fitted.recommend(users, 5).to_pydict()
    event = {"user": [dataset.users[0], "new"], "item": [dataset.items[1]] * 2, "timestamp": [dataset.time.max() + 9] * 2}
    columns = {name: [None] * 2 for name in dataset.event_table.column_names}
    loaded.update({**event, **columns})
    assert loaded.recommend(["new"], 3).num_rows == 3


@pytest.mark.parametrize("solver", ["cd", "block"])
@pytest.mark.parametrize("model", [ep.MFSI, ep.FM])
def test_the_same_bits_on_any_number_of_threads(model: Any, solver: str, dataset: ep.Dataset) -> None:
    found = [
        ep.Recommender(model(**COMMON, field_solver=solver, n_threads=n), context=SCALES).fit(dataset).item_vectors()
        for n in (1, 2)
    ]
    assert found[0].tobytes() == found[1].tobytes()


def test_histories_without_times_count_as_of_one_moment(fitted: ep.Recommender) -> None:
    items = [fitted.dataset_.items[j] for j in range(3)]
    with pytest.warns(ep.UnusedHistoryWarning, match="1 of 2 requests have a 'history' without 'history_times'"):
        found = fitted.recommend(requests=[{"history": items}, {"history": items[:1]}], n=3).to_pydict()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        same = fitted.recommend(requests=[{"history": items, "history_times": [START] * 3}, {"history": items[:1]}], n=3)
    assert found == same.to_pydict()


ITEMS = ["v01", "v02"]
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"history": ITEMS, "history_times": [START]}, "must be a list with a time for each of the 2 items"),
    ({"history": ITEMS, "history_times": START}, "must be a list with a time for each"),
    ({"history": ITEMS, "history_times": [START, START - 1]}, "must not fall"),
    ({"history": ITEMS, "history_times": [dt.datetime(2020, 1, 1)] * 2}, "must be numbers, like the timestamps of the data"),
    ({"history": ITEMS, "history_times": [START, "yesterday"]}, "all of one kind"),
    ({"history": ITEMS, "history_times": [START, None]}, "history_times"),
    ({"history_times": [START]}, "without 'history'"),
]


@pytest.mark.parametrize(("request_", "message"), WRONG)
def test_wrong_times_are_refused(request_: dict[str, Any], message: str, fitted: ep.Recommender) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        fitted.recommend(requests=[request_])


EVENTS = {"user": [1, 1, 2], "item": [1, 2, 1]}


@pytest.mark.parametrize(
    ("dataset", "half_life", "message"),
    [
        (
            ep.Dataset(EVENTS, chronological=True),
            "30d",
            r"needs the times of events: name their column, Dataset\(\.\.\., timestamp",
        ),
        (ep.Dataset({**EVENTS, "t": [1, 2, 3]}, timestamp="t"), "30d", "numbers from 1 to 3, which are no Unix times"),
        (ep.Dataset({**EVENTS, "t": [dt.datetime(2020, 1, 1)] * 3}, timestamp="t"), 30, "must be a duration such as '30d'"),
    ],
)
def test_a_half_life_needs_times_of_a_known_unit(dataset: ep.Dataset, half_life: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        ep.Recommender(ep.MFSI(**COMMON), context=[ep.History(half_life=half_life)]).fit(dataset)


@pytest.mark.parametrize("half_life", ["30", "d", "0d", "-1d", "30 months", 0, -1.0, True, float("nan")])
def test_wrong_half_lives_are_refused(half_life: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="half_life must be"):
        ep.History(half_life=half_life)


@pytest.mark.parametrize("normalize", ["half", 1.5, -0.1, True, None])
def test_wrong_powers_are_refused(normalize: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="normalize must be"):
        ep.History(normalize=normalize)


@pytest.mark.parametrize(
    "text",
    [
        "history:decay=0.95",
        "history:decay=1.0,half_life=30d",
        "history:half_life=90",
        "history:last=5,normalize=none",
        "history:normalize=0.3,name=old",
        "previous:back=3",
    ],
)
def test_they_are_written_as_strings(text: str) -> None:
    assert as_text(recipe(text)) == text
