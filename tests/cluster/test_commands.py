"""``everypair shard`` and ``everypair fit --on``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import sharded
from commands import done, run

import everypair as ep


@pytest.mark.full
def test_shard_and_fit(tmp_path: Path) -> None:
    paths = sharded.write(tmp_path / "files")
    tables = ("--users", paths["users"], "--items", paths["items"], "--timestamp", "t")
    found = done("shard", paths["events"], *tables, "--shards", 4, "--out", tmp_path / "shards", "--json")
    assert sum(json.loads(found.stdout)["events"]) == 720
    model = ("--model", "fm", "--factors", 4, "--epochs", 2, "--context", "user", "--context", "attributes:country")
    found = done("fit", tmp_path / "shards", "--on", "processes:2", *model, "--out", tmp_path / "model", "--json")
    assert json.loads(found.stdout)["epochs"] == 2
    assert ep.load(tmp_path / "model").recommend(["u1"], 3).num_rows == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("fit", "shards", "--on", "spark", "--out", "m"), "--on must be processes:N, ray or ray:N"),
        (("fit", "shards", "--on", "processes:0", "--out", "m"), "--on must be processes:N"),
        (("fit", "shards", "--on", "processes:2", "--out", "m"), "does not hold shards"),
        (("fit", "shards", "--on", "processes:2", "--timestamp", "t", "--out", "m"), "belongs to 'everypair shard'"),
        (("fit", "shards", "--on", "processes:2", "--validation", "leave-last", "--out", "m"), "cannot be used with --on"),
        (("shard", "events", "--shards", "2"), "Give --out"),
        (("shard", "--out", "s"), "Give the table of interactions"),
        (("shard", "events", "--chronological", "--out", "s"), "shards keep no order of rows"),
    ],
)
def test_usage(arguments: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = run(*arguments)
    assert found.exit_code != 0
    assert message in " ".join(found.output.split())


@pytest.mark.full
@pytest.mark.parametrize("fields", ["user", "user,previous,history,attribute"])
def test_estimate(fields: str) -> None:
    sizes = ("--events", "1e9", "--users", "1e8", "--items", "1e6", "--factors", 16, "--fields", fields)
    one, four, sixteen = json.loads(done("estimate", *sizes, "--json").stdout)
    assert [one["nodes"], four["nodes"], sixteen["nodes"]] == [1, 4, 16]
    assert one["sent"] == 0.0 < four["sent"] == sixteen["sent"]
    assert one["gigabytes"] > four["gigabytes"] > sixteen["gigabytes"] > 0.0
    assert one["seconds"] > 0.0
    assert "machines" in done("estimate", *sizes).stdout


def test_estimates_are_of_known_fields() -> None:
    sizes = ("--events", "1e6", "--users", "1e5", "--items", "1e4")
    assert "fields must be one of" in run("estimate", *sizes, "--fields", "user,mood").output
    assert "--nodes must be 1 or more" in run("estimate", *sizes, "--nodes", "0").output
