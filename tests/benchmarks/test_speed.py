"""The benchmark of speed: all contenders minimise the same loss, results are stored and reported, missing libraries are named."""

from __future__ import annotations

import functools
import io
import json
import mmap
import os
import re
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import report
from benchmarks.__main__ import main
from benchmarks.commands import speed as command
from benchmarks.harness import charts, process, section, store, system
from benchmarks.harness.clock import Clock, per_epoch
from benchmarks.harness.process import MeasuredProcess, MissingLibraryError
from benchmarks.harness.run import run
from benchmarks.speed import contenders, cost, data, features, memory, mf, panels, sections, startup, tensors, threads, topn, tuned
from benchmarks.speed.loss import SharedLoss
from benchmarks.speed.setup import QUICK, SpeedSetup
from everypair.reproduce import cost as reproduced_cost

from remotes import LocalWorker, through_json

TINY = QUICK._replace(
    shape=data.PairCounts(60, 40, 400),
    sparse=data.PairCounts(50, 40, 150),
    factors=(2,),
    epochs=3,
    repeats=2,
    events=(8, 12),
    feature_factors=2,
    best_factors=2,
    tuned_factors=2,
    tensor_factors=(2, 2),
    growth=(40, 30, 320),
    cost=(60, (60, 90), 100),
    memory=data.PairCounts(50, 40, 300),
    memory_factors=2,
    top_factors=2,
)
ABSENT = "not installed here"
GENERATED = TINY.shape.name


class Twin(contenders.EveryPairMF):
    """A peer that is no faster."""

    name, settings = "twin", "the same"


class Blind(Twin):
    """One whose epochs cannot be watched."""

    name, watched = "blind", False

    def fit(self, matrix: Any, epochs: int, after: Any = None) -> contenders.Factors:
        return super().fit(matrix, epochs)


class Gone(Twin):
    """One that turns out to be broken."""

    name = "gone"

    def __init__(self, *args: Any, **options: Any) -> None:
        raise ImportError("a file of it is missing")


def costs(events: int, catalogue: list[int], alone: int, *rest: Any) -> reproduced_cost.Costs:
    """As they might come out."""
    problem, names = reproduced_cost.ProblemSize(events, 10, 8, events, 2 * events, events, 0), reproduced_cost.CONTEXTS
    found = [reproduced_cost.Cost(name, problem.grown(events, n), 0.1, 0.001 * n) for name in names for n in catalogue]
    return reproduced_cost.Costs(found, {}, [reproduced_cost.Cost("P", problem.grown(1_000, 500), 1.0, 100.0, extrapolated=True)])


