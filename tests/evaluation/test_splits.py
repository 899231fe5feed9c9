"""Splits never leak: no event is both trained on and held out, and nothing known at a moment is of a later time."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import everypair as ep
from everypair.evaluation import ColdStart, Cutoff, LeaveLast, Queries, RandomPerUser, Split
from everypair.evaluation import given as given_split

from logs import logs

SPLITTERS = {
    "cold": ColdStart(test=0.3, tune=0.3, seed=1),
    "last": LeaveLast(),
    "cutoff": Cutoff(test=0.3, tune=0.3),
    "random": RandomPerUser(test=0.3, tune=0.3, seed=1),
}


def made(name: str, dataset: ep.Dataset) -> Split:
    try:
        return SPLITTERS[name].split(dataset)
    except ValueError as error:
        known = ("leave none", "three events", "cannot be cut", "counts them", "enough events")
        assume(not any(word in str(error) for word in known))
        raise


def pairs(dataset: ep.Dataset) -> Counter[tuple[int, int]]:
    return Counter(zip(dataset.user.tolist(), dataset.item.tolist(), strict=True))


def held(queries: Queries) -> Counter[tuple[int, int]]:
    owner = np.repeat(queries.user, np.diff(queries.bounds))
    return Counter(zip(owner.tolist(), queries.relevant.tolist(), strict=True))


def past(queries: Queries, q: int) -> list[int]:
    m = queries.contexts
    return m.items[m.begin[q] : m.end[q]].tolist()


@pytest.mark.parametrize("name", SPLITTERS)
@given(dataset=logs())
def test_every_event_is_in_one_part_at_most(name: str, dataset: ep.Dataset) -> None:
    split = made(name, dataset)
    everything = pairs(dataset)
    parts = pairs(split.train) + held(split.tune) + held(split.test)
    assert not parts - everything
    if name in ("last", "cutoff"):
        assert parts == everything  # nothing is lost, events count as often as they are
    else:
        assert set(parts) == set(everything)


@pytest.mark.parametrize("name", SPLITTERS)
@given(dataset=logs())
def test_parts_share_users_and_items(name: str, dataset: ep.Dataset) -> None:
    split = made(name, dataset)
    assert split.train.users is dataset.users
    assert split.train.items is dataset.items
    assert len(split.tune)
    assert len(split.test)


@given(dataset=logs())
def test_held_out_users_are_strangers(dataset: ep.Dataset) -> None:
    split = made("cold", dataset)
    for queries in (split.tune, split.test):
        assert not set(queries.user) & set(split.train.user)
        assert set(queries.contexts.user) == {-1}
        assert all(past(queries, q) == [] for q in range(len(queries)))
        assert queries.contexts.attributes["country"].index.tolist() == queries.user.tolist()
        for q, user in enumerate(queries.user):
            own = dataset.item[dataset.bounds[user] : dataset.bounds[user + 1]]
            assert queries.relevant[queries.bounds[q] : queries.bounds[q + 1]].tolist() == sorted(set(own.tolist()))
    assert not set(split.tune.user) & set(split.test.user)


@given(dataset=logs())
def test_the_last_event_is_the_test_and_the_one_before_it_is_tuned_on(dataset: ep.Dataset) -> None:
    split = made("last", dataset)
    assert split.tune.user.tolist() == split.test.user.tolist()
    for q, user in enumerate(split.test.user):
        own = dataset.item[dataset.bounds[user] : dataset.bounds[user + 1]].tolist()
        trained = split.train.item[split.train.bounds[user] : split.train.bounds[user + 1]].tolist()
        assert (trained, split.tune.relevant[q], split.test.relevant[q]) == (own[:-2], own[-2], own[-1])
        assert past(split.tune, q) == own[:-2]
        assert past(split.test, q) == own[:-1]
    few = [u for u in range(dataset.n_users) if 0 < dataset.bounds[u + 1] - dataset.bounds[u] < 3]
    assert any(note.startswith(f"{len(few)} user") and "with fewer" in note for note in split.notes) == bool(few)


@given(dataset=logs())
def test_ties_in_time_that_the_order_of_rows_breaks_are_noted(dataset: ep.Dataset) -> None:
    split = made("last", dataset)
    assert dataset.time is not None
    times = [dataset.time[begin:end] for begin, end in zip(dataset.bounds, dataset.bounds[1:], strict=False)]
    tied = sum(len(own) >= 3 and len(set(own[-3:].tolist())) < 3 for own in times)
    notes = [note for note in split.notes if "equal time" in note]
    assert notes == ([f"{tied} user{'s' * (tied > 1)} with last events of equal time: the order of rows decides which is the last."]
                     if tied else [])  # fmt: skip


@given(dataset=logs())
def test_at_a_cutoff_all_before_an_event_is_known_and_nothing_after(dataset: ep.Dataset) -> None:
    split = made("cutoff", dataset)
    assert dataset.time is not None
    assert split.train.time is not None
    by_event = {(u, t): i for u, t, i in zip(dataset.user, range(len(dataset)), dataset.item, strict=True)}
    for queries in (split.tune, split.test):
        events = queries.contexts.end
        assert dataset.time[events].min() > split.train.time.max()
        for q, event in enumerate(events):
            assert queries.relevant[q] == by_event[queries.user[q], event]
            first = dataset.bounds[queries.user[q]]
            assert past(queries, q) == dataset.item[first:event].tolist()
            assert np.all(dataset.time[first:event] <= dataset.time[event])
    assert dataset.time[split.tune.contexts.end].max() < dataset.time[split.test.contexts.end].min()


@given(dataset=logs(min_events=2))
def test_random_parts_are_of_the_asked_size(dataset: ep.Dataset) -> None:
    split = made("random", dataset)
    for user in range(dataset.n_users):
        n = int(dataset.bounds[user + 1] - dataset.bounds[user])
        trained = int(split.train.bounds[user + 1] - split.train.bounds[user])
        n_test = min(round(0.3 * n), n - 1)
        assert trained == n - n_test - min(round(0.3 * n), n - 1 - n_test)
    for queries in (split.tune, split.test):
        for q, user in enumerate(queries.user):
            assert past(queries, q) == split.train.item[split.train.bounds[user] : split.train.bounds[user + 1]].tolist()


@given(dataset=logs(min_users=3), events=st.integers(1, 20))
def test_less_to_tune_on(dataset: ep.Dataset, events: int) -> None:
    for name in ("last", "cold"):
        split = made(name, dataset)
        thin = split.thin(events)
        assert not pairs(thin.train) - pairs(split.train)
        assert len(thin.train) >= min(events, len(split.train))
        assert thin.test is split.test
        if name == "last":
            assert set(thin.tune.user) <= set(thin.train.user)
        else:
            assert thin.tune is split.tune


def test_a_given_split() -> None:
    train = {"user": [1, 1, 1, 2, 2], "item": ["a", "b", "c", "a", "d"]}
    test = {"user": [1, 2, 3], "item": ["d", "b", "e"], "extra": [0, 0, 0]}
    split = given_split(train, test, tune_share=0.4, seed=0)
    assert pairs(split.train) + held(split.tune) == Counter({(0, 0): 1, (0, 1): 1, (0, 2): 1, (1, 0): 1, (1, 3): 1})
    assert held(split.test) == Counter({(0, 3): 1, (1, 1): 1, (2, 4): 1})
    assert len(split.tune) == 2
    assert any("1 of 3 relevant items of the test are in no training event" in note for note in split.notes)
    whole = given_split(train, test, tune_share=0.0)
    assert len(whole.train) == 5
    assert len(whole.tune) == 0
    told = given_split(train, test, tune={"user": [2], "item": ["c"]})
    assert held(told.tune) == Counter({(1, 2): 1})
    assert len(told.train) == 5


def test_a_given_split_of_other_kinds_of_numbers() -> None:
    import pyarrow as pa

    train = pa.table({"user": pa.array([1, 2], pa.int32()), "item": pa.array([1, 2], pa.int16())})
    test = pa.table({"user": pa.array([1, 2], pa.int64()), "item": pa.array([2, 1], pa.int64())})
    assert len(given_split(train, test, tune_share=0.0).test) == 2


def test_a_given_split_drops_repeats_within_its_parts() -> None:
    """What is tested does not change what is trained on, whenever it happened."""
    train = {"user": [1, 1, 1], "item": ["a", "a", "b"], "t": [5, 6, 7]}
    split = given_split(train, {"user": [1], "item": ["a"], "t": [1]}, tune_share=0.0, repeats="drop", timestamp="t")
    assert pairs(split.train) == Counter({(0, 0): 1, (0, 1): 1})
    assert held(split.test) == Counter({(0, 0): 1})
    assert "1 event left out" in split.notes[0]


def test_a_given_split_tells_what_the_dataset_notes() -> None:
    train = {"user": [1, 1, 1], "item": ["a", "b", "c"], "stars": [5, 1, 5]}
    split = given_split(train, {"user": [1], "item": ["d"], "stars": [5]}, rating="stars", at_least=4)
    assert any("left out: stars below 4" in note for note in split.notes)
    assert not len(split.tune)
    assert any("nothing is held out to tune on" in note for note in split.notes)


def test_a_given_split_of_categories_and_texts() -> None:
    pd = pytest.importorskip("pandas", reason="pandas is not installed")
    train = pd.DataFrame({"user": ["a", "b"], "item": ["x", "y"]}, dtype="category")
    split = given_split(train, {"user": ["a"], "item": ["y"]}, tune_share=0.0)
    assert held(split.test) == Counter({(0, 1): 1})


@pytest.mark.parametrize(
    ("train", "test", "message"),
    [
        ({"user": [1], "item": [1]}, None, "test must be"),
        ({"user": [1], "item": [1]}, {"user": [], "item": []}, "test has no events"),
        ({"user": [], "item": []}, {"user": [1], "item": [1]}, "train has no events"),
        ({"user": [1], "item": [1]}, {"user": [1], "film": [1]}, "test has no column 'item'; it has 'user', 'film'"),
        ({"user": [1], "item": [1]}, {"user": ["1"], "item": [1]}, "values of the same types"),
        ({"user": [1], "item": [1], "t": [1]}, {"user": [1], "item": [2]}, "test has no column 't'"),
    ],
)
def test_a_given_split_that_is_refused(train: Any, test: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        given_split(train, test, timestamp="t" if "t" in train else None)


def test_a_sample_of_the_events_after_a_cutoff() -> None:
    dataset = ep.datasets.youtube_like(80, 40, seed=0, events_per_user=10)
    split = Cutoff(sample=20).split(dataset)
    assert len(split.tune) == len(split.test) == 20
    assert sum("not evaluated" in note for note in split.notes) == 2


ERRORS: dict[str, tuple[Any, dict[str, Any], str]] = {
    "no times": (Cutoff(), {"timestamp": None}, "needs timestamps"),
    "positions": (Cutoff(), {"timestamp": "position"}, "it counts them"),
    "positions from 1": (Cutoff(), {"timestamp": "counted"}, "it counts them"),
    "a sample of text": (Cutoff(test=0.3, tune=0.3, sample="5"), {"timestamp": "t"}, "sample must be an integer"),  # type: ignore[arg-type]
    "one time": (Cutoff(), {"timestamp": "same"}, "too many are equal"),
    "nothing left": (ColdStart(test=0.6, tune=0.6), {"timestamp": "t"}, "leave none to train on"),
    "a share of 0": (ColdStart(test=0.0), {"timestamp": "t"}, "test must be"),
}


@pytest.mark.parametrize("case", ERRORS)
def test_what_cannot_be_split(case: str) -> None:
    splitter, options, message = ERRORS[case]
    events = {
        "user": [1, 1, 1, 2, 2, 2],
        "item": [1, 2, 3] * 2,
        "t": [0, 1, 2, 4, 5, 7],
        "position": [0, 1, 2] * 2,
        "same": [7] * 6,
        "counted": [1, 2, 3] * 2,
    }
    with pytest.raises((TypeError, ValueError), match=message):
        splitter.split(ep.Dataset(events, **options))


def test_positions_are_told_from_times_before_events_are_left_out() -> None:
    events = {"user": [1, 1, 1, 2, 2, 2], "item": [1, 2, 3] * 2, "t": [0, 1, 2] * 2, "stars": [5, 1, 5, 5, 5, 5]}
    assert ep.Dataset(events, timestamp="t", rating="stars", at_least=3).time_counts
    assert not ep.Dataset({"user": [1, 1], "item": [1, 2], "t": [7, 8]}, timestamp="t").time_counts


def test_nothing_of_a_part_counts() -> None:
    train, test = ({"user": [1, 1], "item": [1, 2], "stars": [stars] * 2} for stars in (5, 1))
    with pytest.raises(ValueError, match="test has no events that count"):
        given_split(train, test, rating="stars", at_least=3)


def test_too_few_events_to_hold_any_out() -> None:
    with pytest.raises(ValueError, match="no user has three events"):
        LeaveLast().split(ep.Dataset({"user": [1, 1, 2], "item": [1, 2, 1]}))
