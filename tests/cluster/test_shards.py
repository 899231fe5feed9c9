"""Shards of Parquet files: every event once, users whole, items the same for all, whatever the order of files and rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import sharded
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

import everypair as ep
from everypair.cluster import shards as module
from everypair.cluster.shards import shards_of


def content(dataset: ep.Dataset) -> list[Any]:
    tables = (dataset.user_table, dataset.item_table, dataset.event_table)
    assert dataset.time is not None
    arrays = (dataset.user, dataset.item, dataset.bounds, dataset.time)
    return [
        dataset.users.values.to_pylist(),
        dataset.items.values.to_pylist(),
        *(t.to_pydict() for t in tables),
        *(a.tolist() for a in arrays),
    ]


@given(st.lists(st.integers(0, 2**64 - 1), max_size=50), st.integers(0, 12))
def test_hashes_are_even_and_nested(keys: list[int], bits: int) -> None:
    of = shards_of(np.array(keys, np.uint64), 2**bits)
    assert np.all((of >= 0) & (of < 2**bits))
    np.testing.assert_array_equal(of >> 1 if bits else of, shards_of(np.array(keys, np.uint64), 2 ** max(bits - 1, 0)))
    counts = np.bincount(shards_of(np.arange(4_096, dtype=np.uint64), 8), minlength=8)
    assert counts.min() > 400


def test_a_shard_has_all_of_its_users(tmp_path: Path) -> None:
    found, whole = sharded.shards(tmp_path), sharded.tables()
    parts = [found.dataset(shard) for shard in range(found.n)]
    assert sum(map(len, parts)) == len(whole["events"]) == sum(found.rows)
    names = [name for part in parts for name in part.users.values.to_pylist()]
    assert sorted(names) == sorted(set(whole["events"]["user"].to_pylist()))
    assert all(part.items.same(parts[0].items) for part in parts)
    everything, rows = found.dataset(), whole["events"].to_pylist()
    assert len(everything) == len(rows)
    for part in (*parts, everything):
        for code in range(0, part.n_users, 7):
            name, events = part.users[code], slice(*part.bounds[code : code + 2])
            expected = sorted((row["t"], row["item"], row["device"]) for row in rows if row["user"] == name)
            own = zip(part.time[events].tolist(), [part.items[i] for i in part.item[events]], part.event_table["device"][events.start : events.stop].to_pylist(), strict=True)  # fmt: skip  # noqa: E501
            assert list(own) == expected
    ages = dict(zip(whole["users"]["user"].to_pylist(), whole["users"]["age"].to_pylist(), strict=True))
    assert everything.user_table["age"].to_pylist() == [ages[name] for name in everything.users.values.to_pylist()]


def test_the_order_of_files_and_rows_does_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = sharded.shards(tmp_path / "one")
    monkeypatch.setattr(module, "ROWS", 100)  # many batches
    other = sharded.shards(tmp_path / "other", order=5, files=5)
    for shard in (None, 0, 1, 2, 3):
        assert content(one.dataset(shard)) == content(other.dataset(shard))


def test_items_without_events_are_left_out_unless_they_are_asked_for(tmp_path: Path) -> None:
    paths = sharded.write(tmp_path / "files")
    events = parquet.read_table(paths["events"])
    some = tmp_path / "some.parquet"
    parquet.write_table(events.filter(pa.compute.not_equal(events["item"], "i3")), some)  # type: ignore[attr-defined]
    for all_items in (False, True):
        found = ep.Shards.from_parquet(
            some, items=paths["items"], timestamp="t", cache=tmp_path / f"{all_items}", shards=2, all_items=all_items
        )
        expected = ep.Dataset(some, items=parquet.read_table(paths["items"]), timestamp="t", all_items=all_items)
        assert found.dataset(0).items.same(expected.items)
        assert found.dataset(1).item_table.equals(expected.item_table)


def test_ratings_below_the_least_do_not_count(tmp_path: Path) -> None:
    table = pa.table({"user": list(range(40)) * 2, "item": [0, 1] * 40, "stars": [5] * 40 + [1] * 40})
    parquet.write_table(table, tmp_path / "events.parquet")
    found = ep.Shards.from_parquet(tmp_path / "events.parquet", cache=tmp_path / "s", shards=2, rating="stars", at_least=4)
    assert sum(found.rows) == len(found.dataset()) == 40


def test_shards_that_are_there_are_taken(tmp_path: Path) -> None:
    paths = sharded.write(tmp_path / "files")
    first = ep.Shards.from_parquet(paths["events"], timestamp="t", cache=tmp_path / "s", shards=2)
    written = (tmp_path / "s" / module.MANIFEST).stat().st_mtime_ns
    again = ep.Shards.from_parquet(paths["events"], timestamp="t", cache=tmp_path / "s", shards=2)
    assert (tmp_path / "s" / module.MANIFEST).stat().st_mtime_ns == written
    assert repr(first) == repr(again) == repr(ep.Shards(tmp_path / "s"))
    with pytest.raises(ValueError, match="of other files or options"):
        ep.Shards.from_parquet(paths["events"], timestamp="t", cache=tmp_path / "s", shards=4)


class Batches:
    """What a Ray Dataset offers."""

    def iter_batches(self, batch_size: int, batch_format: str) -> Any:
        assert batch_format == "pyarrow"
        return iter(sharded.tables()["events"].slice(start, 100) for start in range(0, 720, 100))


def test_objects_that_give_batches_are_read(tmp_path: Path) -> None:
    found = ep.Shards.from_parquet(Batches(), timestamp="t", cache=tmp_path / "a", shards=2)
    paths = sharded.write(tmp_path / "files")
    assert content(found.dataset()) == content(ep.Shards.from_parquet([paths["events"]], timestamp="t", cache=tmp_path / "b", shards=2).dataset())  # fmt: skip  # noqa: E501


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shards": 3}, "shards must be a power of two, got 3"),
        ({"shards": 128}, "of 128 shards have no events"),
        ({"user": "nobody"}, "no column 'nobody'"),
        ({"timestamp": "when"}, "no column 'when'"),
        ({"rating": "stars"}, "must be given together"),
        ({"all_items": True}, "give items, or leave it out"),
        ({"weight": "none"}, "column 'none' must not be missing"),
    ],
)
def test_refusals(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    table = sharded.tables()["events"]
    parquet.write_table(table.append_column("none", pa.nulls(len(table), pa.float64())), tmp_path / "events.parquet")
    with pytest.raises(ValueError, match=message):
        ep.Shards.from_parquet(tmp_path / "events.parquet", cache=tmp_path / "s", **{"shards": 2, **options})
    with pytest.raises(FileNotFoundError, match="does not hold shards"):
        ep.Shards(tmp_path / "s")


def test_what_is_not_parquet_is_refused(tmp_path: Path) -> None:
    (tmp_path / "events.parquet").write_text("user,item\n1,2\n")
    with pytest.raises(ValueError, match="cannot be read as Parquet"):
        ep.Shards.from_parquet(tmp_path / "events.parquet", cache=tmp_path / "s", shards=2)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").touch()
    with pytest.raises(ValueError, match="is not empty"):
        ep.Shards.from_parquet(tmp_path / "events.parquet", cache=tmp_path / "other", shards=2)
