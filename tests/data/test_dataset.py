"""Tables from anywhere become the same events: ids kept, rows sorted, nothing lost without a word."""

from __future__ import annotations

import datetime as dt
import gzip
from collections import defaultdict
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

import everypair as ep
from everypair.data import Ids

TEXTS = st.text(st.characters(codec="utf-8"), max_size=3)
INTEGERS = st.integers(-(2**63), 2**63 - 1)
IDS = st.one_of(st.lists(TEXTS, min_size=1, max_size=5, unique=True), st.lists(INTEGERS, min_size=1, max_size=5, unique=True))
EVENTS = {"user": ["b", "a", "b", "NA"], "item": [3, 1, 1, 2], "t": [4, 3, 1, 2], "device": ["tv", None, "tv", "pc"]}
DAY = 86_400_000_000  # microseconds


@st.composite
def tables(draw: st.DrawFn) -> dict[str, list[Any]]:
    """Events of a few users and items, with ties in time."""
    users, items = draw(IDS), draw(IDS)
    n = draw(st.integers(1, 12))
    return {
        "user": draw(st.lists(st.sampled_from(users), min_size=n, max_size=n)),
        "item": draw(st.lists(st.sampled_from(items), min_size=n, max_size=n)),
        "t": draw(st.lists(st.integers(-2, 2), min_size=n, max_size=n)),
        "w": draw(st.lists(st.sampled_from([0.5, 1.0, 4.0]), min_size=n, max_size=n)),
    }


def rows_of(dataset: ep.Dataset) -> list[tuple[Any, ...]]:
    """The events in the user's own terms."""
    columns = [dataset.users.take(dataset.user).to_pylist(), dataset.items.take(dataset.item).to_pylist()]
    columns += [] if dataset.time is None else [dataset.time.tolist()]
    return list(zip(*columns, *(column.to_pylist() for column in dataset.event_table.columns), strict=True))


@given(tables())
def test_events_are_sorted_by_user_time_and_row(table: dict[str, list[Any]]) -> None:
    dataset = ep.Dataset(table, timestamp="t")
    expected = sorted(zip(*table.values(), strict=True), key=lambda row: (row[0], row[2]))  # stable, as ties are to be
    assert rows_of(dataset) == expected
    assert dataset.bounds.tolist() == [np.searchsorted(dataset.user, u) for u in range(dataset.n_users + 1)]
    in_order = ep.Dataset({name: table[name] for name in ("user", "item")})
    assert rows_of(in_order) == sorted(zip(table["user"], table["item"], strict=True), key=lambda row: row[0])


@given(tables(), st.randoms(use_true_random=False))
def test_rows_of_other_users_may_lie_between(table: dict[str, list[Any]], random: Any) -> None:
    left = defaultdict(list)
    for row in zip(*table.values(), strict=True):
        left[row[0]].append(row)
    mixed = [left[user].pop(0) for user in random.sample(table["user"], len(table["user"]))]
    other = dict(zip(table, map(list, zip(*mixed, strict=True)), strict=True))
    for timestamp in ("t", None):
        assert rows_of(ep.Dataset(other, timestamp=timestamp)) == rows_of(ep.Dataset(table, timestamp=timestamp))


@given(tables())
def test_repeats(table: dict[str, list[Any]]) -> None:
    kept, dropped, summed = (ep.Dataset(table, timestamp="t", weight="w", repeats=repeats) for repeats in ("keep", "drop", "sum"))
    first, total = {}, defaultdict(float)
    for user, item, weight in zip(kept.user.tolist(), kept.item.tolist(), kept.weight.tolist(), strict=True):  # type: ignore[union-attr]
        first.setdefault((user, item), weight)
        total[user, item] += weight
    assert len(kept) == len(table["user"])
    assert list(zip(dropped.user.tolist(), dropped.item.tolist(), strict=True)) == list(first)
    assert dropped.weight is not None
    assert dropped.weight.tolist() == list(first.values())
    assert len(summed) == len(kept)
    events, alpha = summed.counted()
    assert dict(zip(zip(summed.user[events].tolist(), summed.item[events].tolist(), strict=True), alpha, strict=True)) == dict(
        total
    )
    events, counts = ep.Dataset(table, repeats="sum").counted()
    assert counts.sum() == len(kept)
    assert kept.first_of_pair().sum() == len(first)


