"""Early stopping keeps the model of the best epoch, bit for bit, however the fit ends."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import everypair as ep
from everypair.evaluation import EarlyStopping, LeaveLast, Split, evaluate

COMMON: dict[str, Any] = {"epochs": 9, "unobserved_weight": 0.1, "regularization": 0.01}
RECOMMENDERS: dict[str, tuple[Any, list[Any]]] = {
    "MF": (ep.MF, [ep.UserId()]),
    "FM": (ep.FM, [ep.UserId(), ep.Attributes("country"), ep.Previous()]),
    "PARAFAC": (ep.PARAFAC, [ep.UserId(), ep.Previous()]),
}


@pytest.fixture(scope="module")
def split() -> Split:
    return LeaveLast().split(ep.datasets.youtube_like(60, 30, seed=0, events_per_user=8))


def make(name: str = "MF", **settings: Any) -> ep.Recommender:
    model, context = RECOMMENDERS[name]
    return ep.Recommender(model(4, **{**COMMON, **settings}), context)


def assert_same(one: ep.Recommender, other: ep.Recommender, split: Split) -> None:
    """The same parameters, and the same lists: nothing that was computed of others is kept."""
    for name, value in one.model.parameters_.items():  # type: ignore[attr-defined]
        np.testing.assert_array_equal(value, other.model.parameters_[name], err_msg=name)  # type: ignore[attr-defined]
    for found, expected in zip(*(r.rank(split.tune.moments, 5) for r in (one, other)), strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("name", RECOMMENDERS)
def test_the_model_is_that_of_the_best_epoch(name: str, split: Split) -> None:
    recommender = make(name).fit(split.train, validation=split.tune, metric="ndcg@5")
    stopping = recommender.validation_
    assert stopping is not None
    best = stopping.best_epoch
    assert best is not None
    assert best < max(stopping.values), "or there would be nothing to put back"
    assert_same(recommender, make(name, epochs=best).fit(split.train), split)
    assert evaluate(recommender, split.tune, ["ndcg@5"])["ndcg@5"] == stopping.best_value == max(stopping.values.values())


@pytest.mark.parametrize("name", RECOMMENDERS)
def test_the_best_epoch_of_a_fit_that_runs_to_its_end(name: str, split: Split) -> None:
    stopping = EarlyStopping(split.tune, "ndcg@5", patience=99)
    recommender = make(name).fit(split.train, callback=stopping)
    assert list(stopping.values) == list(range(1, 10))
    assert stopping.best_epoch is not None
    assert_same(recommender, make(name, epochs=stopping.best_epoch).fit(split.train), split)


@pytest.mark.parametrize(("patience", "every"), [(1, 1), (2, 1), (1, 2), (2, 4)])
def test_when_it_stops(split: Split, patience: int, every: int) -> None:
    """After so many evaluations in a row without a better value: as the values of a whole fit tell."""
    whole = EarlyStopping(split.tune, "ndcg@5", patience=99)
    make().fit(split.train, callback=whole)
    expected: dict[int, float] = {}
    for epoch, value in whole.values.items():
        if epoch % every and epoch != 9:
            continue
        expected[epoch] = value
        since_best = [e for e in expected if e > max(expected, key=lambda e: expected[e])]
        if len(since_best) == patience:
            break
    found = EarlyStopping(split.tune, "ndcg@5", patience=patience, every=every)
    make().fit(split.train, callback=found)
    assert found.values == expected


def test_other_ends_keep_the_best_epoch_too(split: Split) -> None:
    """A callback of the user's, and ``tol``."""
    whole = EarlyStopping(split.tune, "ndcg@5", patience=99)
    make().fit(split.train, callback=whole)
    seen: list[int] = []

    def until_five(recommender: ep.Recommender, epoch: ep.Epoch) -> bool:
        seen.append(epoch.epoch)
        return epoch.epoch == 5

    options: dict[str, Any] = {"validation": split.tune, "metric": "ndcg@5", "patience": 99}
    stopped = make().fit(split.train, until_five, **options)
    by_tol = make(tol=0.5).fit(split.train, **options)
    assert seen == [1, 2, 3, 4, 5]
    assert by_tol.model.stop_reason_ == "tol"  # type: ignore[attr-defined]
    for recommender in (stopped, by_tol):
        stopping = recommender.validation_
        assert stopping is not None
        assert stopping.best_epoch is not None
        assert stopping.values.items() <= whole.values.items()
        assert_same(recommender, make(epochs=stopping.best_epoch).fit(split.train), split)


