"""Commands on a saved model: ``similar``, ``update``, ``export``, and what ``recommend``, ``explain`` and ``inspect`` show."""

from __future__ import annotations

import csv
import io
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from commands import done, refused

import everypair as ep
from everypair.cli import update as module


@pytest.fixture
def model(shop: Path, tmp_path: Path) -> Path:
    """A copy, to be changed."""
    return Path(shutil.copytree(shop / "model", tmp_path / "model"))


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def rows(text: str) -> list[dict[str, Any]]:
    return [{**row, "rank": int(row["rank"]), "score": np.float32(row["score"])} for row in csv.DictReader(io.StringIO(text))]


def same(found: list[dict[str, Any]], expected: Any) -> bool:
    return found == [{**row, "score": np.float32(row["score"])} for row in expected.to_pylist()]


# similar


def test_similar_is_what_python_does(shop: Path, tmp_path: Path) -> None:
    saved = ep.load(shop / "model")
    items, users = saved.similar_items(["v01", "v02"], 4), saved.similar_users(["u03"], 10)
    assert same(rows(done("similar", shop / "model", "--items", "v01,v02", "-n", "4").stdout), items)
    assert same(rows(done("similar", shop / "model", "--users", "u03").stdout), users)
    lines = done("similar", shop / "model", "--items", "v01", "--items", "v02", "-n", "4", "--json").stdout.splitlines()
    assert same([json.loads(line) for line in lines], items)
    assert not done("similar", shop / "model", "--items", "v01,v02", "-n", "4", "--out", tmp_path / "s.parquet").stdout
    assert pq.read_table(tmp_path / "s.parquet").equals(items)


def test_similar_is_refused(shop: Path, tmp_path: Path) -> None:
    refused(2, "either --items or --users", "similar", shop / "model")
    refused(2, "either --items or --users", "similar", shop / "model", "--items", "v01", "--users", "u01")
    refused(2, "--json is for standard output", "similar", shop / "model", "--items", "v01", "--json", "--out", tmp_path / "s.csv")
    refused(1, "such as 'v99'", "similar", shop / "model", "--items", "v01,v99")
    refused(1, "--items holds no ids", "similar", shop / "model", "--items", ",")


# update


def new_tables(folder: Path) -> list[Any]:
    (folder / "new.csv").write_text("user,item,time\nu01,v02,9999999999\nnewcomer,v03,9999999999\nu01,fresh,9999999999\n")
    (folder / "new_users.csv").write_text("user,age,gender,country,device\nnewcomer,25-34,f,DE,tv\n")
    return [folder / "new.csv", "--users", folder / "new_users.csv"]


@pytest.mark.parametrize("in_place", [True, False])
def test_update_is_what_python_does(shop: Path, model: Path, tmp_path: Path, in_place: bool) -> None:
    new = new_tables(tmp_path)
    expected = ep.load(model).update(new[0], users=new[2])
    before = content(model)
    out = model if in_place else tmp_path / "deep" / "updated"
    found = json.loads(done("update", model, *new, *([] if in_place else ["--out", out]), "--json").stdout)
    events = len((shop / "plays.csv").read_text().splitlines()) - 1
    assert found == {
        "events": {"new": 3, "all": events + 3},
        "users": {"new": 1, "all": 61},
        "items": {"new": 1, "all": 31},
        "saved": str(out),
    }
    updated = ep.load(out, verify=True)
    for name, value in expected.model.parameters_.items():  # type: ignore[attr-defined]
        np.testing.assert_array_equal(updated.model.parameters_[name], value)  # type: ignore[attr-defined]
    users = ["u01", "newcomer", "u02"]
    assert updated.recommend(users, n=3).equals(expected.recommend(users, n=3))
    assert in_place or content(model) == before


def test_an_update_says_what_changed(model: Path, tmp_path: Path) -> None:
    told = done("update", model, *new_tables(tmp_path))
    assert not told.stdout
    assert told.stderr.endswith(f" in all), 1 new users (61 in all), 1 new items (31 in all); saved to {model}\n")
    assert told.stderr.startswith("3 new events (")


def test_items_without_events(shop: Path, tmp_path: Path) -> None:
    tables = ["--items", shop / "items.csv", "--item-context", "item", "--item-context", "attributes:category"]
    done("fit", shop / "plays.csv", *tables, "--factors", "2", "--epochs", "1", "--out", tmp_path / "m")
    header, first, *_ = (shop / "items.csv").read_text().splitlines()
    (tmp_path / "more.csv").write_text(f"{header}\nfresh,{first.partition(',')[2]}\n")
    found = json.loads(done("update", tmp_path / "m", "--items", tmp_path / "more.csv", "--json").stdout)
    assert (found["items"]["new"], found["events"]["new"]) == (1, 0)
    assert "fresh" in ep.load(tmp_path / "m").dataset_.items.values.to_pylist()


