"""Files that are there whole or not at all, in JSON that every reader takes."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from everypair.runtime.atomic_files import ResultsFile, as_json, write_atomically, writing


def test_numbers_that_are_not_finite_are_null() -> None:
    """A trial that diverged, a ratio to nothing."""
    assert json.loads(as_json({"a": [float("nan"), (1.5, -float("inf"))], "b": {"c": 2}})) == {
        "a": [None, [1.5, None]],
        "b": {"c": 2},
    }


def test_what_fails_half_way_leaves_the_old_file_alone(tmp_path: Path) -> None:
    path = tmp_path / "new" / "file.txt"
    write_atomically(path, "old")
    with pytest.raises(ArithmeticError), writing(path) as temporary:  # noqa: PT012
        temporary.write_text("half")
        raise ArithmeticError
    assert path.read_text() == "old"
    write_atomically(path, "new")
    assert path.read_text() == "new"
    assert list(path.parent.iterdir()) == [path]


def test_results_take_their_place_when_they_are_complete(tmp_path: Path) -> None:
    results = ResultsFile(tmp_path / "results.json")
    results.keep({"rows": 1})
    assert [path.name for path in tmp_path.iterdir()] == ["results.partial.json"]
    results.complete({"rows": 2})
    assert [path.name for path in tmp_path.iterdir()] == ["results.json"]
    assert json.loads((tmp_path / "results.json").read_text()) == {"rows": 2}


def test_the_umask_is_never_touched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It belongs to all threads of the process: files of others would be open to everybody meanwhile."""
    before = os.umask(0o027)
    try:
        monkeypatch.setattr(os, "umask", lambda mask: pytest.fail("changed for all threads"))
        write_atomically(tmp_path / "a", "text")
        with writing(tmp_path / "b", read_only=True) as temporary:
            temporary.write_text("text")
    finally:
        monkeypatch.undo()
        os.umask(before)
    assert {path.name: oct(path.stat().st_mode & 0o777) for path in tmp_path.iterdir()} == {"a": "0o640", "b": "0o440"}


def test_temporary_files_are_hidden_and_beside_the_file(tmp_path: Path) -> None:
    with writing(tmp_path / "a") as first, writing(tmp_path / "a") as second:
        assert first != second
        for temporary in (first, second):
            assert temporary.parent == tmp_path
            assert re.fullmatch(r"\.everypair-a-[0-9a-f]{16}\.part", temporary.name)
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