@given(tables(), st.data())
def test_attributes_follow_their_ids(table: dict[str, list[Any]], data: st.DataObject) -> None:
    stranger = "stranger" if isinstance(table["user"][0], str) else 12345
    there = data.draw(st.lists(st.sampled_from([*dict.fromkeys(table["user"]), stranger]), unique=True, min_size=1))
    dataset = ep.Dataset(table, users={"user": there, "label": [f"of {user!r}" for user in there]})
    expected = [f"of {user!r}" if user in there else None for user in dataset.users.values.to_pylist()]
    assert dataset.user_table["label"].to_pylist() == expected
    notes = " ".join(dataset.notes)
    strangers = len(set(there) - set(table["user"]))
    assert ("without interactions" in notes) == (strangers > 0)
    assert ("attributes missing" in notes) == (None in expected)


@given(tables(), st.data())
def test_subsets_keep_ids_and_order(table: dict[str, list[Any]], data: st.DataObject) -> None:
    dataset = ep.Dataset(table, timestamp="t")
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=len(dataset), max_size=len(dataset))), bool)
    parts = [dataset.subset(mask), dataset.subset(data.draw(st.permutations(np.flatnonzero(mask).tolist())))]
    for part in parts:
        assert rows_of(part) == [row for row, kept in zip(rows_of(dataset), mask, strict=True) if kept]
        assert part.users is dataset.users
        assert np.array_equal(np.diff(part.bounds), np.bincount(part.user, minlength=dataset.n_users))
    with pytest.raises(ValueError, match="one entry per event"):
        dataset.subset(np.append(mask, True))


@given(IDS, st.data())
def test_ids(values: list[Any], data: st.DataObject) -> None:
    ids, codes = Ids.coded(values * 2)
    assert ids.values.to_pylist() == sorted(values)
    assert ids.take(codes).to_pylist() == values * 2
    asked = [*values, *data.draw(st.lists(TEXTS if isinstance(values[0], str) else INTEGERS))]
    expected = [sorted(values).index(value) if value in values else -1 for value in asked]
    assert ids.codes(asked).tolist() == expected
    assert [ids._find(value) for value in asked] == expected  # as for a few among many
    assert [ids[code] for code in range(len(ids))] == sorted(values)


def test_a_few_ids_among_many() -> None:
    ids = Ids.of(np.arange(0, 6000, 2))
    assert ids.codes([4, 5]).tolist() == [2, -1]
    assert ids.codes([]).tolist() == []
    assert repr(ids) == "Ids(3,000 integers)"
    assert Ids.of([]).codes(["a"]).tolist() == [-1]


def chunked(table: pa.Table) -> pa.Table:
    return pa.concat_tables([table.slice(0, 1), table.slice(1, 0), table.slice(1)])


def encoded(table: pa.Table) -> pa.Table:
    """Each chunk with a dictionary of its own, with entries that nobody has."""
    for place, name in ((0, "user"), (3, "device")):
        chunks = [pa.DictionaryArray.from_arrays(pa.array([1]), pa.array(["zzz", value])) for value in EVENTS[name]]
        table = table.set_column(place, name, pa.chunked_array(chunks))
    return table


def views(table: pa.Table) -> pa.Table:
    return table.set_column(0, "user", table["user"].cast(pa.string_view()))


def view_dictionary(table: pa.Table) -> pa.Table:
    user = table["user"].combine_chunks().dictionary_encode()
    return table.set_column(0, "user", pa.DictionaryArray.from_arrays(user.indices, user.dictionary.cast(pa.string_view())))


