"""Events that a model was trained on are not what it is evaluated on, unless someone says so."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import everypair as ep
from everypair.evaluation import ColdStart, Cutoff, EarlyStopping, LeaveLast, Queries, RandomPerUser, Split, evaluate
from everypair.evaluation.leaks import trained_on
from everypair.evaluation.queries import of_events

from logs import logs
from settings import COMMON

SPLITTERS = {
    "cold-start": ColdStart(test=0.3, tune=0.3, seed=1),
    "leave-last": LeaveLast(),
    "cutoff": Cutoff(test=0.3, tune=0.3),
    "random": RandomPerUser(test=0.3, tune=0.3, seed=1),
}


def made(name: str, dataset: ep.Dataset) -> Split:
    try:
        return SPLITTERS[name].split(dataset)
    except ValueError:
        assume(False)
        raise


def histories(queries: Queries) -> list[list[int]]:
    m = queries.contexts
    return [m.items[begin:end].tolist() for begin, end in zip(m.begin, m.end, strict=True)]


@pytest.mark.parametrize("name", SPLITTERS)
@given(dataset=logs(), repeats=st.sampled_from(["keep", "sum"]))
def test_the_training_part_of_a_split_has_no_event_of_the_others(name: str, dataset: ep.Dataset, repeats: str) -> None:
    dataset.repeats = repeats
    split = made(name, dataset)
    for queries in (split.tune, split.test):
        assert not trained_on(split.train, queries).any()


@pytest.mark.parametrize("name", SPLITTERS)
@given(dataset=logs())
def test_all_events_together_have_those_that_are_held_out(name: str, dataset: ep.Dataset) -> None:
    split = made(name, dataset)
    for queries in (split.tune, split.test):
        assert trained_on(dataset, queries).all()


@pytest.mark.parametrize("name", SPLITTERS)
@given(dataset=logs())
def test_occurrences_are_counted_by_hand(name: str, dataset: ep.Dataset) -> None:
    queries = made(name, dataset).test
    m, seen, elsewhere = queries.contexts, [], []
    for q, history in enumerate(histories(queries)):
        if name == "cold-start":
            own, at = history, None
        else:
            own = m.items[m.bounds[m.user[q]] : m.bounds[m.user[q] + 1]].tolist()
            at = int(m.end[q] - m.begin[q])
        for item in queries.relevant[queries.bounds[q] : queries.bounds[q + 1]].tolist():
            seen.append(history.count(item))
            elsewhere.append(own.count(item) - (at is not None and own[at : at + 1] == [item]))
    assert queries.times_seen.tolist() == seen
    assert queries.times_elsewhere.tolist() == elsewhere


@given(dataset=logs(), data=st.data())
def test_events_held_out_at_random(dataset: ep.Dataset, data: st.DataObject) -> None:
    """Users return to items: other events of the same pair are trained on, before the one held out and after it."""
    held = np.array(data.draw(st.lists(st.booleans(), min_size=len(dataset), max_size=len(dataset))))
    queries = of_events(dataset, np.flatnonzero(held))
    assert not trained_on(dataset.subset(~held), queries).any()
    assert trained_on(dataset, queries).all()


@pytest.fixture(scope="module")
def dataset() -> ep.Dataset:
    return ep.datasets.youtube_like(60, 30, seed=5, events_per_user=8)


def test_evaluate_refuses_them_unless_told(dataset: ep.Dataset) -> None:
    split = LeaveLast().split(dataset)
    leaking = ep.Recommender(ep.MF(**COMMON)).fit(dataset)
    with pytest.raises(ValueError, match=r"60 of 60 relevant items .* trained on, such as item .* allow_trained=True"):
        evaluate(leaking, split.test, exclude_seen=False)
    told = evaluate(leaking, split.test, exclude_seen=False, allow_trained=True)
    assert any(note.startswith("60 of 60 relevant items were trained on") for note in told.notes)
    clean = evaluate(ep.Recommender(ep.MF(**COMMON)).fit(split.train), split.test, exclude_seen=False, allow_trained=True)
    assert not any("trained on" in note for note in clean.notes)


def test_validation_refuses_them_before_the_first_epoch(dataset: ep.Dataset) -> None:
    split = LeaveLast().split(dataset)
    recommender = ep.Recommender(ep.MF(**COMMON))
    with pytest.raises(ValueError, match=r"60 of 60 relevant items .* allow_trained=True"):
        recommender.fit(dataset, validation=split.tune)
    with pytest.raises(ep.NotFittedError):
        _ = recommender.state
    assert recommender.fit(dataset, validation=split.tune, allow_trained=True).validation_ is not None
    with pytest.raises(ValueError, match="60 of 60 relevant items"):
        recommender.fit(dataset, callback=EarlyStopping(split.tune))
    recommender.fit(dataset, callback=EarlyStopping(split.tune, allow_trained=True))


def test_test_events_that_came_with_an_update(dataset: ep.Dataset) -> None:
    split = LeaveLast().split(dataset)
    recommender = ep.Recommender(ep.MF(**COMMON)).fit(split.train)
    evaluate(recommender, split.test)
    last = dataset.subset(dataset.bounds[1:] - 1)
    more = {"user": last.users.take(last.user), "item": last.items.take(last.item)}
    more |= {dataset.timestamp: np.asarray(last.time)} if dataset.timestamp else {}
    recommender.update(more)
    with pytest.raises(ValueError, match="60 of 60 relevant items"):
        evaluate(recommender, split.test)


def test_ids_of_another_dataset_are_compared_by_what_they_are(dataset: ep.Dataset) -> None:
    """A dataset that has more users than the split has other codes for the same ids."""
    split = LeaveLast().split(dataset)
    more = dataset.extended(users={dataset.user_column: ["a new user"]}) if dataset.users.kind != "integers" else None
    assert more is not None
    assert not more.users.same(dataset.users)
    assert trained_on(more, split.test).all()
    assert not trained_on(split.train.extended(users={dataset.user_column: ["a new user"]}), split.test).any()
