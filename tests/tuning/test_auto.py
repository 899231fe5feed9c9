"""``auto``: the default is among the trials, the choice can be made again, and what is seen in the data decides what is tried."""

from __future__ import annotations

import json
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import done, refused

import everypair as ep
from everypair.tuning.structures import Looked, held_out, structures


@pytest.fixture(scope="module")
def dataset() -> ep.Dataset:
    return ep.datasets.youtube_like(120, 40, seed=3, events_per_user=8)


@pytest.fixture(scope="module")
def found(dataset: ep.Dataset) -> ep.tuning.Auto:
    return ep.auto(dataset, trials=9, seed=1, tell=None)


def bits(recommender: ep.Recommender) -> bytes:
    return b"".join(value.tobytes() for value in recommender.model.parameters_.values())  # type: ignore[attr-defined]


def test_the_default_is_the_first_trial_and_the_best_is_chosen(found: ep.tuning.Auto) -> None:
    assert len(found.trials) == 9
    assert found.trials[0].changed == {}
    assert found.trials[0].structure.context == tuple(ep.Recommender.sequence().context)
    assert found.best.value == max(trial.value for trial in found.trials) >= found.trials[0].value
    assert len({trial.structure.name for trial in found.trials}) > 2
    assert max(trial.factors for trial in found.trials) == 40 > min(trial.factors for trial in found.trials)


def test_the_same_call_finds_the_same_on_any_number_of_threads(found: ep.tuning.Auto, dataset: ep.Dataset) -> None:
    again = ep.auto(dataset, trials=9, seed=1, n_threads=2, tell=None)
    assert [(t.structure.name, t.settings, t.value) for t in again.trials] == [
        (t.structure.name, t.settings, t.value) for t in found.trials
    ]
    assert bits(again.recommender) == bits(found.recommender)


def test_the_value_is_that_of_the_settings(found: ep.tuning.Auto, dataset: ep.Dataset) -> None:
    split = held_out(dataset, found.looked, 1)
    fitted = found.best.recommender.fit(split.train)
    value = ep.evaluation.evaluate(fitted, split.tune, ["ndcg@10"])["ndcg@10"]
    assert value == found.best.value


def test_code_and_toml_reproduce_the_bits(found: ep.tuning.Auto, dataset: ep.Dataset) -> None:
    made: dict[str, Any] = {}
    exec(found.code, made)
    assert bits(made["recommender"].fit(dataset)) == bits(found.recommender)
    assert found.code in repr(found)
    assert found.reason in repr(found)


def test_settings_with_weights_of_events_are_whole(found: ep.tuning.Auto, dataset: ep.Dataset) -> None:
    structure = found.best.structure.weighing("late", ep.EventWeights(decay=0.9, half_life="30d"))
    best = replace(found.best, structure=structure)
    other = replace(found, best=best)
    made: dict[str, Any] = {}
    exec(other.code, made)
    assert made["recommender"].event_weights == structure.event_weights
    assert bits(made["recommender"].fit(dataset)) == bits(best.recommender.fit(dataset))
    assert tomllib.loads(other.toml)["recommender"]["event_weights"] == "half_life=30d,decay=0.9"


def test_what_is_told(dataset: ep.Dataset) -> None:
    lines: list[str] = []
    found = ep.auto(dataset, trials=3, tell=lines.append)
    assert "120 users and 40 items, in the order of time" in lines[0]
    assert [line.split()[0] for line in lines[-4:-1]] == ["0", "1", "2"]
    assert lines[-1] == found.reason


def test_time_that_is_over_at_once_leaves_the_default(dataset: ep.Dataset) -> None:
    found = ep.auto(dataset, 1e-6, tell=None)
    assert len(found.trials) == 1
    assert found.best is found.trials[0]
    assert "nothing that was tried is better" in found.reason


def shuffled(dataset: ep.Dataset, **options: Any) -> ep.Dataset:
    """The same events in no order."""
    order = np.random.default_rng(0).permutation(len(dataset))
    return ep.Dataset({"user": dataset.user[order], "item": dataset.item[order]}, **options)


def test_without_an_order_nothing_follows_it(dataset: ep.Dataset) -> None:
    found = ep.auto(shuffled(dataset), trials=3, tell=None)
    assert {trial.structure.name.partition(",")[0] for trial in found.trials} == {"users"}
    assert not found.looked.ordered


