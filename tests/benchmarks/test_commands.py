"""``python -m benchmarks``: the group, the report from stored results, and the smallest run of each experiment."""

from __future__ import annotations

import http.server
import json
import re
import shutil
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from benchmarks.__main__ import COMMANDS, main
from benchmarks.experiments import epochs, large, requests
from benchmarks.harness import event_log
from benchmarks.quality import datasets
from benchmarks.quality import plan as quality_plan
from benchmarks.service import faults, load, processes
from benchmarks.service.faults import Findings
from benchmarks.speed import contenders, data, sections
from benchmarks.speed.setup import FULL, SpeedSetup
from everypair.cli.shell import main as everypair_main
from everypair.runtime.atomic_files import as_json

from remotes import LocalWorker

ROOT = Path(__file__).parents[2]


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments))


def output(*arguments: str) -> str:
    done = run(*arguments)
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.fixture(scope="module")
def split(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with training and test pairs of 40 users and 30 items."""
    folder = tmp_path_factory.mktemp("data") / "lcfn-movielens-1m"
    folder.mkdir()
    random = np.random.default_rng(0)
    pairs = np.unique(random.integers(0, [40, 30], (900, 2)), axis=0)
    held = random.random(len(pairs)) < 0.2
    for name, part in (("train", pairs[~held]), ("test", pairs[held])):
        pq.write_table(pa.table({"user": part[:, 0], "item": part[:, 1]}), folder / f"{name}.parquet")
    return folder


# The group


def test_help_lists_the_commands_without_importing_what_they_need() -> None:
    code = "import sys; from benchmarks.__main__ import main; main(['--help'], standalone_mode=False); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    listed, modules = done.stdout.rsplit("\n", 2)[:2]
    assert all(re.search(rf"^  {name} ", listed, re.MULTILINE) for name in COMMANDS)
    assert not {"numpy", "everypair", "pyarrow"} & set(modules.split())


def test_it_starts_as_a_module() -> None:
    done = subprocess.run([sys.executable, "-m", "benchmarks", "speed", "-h"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("Usage: python -m benchmarks speed")


@pytest.mark.parametrize("name", COMMANDS)
def test_help_shows_an_example(name: str) -> None:
    assert f"Example: python -m benchmarks {name} " in output(name, "--help")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["quick"], "No such command 'quick'"),
        (["speed", "--deep"], "No such option '--deep'"),
        (["speed", "--only", "colour"], "'colour' is not one of"),
        (["serve"], "Missing argument"),
        (["experiments", "flights"], "'flights' is not one of"),
        (["quality"], "Missing option '--data'"),
    ],
)
def test_wrong_usage(arguments: list[str], message: str) -> None:
    done = run(*arguments)
    assert done.exit_code == 2
    assert message in done.output.replace("option: --", "option '--")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["quality", "--data", "{empty}"], "has none of the data sets"),
        (["quality", "--data", "{empty}", "--rows", "netflix"], "there is no data set 'netflix'"),
        (["defaults", "--data", "{empty}"], "has no lightgcn-gowalla/train.parquet"),
        (["speed", "--rows", "netflix"], "there is no data set 'netflix'"),
        (["speed", "--peer", "spark"], "there is no contender 'spark'"),
        (["report", "--out", "{empty}/benchmarks.md"], "run quality or speed"),
        (["shift", "--data", "{empty}", "--settings", "64,0.1"], "must be five numbers"),
    ],
)
def test_errors_are_a_line(arguments: list[str], message: str, tmp_path: Path) -> None:
    arguments = [argument.format(empty=tmp_path) for argument in arguments]
    done = run(*arguments)
    assert done.exit_code == 1
    assert message in done.stderr
    assert not done.stdout
    assert not list(tmp_path.iterdir())
    assert isinstance(run("--debug", *arguments).exception, ValueError | OSError)


def test_it_is_no_command_of_the_library() -> None:
    done = CliRunner().invoke(everypair_main, ["benchmark", "speed"])
    assert done.exit_code == 2
    assert "No such command 'benchmark'" in done.output


# Stored results


def test_the_report_of_the_documentation_is_that_of_its_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "docs" / "benchmarks").mkdir(parents=True)
    shutil.copy(ROOT / "docs" / "benchmarks" / "results.json", tmp_path / "docs" / "benchmarks")
    monkeypatch.chdir(tmp_path)
    output("report", "--out", "docs/benchmarks.md")
    written = {path.relative_to(tmp_path) for path in (tmp_path / "docs").rglob("*") if path.is_file()}
    assert written == {path.relative_to(ROOT) for path in (ROOT / "docs" / "benchmarks").iterdir()} | {Path("docs/benchmarks.md")}
    for path in written:
        assert path.read_text() == (ROOT / path).read_text(), path


def test_stored_results_are_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By their arguments: those of the plans, as JSON. Otherwise figures of the documentation were measured with other settings."""
    for name, table in ((data.GOWALLA, "train"), (data.MOVIELENS, "interactions")):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{table}.parquet").touch()
    monkeypatch.setattr(contenders, "why_missing", lambda *names: None)
    setup = quality_plan.QualitySetup(tmp_path, datasets.DATASETS)
    planned = quality_plan.plan(setup, None)  # type: ignore[arg-type]
    for repeats in (1, 3):
        planned += sections.plan(SpeedSetup(FULL._replace(repeats=repeats), tmp_path, 2))
    keys = [(section, json.loads(as_json(measurement.arguments))) for section, measurement in planned]
    stored = json.loads((ROOT / "docs" / "benchmarks" / "results.json").read_text())["results"]
    assert [entry["arguments"] for entry in stored if (entry["section"], entry["arguments"]) not in keys] == []


# Experiments


@pytest.mark.full
def test_requests_and_updates(split: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "REQUESTS", 2)
    monkeypatch.setattr(requests, "NEW_EVENTS", (1, 3))
    found = output("recommend", "request", "--data", str(split))
    assert re.findall(r"^(.*?) +\d+\.\d\d ms$", found, re.MULTILINE) == [
        f"{model}, {kind}" for model in ("MF", "FM") for kind in ("a user", "a history", "8 users")
    ]
    found = output("recommend", "update", "--data", str(split))
    assert len(re.findall(r"^(MF, k = 64|FM, k = 32): +[13] events +\d+\.\d\d s$", found, re.MULTILINE)) == 4


@pytest.mark.full
def test_opening(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "LARGE", (20, 10, 40))
    assert re.fullmatch(r"(?:(MF|FM), 0\.0 GB: opens in .* s, verified .* s, saved in .* s\n){2}", output("recommend", "open"))


def test_events_are_generated_without_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_log, "USERS", 9)
    monkeypatch.setattr(event_log, "ITEMS", 12)
    assert event_log.load_event_log(None).n_users == 9


