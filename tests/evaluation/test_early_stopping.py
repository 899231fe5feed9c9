"""Early stopping keeps the model of the best epoch, bit for bit, however the fit ends."""

from __future__ import annotations

import json
import os
import signal
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import everypair as ep
from everypair.evaluation import ColdStart, EarlyStopping, Evaluation, LeaveLast, Split, evaluate

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
    for found, expected in zip(*(r.rank(split.tune.contexts, 5) for r in (one, other)), strict=True):
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
    recommender.model.state.towers["item"].parameters["H"].value[...] = 0.0  # type: ignore[attr-defined]
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
        lambda r, s: EarlyStopping(s.tune, "ndcg@5").resume(r, EarlyStopping(s.tune, "ndcg@10").state(), {}),
        "validated with metric='ndcg@10', got metric='ndcg@5'",
    ),
    "too far": (
        lambda r, s: EarlyStopping(s.tune).resume(r, {**EarlyStopping(s.tune).state(), "values": [[3, 0.5]]}, {}),
        "of epoch 3, the fit has come to epoch 1",
    ),
    "other arrays": (
        lambda r, s: EarlyStopping(s.tune).resume(
            r, {**EarlyStopping(s.tune).state(), "values": [[1, 0.5]]}, {"1 W": np.ones((2, 2))}
        ),
        r"the parameters of epoch 1, with shapes .* got \{'W': \(2, 2\)\}",
    ),
    "a state of something else": (
        lambda r, s: EarlyStopping(s.tune).resume(r, [1, 2], {}),  # type: ignore[arg-type]
        "validated with metric=None, got metric='ndcg@10'",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_refused(case: str, split: Split) -> None:
    attempt, message = WRONG[case]
    with pytest.raises((TypeError, ValueError), match=message):
        attempt(make(epochs=1).fit(split.train), split)


# Checkpoints


def validated(split: Split, folder: Path | None, epochs: int, **options: Any) -> ep.Recommender:
    options = {"validation": split.tune, "metric": "ndcg@5", **options}
    return make(epochs=epochs).fit(split.train, checkpoint=folder, **options)


@pytest.mark.full
@pytest.mark.parametrize("evaluate_every", [1, 2, 3])
@pytest.mark.parametrize("patience", [1, 2, 99])
def test_more_epochs_are_as_if_there_had_been_so_many(split: Split, tmp_path: Path, evaluate_every: int, patience: int) -> None:
    """The last epoch of the shorter fit was evaluated, though it may be none that the longer one evaluates."""
    options: dict[str, Any] = {"evaluate_every": evaluate_every, "patience": patience}
    whole = validated(split, None, 10, **options)
    for first in (4, 5, 7):
        folder = tmp_path / str(first)
        shorter = validated(split, folder, first, **options)
        assert_same(shorter, validated(split, None, first, **options), split)
        assert_same(shorter, validated(split, folder, first, **options), split)
        longer = validated(split, folder, 10, **options)
        assert longer.validation_ is not None
        assert whole.validation_ is not None
        assert longer.validation_.values == whole.validation_.values
        assert longer.validation_.best_epoch == whole.validation_.best_epoch
        assert_same(longer, whole, split)


@pytest.mark.parametrize("seed", range(8))
def test_more_epochs_whatever_the_values(split: Split, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the epoch that was evaluated as the last alone would have ended the longer fit, or was the best of all."""
    values = np.random.default_rng(seed).random(12)

    def found(recommender: Any, queries: Any, metrics: Any, exclude_seen: bool) -> Evaluation:
        value = values[len(recommender.model.history_)]
        return Evaluation({}, {metrics[0]: float(value)}, queries.user, [])

    monkeypatch.setattr("everypair.evaluation.early_stopping.evaluated", found)
    options: dict[str, Any] = {"evaluate_every": 2, "patience": 2}
    whole = validated(split, None, 11, **options)
    for epochs in (3, 5, 6, 11):
        parts = validated(split, tmp_path, epochs, **options)
    assert parts.validation_ is not None
    assert whole.validation_ is not None
    assert parts.validation_.values == whole.validation_.values
    assert_same(parts, whole, split)


def test_other_settings_of_validation_are_refused(split: Split, tmp_path: Path) -> None:
    validated(split, tmp_path, 3)
    others: dict[str, dict[str, Any]] = {
        "metric='ndcg@5', got metric='ndcg@3'": {"metric": "ndcg@3"},
        "every=1, got every=2": {"evaluate_every": 2},
        "patience=2, got patience=3": {"patience": 3},
        "other queries": {"validation": split.test},
    }
    for message, options in others.items():
        with pytest.raises(ValueError, match=f"validated with {message}: continue with the same"):
            validated(split, tmp_path, 4, **options)
    seen = EarlyStopping(split.tune, "ndcg@5", exclude_seen=False)
    with pytest.raises(ValueError, match="validated with exclude_seen=True, got exclude_seen=False"):
        make(epochs=4).fit(split.train, callback=seen, checkpoint=tmp_path)


def test_queries_that_differ_in_an_attribute_alone_are_others(split: Split) -> None:
    queries = split.tune
    attributes = dict(queries.contexts.attributes)
    values, index = attributes["country"]
    attributes["country"] = type(attributes["country"])(values, np.where(np.arange(len(index)) == 0, -1, index))
    other = replace(queries, contexts=replace(queries.contexts, attributes=attributes))
    assert EarlyStopping(queries).state() == EarlyStopping(replace(queries)).state() != EarlyStopping(other).state()


def test_validation_does_not_go_on_for_a_callback_nor_the_other_way_round(split: Split, tmp_path: Path) -> None:
    validated(split, tmp_path / "validation", 3)
    with pytest.raises(ValueError, match=r"a callback with a state .* has none: continue with the same"):
        make(epochs=4).fit(split.train, lambda recommender, epoch: False, checkpoint=tmp_path / "validation")
    make(epochs=3).fit(split.train, lambda recommender, epoch: False, checkpoint=tmp_path / "callback")
    with pytest.raises(ValueError, match=r"a callback with no state, and EarlyStopping.* has one: continue with the same"):
        validated(split, tmp_path / "callback", 4)
    with pytest.raises(ValueError, match=r"had 1 callbacks .* got 0"):
        make(epochs=4).fit(split.train, checkpoint=tmp_path / "callback")


def test_a_checkpoint_of_the_model_alone(split: Split, tmp_path: Path) -> None:
    """It goes on for a recommender, unless a callback remembers something else."""
    feedback = make().fit(split.train).feedback_
    make(epochs=2).model.fit(feedback, checkpoint=tmp_path / "plain")  # type: ignore[attr-defined]
    assert_same(make(epochs=3).fit(split.train, checkpoint=tmp_path / "plain"), make(epochs=3).fit(split.train), split)

    class Remembers:
        def __call__(self, model: Any, epoch: ep.Epoch) -> bool:
            return False

        def state(self) -> dict[str, Any]:
            return {}

        def resume(self, model: Any, state: Any, arrays: Any) -> None: ...

    make(epochs=2).model.fit(feedback, callback=Remembers(), checkpoint=tmp_path / "own")  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="a fit of the model alone, with a callback"):
        make(epochs=3).fit(split.train, Remembers(), checkpoint=tmp_path / "own")


def test_a_fit_that_put_its_best_epoch_back_cannot_go_on(split: Split, tmp_path: Path) -> None:
    def fit(epochs: int) -> ep.Recommender:
        return make(epochs=epochs).fit(split.train, EarlyStopping(split.tune, "ndcg@5", patience=99), checkpoint=tmp_path)

    assert_same(fit(4), fit(4), split)
    with pytest.raises(ValueError, match=r"ended at epoch 4 with the best epoch's parameters.* give fit\(validation=\.\.\.\)"):
        fit(5)


@pytest.mark.parametrize("ends", ["callback", "tol", "epochs"])
def test_ctrl_c_is_told_whatever_else_ends_the_fit(split: Split, tmp_path: Path, ends: str) -> None:
    """And a later call knows that there is nothing to go on with."""
    pressed: list[int] = []

    def stop(recommender: ep.Recommender, epoch: ep.Epoch) -> bool:
        if not pressed:
            pressed.append(epoch.epoch)
            os.kill(os.getpid(), signal.SIGINT)
        return ends == "callback"

    settings: dict[str, Any] = {"tol": {"tol": 0.99}, "epochs": {"epochs": 1}}.get(ends, {})
    models = [make(**settings).fit(split.train, stop, checkpoint=tmp_path).model for _ in range(2)]
    assert [model.stop_reason_ for model in models] == ["interrupt", ends]  # type: ignore[attr-defined]
    assert [len(model.history_) for model in models] == [1, 1]  # type: ignore[attr-defined]


def test_queries_that_popularity_answers_are_told(tmp_path: Path) -> None:
    """The metric is the same after every epoch, and the best is the first: an early stop for no reason."""
    cold = ColdStart(test=0.3, tune=0.3).split(ep.datasets.youtube_like(60, 30, seed=5, events_per_user=8))
    words = f"{len(cold.tune)} of {len(cold.tune)} queries of the validation are answered by the most popular items"
    options: dict[str, Any] = {"validation": cold.tune, "checkpoint": tmp_path}
    for again in (False, True):  # the second time, the fit has ended, and there is nothing to evaluate
        with pytest.warns(ep.FallbackWarning, match=words) if not again else nullcontext([]) as told:
            stopping: Any = make("MF").fit(cold.train, **options).validation_
        assert len(told) == (not again)
        assert not told or told[0].filename == __file__
        assert stopping.by_popularity == len(cold.tune)
        assert repr(stopping).endswith(f"best at epoch 1 of 3, {len(cold.tune)} queries answered by popularity)")


def test_nothing_is_told_where_the_model_answers(split: Split) -> None:
    stopping: Any = make(epochs=2).fit(split.train, validation=split.tune).validation_
    assert stopping.by_popularity == 0
    assert "popularity" not in repr(stopping)