def test_repeated_events_keep_seen_items() -> None:
    random = np.random.default_rng(0)
    events = {"user": np.repeat(np.arange(30), 10), "item": random.integers(0, 5, 300)}
    looked = Looked.at(ep.Dataset(events, chronological=True))
    assert looked.repeated > 0.3
    assert not looked.exclude_seen


def test_attributes_and_times_are_seen(dataset: ep.Dataset) -> None:
    looked = Looked.at(dataset)
    assert looked.users == (ep.Attributes("age", "gender", "country", "device"),)
    assert looked.items == (ep.Attributes("category", "language"),)
    assert isinstance(looked.half_life, float)
    names = [structure.name for structure in structures(looked)]
    assert names[0] == "sequence"
    assert {"sequence by time", "sequence, attributes of items", "sequence, attributes of users and items"} < set(names)


def test_titles_are_left_out_and_vectors_are_used() -> None:
    events = {"user": np.repeat(np.arange(8), 4), "item": np.tile(np.arange(4), 8)}
    items = {"item": np.arange(4), "title": list("abcd"), "kind": list("aabb"), "text": [[0.1, 0.2]] * 4, "tags": [["x"]] * 4}
    looked = Looked.at(ep.Dataset(events, items=items, chronological=True))
    assert looked.items == (ep.Attributes("kind", "tags"), ep.Vectors("text"))
    assert looked.half_life is None


@pytest.mark.parametrize("ordered", [True, False])
def test_held_out_events_are_not_trained_on(dataset: ep.Dataset, ordered: bool) -> None:
    data = dataset if ordered else shuffled(dataset)
    split = held_out(data, Looked.at(data), 0)
    assert len(split.train) + len(split.tune.relevant) == len(data)
    if ordered:
        users = split.tune.user
        np.testing.assert_array_equal(split.tune.relevant, data.item[data.bounds[users + 1] - 1])
    ep.Recommender(ep.MF(factors=2, epochs=1)).fit(split.train, validation=split.tune)  # refuses events that were trained on


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"seconds": 5, "trials": 3}, "either seconds or trials"),
        ({"trials": 0}, "trials must be"),
        ({"seconds": 0}, "seconds must be"),
        ({"metric": "accuracy"}, "accuracy"),
        ({"seed": -1, "trials": 1}, "seed must be"),
    ],
)
def test_wrong_arguments_are_refused(arguments: dict[str, Any], message: str, dataset: ep.Dataset) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        ep.auto(dataset, tell=None, **arguments)


def test_data_with_nothing_to_hold_out_is_refused() -> None:
    with pytest.raises(ValueError, match="no user has 3 events"):
        ep.auto(ep.Dataset({"user": [1, 1, 2], "item": [1, 2, 1]}, chronological=True), trials=1, tell=None)


@pytest.fixture
def plays(dataset: ep.Dataset, tmp_path: Path) -> Path:
    rows = zip(dataset.user.tolist(), dataset.item.tolist(), range(len(dataset)), strict=True)
    (tmp_path / "plays.csv").write_text("user,item,when\n" + "".join(f"{u},{i},{t}\n" for u, i, t in rows))
    return tmp_path / "plays.csv"


def test_the_command_line(plays: Path) -> None:
    """It tells what it tried, and the settings of the model make the same one again."""
    one, two = plays.parent / "one", plays.parent / "two"
    told = done("fit", plays, "--timestamp", "when", "--auto", "3", "--metric", "recall@5", "--out", one)
    assert "recall@5" in told.stderr
    assert "trials" in told.stderr
    (plays.parent / "settings.toml").write_text(done("inspect", one, "--toml").stdout)
    done("fit", plays, "--config", plays.parent / "settings.toml", "--out", two)
    assert bits(ep.load(one)) == bits(ep.load(two))
    assert json.loads((one / "manifest.json").read_text())["evaluation"]["protocol"] == "held out for tuning"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--auto", "soon"], "neither a time"),
        (["--auto", "2", "--model", "mf", "--context", "user"], "leave out --model, --context"),
        (["--auto", "2", "--validation", "leave-last"], "leave out --validation"),
    ],
)
def test_wrong_options_are_refused(plays: Path, options: list[str], message: str) -> None:
    refused(2, message, "fit", plays, *options, "--out", plays.parent / "model")