@pytest.mark.full
def test_initial_values(split: Path) -> None:
    found = output("start", "--data", str(split), "--factors", "2", "--epochs", "3")
    assert len(re.findall(r"^seed [01], .*1: [\d,]+ 0\.\d{4}; 2: .*; 3: ", found, re.MULTILINE)) == 6


@pytest.mark.full
def test_a_shift_of_the_test(split: Path) -> None:
    found = output("shift", "--data", str(split), "--settings", "2,0.1,0.1,0,1", "--settings", "2,0.1,0.1,0.5,1")
    ratio = float(re.search(r"items with 1 to 19 training pairs: (\d\.\d{3})", found)[1])  # type: ignore[index]
    assert 0.1 < ratio < 1.0
    assert len(re.findall(r"^2,0.1,.*: tuning recall@20 [01]\.\d{4}, ndcg@20 .*; test recall@20 ", found, re.MULTILINE)) == 2


@pytest.mark.full
def test_combinations_of_settings(split: Path) -> None:
    options = ["--popularity", "0", "--popularity", "0.5", "--decay", "0.9", "--all-pairs", "5", "--shrinkage", "0.1"]
    found = output("defaults", "--data", str(split.parent), "--rows", split.name, *options)
    assert re.findall(r"'popularity_exponent': (\S+), 'all_pairs': 5.0, 'shrinkage': 0.1\} ndcg@20 0\.\d", found) == ["0.0", "0.5"]
    assert "fade" not in found  # there is no history


