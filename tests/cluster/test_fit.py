"""Fits on shards: the recommender is that of one machine, and its bits do not depend on the number of processes."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sharded
from sharded import fit_in_threads

import everypair as ep
from everypair.cluster import processes as launching
from everypair.cluster.fit import this_machine
from everypair.persistence.checkpoint import Checkpoint, last_state
from everypair.runtime.group import GroupError
from everypair.towers import Embedding, Smooth

EVERYTHING = [ep.UserId(), ep.Attributes(), ep.Attributes("device"), ep.Previous(), ep.History(last=4)]
OPTIONS: dict[str, Any] = {"epochs": 3, "dtype": "float64", "n_threads": 1}
FITS: dict[str, Callable[[], ep.Recommender]] = {
    "MF": lambda: ep.Recommender(ep.MF(factors=4, **OPTIONS)),
    "MFSI": lambda: ep.Recommender(ep.MFSI(factors=4, **OPTIONS), context=[ep.UserId(), ep.Attributes("age", "country")]),
    "FM by user": lambda: ep.Recommender(
        ep.FM(factors=4, **OPTIONS), context=[ep.UserId(), ep.Attributes()], item=[ep.ItemId(), ep.Attributes()]
    ),
    "FM": lambda: ep.Recommender(ep.FM(factors=4, **OPTIONS), context=EVERYTHING, item=[ep.ItemId(), ep.Attributes("kind")]),
    "FM without users": lambda: ep.Recommender(ep.FM(factors=4, **OPTIONS), context=[ep.Attributes("country"), ep.Previous(2)]),
    "numbers": lambda: ep.Recommender(
        ep.FM(factors=4, **OPTIONS), context=[ep.UserId(), ep.Attributes("age", kind="value"), ep.Previous()]
    ),
    "PARAFAC": lambda: ep.Recommender(ep.PARAFAC(factors=4, **OPTIONS), context=[ep.UserId(), ep.Previous()]),
    "Tucker": lambda: ep.Recommender(ep.Tucker(factors=(3, 2, 4), **OPTIONS), context=[ep.UserId(), ep.Previous()]),
}


def content(recommender: ep.Recommender) -> dict[str, bytes]:
    values = {name: value.tobytes() for name, value in recommender.model.parameters_.items()}
    return {**values, "objectives": np.array([epoch[1:5] for epoch in recommender.model.history_]).tobytes()}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> ep.Shards:
    return sharded.shards(tmp_path_factory.mktemp("data"))


@pytest.mark.parametrize("name", FITS)
def test_the_recommender_is_that_of_one_machine(name: str, data: ep.Shards, tmp_path: Path) -> None:
    one = FITS[name]().fit(data.dataset())
    found, _ = fit_in_threads(FITS[name](), data, tmp_path / "a", processes=1)
    np.testing.assert_allclose([e.objective for e in found.model.history_], [e.objective for e in one.model.history_], rtol=1e-12)
    for letter, value in one.model.parameters_.items():
        np.testing.assert_allclose(found.model.parameters_[letter], value, rtol=1e-6, atol=1e-8)
    users = one.dataset_.users.values.to_pylist()[::5]
    assert found.recommend(users, 5)["item"].to_pylist() == one.recommend(users, 5)["item"].to_pylist()
    assert found.model.stop_reason_ == one.model.stop_reason_ == "epochs"
    again, _ = fit_in_threads(FITS[name](), data, tmp_path / "b", processes=4)
    assert content(again) == content(found)


def test_it_is_an_ordinary_recommender_afterwards(data: ep.Shards, tmp_path: Path) -> None:
    found, _ = fit_in_threads(FITS["FM"](), data, tmp_path / "job", processes=2)
    found.save(tmp_path / "model")
    opened = ep.load(tmp_path / "model")
    request = {"country": "de", "history": ["i1", "i2"], "device": "tv"}
    assert opened.recommend(requests=[request]).equals(found.recommend(requests=[request]))
    assert found.explain(found.dataset_.users[0], "i1").table.num_rows > 0
    assert found.similar_items(["i1"], 3).num_rows == 3
    found.recommend_all(tmp_path / "all.parquet", n=3)
    found.update({"user": ["u1", "new"], "item": ["i1", "i2"], "t": [90, 91], "device": ["tv", "tv"]})
    assert opened.model.history_ == found.model.history_


def all_combinations() -> ep.Recommender:
    model = ep.PARAFAC(factors=2, combinations="all", unobserved_weight=0.1)
    return ep.Recommender(model, context=[ep.UserId(), ep.Attributes("country")])


class Slopes(Smooth):
    """A tower whose steps the shards do not add up."""

    n_dims = 2

    def start(self, rows: Any, normal: Any) -> Any:
        return {"slope": normal((1, 2))}

    def phi(self, p: Any, rows: Any) -> Any:
        return np.repeat(p["slope"], rows.n, axis=0)

    def coordinates(self, p: Any, rows: Any) -> Any:
        return []

    def derivatives(self, p: Any, rows: Any, at: Any) -> Any:
        raise AssertionError


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ep.Recommender(ep.FM(factors=2, field_solver="cd")), "field_solver='block', got 'cd'"),
        (lambda: ep.Recommender(ep.MF(factors=2, order="dimension")), "order='side', got 'dimension'"),
        (lambda: ep.Recommender(ep.MF(factors=2, block_size=2)), "block_size=1, got 2"),
        (lambda: ep.Recommender(ep.MF(factors=2, device="cuda")), "runs on the CPU only"),
        (lambda: all_combinations(), "all combinations"),
        (lambda: ep.Recommender(ep.MF(factors=2), context=[ep.Attributes("country")]), "these must be users"),
    ],
)  # fmt: skip
def test_what_is_not_supported_is_refused_before_the_first_epoch(make: Any, message: str, data: ep.Shards, tmp_path: Path) -> None:
    with pytest.raises((ValueError, GroupError, ep.DeviceError), match=message):
        fit_in_threads(make(), data, tmp_path)


def test_towers_of_ones_own_are_refused(tmp_path: Path) -> None:
    from shards import fit_on_shards

    feedback = ep.Feedback([0, 1, 2, 3], [0, 1, 0, 1])
    with pytest.raises((ValueError, GroupError), match="cannot be the tower of contexts"):
        fit_on_shards(lambda: ep.Separable(context=Slopes(), item=Embedding(2), epochs=1), feedback, 2)


def test_arguments_are_refused_before_anything_starts(data: ep.Shards) -> None:
    on = ep.Processes(2)
    for recommender, dataset, options, message in (
        (ep.Recommender(ep.MF()), data.dataset(), {}, "takes everypair.Shards, got Dataset"),
        (ep.Recommender(ep.Popularity()), data, {}, "only models with factors"),
        (ep.Recommender(ep.MF()), data, {"on": ep.Processes(8)}, "are more than the 4 shards"),
        (ep.Recommender(ep.MF()), data, {"callback": print}, "takes no callback"),
        (ep.Recommender(ep.MF()), data, {"on": "ray"}, "on must be"),
        (ep.Recommender(ep.MF(factors=0)), data, {}, "factors"),
        (ep.Recommender(ep.MF()), data, {"checkpoint": 3}, "checkpoint must be the path"),
    ):
        with pytest.raises((ValueError, TypeError), match=message):
            recommender.fit(dataset, **{"on": on, **options})


def test_rounds_and_bytes_are_those_of_the_cost_model(data: ep.Shards, tmp_path: Path) -> None:
    """At most k/16 + 12 rounds in an epoch of MF, and (one-hot fields + 6 per overlapping field) k/16 + 30 in one of an FM."""

    def of_epoch(make: Callable[[int], ep.Recommender]) -> tuple[int, float]:
        short, long = (fit_in_threads(make(epochs), data, tmp_path / str(epochs))[1] for epochs in (2, 6))
        return (long.rounds - short.rounds) / 4, (long.summed - short.summed) / 4

    k, items = 32, data.dataset().n_items
    tmp_path /= "mf"
    rounds, summed = of_epoch(lambda epochs: ep.Recommender(ep.MF(factors=k, epochs=epochs)))
    assert rounds <= k / 16 + 12
    assert summed <= items * (k / 16) * 152 * 8 + 12 * (k * k + 16) * 8  # of each item 16 slopes and half a matrix; Grams
    tmp_path = tmp_path.parent / "fm"
    context, item = (
        [ep.UserId(), ep.Attributes("country", "tags"), ep.Previous(), ep.History()],
        [ep.ItemId(), ep.Attributes("kind")],
    )
    rounds, _ = of_epoch(lambda epochs: ep.Recommender(ep.FM(factors=k, epochs=epochs), context=context, item=item))
    assert rounds <= (5 + 6 * 2) * (k / 16) + 30


def test_a_fit_resumes_on_fewer_processes_to_the_same_bits(data: ep.Shards, tmp_path: Path) -> None:
    whole, _ = fit_in_threads(FITS["FM"](), data, tmp_path / "whole")
    some = FITS["FM"]().set_params(model__epochs=2)
    fit_in_threads(some, data, tmp_path / "part", processes=4)
    for processes in (2, 1):
        found, counts = fit_in_threads(FITS["FM"](), data, tmp_path / "part", processes)
        assert content(found) == content(whole)
    assert counts.rounds < 80, "nothing was left to do"


@pytest.mark.parametrize("seed", range(6))
def test_a_shard_that_fails_at_any_moment_costs_an_epoch_at_most(
    seed: int, data: ep.Shards, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the middle of a sum, or with a full disk; the fit goes on from the last epoch that all have, to the same bits."""
    whole, _ = fit_in_threads(FITS["MF"](), data, tmp_path / "whole")
    random = np.random.default_rng(seed)
    written, moment, shard = threading.Lock(), int(random.integers(0, 9)), int(random.integers(0, 4))
    count = [0]
    write = Checkpoint.write

    def fails(self: Checkpoint, state: Any) -> bool:
        with written:
            count[0] += 1
            if count[0] > moment and f"shard-{shard:04d}" in str(self._folder.path):
                raise OSError(28, "No space left on device")
        return write(self, state)

    with monkeypatch.context() as patched:
        patched.setattr(Checkpoint, "write", fails)
        with pytest.raises((OSError, GroupError), match="No space left"):
            fit_in_threads(FITS["MF"](), data, tmp_path / "job", processes=1 + seed % 4)
    found, _ = fit_in_threads(FITS["MF"](), data, tmp_path / "job", processes=1 + seed % 2)
    assert content(found) == content(whole)


