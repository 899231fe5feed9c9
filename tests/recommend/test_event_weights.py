"""What an event weighs in training: the fit is that of data with these weights, wherever a recommender goes."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import everypair as ep
from everypair.recommend.event_weights import LEAST, EventWeights
from everypair.recommend.recipe_syntax import event_weights, weights_as_text

from settings import COMMON

WEIGHTS = EventWeights(half_life="20d", decay=0.95, length=0.5)
MODELS: dict[str, tuple[Any, list[Any]]] = {
    "MF": (ep.MF, [ep.UserId()]),
    "FM of events": (ep.FM, [ep.UserId(), ep.Attributes("country"), ep.Previous()]),
    "MFSI": (ep.MFSI, [ep.Previous(), ep.History(decay=0.9)]),
}


@pytest.fixture(scope="module")
def dataset() -> ep.Dataset:
    return ep.datasets.youtube_like(50, 30, seed=5, events_per_user=8)


@given(
    events=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9), st.floats(0.5, 3.0)), min_size=1, max_size=12),
    half_life=st.sampled_from([None, "2d", 3 * 86_400]),
    decay=st.sampled_from([1.0, 0.7]),
    length=st.sampled_from([0.0, 0.5, 1.0]),
    own=st.booleans(),
)
def test_they_are_those_of_the_formula(events: list[Any], half_life: Any, decay: float, length: float, own: bool) -> None:
    user, day, weight = (np.array(column) for column in zip(*events, strict=True))
    order = np.lexsort((np.arange(len(user)), day, user))
    table = {"user": user, "item": np.zeros(len(user), int), "t": 1_500_000_000 + 86_400 * day, "w": weight}
    dataset = ep.Dataset(table, timestamp="t", weight="w" if own else None)
    if dataset.time_counts and half_life is not None:
        return
    user, day, weight = user[order], day[order], weight[order]
    expected = np.ones(len(user))
    for e in range(len(user)):
        same = user == user[e]
        expected[e] = decay ** (same & (np.arange(len(user)) > e)).sum() * same.sum() ** -length
        if half_life is not None:
            expected[e] *= 0.5 ** ((day.max() - day[e]) / (2 if half_life == "2d" else 3))
    expected = np.maximum(expected, LEAST * expected.max())
    weights = EventWeights(half_life, decay, length)
    np.testing.assert_allclose(weights.of(dataset), expected / expected.mean())
    found = weights.applied(dataset)
    np.testing.assert_allclose(found.weight, expected / expected.mean() * (weight if own else 1.0))


@pytest.mark.parametrize("name", MODELS)
def test_a_fit_is_that_of_weighted_data(name: str, dataset: ep.Dataset) -> None:
    model, context = MODELS[name]
    one = ep.Recommender(model(**COMMON), context=context, event_weights=WEIGHTS).fit(dataset)
    other = ep.Recommender(model(**COMMON), context=context).fit(WEIGHTS.applied(dataset))
    assert one.item_vectors().tobytes() == other.item_vectors().tobytes()
    plain = ep.Recommender(model(**COMMON), context=context).fit(dataset)
    assert not np.array_equal(one.item_vectors(), plain.item_vectors())


@pytest.mark.parametrize("name", MODELS)
def test_updates_and_explanations_count_them(name: str, dataset: ep.Dataset) -> None:
    model, context = MODELS[name]
    one = ep.Recommender(model(**COMMON), context=context, event_weights=WEIGHTS).fit(dataset)
    why = one.explain(dataset.users[3], dataset.items[2])
    assert why.score == pytest.approx((one.context_vectors([dataset.users[3]]) @ one.item_vectors().T)[0, 2], abs=1e-9)
    event: dict[str, Any] = {"user": ["u000", "new"], "item": [dataset.items[1]] * 2, "timestamp": [dataset.time.max() + 9] * 2}  # type: ignore[union-attr]
    one.update(event | {name: [None] * 2 for name in dataset.event_table.column_names})
    assert one.recommend(["new"], 3).num_rows == 3


def test_a_history_is_folded_in_as_a_fit_would_count_it(dataset: ep.Dataset) -> None:
    weights = EventWeights(decay=0.5, length=1.0)
    fitted = ep.Recommender(ep.MF(**COMMON), event_weights=weights).fit(dataset)
    items = [dataset.items[j] for j in (3, 5, 3)]
    history = fitted.state.weighted_history(dataset.items.codes(items))
    mean = weights.mean(dataset)
    np.testing.assert_allclose(history.alpha, np.array([1.25, 0.5]) / 3 / mean)
    assert fitted.recommend(requests=[{"history": items}], n=3).num_rows == 3


def test_files_keep_them(dataset: ep.Dataset, tmp_path: Path) -> None:
    fitted = ep.Recommender(ep.MF(**COMMON), event_weights=WEIGHTS).fit(dataset)
    loaded = ep.load(fitted.save(tmp_path / "model"))
    assert loaded.event_weights == loaded.state.event_weights == WEIGHTS
    request = {"history": [dataset.items[j] for j in range(4)]}
    assert loaded.recommend(requests=[request]).to_pydict() == fitted.recommend(requests=[request]).to_pydict()
    assert "event_weights=EventWeights(half_life='20d'" in repr(loaded)


def test_they_are_parameters(dataset: ep.Dataset) -> None:
    template = ep.Recommender(ep.MF(**COMMON), event_weights=WEIGHTS)
    assert template.get_params()["event_weights"] is WEIGHTS
    assert template.unfitted(event_weights=None).event_weights is None


@pytest.mark.parametrize("weights", [EventWeights(), WEIGHTS, EventWeights(half_life=90), EventWeights(length=1.0)])
def test_they_are_written_as_strings(weights: EventWeights) -> None:
    text = weights_as_text(weights)
    assert text is not None
    assert event_weights(text) == weights


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"half_life": "soon"}, "half_life must be"),
        ({"decay": 0}, "decay must be"),
        ({"decay": 1.5}, "decay must be"),
        ({"length": -1}, "length must be"),
    ],
)
def test_wrong_ones_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        EventWeights(**arguments)


@pytest.mark.parametrize("text", ["half_life", "age=3", "decay=", "decay=2", "half_life=none,x"])
def test_wrong_strings_are_refused(text: str) -> None:
    with pytest.raises((TypeError, ValueError)):
        event_weights(text)


def test_other_weights_are_refused() -> None:
    with pytest.raises(TypeError, match="event_weights must be an EventWeights"):
        ep.Recommender(ep.MF(), event_weights={"length": 1.0})  # type: ignore[arg-type]


EVENTS = {"user": [1, 1, 2, 2], "item": [1, 2, 1, 3]}


@pytest.mark.parametrize(
    ("dataset", "message"),
    [
        (ep.Dataset(EVENTS, chronological=True), "needs the times of events"),
        (ep.Dataset({**EVENTS, "t": [1, 2, 1, 2]}, timestamp="t"), "no Unix times"),
    ],
)
def test_a_half_life_needs_times(dataset: ep.Dataset, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ep.Recommender(ep.MF(**COMMON), event_weights=EventWeights(half_life="30d")).fit(dataset)


def test_positions_are_no_times() -> None:
    dataset = ep.Dataset({**EVENTS, "t": [1, 2, 1, 2]}, timestamp="t")
    with pytest.raises(ValueError, match="has the positions of events"):
        ep.Recommender(ep.MF(**COMMON), event_weights=EventWeights(half_life=3)).fit(dataset)


def test_dates_are_times() -> None:
    times = [dt.datetime(2020, 1, 1) + dt.timedelta(days=day) for day in (0, 2, 1, 3)]
    found = EventWeights(half_life="1d").of(ep.Dataset({**EVENTS, "t": times}, timestamp="t"))
    np.testing.assert_allclose(found, np.array([1, 4, 2, 8]) / 3.75)