@pytest.mark.full
@pytest.mark.filterwarnings("ignore::everypair.RowOrderWarning")
def test_recipes_and_weights_of_events(split: Path) -> None:
    settings = ["--setting", "factors=2", "--setting", "epochs=2", "--test"]
    settings += ["--event-weights", "none", "--event-weights", "length=0.5"]
    contexts = ["--context", "user", "--context", "previous + history:decay=0.9 + history:decay=0.5"]
    found = output("recipes", "--data", str(split.parent), "--row", split.name, *contexts, *settings)
    names = ["user", "user (length=0.5)", contexts[-1], f"{contexts[-1]} (length=0.5)"]
    assert re.findall(r"^(\S.*?) +ndcg@20 0\.\d{4} at epoch [12] .*; test f1@5 ", found, re.MULTILINE) == names


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("fields", ["FM block", "FM cd", "MFSI block", "MFSI cd"]),
        ("epoch", ["FM, 1 threads", "FM, 2 threads"]),
        ("start", ["FM, std 0.071", "MF, std 0.071", "FM, std 0.100", "MF, std 0.100", "FM, std 0.841", "MF, std 0.841"]),
        ("models", ["MF", "MFSI", "FM", "PARAFAC", "PARAFAC, all", "Tucker", "Tucker, all"]),
        ("towers", ["Linear", "Sum"]),
    ],
)
def test_epochs_of_models(name: str, lines: list[str]) -> None:
    found = output("experiments", name, "--share", "0.01", "--factors", "2")
    assert found.startswith("600 events, k = 2\n")
    assert re.findall(r"^(.*?) +\d+\.\d\d s per epoch; objective [\d,]+", found, re.MULTILINE) == lines


def test_events_of_a_table(tmp_path: Path) -> None:
    table = {"user": [7, 3, 3, 7], "item": [5, 9, 5, 1], "user_order": [1, 1, 0, 0]}
    pq.write_table(pa.table(table), tmp_path / "events.parquet")
    user, item = epochs.load_events(tmp_path / "events.parquet", 1.0)
    assert user.tolist() == [0, 0, 1, 1]
    assert item.tolist() == [1, 2, 0, 1]
    fields = epochs.event_fields(user, item, history=2)
    assert fields["previous"].toarray().tolist() == [[0, 0, 0], [0, 1, 0], [0, 0, 0], [1, 0, 0]]
    assert epochs.load_events(tmp_path / "events.parquet", 0.5)[0].tolist() == [0, 0]


@pytest.mark.full
def test_drift(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(epochs, "DRIFT_EPOCHS", (3,))
    errors = re.findall(
        r"3 epochs: relative error of the reported objective (\S+)", output("experiments", "drift", "--factors", "2")
    )
    assert len(errors) == 2
    assert all(abs(float(error)) < 1e-5 for error in errors)


def test_large_tables_and_rankings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large, "MeasuredProcess", LocalWorker)
    monkeypatch.setattr(large, "EVENTS", (50,))
    monkeypatch.setattr(large, "RANKED", (20, 30, 5))
    assert re.search(r"^50 events, 0 MB\n  parquet +\S+ s, \d+ MB added\n  csv ", output("experiments", "load"))
    monkeypatch.setattr(large, "FITTED", (20, 30, 2))
    assert re.search(r"MF: parameters 0 MB, peak -?\d+ MB, ratio .*\nMFSI: ", output("experiments", "peak"))
    assert re.search(r"20 users, 30 items, top 5: \S+ s, \d+ MB added", output("experiments", "rank"))


# The service


