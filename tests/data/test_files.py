"""Tables in files: separators that a header shows, and folders of Parquet files that are read whole."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import parquet

import everypair as ep
from everypair.data.tables import as_table

FIELDS = st.text("ab,;|'\t", min_size=1, max_size=3)


@pytest.mark.parametrize("name", ["e.csv", "e.tsv", "e.csv.gz"])
@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_the_header_shows_the_separator(tmp_path: Path, name: str, separator: str) -> None:
    rows = [["user", "item", "price, in EUR"], ["x", "a", "1"], ["y", "b", "2"]]
    quoted = "\n".join(separator.join(f'"{value}"' for value in row) for row in rows)
    bare = "\ufeff" + "\r\n".join(separator.join(value.replace(", ", " ") for value in row) for row in rows)
    for text, name_of_price in ((quoted, "price, in EUR"), (bare, "price in EUR")):
        path = tmp_path / name
        path.write_bytes(gzip.compress(text.encode()) if name.endswith("gz") else text.encode())
        dataset = ep.Dataset(path)
        assert dataset.users[:] == ["x", "y"]
        assert dataset.event_table.to_pydict() == {name_of_price: [1, 2]}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from([",", ";", "\t", "|"]), st.lists(FIELDS, min_size=1, max_size=4, unique=True), st.lists(FIELDS, max_size=4))
def test_quoted_files_are_read_by_any_separator(tmp_path: Path, separator: str, names: list[str], values: list[str]) -> None:
    row = (values + ["z"] * len(names))[: len(names)]
    path = tmp_path / "e.csv"
    lines = (["user", *names], ["x", *row])
    path.write_text("\n".join(separator.join(f'"{value}"' for value in line) for line in lines), encoding="utf-8")
    assert as_table("t", path, ["user"]).to_pydict() == {
        "user": ["x"],
        **{name: [value] for name, value in zip(names, row, strict=True)},
    }


def test_decimal_commas_are_not_taken_for_words(tmp_path: Path) -> None:
    path = tmp_path / "e.csv"
    path.write_text("user;item;price\nx;a;3,50\ny;b;4\n", encoding="utf-8")
    assert ep.Dataset(path).notes == [
        "column 'price' of interactions holds strings, since '3,50' has a decimal comma: write points."
    ]
    with pytest.raises(TypeError, match="column 'price' must hold numbers, but row 0 has '3,50'"):
        ep.Dataset(path, weight="price")


def written(folder: Path, parts: dict[str, dict[str, Any]]) -> Path:
    for name, columns in parts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        parquet.write_table(pa.table(columns), folder / name)
    return folder


def test_a_folder_of_parquet_files_is_read_whole(tmp_path: Path) -> None:
    """In the order of the numbers in their names, with columns that only later ones have, and integers of any size."""
    parts: dict[str, dict[str, Any]] = {
        "part-1.parquet": {"user": pa.array([1], pa.int32()), "item": ["a"]},
        "part-2.parquet": {"user": [2**40], "item": ["b"], "more": [5]},
        "part-10.parquet": {"user": [1], "item": ["c"], "more": [6]},
        "_SUCCESS": {"x": [1]},
        "_temporary/part-0.parquet": {"user": [9], "item": ["z"]},
    }
    folder = written(tmp_path / "plays", parts)
    assert as_table("t", folder).to_pydict() == {"user": [1, 2**40, 1], "item": ["a", "b", "c"], "more": [None, 5, 6]}
    for path in (folder, f"{folder}/"):
        dataset = ep.Dataset(path)
        assert dataset.items.take(dataset.item).to_pylist() == ["a", "c", "b"]


def test_partitions_are_columns_and_keep_their_text(tmp_path: Path) -> None:
    parts = {
        f"day=2024-05-0{j}/zip={zip_code}/x.parquet": {"user": [j], "item": ["a"]} for j, zip_code in ((1, "01234"), (2, "1234"))
    }
    parts["day=2024-05-03/zip=__HIVE_DEFAULT_PARTITION__/x.parquet"] = {"user": [3], "item": ["a"]}
    dataset = ep.Dataset(written(tmp_path, parts), timestamp="day")
    assert dataset.event_table.to_pydict() == {"zip": ["01234", "1234", None]}
    assert dataset.time_unit == "us"
    assert dataset.users.kind == "integers"


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({}, ["folder without files"]),
        (
            {"interactions.parquet": {"user": [1], "item": [1]}, "users.parquet": {"user": [1]}},
            ["users.parquet", "'item'", "no part"],
        ),
        ({"a.parquet": {"user": [1], "item": [1]}, "b.parquet": {"user": ["x"], "item": [1]}}, ["different types", "user"]),
    ],
)
def test_refused_folders(tmp_path: Path, parts: dict[str, Any], words: list[str]) -> None:
    (tmp_path / "plays").mkdir()
    with pytest.raises(ValueError, match="plays") as caught:
        ep.Dataset(written(tmp_path / "plays", parts))
    for word in words:
        assert word in str(caught.value)


def test_another_file_in_a_folder_is_named(tmp_path: Path) -> None:
    folder = written(tmp_path, {"a.parquet": {"user": [1], "item": [1]}})
    (folder / "README.md").write_text("hello")
    with pytest.raises(ValueError, match=r"README\.md is not a Parquet table"):
        ep.Dataset(folder)