def test_machines_that_differ_are_refused(data: ep.Shards, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said, lock = iter(["a", "b", "b", "b"]), threading.Lock()

    def another() -> dict[str, str]:
        with lock:
            return {**this_machine(), "processor": next(said)}

    monkeypatch.setattr("everypair.cluster.fit.this_machine", another)
    with pytest.raises(GroupError, match="must have the same processor"):
        fit_in_threads(FITS["MF"](), data, tmp_path)


# with processes of their own


def recommender_of(epochs: int) -> ep.Recommender:
    return ep.Recommender(ep.MF(factors=8, epochs=epochs, dtype="float64"))


@pytest.mark.full
def test_processes(data: ep.Shards) -> None:
    expected = None
    for n, threads in ((1, 2), (2, 1), (4, 1)):
        on = ep.Processes(n, threads=threads)
        found = content(FITS["FM"]().fit(data, on=on))
        expected = expected or found
        assert found == expected
        assert len(on.counts_) == n
        assert (on.counts_[0].sent > 0) == (n > 1)


@pytest.mark.full
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_process_that_is_killed_or_stopped_ends_the_fit(
    how: signal.Signals, data: ep.Shards, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the fit goes on from its checkpoint, on fewer processes."""
    fit_in_threads(recommender_of(2), data, tmp_path.parent / f"{tmp_path.name} first")  # kernels are compiled
    started: list[Any] = []

    class Known(launching._Started):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            started.append(self)

    monkeypatch.setattr(launching, "_Started", Known)

    def strike() -> None:
        states = [tmp_path / f"shard-{shard:04d}" / slot / "manifest.json" for shard in range(4) for slot in ("even", "odd")]
        until = time.monotonic() + 60
        while not all(state.exists() for state in states) and time.monotonic() < until:
            time.sleep(0.01)
        os.kill(started[1].pid, how)

    striker = threading.Thread(target=strike)
    striker.start()
    with pytest.raises(GroupError, match="process 1"):
        recommender_of(100_000).fit(data, on=ep.Processes(2, threads=1, timeout=5.0), checkpoint=tmp_path)
    striker.join()
    epochs = 3 + max(len(last_state(tmp_path / f"shard-{shard:04d}").history) for shard in range(4))
    found = recommender_of(epochs).fit(data, on=ep.Processes(1, threads=1), checkpoint=tmp_path)
    whole, _ = fit_in_threads(recommender_of(epochs), data, tmp_path.parent / f"{tmp_path.name} whole", every=1_000)
    assert content(found) == content(whole)


def test_errors_of_a_process_are_those_of_the_fit(data: ep.Shards) -> None:
    with pytest.raises(ValueError, match="all combinations"):
        ep.Recommender(ep.PARAFAC(factors=2, combinations="all", unobserved_weight=0.1), context=[ep.UserId(), ep.Previous()]).fit(
            data, on=ep.Processes(2, threads=1)
        )


def test_a_job_is_plain_data(data: ep.Shards, tmp_path: Path) -> None:
    from everypair.cluster.fit import FitJob

    recommender = FITS["FM"]()
    recipes = {"context": recommender.context, "item": recommender.item}
    job = FitJob.of(recommender.model, recipes, "auto", data, tmp_path, 1)  # type: ignore[arg-type]
    assert FitJob(**json.loads(json.dumps(job._asdict()))) == job
