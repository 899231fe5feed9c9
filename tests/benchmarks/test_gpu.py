"""``python -m benchmarks gpu`` where there is no GPU: its help, its refusals, its tables."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from benchmarks.__main__ import main
from benchmarks.commands.gpu import in_markdown
from benchmarks.gpu import run as runs
from everypair.gpu import device


def test_the_help_names_the_sections() -> None:
    text = " ".join(CliRunner().invoke(main, ["gpu", "--help"]).stdout.split())
    assert ", ".join(runs.SECTIONS) in text


def test_it_says_why_it_cannot_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "problem", lambda number: "CUDA finds no GPU")
    done = CliRunner().invoke(main, ["gpu"])
    assert done.exit_code == 1
    assert done.stderr == "Error: CUDA finds no GPU\n"


def test_unknown_sections_are_refused() -> None:
    done = CliRunner().invoke(main, ["gpu", "--only", "mf", "--only", "fm"])
    assert done.exit_code == 2
    assert "sections are set-up, mf, weights, features, top-n, sizes, cpu, hundred, got fm." in done.stderr


def test_figures_are_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    bench = SimpleNamespace(gpu=SimpleNamespace(name="a card", facts={"device": "a card"}))
    monkeypatch.setattr(runs, "Bench", lambda quick: bench)
    monkeypatch.setattr(runs, "SECTIONS", {"mf": lambda bench: [{"k": 64, "ms": 4.0999}, {"k": 128, "ms": 7.7, "epochs": 3}]})
    done = CliRunner().invoke(main, ["gpu", "--out", str(tmp_path / "figures.md")])
    assert done.stdout == "a card\nmf: k 64, ms 4.1\nmf: k 128, ms 7.7, epochs 3\n"
    written = (tmp_path / "figures.md").read_text()
    assert written == in_markdown({"device": "a card"}, {"mf": [{"k": 64, "ms": 4.0999}, {"k": 128, "ms": 7.7, "epochs": 3}]})
    assert "| k | ms | epochs |\n|---|---|---|\n| 64 | 4.1 |  |\n| 128 | 7.7 | 3 |\n" in written
    CliRunner().invoke(main, ["gpu", "--out", str(tmp_path / "figures.jsonl")])
    assert (tmp_path / "figures.jsonl").read_text().splitlines()[0] == '{"section": "mf", "k": 64, "ms": 4.0999}'