@pytest.fixture
def local(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything in this process, no other library installed, and commands that take no time."""
    for module in sections.SECTIONS.values():
        if hasattr(module, "MeasuredProcess"):
            monkeypatch.setattr(module, "MeasuredProcess", LocalWorker)
    monkeypatch.setattr(contenders, "why_missing", lambda *names: ABSENT)
    monkeypatch.setattr(startup, "_python", lambda code, given="": "[]" if "json.dumps" in code else "0.5")
    monkeypatch.setattr(startup, "_help", lambda: 0.2)
    monkeypatch.setattr(reproduced_cost, "compare", costs)
    monkeypatch.setattr(data, "SMALL", data.PairCounts(20, 15, 60))
    for module, name, value in (
        (cost, "FACTORS", 2),
        (topn, "BEST", 2),
        (features, "EPOCHS", 1),
        (threads, "EPOCHS", 2),
        (panels, "EPOCHS", 2),
    ):
        monkeypatch.setattr(module, name, value)
    monkeypatch.setattr(features.BestModelWorker, "EPOCHS", 1)
    monkeypatch.setitem(tuned.SETTINGS, "epochs", 1)
    monkeypatch.setattr(memory, "FEW", (8, 12))


@pytest.fixture
def peers(local: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two peers that are ourselves, and one that cannot be imported."""
    found = {peer.name: peer for peer in (Twin, Blind, Gone)}
    monkeypatch.setattr(contenders, "PEERS", found)
    monkeypatch.setattr(contenders, "ALL", {contenders.OURS: contenders.EveryPairMF, **found})
    monkeypatch.setattr(contenders, "why_missing", lambda *names: None)


@given(st.integers(0, 10_000), st.floats(0.01, 0.9), st.floats(0.01, 2.0))
def test_the_loss_is_that_of_all_pairs(seed: int, unobserved: float, strength: float) -> None:
    random = np.random.default_rng(seed)
    phi, psi = random.normal(size=(5, 3)), random.normal(size=(4, 3))
    y = sp.csr_matrix((random.random((5, 4)) < 0.4).astype(np.float32))
    observed, s = y.toarray() > 0, phi @ psi.T
    dense = np.where(observed, (s - 1) ** 2, unobserved * s**2).sum() + strength * (np.sum(phi**2) + np.sum(psi**2))
    assert SharedLoss(unobserved, strength).value(y, phi, psi) == pytest.approx(dense)


@given(st.integers(3, 80), st.integers(3, 60), st.integers(10, 900), st.integers(0, 5))
def test_generated_pairs_are_each_there_once(users: int, items: int, pairs: int, seed: int) -> None:
    shape = data.PairCounts(users, items, pairs)
    matrix = data.generate(shape, seed)
    assert matrix.shape == (users, items)
    assert matrix.has_canonical_format
    assert np.all(matrix.data == 1)
    assert matrix.indices.dtype == np.int32
    assert np.all(np.diff(matrix.indptr) >= 1)
    again = data.generate(shape, seed)
    assert np.array_equal(matrix.indices, again.indices)


def test_generated_pairs_do_not_depend_on_how_many_are_drawn_at_once_in_number(monkeypatch: pytest.MonkeyPatch) -> None:
    shape = data.PairCounts(2_000, 1_000, 30_000)
    whole = data.generate(shape)
    monkeypatch.setattr(data, "DRAWS", 700)
    parts = data.generate(shape)
    assert abs(parts.nnz / whole.nnz - 1) < 0.05
    assert np.diff(whole.indptr).max() > 4 * np.median(np.diff(whole.indptr))  # long tails
    counts = np.bincount(whole.indices, minlength=1_000)
    assert counts.max() > 4 * np.median(counts)


def test_pairs_are_read_as_they_were_written(tmp_path: Path) -> None:
    matrix = data.generate(TINY.shape)
    data.write(matrix, tmp_path / "pairs")
    assert (data.read(tmp_path / "pairs") != matrix).nnz == 0
    assert data.count(tmp_path / "pairs") == (*matrix.shape, matrix.nnz)


@pytest.mark.full
@pytest.mark.parametrize("name", contenders.PEERS)
def test_everyone_minimises_the_same_loss(name: str, tmp_path: Path) -> None:
    """With strong L2 there is one minimum: all come to it, and would not with other weights."""
    if contenders.why_unavailable(contenders.PEERS[name]) is not None:
        pytest.skip("not installed")
    loss, k = SharedLoss(0.1, 2.0), 3
    matrix = data.generate(data.PairCounts(300, 120, 4_000))
    data.write(matrix, tmp_path / "pairs")

    def ours(*changed: float) -> float:
        return loss.value(matrix, *contenders.EveryPairMF(SharedLoss(*changed), k, 1).fit(matrix, 80)[:2])

    least = ours(*loss)
    arguments = {"name": name, "pairs": str(tmp_path / "pairs"), "factors": k, "threads": 2, "loss": loss}
    with MeasuredProcess("speed.mf:MFWorker", contenders.PEERS[name].blas, **arguments) as worker:
        assert worker.call("run", epochs=80)["objective"] == pytest.approx(least, rel=1e-3)
    for unobserved, strength in ((0.1, 2.5), (0.1, 1.5), (0.12, 2.0), (0.08, 2.0)):
        assert ours(unobserved, strength) > least * (1 + 1e-3)


@pytest.fixture
def libraries(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Libraries that only record their arguments."""
    given_arguments: dict[str, Any] = {}
    ends = np.ones((3, 2), np.float32), np.ones((4, 2), np.float32)

    class Als:
        def __init__(self, factors: int, **settings: Any) -> None:
            given_arguments.update(settings, factors=factors)
            self.user_factors, self.item_factors = ends

        def fit(self, matrix: Any, show_progress: bool, callback: Any) -> None:
            given_arguments["observed"] = matrix.data
            for epoch in range(given_arguments["iterations"]):
                callback(epoch, 0.1, None)

        def recommend(self, users: Any, seen: Any, N: int, filter_already_liked_items: bool) -> tuple[Any, Any]:
            return np.zeros((len(users), N), np.int32), np.zeros((len(users), N), np.float32)

    class Ials:
        def __init__(self, matrix: Any, **settings: Any) -> None:
            given_arguments.update(settings, observed=matrix.data)
            core = types.SimpleNamespace(user=ends[0], item=ends[1])
            self.trainer = types.SimpleNamespace(core_trainer=core)

        def start_learning(self) -> None: ...

        def run_epoch(self) -> None: ...

    class Cmf:
        def __init__(self, **settings: Any) -> None:
            given_arguments.update(settings)
            self.A_, self.B_ = ends

        def fit(self, matrix: Any) -> None:
            given_arguments["observed"] = matrix.data

    class LightFM:
        def __init__(self, **settings: Any) -> None:
            given_arguments.update(settings)

        def fit_partial(self, pairs: Any, user_features: Any, epochs: int, num_threads: int) -> None:
            assert pairs.shape[0] == user_features.shape[0]
            assert user_features.indices.dtype == np.int32

    fakes = {
        "implicit": {},
        "implicit.cpu": {},
        "lightfm": {"LightFM": LightFM},
        "implicit.cpu.als": {"AlternatingLeastSquares": Als},
        "irspack": {"IALSRecommender": Ials},
        "cmfrec": {"CMF_implicit": Cmf},
    }
    for name, names in fakes.items():
        monkeypatch.setitem(sys.modules, name, types.SimpleNamespace(**names))  # type: ignore[arg-type]
    return given_arguments


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("implicit CG", {"regularization": 2.0, "iterations": 4, "num_threads": 2}),
        ("irspack CG", {"alpha0": 0.1, "reg": 0.2, "nu": 0.0, "loss_type": "ORIGINAL", "solver_type": "CG", "n_threads": 2}),
        ("irspack iALS++", {"solver_type": "IALSPP"}),
        ("cmfrec CG", {"alpha": 8.0, "lambda_": 1.6, "niter": 4, "nthreads": 2, "use_cg": True, "finalize_chol": False}),
    ],
)
def test_units_of_others(name: str, expected: dict[str, Any], libraries: dict[str, Any]) -> None:
    matrix = sp.csr_matrix(np.ones((3, 4), np.float32))
    states: list[Any] = []
    contender = contenders.PEERS[name](SharedLoss(0.1, 0.2), 2, 2)
    factors = contender.fit(matrix, 4, states.append)
    assert {key: libraries[key] for key in expected} == pytest.approx(expected)
    assert libraries["observed"][0] == pytest.approx({"implicit CG": 10.0, "cmfrec CG": 1.0}.get(name, 0.9))
    assert factors.phi.shape == (3, 2)
    assert factors.scale == pytest.approx(1.25 if name == "cmfrec CG" else 1.0)
    assert len(states) == (4 if contender.watched else 0)
    assert all(state.objective is None and state.factors().psi.shape == (4, 2) for state in states)


@pytest.mark.usefixtures("peers")
def test_matrix_factorization_beside_peers() -> None:
    with SpeedSetup(TINY, None, 1) as setup:
        measurement, sparse = mf.plan(setup)
        found = measurement.measure()
        few = sparse.measure()
    assert sparse.arguments["data"] == TINY.sparse.sparse_name
    assert few["users"] == 50
    assert few["pairs"] < 5 * few["users"]
    assert list(few["peers"]) == ["twin", "blind"]
    assert found["left_out"] == {"gone": "a file of it is missing"}
    assert list(found["peers"]) == ["twin", "blind"]
    for peer in found["peers"].values():
        assert {run["epochs"] for run in peer["ours"]} <= {3, 4}  # the same from the same start, up to rounding of the objective
        assert len(peer["seconds"]) == len(peer["epoch"]) == 2
        assert np.all(np.diff([objective for _, objective in peer["curve"]]) < 0)
        assert peer["curve"][-1][1] == pytest.approx(peer["objective"])
    assert len(found["ours"]["curve"]) in (3, 4)
    summary = mf.summarize([{"arguments": through_json(measurement.arguments), "result": found}])
    text = "\n".join(summary.lines)
    assert "twin (the same)" in text
    assert "gone: a file of it is missing" in text
    assert len(summary.targets) == 1
    (drawn,) = summary.charts.values()
    assert drawn.count("<polyline") == 2 * 3


@pytest.mark.usefixtures("local", "libraries")
def test_features_and_recommending_beside_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contenders, "why_missing", lambda *names: None)
    with SpeedSetup(TINY._replace(repeats=1), None, 1, only_peers=["implicit CG"]) as setup:
        epochs, *_ = features.plan(setup)
        result = epochs.measure()
        assert set(result["epoch"]) == {features.IMPLICIT, features.OURS, *features.HISTORIES, features.LIGHTFM}
        summary = features.summarize([{"arguments": epochs.arguments, "result": result}])
        assert [target.quantity for target in summary.targets][:2] == [
            "an epoch of FM U+A+P over implicit's MF epoch",
            "an epoch of FM U+A+P+H(50) over implicit's MF epoch",
        ]
        (everyone,) = topn.plan(setup)
        result = everyone.measure()
        assert 0 <= result["same"] < 1
        summary = topn.summarize([{"arguments": everyone.arguments, "result": result}])
        assert "of the ids are implicit's" in "\n".join(summary.lines)
        monkeypatch.setattr(topn.ImplicitTopN, "__init__", Gone.__init__)
        monkeypatch.setattr(features.FeatureWorker, "_lightfm", Gone.__init__)
        assert everyone.measure()["left_out"] == {topn.IMPLICIT: "a file of it is missing"}
        assert list(epochs.measure()["left_out"]) == [features.LIGHTFM]


@pytest.mark.usefixtures("local", "libraries")
def test_who_is_not_asked_for_does_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contenders, "why_missing", lambda *names: None)
    with SpeedSetup(TINY._replace(repeats=1), None, 1, only_peers=["cmfrec CG"]) as setup:
        (everyone,), (epochs, *_) = topn.plan(setup), features.plan(setup)
        assert everyone.arguments["peers"] == ""
        assert epochs.arguments["peers"] == features.LIGHTFM
        assert everyone.measure()["left_out"] == {topn.IMPLICIT: "not chosen"}
        assert epochs.measure()["left_out"] == {features.IMPLICIT: "not chosen"}


@pytest.mark.usefixtures("local")
def test_what_changes_a_result_tells_it_from_others() -> None:
    def keys(module: Any, setup: SpeedSetup) -> list[dict[str, Any]]:
        return [measurement.arguments for measurement in module.plan(setup)]

    assert keys(mf, SpeedSetup(TINY, None, 1)) != keys(mf, SpeedSetup(TINY._replace(epochs=4), None, 1))
    assert keys(memory, SpeedSetup(TINY, None, 1)) != keys(memory, SpeedSetup(TINY, None, 2))


def test_jobs_and_answers_are_lines() -> None:
    jobs = [
        {"target": "speed.loss:SharedLoss", "arguments": {"strength": 3.0}},
        {"method": "_asdict", "arguments": {}},
        {"method": "nothing", "arguments": {}},
        {"target": "no_such_module:Thing", "arguments": {}},
    ]
    answers = io.StringIO()
    process.serve(io.StringIO("".join(json.dumps(job) + "\n" for job in jobs)), answers)
    made, called, wrong, absent = map(json.loads, answers.getvalue().splitlines())
    assert made == {"result": None}
    assert called == {"result": {"unobserved": 0.01, "strength": 3.0}}
    assert "AttributeError" in wrong["error"]
    assert "no_such_module" in absent["absent"]


def test_the_ratio_is_that_of_medians_and_only_of_what_was_reached() -> None:
    def reached(*seconds: float | None) -> list[Any]:
        return [None if s is None else {"seconds": s, "epochs": 7} for s in seconds]

    assert mf.ratio({"seconds": [4.0, 2.0, 100.0], "ours": reached(1.0, 50.0, 2.0)}) == 0.5
    assert mf.ratio({"seconds": [4.0], "ours": reached(1.0, None)}) is None
    entry = {"arguments": {"factors": 128}, "result": {"pairs": 10_000_000}}
    assert mf.target(entry) == 1 / 2
    assert mf.target({**entry, "arguments": {"factors": 64}}) == 1 / 3
    assert mf.target({**entry, "result": {"pairs": 800_000}}) == 1 / 3


@pytest.mark.usefixtures("peers")
def test_goals_that_are_not_reached_and_runs_that_take_long(tmp_path: Path) -> None:
    data.write(data.generate(TINY.shape), tmp_path / "pairs")
    worker = mf.MFWorker(contenders.OURS, str(tmp_path / "pairs"), 2, 1)
    found = worker.reach({"easy": 1e9, "never": 0.0}, 2)["reached"]
    assert found["never"] is None
    assert found["easy"]["epochs"] == 1
    with SpeedSetup(TINY._replace(repeats=3, patience=0.0), None, 1, only_peers=["twin"]) as setup:
        measurement, _ = mf.plan(setup)
        result = measurement.measure()
    assert len(result["peers"]["twin"]["seconds"]) == 1
    assert len(result["peers"]["twin"]["ours"]) == 3
    result["peers"]["twin"]["ours"][0] = None
    summary = mf.summarize([{"arguments": measurement.arguments, "result": result}])
    assert summary.targets[0][3] is False


def test_a_reported_objective_must_be_the_true_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data.write(data.generate(TINY.shape), tmp_path / "pairs")
    worker = mf.MFWorker(contenders.OURS, str(tmp_path / "pairs"), 2, 1)
    monkeypatch.setattr(worker, "_value", lambda factors: 1.0)
    with pytest.raises(ArithmeticError, match="differs from the exact one"):
        worker.reach({"goal": 0.0}, 1)


@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 3), st.integers(1, 3))
def test_operations_are_what_loops_would_count(observed: int, contexts: int, items: int, k: int) -> None:
    def mode(rows: int, dimensions: int, per_pair: int, per_row: int) -> int:
        return sum(observed * per_pair + rows * per_row for _ in range(dimensions))

    item = mode(items, k, 2, k)
    assert tensors.operations("MF", observed, contexts, items, k) == mode(contexts, k, 2, k) + item
    assert tensors.operations("PARAFAC", observed, contexts, items, k) == 2 * mode(contexts, k, 2, k) + item
    derivatives = 2 * contexts * k * k * k
    core = mode(contexts, k, 2, k) + 2 * contexts * k * k * k
    tucker = 2 * mode(contexts, k, k + 2, k * k) + derivatives + core + item
    assert tensors.operations("Tucker", observed, contexts, items, k) == tucker


@pytest.mark.usefixtures("local")
def test_all_sections_without_any_other_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the command runs them; then again from what was kept, and one by one."""
    monkeypatch.setattr("benchmarks.speed.setup.QUICK", TINY._replace(repeats=1))
    out = tmp_path / "new" / "speed.md"
    done = CliRunner().invoke(main, ["speed", "--quick", "--out", str(out)])
    assert done.exit_code == 0, done.output
    for words in ("implicit CG: not installed here", "lightgcn-gowalla: no data folder was given"):
        assert words in done.stderr
    text = out.read_text()
    for title in ("Machine", "Targets", "Threads", "Features", "Tensors", "Cost", "Start", "Memory", "Recommending to everyone"):
        assert f"\n## {title}\n" in text
    assert ABSENT in text
    named = {path.name for path in (tmp_path / "new" / "speed").iterdir()}
    assert {"results.json", "cost-pairs.svg", "cost-conventional.svg"} < named
    for name in named - {"results.json"}:
        assert f"(speed/{name})" in text
    assert not re.search(r"\bnan\b|\binf\b", text)
    assert str(tmp_path) not in text

    def fail(*args: Any) -> None:
        pytest.fail("it was measured already")

    for module in sections.SECTIONS.values():
        monkeypatch.setattr(module, "measure" if hasattr(module, "measure") else "imports", fail)
    again = CliRunner().invoke(main, ["speed", "--quick", "--out", str(out), "--only", "memory", "--only", "mf", "--json"])
    assert again.exit_code == 0, again.output
    assert json.loads(again.stdout) == json.loads((tmp_path / "new" / "speed" / "results.json").read_text())
    assert out.read_text() == text


def test_the_command_knows_all_sections() -> None:
    assert tuple(sections.SECTIONS) == command.SECTIONS


@pytest.mark.full
def test_separate_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the command runs, with the installed libraries, from a folder outside the repository."""
    monkeypatch.chdir(tmp_path)
    out = tmp_path / "speed.md"
    with SpeedSetup(TINY._replace(repeats=1), None, 2) as setup:
        planned = sections.plan(setup, ["mf"])
        content = run(planned, store.ResultStore(report.results_path(out)), lambda content: report.write(content, out))
    assert [entry["section"] for entry in content["results"]] == ["mf", "mf"]
    assert content["results"][0]["result"]["ours"]["memory"] >= 0
    assert "EveryPair" in out.read_text()


@pytest.mark.full
def test_imports_are_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(startup, "_python", functools.cache(startup._python))  # each once: a complete import takes a second
    monkeypatch.setattr(startup, "WHOLE", startup.LAZY)  # what it imports is imported by OWN, too
    found = startup.imports(1)
    assert {name: len(seconds) for name, seconds in found.items()} == {"lazy": 1, "whole": 1, "own": 1, "help": 1}
    assert min(seconds[0] for seconds in found.values()) > 0


def test_an_object_in_another_process() -> None:
    with MeasuredProcess("speed.loss:SharedLoss", blas=1, unobserved=0.25, strength=0.5) as worker:
        assert worker.call("_asdict") == {"unobserved": 0.25, "strength": 0.5}
        with pytest.raises(RuntimeError, match="loss:SharedLoss: AttributeError"):
            worker.call("nothing")
        assert worker.call("_asdict")["strength"] == 0.5
    with pytest.raises(MissingLibraryError, match="no_such_module"):
        MeasuredProcess("no_such_module:Thing")
    with pytest.raises(RuntimeError, match="TypeError"):
        MeasuredProcess("speed.loss:SharedLoss", wrong=1)
    with MeasuredProcess("speed.loss:SharedLoss") as worker:
        worker._process.kill()
        with pytest.raises(RuntimeError, match="ended unexpectedly"):
            worker.call("_asdict")


def test_the_peak_of_memory_can_be_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    held = process.memory()
    block = mmap.mmap(-1, 30_000_000)  # new pages, whatever the allocator has left of others
    np.frombuffer(block, np.uint8)[:] = 1
    assert process.peak_memory() >= held + 20_000_000
    block.close()
    process.reset_peak_memory()
    assert process.memory() <= process.peak_memory() < held + 20_000_000
    monkeypatch.setattr(process, "STATUS", Path("/nowhere"))
    monkeypatch.setattr(process, "CLEAR", Path("/nowhere"))
    process.reset_peak_memory()
    assert process.peak_memory() > 1_000_000


def test_what_does_not_count_is_not_on_the_clock() -> None:
    clock = Clock()
    assert clock.exclude(lambda: sum(Clock().now() for _ in range(20_000))) >= 0
    counted = clock.now()
    assert 0 <= counted < 0.01


def test_results_are_kept_and_found_by_their_arguments(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    kept = store.ResultStore(path)
    kept.add("mf", {"data": "x", "shapes": (data.PairCounts(1, 2, 3),)}, {"value": float("inf")})
    kept.add("mf", {"data": "y"}, {"value": 1})
    kept.add("mf", {"data": "y"}, {"value": 2})
    again = store.ResultStore(path)
    assert again.find("mf", {"data": "x", "shapes": [[1, 2, 3]]}) == {"value": None}
    assert again.find("mf", {"data": "y"}) == {"value": 2}
    assert again.find("threads", {"data": "y"}) is None
    assert len(again.content["results"]) == 2
    other = json.loads(path.read_text())
    other["machine"]["processor"] = "another"
    path.write_text(json.dumps(other))
    with pytest.raises(ValueError, match="another machine"):
        store.ResultStore(path)


def test_the_machine_without_its_name() -> None:
    found = json.dumps([system.hardware(), system.versions()])
    assert os.uname().nodename not in found or len(os.uname().nodename) < 4
    assert "numpy" in system.versions()
    assert system._caches(Path("/nowhere")) == ""


@pytest.mark.usefixtures("local")
def test_data_and_contenders_by_name(tmp_path: Path) -> None:
    assert list(SpeedSetup(TINY, None, 1, only_data=["generated"]).sources) == [GENERATED]
    assert list(SpeedSetup(TINY, None, 1, only_data=["generated sparse"]).sources) == [TINY.sparse.sparse_name]
    with pytest.raises(FileNotFoundError, match="no data folder was given"):
        SpeedSetup(TINY, None, 1, only_data=["movielens-1m"])
    with pytest.raises(ValueError, match="there is no data set 'netflix'"):
        SpeedSetup(TINY, None, 1, only_data=["netflix"])
    with pytest.raises(ValueError, match="there is no contender 'spark'"):
        SpeedSetup(TINY, None, 1, only_peers=["spark"])
    assert "has no lightgcn-gowalla/train.parquet" in SpeedSetup(TINY, tmp_path, 1).missing_data["lightgcn-gowalla"]


def test_published_pairs(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    for name, table in ((data.GOWALLA, "train"), (data.MOVIELENS, "interactions")):
        (tmp_path / name).mkdir()
        pairs = {"user": [7, 7, 9, 9], "item": [3, 1, 3, 3], "user_order": [0, 1, 0, 1]}
        pq.write_table(pa.table(pairs), tmp_path / name / f"{table}.parquet")
    setup = SpeedSetup(TINY, tmp_path, 1)
    assert not setup.missing_data
    assert setup.events["path"] == str(tmp_path / "movielens-1m")
    assert setup.events_name == "movielens-1m"
    matrix = data.read(setup.matrix(data.GOWALLA))
    assert matrix.toarray().tolist() == [[1, 1], [0, 1]]
    folder = setup.folder
    setup.close()
    assert not folder.exists()


@pytest.mark.usefixtures("local")
def test_panels_come_to_the_objective_of_dimensions() -> None:
    with SpeedSetup(TINY._replace(events=(40, 30)), None, 1) as setup:
        _, paths, *_ = features.plan(setup)
        found = paths.measure()
    assert list(found) == ["FM U+A+P", "FM U+A+P+H(50)"]
    for path in found.values():
        assert path["panels"]["objective"] == pytest.approx(path["dimensions"]["objective"], rel=0.02)
        assert path["panels"]["objective"] != path["dimensions"]["objective"]
    found["FM U+A+P"]["panels"]["objective"] = 1.0005 * found["FM U+A+P"]["dimensions"]["objective"]
    found["FM U+A+P+H(50)"]["panels"]["objective"] = 1.0015 * found["FM U+A+P+H(50)"]["dimensions"]["objective"]
    summary = features.summarize([{"arguments": through_json(paths.arguments), "result": found}])
    assert [(target.measured, target.met) for target in summary.targets] == [("1.00050", True), ("1.00150", False)]


@pytest.mark.parametrize(
    ("data", "factors", "expected"), [("movielens-1m", 256, [False]), ("movielens-1m", 8, []), ("generated", 256, [])]
)
def test_the_tuned_model_has_a_target_where_it_was_tuned(data: str, factors: int, expected: list[bool]) -> None:
    runs = [{"seconds": seconds, "epochs": [2.0], "objective": 1.0} for seconds in (9.0, 11.0, 12.0)]
    arguments = {"what": "tuned", "data": data, "factors": factors, "threads": 2}
    summary = features.summarize([{"arguments": arguments, "result": {"runs": runs}}])
    assert [target.met for target in summary.targets] == expected
    assert "11 s (9-12)" in " ".join(summary.lines)


def test_settings_of_the_tuned_model_are_those_of_the_published_results() -> None:
    path = Path(report.__file__).parents[1] / "docs" / "benchmarks" / "results.json"
    found = [entry for entry in json.loads(path.read_text())["results"] if entry["section"] == "quality"]
    (settings,) = (
        entry["result"]["settings"]
        for entry in found
        if (entry["arguments"]["row"], entry["arguments"]["what"]) == ("movielens-1m", "tuned")
        and "MFSI" in entry["arguments"]["settings"].values()
    )
    factors, item = settings.pop("factors"), settings.pop("item")
    settings.pop("n_threads")
    assert settings == tuned.SETTINGS
    assert (factors, item) == (tuned.FACTORS, ["item"])


def test_threads_that_are_not_busy() -> None:
    def entry(what: str | None, idle: float, rows: int, of: dict[int, float], cores: int, factors: int = 64) -> dict[str, Any]:
        arguments = {"data": "pairs", "factors": factors, "threads": max(of), **({} if what is None else {"what": what})}
        result = {"epoch": [[n, [s]] for n, s in of.items()], "idle": [[n, [idle]] for n in of], "rows": rows, "cores": cores}
        return {"arguments": arguments, "result": result}

    two, many = {1: 1.0, 2: 0.5}, {1: 1.0, 2: 0.5, 16: 0.125}
    entries = [
        entry(None, 0.021, 10_000_000, two, 2),
        entry(None, 0.5, 10_000_000, two, 2, factors=128),
        entry(None, 0.5, 1_000_000, two, 2),
        entry("FM U+A+P", 0.029, 1_000_000, many, 16),
        entry(None, 0.01, 9_000_000, many, 8),
    ]
    first, *others = threads.summarize(entries).targets
    assert first.met
    assert [(target.quantity[:5], target.target, target.measured, target.met) for target in others] == [
        ("FM U+", "at most 3%", "2.9%", True),
        ("FM U+", "at least 0.45", "0.50", True),
        ("MF, p", "at most 2%", "2.1%", False),
        ("MF, p", "at most 2%", "1.0%", True),
        ("MF, p", "at least 0.55", "1.00", True),
    ]
    for old in entries:
        del old["result"]["idle"]
    assert len(threads.summarize(entries).targets) == 1


def test_an_observed_fit() -> None:
    def fit(after: Any) -> None:
        for _ in range(3):
            after()

    found = threads.observe(fit, 2)
    assert set(found) == {"seconds", "idle"}
    assert min(found.values()) >= 0


def test_cores_that_are_hyper_threads_of_others_do_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3}, raising=False)
    assert system.physical_cores(tmp_path) == 4
    for number in range(4):
        folder = tmp_path / f"cpu{number}" / "topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(f"{number % 2},{number % 2 + 2}\n")
    assert system.physical_cores(tmp_path) == 2


def test_threads_that_are_tried() -> None:
    assert [threads.counts(n) for n in (1, 2, 3, 8)] == [[1], [1, 2], [1, 2, 3], [1, 2, 4, 8]]


def test_seconds_of_an_epoch_leave_out_the_first() -> None:
    assert per_epoch([5.0, 6.0, 8.0, 11.0]) == 2.0
    assert per_epoch([5.0]) == 5.0


def test_bytes_per_event() -> None:
    assert memory.per_event({"peak": 1_000, "bare": 300, "factors": 100, "events": 10}) == 60


def test_how_figures_are_written() -> None:
    assert section.median_and_range([3.0, 1.0, 2.0]) == "2 s (1-3)"
    assert section.median_and_range([0.12345]) == "0.123 s"
    numbers = {0: "0", 0.00012: "0.00012", 0.5: "0.5", 12.345: "12.3", 123_456.7: "123,457"}
    assert {value: section.three_digits(value) for value in numbers} == numbers
    assert section.slug("generated, 40,000 pairs") == "generated-40-000-pairs"
    titled = section.ReportSection("Title")
    titled.add_table(["a", "b"], [["|S|", "1"]])
    assert titled.lines[-2] == r"| \|S\| | 1 |"


@given(st.lists(st.tuples(st.floats(1e-3, 1e5), st.floats(1e-3, 1e5)), min_size=1, max_size=6), st.booleans(), st.booleans())
def test_pictures_hold_all_points(points: list[tuple[float, float]], log_x: bool, log_y: bool) -> None:
    drawn = charts.curve_chart("a < b", "x", "y", [charts.Curve("ours", points), charts.Curve("theirs", points)], (log_x, log_y))
    assert drawn.count("<circle") == len(points) + 1
    assert "a &lt; b" in drawn
    assert "nan" not in drawn
    places = [float(part.split('"')[1]) for part in drawn.split("<circle")[1:] for part in [part[part.index("cx=") :]]]
    assert all(charts.LEFT - 1 <= x <= charts.WIDTH for x in places)


@pytest.mark.full
def test_conventional_costs_are_those_of_the_experiments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("everypair.reproduce.cost.PAPER_ITEMS", 100)
    found = cost.ConventionalWorker().compare(60, [60, 90], 100, 2, 1)
    assert [row["extrapolated"] for row in found["measured"]] == [False] * 6
    assert [row["extrapolated"] for row in found["paper"]] == [True] * 3


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_standard_output_of_libraries_does_not_disturb() -> None:
    """What a library prints is no answer."""
    import subprocess

    jobs = [{"target": "speed.loss:SharedLoss", "arguments": {}}, {"method": "_asdict", "arguments": {}}]
    noisy = "loss.SharedLoss._asdict = lambda self: os.system('echo noise')"
    modules = "from benchmarks.harness import process; from benchmarks.speed import loss"
    code = f"import os; {modules}; {noisy}; process.main()"
    lines = "".join(json.dumps(job) + "\n" for job in jobs)
    done = subprocess.run([sys.executable, "-c", code], input=lines, capture_output=True, text=True, check=True)
    assert [json.loads(line)["result"] for line in done.stdout.splitlines()] == [None, 0]
    assert "noise" in done.stderr