class Answer(http.server.BaseHTTPRequestHandler):
    """Answers every request with its own body."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None: ...


@contextmanager
def answering(folder: Path, port: int, workers: int) -> Iterator[None]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", port), Answer) as server:
        threading.Thread(target=server.serve_forever, args=[0.01], daemon=True).start()
        yield
        server.shutdown()


def test_load(split: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("fit_model", "fit_implicit_model"):
        monkeypatch.setattr(processes, name, lambda *args: None)
    for name in ("everypair_service", "implicit_service"):
        monkeypatch.setattr(processes, name, answering)
    monkeypatch.setattr(load, "OPEN_LOOP_CONNECTIONS", 3)
    monkeypatch.setattr(load, "WARM_UP", 0.1)
    options = ["--connections", "2", "--rate", "40", "--seconds", "0.2", "--repeats", "2"]
    found = output("serve", "load", "--data", str(split), *options)
    services = ["EveryPair", "implicit, minimal FastAPI service"]
    for service in services:
        assert float(re.search(rf"^{service}, 40 per second +(\d+)/s ", found, re.MULTILINE)[1]) == 40  # type: ignore[index]
        assert re.search(rf"^{service}, 2 clients +[1-9]\d*/s   p50 +\S+ ms   p99 ", found, re.MULTILINE)
    assert re.search(r"^2 clients: \S+ times the requests, p50 \S+ and p99 \S+ times that of implicit", found, re.MULTILINE)


@pytest.mark.full
def test_capacity(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "START_SECONDS", 0.0)
    monkeypatch.setattr("benchmarks.commands.serve.ITEMS", (30, 50))
    monkeypatch.setattr("benchmarks.commands.serve.FACTORS", (2,))
    monkeypatch.setattr("benchmarks.commands.serve.WORKERS", (1,))
    monkeypatch.setattr("benchmarks.service.capacity.USERS", 40)
    monkeypatch.setattr("benchmarks.service.capacity.WARM_UP", 0.1)
    header, rule, *rows = output("serve", "capacity", "--seconds", "0.3").splitlines()
    assert header.count("|") == rule.count("|") == 9
    assert [re.findall(r"[\d,.]+", row)[:3] for row in rows] == [["30", "2", "1"], ["50", "2", "1"]]
    assert all(float(figure.replace(",", "")) > 0 for row in rows for figure in re.findall(r"[\d,.]+", row)[4:])


KINDS = {
    "a worker is killed", "a worker hangs", "a worker is told to end", "a model is saved", "a reload by a signal",
    "a model is copied over", "the service is replaced", "slow clients",
}  # fmt: skip


@pytest.mark.full
def test_faults(split: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as there is time for, one of each first: every answer is right, and the service is whole again."""
    for name, value in {"PAUSE": (0.05, 0.1), "PROBE_SECONDS": 30.0, "GIVE_UP": 300.0, "SLOW_SECONDS": 0.3}.items():
        monkeypatch.setattr(faults, name, value)
    for name in ("WITHIN", "GROWTH"):  # what depends on the machine
        monkeypatch.setattr(faults, name, float("inf"))
    monkeypatch.setattr(processes, "START_SECONDS", 0.0)
    found = output("serve", "faults", "--data", str(split), "--factors", "2", "--workers", "2", "--seconds", "20")
    assert re.search(r"answers: \{'right': [1-9]\d*.*longest wait", found), found
    struck = re.findall(r" s  (.+): all answered after \d+\.\d\d s, by all workers after \d", found)
    assert set(struck) - {"a full disk"} <= KINDS, found
    first = struck[: len(KINDS)]
    assert len(set(first)) == len(first) > 0, found
    assert "passed" in found.splitlines()[-1], found


def test_what_a_service_under_faults_must_not_do() -> None:
    memory = [(float(second), 100 << 20) for second in range(30)]
    killed = {"a worker is killed": [0.1]}
    assert faults.failures(Findings(Counter({"right": 9, "connection lost": 8}), recovery=killed, memory=memory)) == []
    for problem, found in {
        "wrong: user 1": Findings(wrong=["user 1"]),
        "8 connections lost, with 0 workers": Findings(Counter({"connection lost": 8})),
        "2 times: connection refused": Findings(Counter({"connection refused": 2})),
        "a worker is killed: all answered after 2.50 s": Findings(recovery={"a worker is killed": [0.1, 2.5]}),
        "a client waited for 3.00 s": Findings(longest=3.0),
        "memory grew from 100 to 200 MiB": Findings(memory=[*memory[:20], *[(second, 2 * size) for second, size in memory[20:]]]),
    }.items():
        found.memory = found.memory or memory
        (told,) = faults.failures(found)
        assert problem in told


@pytest.mark.full
def test_soak(split: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "START_SECONDS", 0.0)
    monkeypatch.setattr("benchmarks.service.soak.SWITCH_SECONDS", 0.1)
    monkeypatch.setattr("benchmarks.service.soak.SAMPLE_SECONDS", 0.1)
    found = output("serve", "soak", "--data", str(split), "--factors", "2", "--workers", "1", "--seconds", "0.6")
    statuses = re.search(r"answers by status: \{200: [1-9]\d*, .*422: [1-9]\d*\}", found)
    assert statuses is not None, found
    assert "slope over the last half" in found
    assert "of them private" in found
