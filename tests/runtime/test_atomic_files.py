"""Files that are there whole or not at all, in JSON that every reader takes."""

from __future__ import annotations

import json
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