PANDAS = pd.DataFrame(EVENTS)
POLARS = pl.DataFrame(EVENTS)
ARROW = pa.table(EVENTS)
SOURCES: dict[str, Any] = {
    "mapping": EVENTS,
    "mapping of numpy": {name: np.array(values, object if None in values else None) for name, values in EVENTS.items()},
    "mapping of pandas": dict(PANDAS.items()),
    "mapping of polars": {name: POLARS[name] for name in POLARS.columns},
    "mapping of Arrow": dict(zip(ARROW.column_names, ARROW.columns, strict=True)),
    "pandas": PANDAS,
    "pandas objects": PANDAS.astype({"user": object, "item": object, "device": object}),
    "pandas category": PANDAS.astype({"user": pd.CategoricalDtype(["z", "b", "NA", "a"]), "item": "category"}),
    "pandas nullable": PANDAS.astype({"user": pd.StringDtype("python"), "item": "Int64", "t": "Int16"}),
    "pandas Arrow": PANDAS.convert_dtypes(dtype_backend="pyarrow"),
    "pandas with an index": PANDAS.set_axis([7, 3, 5, 1]),
    "pandas by user": PANDAS.set_index("user"),
    "polars": POLARS,
    "polars lazy": POLARS.lazy(),
    "polars Categorical": POLARS.with_columns(pl.col("user").cast(pl.Categorical)),
    "polars Enum": POLARS.with_columns(pl.col("user").cast(pl.Enum(["z", "b", "a", "NA"]))),
    "Arrow": ARROW,
    "Arrow chunks": chunked(ARROW),
    "Arrow dictionary": encoded(ARROW),
    "Arrow views": views(ARROW),
    "Arrow dictionary of views": view_dictionary(ARROW),
}


@pytest.mark.parametrize("source", SOURCES)
def test_sources(source: str) -> None:
    dataset = ep.Dataset(SOURCES[source], timestamp="t")
    assert rows_of(dataset) == [("NA", 2, 2, "pc"), ("a", 1, 3, None), ("b", 1, 1, "tv"), ("b", 3, 4, "tv")]
    assert repr(dataset) == "Dataset(4 events, 3 users, 3 items; events: device; ordered by t)"


