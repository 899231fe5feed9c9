"""Files of settings that commands write: other commands read them, and do the same."""

from __future__ import annotations

import json
import shlex
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import done

import everypair as ep

MF = ["--model", "mf", "--factors", "2", "--epochs", "2"]


@pytest.fixture(scope="module")
def ratings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table whose columns all have other names than the defaults, with repeated events."""
    random, path = np.random.default_rng(0), tmp_path_factory.mktemp("ratings") / "log.csv"
    columns = (random.integers(20, size=400), random.integers(10, size=400), np.arange(400), random.integers(1, 6, 400))
    lines = [f"u{user},i{item},{time},{stars},{1 + time % 7 / 8}" for user, item, time, stars in zip(*columns, strict=True)]
    path.write_text("who,what,when,stars,weight\n" + "\n".join(lines) + "\n")
    return path


COLUMNS = ["--user", "who", "--item", "what"]
DATA = {
    "columns": COLUMNS,
    "time": [*COLUMNS, "--timestamp", "when"],
    "all": [*COLUMNS, "--timestamp", "when", "--rating", "stars", "--at-least", "2.5", "--weight", "weight", "--repeats", "sum"],
    "in order": [*COLUMNS, "--chronological", "--repeats", "drop"],
}
SETTINGS = {
    "mf": MF,
    "many settings": [*MF, "--dtype", "float64", "--random-state", "7", "--regularization", "default=0.1,W=0.2", "--no-rotate"],
    "fm of recipes": [
        "--factors", "2", "--epochs", "2", "--context", "user", "--context", "previous:back=2",
        "--context", 'history:last=3,name="a, b"', "--unit", "event", "--unknown", "error",
    ],
    "a tuple": ["--model", "tucker", "--factors", "2,2,3", "--epochs", "1", "--context", "user", "--context", "previous"],
    "weights of events": [*MF, "--event-weights", "decay=0.9,length=0.5"],
    "histories": [
        "--model", "mfsi", "--factors", "2", "--epochs", "2", "--context", "previous", "--context", "history:decay=0.9",
        "--context", "history:decay=1,last=4,normalize=0.3",
    ],
    "none": [*MF, "--init-std", "none", "--n-threads", "1"],
}  # fmt: skip


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("data", DATA)
def test_a_fit_by_the_settings_of_a_model_is_that_model(ratings: Path, tmp_path: Path, data: str, settings: str) -> None:
    """Bit for bit, though the command names nothing but the table."""
    done("fit", ratings, *DATA[data], *SETTINGS[settings], "--out", tmp_path / "one")
    (tmp_path / "one.toml").write_text(done("inspect", tmp_path / "one", "--toml").stdout)
    done("fit", ratings, "--config", tmp_path / "one.toml", "--out", tmp_path / "two")
    one, two = (ep.load(tmp_path / name) for name in ("one", "two"))
    assert repr(one) == repr(two)
    assert (one.unit, one.unknown, repr(one.dataset_)) == (two.unit, two.unknown, repr(two.dataset_))
    assert one.model.get_params() == two.model.get_params()
    for name, value in one.model.parameters_.items():  # type: ignore[attr-defined]
        np.testing.assert_array_equal(value, two.model.parameters_[name], strict=True)  # type: ignore[attr-defined]
    assert done("inspect", tmp_path / "two", "--toml").stdout == (tmp_path / "one.toml").read_text()


def held_out(path: Path, folder: Path) -> list[Any]:
    """A published split of a table."""
    header, *lines = path.read_text().splitlines()
    for name, part in (("train", lines[:300]), ("test", lines[300:])):
        (folder / f"{name}.csv").write_text("\n".join([header, *part]) + "\n")
    return ["--train", folder / "train.csv", "--test", folder / "test.csv"]


@pytest.mark.parametrize(
    ("protocol", "options"),
    [
        ("leave-last", []),
        ("cutoff", ["--test-share", "0.2", "--tune-share", "0.2", "--sample", "30"]),
        ("random", ["--split-seed", "3", "--test-share", "0.3"]),
        ("cold-start", ["--split-seed", "5", "--tune-share", "0.4"]),
        ("given", ["--tune-share", "0.2", "--split-seed", "2"]),
    ],
)
def test_an_evaluation_by_the_best_settings_is_of_the_protocol_of_the_search(
    ratings: Path, tmp_path: Path, protocol: str, options: list[str]
) -> None:
    """The best settings have the value on the tuning part that the search found for them."""
    pytest.importorskip("optuna")
    (tmp_path / "sub").mkdir()
    out = tmp_path / "sub" / "best.toml"
    data = held_out(ratings, tmp_path) if protocol == "given" else [ratings, "--protocol", protocol]
    columns = [*DATA["time"], "--context", "user", "--context", "history", "--model", "mfsi", "--factors", "2", "--epochs", "3"]
    options = [*options, "--event-weights", "decay=0.9,length=0.5"]
    search = ["--trials", "2", "--space", "factors=2,3", "--metric", "ndcg@3", "--include-seen", "--out", out]
    found = json.loads(done("tune", *data, *columns, *options, *search, "--json").stdout)
    again = json.loads(done("evaluate", "--config", out, "--on", "tune", "--json").stdout)
    assert again["protocol"] == protocol
    assert again["models"][-1]["metrics"]["ndcg@3"]["value"] == found["best"]["value"]
    sections = tomllib.loads(out.read_text())
    assert sections["split"].get("protocol", "given") == protocol
    done("fit", "--config", out, *([tmp_path / "train.csv"] if protocol == "given" else []), "--out", tmp_path / "m")


@pytest.mark.parametrize("published", [False, True])
def test_the_command_that_a_search_prints_fits(
    ratings: Path, tmp_path: Path, published: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("optuna")
    monkeypatch.chdir(tmp_path)
    data = held_out(ratings, tmp_path) if published else [ratings]
    told = done("tune", *data, *DATA["time"], *MF, "--trials", "1", "--space", "factors=2,3", "--out", "the best.toml").stderr
    command = told.partition("to fit with them: everypair ")[2]
    done(*shlex.split(command))
    assert len(ep.load("model").dataset_) == (300 if published else 400)