def test_another_fit_begins_anew(split: Split) -> None:
    stopping = EarlyStopping(split.tune, "ndcg@5", every=2)
    recommender = make().fit(split.train, callback=stopping)
    values = stopping.values
    recommender.fit(split.train, callback=stopping)
    assert stopping.values == values
    assert recommender.fit(split.train).validation_ is None


def test_a_fit_that_goes_on_later(split: Split) -> None:
    """What was seen before the break counts: the best epoch, its parameters, and the evaluations since."""
    saved: dict[str, Any] = {}

    def save(recommender: ep.Recommender, epoch: ep.Epoch) -> bool:
        stop = first(recommender, epoch)
        if epoch.epoch == first.best_epoch or epoch.epoch == (first.best_epoch or 0) + 1:
            saved.update(state=json.dumps(first.state()), arrays=first.arrays(), epoch=epoch)
        return stop

    first = EarlyStopping(split.tune, "ndcg@5", patience=2)
    whole = make().fit(split.train, save)
    second = EarlyStopping(split.tune, "ndcg@5", patience=2)
    recommender = make(epochs=saved["epoch"].epoch).fit(split.train)
    second.resume(recommender, json.loads(saved["state"]), saved["arrays"])
    assert second.best_epoch == first.best_epoch
    recommender.model.set_params(epochs=9)
    # worse than the best, once more: the one that is left
    recommender.model._towers["item"].parameters["H"].value[...] = 0.0  # type: ignore[attr-defined]
    assert second(recommender, saved["epoch"]._replace(epoch=saved["epoch"].epoch + 1))
    for name, value in whole.model.parameters_.items():  # type: ignore[attr-defined]
        np.testing.assert_array_equal(recommender.model.parameters_[name], value)  # type: ignore[attr-defined]


WRONG: dict[str, tuple[Any, str]] = {
    "a split": (lambda r, s: r.fit(s.train, validation=s), "split.tune or other Queries of a split, got Split"),
    "no metric": (lambda r, s: r.fit(s.train, validation=s.tune, metric="auc"), "such as 'ndcg@10', got 'auc'"),
    "no patience": (lambda r, s: r.fit(s.train, validation=s.tune, patience=0), "patience must be at least 1"),
    "never": (lambda r, s: r.fit(s.train, validation=s.tune, evaluate_every=0), "every must be at least 1"),
    "no epochs": (
        lambda r, s: ep.Recommender(ep.Popularity()).fit(s.train, validation=s.tune),
        r"only models that are trained by epochs .* got Popularity\(\)",
    ),
    "another metric": (
        lambda r, s: EarlyStopping(s.tune, "ndcg@5").resume(r, {"metric": "ndcg@10", "values": []}, {}),
        "watched by ndcg@10, got metric='ndcg@5'",
    ),
    "too far": (
        lambda r, s: EarlyStopping(s.tune).resume(r, {"metric": "ndcg@10", "values": [[3, 0.5]]}, {}),
        "of epoch 3, the fit has come to epoch 1",
    ),
    "other arrays": (
        lambda r, s: EarlyStopping(s.tune).resume(r, {"metric": "ndcg@10", "values": [[1, 0.5]]}, {"W": np.ones((2, 2))}),
        r"the best parameters of the model \(W, H\), got shapes \{'W': \(2, 2\)\}",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_refused(case: str, split: Split) -> None:
    attempt, message = WRONG[case]
    with pytest.raises((TypeError, ValueError), match=message):
        attempt(make(epochs=1).fit(split.train), split)