@pytest.mark.parametrize("name", ["e.parquet", "e.pq", "e.2024.csv", "E.CSV", "e.tsv", "e.tab", "e.csv.gz", "folder"])
def test_files(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    if name == "folder":
        path.mkdir()
        pa.parquet.write_table(ARROW, path / "part-0.parquet")
    elif name.endswith(("parquet", "pq")):
        pa.parquet.write_table(ARROW, path)
    else:
        text = PANDAS.to_csv(sep="\t" if "t" in name.split(".")[1] else ",", index=False)
        path.write_bytes(gzip.compress(text.encode()) if name.endswith("gz") else text.encode())
    for given_path in (path, str(path)):
        assert rows_of(ep.Dataset(given_path, timestamp="t")) == rows_of(ep.Dataset(EVENTS, timestamp="t"))


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"])
def test_integers_of_any_size(dtype: str) -> None:
    ids = np.array([5, 0, 127], dtype)
    for source in ({"user": ids, "item": ids}, pl.DataFrame({"user": ids, "item": ids}), pd.DataFrame({"user": ids, "item": ids})):
        assert rows_of(ep.Dataset(source, users={"user": [127, 5], "x": [1, 2]})) == [(0, 0), (5, 5), (127, 127)]


def csv(tmp_path: Path, text: str | bytes, name: str = "events.csv") -> Path:
    path = tmp_path / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


@pytest.mark.parametrize(
    ("text", "users"),
    [
        ("user,item\n007,1\n8,2\n", ["007", "8"]),  # leading zeros
        ("user,item\n7,1\n-8,2\n", [-8, 7]),
        ("user,item\n-0,1\n8,2\n", ["-0", "8"]),
        ("user,item\n9223372036854775807,1\n", [2**63 - 1]),
        ("user,item\n9223372036854775808,1\n", ["9223372036854775808"]),
        ("user,item\n1.0,1\n2,2\n", ["1.0", "2"]),
        ("user,item\nNA,1\nnull,2\nNaN,3\n", ["NA", "NaN", "null"]),
        ("user,item\ntrue,1\n2024-01-01,1\n", ["2024-01-01", "true"]),
        ("\ufeffuser,item\r\nx,1\r\ny,2\r\n", ["x", "y"]),  # as Windows writes it
        ('user,item,title\n"a,b",1,"two\nlines"\nc,2,"say ""hi"""\n', ["a,b", "c"]),
        ("user,item\nx,1\ny,2", ["x", "y"]),
    ],
)  # fmt: skip
def test_ids_of_a_csv_stay_as_they_are(tmp_path: Path, text: str, users: list[Any]) -> None:
    dataset = ep.Dataset(csv(tmp_path, text))
    assert dataset.users.values.to_pylist() == users
    assert dataset.items.kind == "integers"


def test_ids_that_look_numeric_for_long(tmp_path: Path) -> None:
    rows = [f"{j},{j % 7},{j}" for j in range(200_000)]  # more than is read at once
    dataset = ep.Dataset(csv(tmp_path, "user,item,late\n" + "\n".join([*rows, "x,1,text"])))
    assert dataset.users.kind == "strings"
    assert dataset.n_users == 200_001
    assert dataset.event_table["late"].to_pylist()[-1] == "text"


def test_what_is_missing_in_a_csv(tmp_path: Path) -> None:
    users = "user,country,age,height\nx,NA,NA,1.5\ny,,31,nan\nz,null,,NA\n"
    dataset = ep.Dataset(csv(tmp_path, "user,item\nx,1\ny,1\nz,1\n"), users=csv(tmp_path, users, "users.csv"))
    assert dataset.user_table["country"].to_pylist() == ["NA", None, "null"]  # Namibia is a country
    assert dataset.user_table["age"].to_pylist() == [None, 31, None]
    assert dataset.user_table["height"].to_pylist() == [1.5, None, None]


MOMENT = dt.datetime(2024, 5, 1, 12, 30)
BERLIN = pd.DatetimeIndex([MOMENT, MOMENT + dt.timedelta(1)]).tz_localize("Europe/Berlin")
NOON = 1_714_566_600_000_000
TIMES = {
    "T": (["2024-05-01T12:30:00", "2024-05-01T12:30:01"], NOON, 1_000_000),
    "blank": (["2024-05-01 12:30:00", "2024-05-01 12:30:00.5"], NOON, 500_000),
    "Z": (["2024-05-01T12:30:00Z", "2024-05-01T12:30:00.000001Z"], NOON, 1),
    "zones": (["2024-05-01T14:30:00+02:00", "2024-05-01T07:31:00-05:00"], NOON, 60_000_000),
    "nanoseconds": (["2024-05-01T12:30:00.000000001", "2024-05-01T12:30:00.000000002"], NOON * 1000 + 1, 1),
    "dates": (["2024-05-01", "2024-05-02"], NOON - 12 * DAY // 24 - 30 * 60_000_000, DAY),
    "digits": (["100", "101"], 100, 1),
    "fractions": (["0.25", "1.25"], 0.25, 1),
    "datetime": ([MOMENT, MOMENT + dt.timedelta(seconds=1)], NOON, 1_000_000),
    "date": ([MOMENT.date(), dt.date(2024, 5, 2)], NOON - 12 * DAY // 24 - 30 * 60_000_000, DAY),
    "pandas ns": (pd.Series(pd.to_datetime([5, 6], unit="ns").as_unit("ns")), 5, 1),
    "pandas zone": (pd.Series(BERLIN), NOON - DAY // 12, DAY),
    "polars zone": (pl.Series([MOMENT] * 2).dt.replace_time_zone("Asia/Tokyo"), NOON - 9 * DAY // 24, 0),
    "polars ms": (pl.Series([MOMENT] * 2).cast(pl.Datetime("ms")), NOON, 0),
    "category": (pd.Series(["2024-05-01T12:30:00"] * 2, dtype="category"), NOON, 0),
    "float": (np.array([0.5, 1.0]), 0.5, 0.5),
    "decimal": ([Decimal("0.5"), Decimal("1.0")], 0.5, 0.5),
    "unsigned": (np.array([1, 2], np.uint64), 1, 1),
}  # fmt: skip


@pytest.mark.parametrize("kind", TIMES)
def test_timestamps(tmp_path: Path, kind: str) -> None:
    values, first, step = TIMES[kind]
    dataset = ep.Dataset({"user": ["x", "x"], "item": ["a", "b"], "t": values[::-1]}, timestamp="t")
    assert dataset.time is not None
    assert dataset.time.tolist() == [first, first + step]
    assert dataset.items.take(dataset.item).to_pylist() == (["b", "a"] if step else ["a", "b"])
    if isinstance(values, list) and isinstance(values[0], str):
        path = csv(tmp_path, "user,item,t\n" + "".join(f"x,a,{value}\n" for value in values))
        read = ep.Dataset(path, timestamp="t").time
        assert read is not None
        assert read.tolist() == [first, first + step]


def test_ratings() -> None:
    table = {"user": ["x", "x", "y"], "item": ["a", "b", "c"], "stars": [3, 4, 5], "device": ["tv", "pc", None]}
    dataset = ep.Dataset(table, rating="stars", at_least=4)
    assert rows_of(dataset) == [("x", "b", "pc"), ("y", "c", None)]
    assert dataset.items.values.to_pylist() == ["b", "c"]
    assert dataset.notes == ["1 event is left out: stars below 4."]
    decimals = {**table, "stars": [Decimal("3.5"), Decimal("4.0"), Decimal("4.5")]}
    weighted = ep.Dataset(decimals, rating="stars", at_least=4, weight="stars").weight
    assert weighted is not None
    assert weighted.tolist() == [4.0, 4.5]


def test_a_column_of_events_counts_instead_of_the_users() -> None:
    dataset = ep.Dataset({"user": ["x"], "item": ["a"], "c": ["NA"]}, users={"user": ["x"], "c": ["DE"]})
    assert dataset.notes == ["users and interactions both have a column 'c': that of the interactions is used."]
    only = ep.Dataset({"user": ["x"], "item": ["a"]}, users={"user": ["x"]}, items={"item": ["a"]})
    assert (only.notes, only.user_table.column_names) == ([], [])


GOOD: dict[str, Any] = {"user": ["x", "y"], "item": ["a", "b"], "t": [1, 2], "w": [1.0, 2.0]}
NAN = float("nan")


@pytest.mark.parametrize(
    ("columns", "options", "words"),
    [
        ({}, {"user": "uid"}, ["interactions has no column 'uid'", "'user', 'item', 't', 'w'", "Set user to"]),
        ({}, {"timestamp": "when"}, ["'when'", "'t'", "Set timestamp to"]),
        ({}, {"weight": "kg"}, ["'kg'", "Set weight to"]),
        ({}, {"user": 3}, ["user must be the name of a column", "3"]),
        ({}, {"item": None}, ["item must be the name of a column", "None"]),
        ({}, {"timestamp": ["t"]}, ["timestamp must be the name of a column", "['t']"]),
        ({}, {"user": "item"}, ["different columns", "'item'"]),
        ({}, {"repeats": "first"}, ["repeats", "'keep', 'sum', 'drop'", "'first'"]),
        ({}, {"rating": "w"}, ["rating", "at_least", "together"]),
        ({}, {"at_least": 1}, ["rating", "at_least", "together"]),
        ({}, {"rating": "w", "at_least": "4"}, ["at_least must be a number", "'4'"]),
        ({}, {"rating": "w", "at_least": NAN}, ["at_least", "finite", "nan"]),
        ({}, {"rating": "w", "at_least": 9}, ["an event with 'w' of at least 9", "below"]),
        ({"user": ["x", None]}, {}, ["user ids (column 'user' of interactions)", "must not be missing", "1 are", "row 1"]),
        ({"user": [1.0, NAN]}, {}, ["user ids", "must not be missing", "row 1"]),
        ({"user": [1.0, 2.0]}, {}, ["strings or integers", "double", "1.0"]),
        ({"user": [True, False]}, {}, ["strings or integers", "bool"]),
        ({"user": [[1], [2]]}, {}, ["strings or integers", "list"]),
        ({"user": [1, "a"]}, {}, ["column 'user' of interactions", "one type"]),
        ({"user": np.array([1, 2**64 - 1], np.uint64)}, {}, ["user ids", "64-bit signed", "strings"]),
        ({"user": [1, 2**64]}, {}, ["column 'user' of interactions"]),
        ({"user": "xy"}, {}, ["must map names to columns", "'xy'"]),
        ({"user": 5}, {}, ["must map names to columns", "5"]),
        ({3: [1, 2]}, {}, ["must map names to columns", "3"]),
        ({"user": ["x"]}, {}, ["interactions", "length"]),
        ({name: [] for name in GOOD}, {"timestamp": "t", "weight": "w"}, ["interactions must hold at least one row"]),
        ({"w": [1.0, NAN]}, {"weight": "w"}, ["column 'w'", "must not be missing", "row 1"]),
        ({"w": [1.0, float("inf")]}, {"weight": "w"}, ["column 'w'", "finite", "inf", "row 1"]),
        ({"w": [1.0, -2.0]}, {"weight": "w"}, ["column 'w'", "greater than 0", "-2.0", "position 1"]),
        ({"w": [0, 1]}, {"weight": "w"}, ["column 'w'", "greater than 0", "0.0", "position 0"]),
        ({"w": ["1", "2"]}, {"weight": "w"}, ["column 'w'", "numbers", "string", "'1'"]),
        ({"t": [1, None]}, {"timestamp": "t"}, ["column 't'", "must not be missing", "row 1", "leave out timestamp"]),
        ({"t": [1.0, NAN]}, {"timestamp": "t"}, ["column 't'", "row 1"]),
        ({"t": ["2024-05-01", "soon"]}, {"timestamp": "t"}, ["column 't' cannot be parsed: 'soon' in row 1", "2024-05-01 12"]),
        ({"t": ["2024-05-01", ""]}, {"timestamp": "t"}, ["''", "row 1"]),
        ({"t": ["", "1"]}, {"timestamp": "t"}, ["''", "row 0"]),
        ({"t": ["nan", "1"]}, {"timestamp": "t"}, ["finite", "nan", "row 0"]),
        ({"t": ["2024-05-01T00:00Z", "2024-05-01T00:00"]}, {"timestamp": "t"}, ["row 1", "all with a time zone or all without"]),
        ({"t": [True, False]}, {"timestamp": "t"}, ["column 't'", "numbers, dates", "bool"]),
        ({"t": np.array([1, 2**64 - 1], np.uint64)}, {"timestamp": "t"}, ["column 't'", "64-bit"]),
        ({"t": np.array([0, 2**62], "datetime64[s]")}, {"timestamp": "t"}, ["column 't'", "1970"]),
        ({}, {"users": {"user": [1, 2]}}, ["column 'user' of users", "integers, such as 1", "strings, such as 'x'", "Convert"]),
        ({"user": [1, 2]}, {"users": {"user": ["1", "2"]}}, ["strings, such as '1'", "integers, such as 1"]),
        ({}, {"users": {"user": ["x", None]}}, ["column 'user' of users", "must not be missing", "row 1"]),
        ({}, {"users": {"user": ["x", "x"], "c": [1, 2]}}, ["users must have one row per id", "1", "'x'", "Keep one"]),
        ({}, {"users": {"uid": ["x"]}}, ["users has no column 'user'", "'uid'", "Set users_key to"]),
        ({}, {"items": {"id": ["a"]}}, ["items has no column 'item'", "'id'", "Set items_key to"]),
        ({}, {"users": {"user": []}}, ["users must hold at least one row"]),
        ({}, {"users": 5}, ["users must be a data frame", "int"]),
        ({}, {"items": "no.parquet"}, ["no such file", "no.parquet"]),
        ({}, {"users_key": "id"}, ["users_key='id'", "table of users", "leave it out"]),
        ({}, {"items_key": "id"}, ["items_key='id'", "table of items"]),
        ({}, {"all_items": True}, ["all_items=True", "table of items"]),
        ({}, {"users_key": 3, "users": {"user": ["x"]}}, ["users_key must be the name of a column", "3"]),
        ({}, {"users_key": "id", "users": {"user": ["x"]}}, ["users has no column 'id'", "Set users_key to"]),
        ({}, {"items": {"item": [1]}, "all_items": True}, ["column 'item' of items", "integers, such as 1", "strings"]),
    ],
)  # fmt: skip
def test_refusals(columns: dict[Any, Any], options: dict[str, Any], words: list[str]) -> None:
    with pytest.raises((ValueError, TypeError, FileNotFoundError)) as caught:
        ep.Dataset({**GOOD, **columns}, **options)
    for word in words:
        assert word in str(caught.value), word


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (None, ["interactions must be a data frame", "NoneType"]),
        ([("x", "a")], ["interactions must be a data frame", "list"]),
        (pd.Series(["x"]), ["interactions must be a data frame", "Series"]),
        (pd.DataFrame([["x", "a", 1, 2]], columns=["user", "item", "c", "c"]), ["interactions", "'c'"]),
        (pa.Table.from_arrays([pa.array(["x"])] * 3, ["user", "item", "user"]), ["more than one column 'user'", "Rename"]),
        (pd.DataFrame({"user": [1, "x"], "item": [1, 2]}), ["interactions", "one type", "user"]),
        (pl.DataFrame({"user": [], "item": []}), ["at least one row"]),
    ],
)  # fmt: skip
def test_refused_sources(source: Any, words: list[str]) -> None:
    with pytest.raises((ValueError, TypeError)) as caught:
        ep.Dataset(source)
    for word in words:
        assert word in str(caught.value), word


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("events.xlsx", b"", ["events.xlsx", ".parquet", ".csv", "data frame"]),
        ("events", b"", [".parquet", ".csv"]),
        ("events.parquet", b"user,item\n", ["not a Parquet table"]),
        ("events.csv", b"", ["cannot be read", "','"]),
        ("events.csv", b"user,item\n", ["at least one row"]),
        ("events.csv", b"user,item\nx\n", ["cannot be read", "','", "Expected 2 columns"]),
        ("events.csv", b"user,item\n,a\n", ["user ids", "must not be missing", "row 0"]),
        ("events.csv", b"user,item,user\nx,a,y\n", ["more than one column 'user'"]),
        ("events.csv", b"uid;iid\nx;a\n", ["no column 'user'", "it has 'uid', 'iid'"]),
        ("events.csv", b"user,item\n\xe9,a\n", ["UTF-8"]),
        ("events.csv", b"user,item,title\nx,a,\xe9\n", ["'title'", "UTF-8"]),
    ],
)  # fmt: skip
def test_refused_files(tmp_path: Path, name: str, content: bytes, words: list[str]) -> None:
    with pytest.raises((ValueError, TypeError)) as caught:
        ep.Dataset(csv(tmp_path, content, name))
    for word in words:
        assert word in str(caught.value), word