@pytest.mark.parametrize(
    ("code", "words", "table"),
    [
        (1, "interactions has no column 'time'; it has 'user', 'item'. Name it as in the data before.", "user,item\nu01,v01\n"),
        (1, "must not be missing", "user,item,time\nu01,v01,\n"),
        (1, "at least one row", "user,item,time\n"),
        (1, "no such file", None),
    ],
)
def test_bad_input_leaves_the_model(model: Path, tmp_path: Path, code: int, words: str, table: str | None) -> None:
    if table is not None:
        (tmp_path / "bad.csv").write_text(table)
    before = content(model)
    refused(code, words, "update", model, tmp_path / "bad.csv")
    refused(code, words, "update", model, tmp_path / "bad.csv", "--out", tmp_path / "out")
    assert content(model) == before
    assert not (tmp_path / "out").exists()


def test_updates_that_are_refused(model: Path, tmp_path: Path) -> None:
    refused(2, "Give the table of new events", "update", model)
    refused(2, "Give the table of new events", "update", model, "--users", tmp_path / "u.csv")
    refused(1, "there is no folder", "update", tmp_path / "none", tmp_path / "new.csv")


def test_a_model_that_was_replaced_meanwhile_is_not_overwritten(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its events would be lost."""
    new, counts = new_tables(tmp_path), module._counts

    def replaced(dataset: Any) -> Any:
        monkeypatch.setattr(module, "_counts", counts)
        ep.load(model).update({"user": ["u05"], "item": ["v05"], "time": [9999999999]}).save(model)
        return counts(dataset)

    monkeypatch.setattr(module, "_counts", replaced)
    refused(1, "was replaced by another model meanwhile", "update", model, *new)
    done("update", model, *new)
    assert {"newcomer"} <= set(ep.load(model).dataset_.users.values.to_pylist())


# export


@pytest.mark.parametrize("of", ["items", "users"])
@pytest.mark.parametrize("kind", ["parquet", "npz"])
def test_vectors_are_those_of_python(shop: Path, tmp_path: Path, of: str, kind: str) -> None:
    out, expected = tmp_path / f"v.{kind}", tmp_path / f"expected.{kind}"
    ep.load(shop / "model").export_vectors(expected, of)
    found = json.loads(done("export", shop / "model", "--of", of, "--out", out, "--json").stdout)
    count = {"items": 30, "users": 60}[of]
    assert found == {"of": of, "vectors": count, "dimensions": 4, "saved": str(out)}
    if kind == "parquet":
        assert pq.read_table(out).equals(pq.read_table(expected))
    else:
        with np.load(out) as arrays, np.load(expected) as others:
            assert all(np.array_equal(arrays[name], others[name]) for name in ("ids", "vectors"))
    assert f"{count} vectors of {of}, of 4 dimensions: {out}" in done("export", shop / "model", "--of", of, "--out", out).stderr


def test_exports_that_are_refused(shop: Path, tmp_path: Path) -> None:
    refused(2, "Missing option '--out'", "export", shop / "model")
    refused(1, "--out must end in .parquet, .npz, .usearch", "export", shop / "model", "--out", tmp_path / "v.csv")
    assert not list(tmp_path.iterdir())


# recommend, explain, inspect


def test_unknown_users_get_what_is_popular_on_request(shop: Path, tmp_path: Path) -> None:
    done("fit", shop / "plays.csv", "--model", "mf", "--factors", "2", "--epochs", "1", "--out", tmp_path / "m")
    refused(1, "use --fallback popular", "recommend", tmp_path / "m", "--users", "u01,nobody")
    found = done("recommend", tmp_path / "m", "--users", "u01,nobody", "--fallback", "popular", "-n", "2")
    assert [row["user"] for row in rows(found.stdout)] == ["u01", "u01", "nobody", "nobody"]
    told = "1 of 2 lists have the most popular items, such as that of user 'nobody': MF knows nothing else of them."
    assert found.stderr == f"note: {told}\n"
    (tmp_path / "ids.txt").write_text("u01\nnobody\n")
    from_file = done("recommend", tmp_path / "m", "--users-file", tmp_path / "ids.txt", "--fallback", "popular", "-n", "2")
    assert (from_file.stdout, from_file.stderr) == (found.stdout, found.stderr)


def test_explanations_have_titles(shop: Path) -> None:
    title = {row["item"]: row["title"] for row in csv.DictReader(io.StringIO((shop / "items.csv").read_text()))}
    arguments = ["explain", shop / "model", "--user", "u01", "--item", "v02"]
    found = json.loads(done(*arguments, "--json").stdout)
    assert found["title"] == title["v02"]
    by_field = {part["field"]: part for part in found["contributions"]}
    assert by_field["previous"]["title"] == title[by_field["previous"]["value"]]
    assert all(part["title"] == title.get(part["value"]) for part in found["contributions"])
    assert by_field["user"]["title"] is None
    header, columns, *_ = done(*arguments).stdout.splitlines()
    assert header == f"Why v02 ({title['v02']}) for u01"
    assert columns.split() == ["field", "value", "title", "contribution"]


def test_every_file_has_its_name(shop: Path) -> None:
    text = done("inspect", shop / "model").stdout
    for path in (shop / "model").iterdir():
        if path.name != "manifest.json":
            assert path.name in text
