"""Columns become features: the same for training events and for requests that say the same."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import everypair as ep
from everypair.columns.fields import Field
from everypair.columns.table import Levels
from everypair.data.tables import as_table
from everypair.recommend.context_batch import ContextBatch
from everypair.recommend.description import Description
from everypair.recommend.encoders import Bins, Category, Encoder, Multiple, Value, encoder, restored

NAN = float("nan")
NUMBERS = st.floats(-1e6, 1e6, width=32)
WORDS = st.sampled_from(["", "a", "b", "NA", "é", "a|b", " b |a|", "1"])
KINDS: dict[str, tuple[st.SearchStrategy[Any], pa.DataType, dict[str, Any]]] = {
    "text": (WORDS, pa.string(), {}),
    "category": (WORDS, pa.dictionary(pa.int8(), pa.string()), {}),
    "separated": (WORDS, pa.large_string(), {"separator": "|"}),
    "one of several": (WORDS, pa.string(), {"kind": "multiple"}),
    "lists": (st.lists(st.sampled_from(["a", "b", None]), max_size=3), pa.list_(pa.string()), {}),
    "lists of categories": (st.lists(WORDS, max_size=3), pa.large_list(pa.dictionary(pa.int32(), pa.string())), {}),
    "lists of numbers": (st.lists(st.integers(0, 3), max_size=3), pa.list_(pa.int16()), {}),
    "truth": (st.booleans(), pa.bool_(), {}),
    "integers": (st.integers(-128, 127), pa.int8(), {"kind": "category"}),
    "large integers": (st.integers(2**63, 2**64 - 1), pa.uint64(), {}),
    "floats": (NUMBERS, pa.float64(), {"kind": "category"}),
    "small floats": (NUMBERS, pa.float32(), {"kind": "category"}),
    "bins": (NUMBERS, pa.float64(), {"bins": 3}),
    "bins of integers": (st.integers(-9, 9), pa.int32(), {"kind": "bins"}),
    "value": (NUMBERS, pa.float64(), {"kind": "value"}),
    "decimals": (st.decimals(-9, 9, places=2), pa.decimal128(5, 2), {"kind": "category"}),
    "values of decimals": (st.decimals(-9, 9, places=2), pa.decimal128(5, 2), {"kind": "value"}),
    "dates": (st.dates(), pa.date32(), {}),
    "times": (st.datetimes(dt.datetime(1970, 1, 1), dt.datetime(2100, 1, 1)), pa.timestamp("us"), {}),
    "nothing": (st.none(), pa.null(), {}),
}


@st.composite
def columns(draw: st.DrawFn, n: int) -> tuple[pa.Array, dict[str, Any]]:
    """A column of some kind with missing entries, and the options of its recipe."""
    values, dtype, options = KINDS[draw(st.sampled_from(sorted(KINDS)))]
    return pa.array(draw(st.lists(st.none() | values, min_size=n, max_size=n)), dtype), options


def dense(column: Any) -> np.ndarray:
    """What a model sees."""
    if isinstance(column, Levels):
        return np.append(column.codes, column.n)
    return column.toarray() if isinstance(column, Field) else np.asarray(column)


@st.composite
def problems(draw: st.DrawFn) -> tuple[ep.Dataset, list[Any]]:
    """Events with attributes of users and of events, and recipes for all of it."""
    n_users, n = draw(st.integers(1, 4)), draw(st.integers(1, 10))
    items = draw(st.lists(st.integers(0, 4), min_size=n, max_size=n))
    (of_users, user_options), (of_events, event_options) = draw(columns(n_users)), draw(columns(n))
    events = {
        "user": draw(st.lists(st.integers(1, n_users), min_size=n, max_size=n)),
        "item": [f"i{j}" for j in items],
        "e": of_events,
    }
    dataset = ep.Dataset(events, users={"user": list(range(1, n_users + 1)), "u": of_users})
    last, decay = draw(st.none() | st.integers(1, 3)), draw(st.sampled_from([1.0, 0.5]))
    history = ep.History(last, decay, draw(st.sampled_from(["sqrt", "mean", "none"])))
    recipes = [ep.UserId(), ep.Previous(), history, ep.Attributes("u", **user_options), ep.Attributes("e", **event_options)]
    return dataset, recipes


def request_of(dataset: ep.Dataset, event: int) -> dict[str, Any]:
    """What a client would say at the moment of an event."""
    user = int(dataset.user[event])
    past = dataset.items.take(dataset.item[dataset.bounds[user] : event]).to_pylist()
    attributes = {"u": dataset.user_table["u"][user].as_py(), "e": dataset.event_table["e"][event].as_py()}
    return {"user": dataset.users[user], "history": past, **attributes}


@given(problems(), st.data())
def test_requests_are_described_as_events(problem: tuple[ep.Dataset, list[Any]], data: st.DataObject) -> None:
    dataset, recipes = problem
    events = ContextBatch.of_events(dataset)
    trained = data.draw(st.lists(st.integers(0, len(dataset) - 1), min_size=1, unique=True))
    description = Description("context", recipes, dataset, events.take(np.array(trained)))
    requests = [request_of(dataset, event) for event in range(len(dataset))]
    for request in requests:  # what the dataset knows of a user need not be said
        if data.draw(st.booleans()):
            del request["u"]
    said = ContextBatch.of_requests(requests, dataset)
    expected, found = description.columns(events), description.columns(said)
    assert list(found) == ["user", "previous", "history", "u", "e"]
    for name in expected:
        assert np.array_equal(dense(found[name]), dense(expected[name])), name
    assert np.array_equal(description.known(said), description.known(events))
    for name in ("u", "e"):
        check_groups(description.fields[name].groups(events), dense(expected[name])[: len(dataset)])
    # one request says what many of them do
    alone = description.columns(ContextBatch.of_requests(requests[-1:], dataset))
    for name in expected:
        if not isinstance(alone[name], Levels):
            assert np.array_equal(dense(alone[name])[-1], dense(expected[name])[-1]), name
        else:
            assert dense(alone[name]).tolist() == dense(expected[name])[-2:].tolist()


def check_groups(groups: np.ndarray, features: np.ndarray) -> None:
    assert groups.min() >= 0
    for group in np.unique(groups):
        rows = features[groups == group]
        assert np.array_equal(rows, np.broadcast_to(rows[0], rows.shape))


@given(problems())
def test_without_a_history_of_its_own_a_request_has_that_of_its_user(problem: tuple[ep.Dataset, list[Any]]) -> None:
    dataset, recipes = problem
    description = Description("context", recipes, dataset, ContextBatch.of_events(dataset))
    users = np.arange(dataset.n_users)
    after = ContextBatch.of_users(dataset, users)
    said = ContextBatch.of_requests([{"user": dataset.users[user]} for user in users], dataset)
    for name, column in description.columns(after).items():
        assert np.array_equal(dense(description.columns(said)[name]), dense(column)), name


@given(st.sampled_from(sorted(KINDS)), st.data())
def test_what_was_not_learnt_has_no_feature(kind: str, data: st.DataObject) -> None:
    values, dtype, options = KINDS[kind]
    assume(dtype != pa.null())
    n = data.draw(st.integers(0, 6))
    drawn = [pa.array(data.draw(st.lists(st.none() | values, max_size=n)), dtype) for _ in range(2)]
    met, new = (as_table("x", {"x": array})["x"] for array in drawn)
    coding = encoder("x", met, options.get("kind", "auto"), options.get("bins", 10), options.get("separator"))
    coding.learn(met)
    index = np.array(data.draw(st.lists(st.integers(-1, len(new) - 1))), np.int64)
    column = coding.columns(new, index)
    features = np.stack([dense(column)[: len(index)]] * 2, 1) if not isinstance(column, Field) else dense(column)
    empty = -1 if isinstance(column, Levels) else 0
    known = coding.known(new, index)
    assert np.all(features[~known] == empty)
    missing = np.append([value is None for value in new.to_pylist()], True).astype(bool)[index]
    assert not np.any(known & missing)
    if isinstance(coding, Category):  # one value per row: known, unknown or missing
        np.testing.assert_array_equal(coding.unknown(new, index), ~known & ~missing)
    again = restored("x", met, json.loads(json.dumps(coding.stored())))
    for of in ("groups", "known", "unknown"):
        np.testing.assert_array_equal(getattr(again, of)(new, index), getattr(coding, of)(new, index))
    np.testing.assert_array_equal(dense(again.columns(new, index)), dense(column))


def learnt(values: Any, kind: str = "auto", bins: int = 10, separator: str | None = None) -> tuple[Any, pa.ChunkedArray]:
    column = pa.chunked_array([values if isinstance(values, pa.Array) else pa.array(values)])
    made = encoder("x", column, kind, bins, separator)
    made.learn(column)
    return made, column


def unknown(made: Encoder, values: Any) -> int:
    return int(made.unknown(pa.chunked_array([pa.array(values)]), np.arange(len(values))).sum())


def coded(made: Encoder, values: Any, dtype: pa.DataType | None = None) -> Any:
    column = pa.chunked_array([pa.array(values, dtype)])
    return dense(made.columns(column, np.arange(len(column))))


@given(st.lists(NUMBERS, min_size=1), st.integers(2, 6))
def test_bins_hold_about_equally_many(values: list[float], bins: int) -> None:
    made, column = learnt(values, "bins", bins)
    codes = made.codes(column)
    counts = np.bincount(codes, minlength=len(made.levels))
    assert 1 <= len(counts) <= bins
    assert counts.min() > 0  # every bin was met, so every number has a feature that was learnt
    assert np.all(np.diff(codes[np.argsort(values, kind="stable")]) >= 0)
    if len(set(values)) == len(values):
        assert counts.max() <= len(values) / bins + 1
    assert coded(made, [-1e9, 1e9, None, NAN]).tolist() == [0, len(counts) - 1, -1, -1, len(counts)]
    assert unknown(made, [-1e9, 1e9, None, NAN]) == 0


@given(st.lists(NUMBERS, min_size=1))
def test_values_are_standardised(values: list[float]) -> None:
    made, _ = learnt(values, "value")
    scaled = coded(made, [*values, None, NAN])
    assert scaled[-2:].tolist() == [0.0, 0.0]
    assert scaled[:-2].mean() == pytest.approx(0.0, abs=1e-6)
    spread = scaled[:-2].std()
    assert spread == pytest.approx(1.0) or (np.std(values) <= 1e-8 * np.abs(values).max() and spread < 1e-3)


@given(st.lists(st.none() | st.lists(st.sampled_from("abc"), max_size=4)))
def test_several_levels_have_length_one(values: list[list[str] | None]) -> None:
    made, column = learnt(pa.array(values, pa.list_(pa.string())))
    index = np.append(np.arange(len(values)), -1)
    matrix = dense(made.columns(column, index))
    sets = [set(value or []) for value in [*values, None]]
    assert np.linalg.norm(matrix, axis=1) == pytest.approx([float(bool(s)) for s in sets])
    levels = made.levels.to_pylist()
    assert [{levels[j] for j in np.flatnonzero(row)} for row in matrix] == sets
    assert made.known(column, index).tolist() == [bool(s) for s in sets]


def test_separated_texts() -> None:
    made, _ = learnt(["Action|Drama", " Drama | ", "", None], separator="|")
    assert made.levels.to_pylist() == ["Action", "Drama"]
    assert coded(made, ["Drama|Action", "Drama|Horror|Horror", "", None]) == pytest.approx(
        np.array([[0.5**0.5] * 2, [0, 1], [0, 0], [0, 0]])
    )
    assert unknown(made, ["Drama|Action", "Drama|Horror|Horror", "", None]) == 2


def test_levels_are_the_same_in_any_type() -> None:
    made, _ = learnt([1, 2, None])
    assert isinstance(made, Category)
    for values in ([2, 1], [2.0, 1.0], ["2", "1"], [Decimal("2.00"), Decimal("1.00")]):
        assert coded(made, values).tolist() == [1, 0, 2]
    assert coded(made, [1.5, NAN, None]).tolist() == [-1, -1, -1, 2]
    assert unknown(made, [1.5, NAN, None]) == 1
    truth, _ = learnt([True, False])
    assert coded(truth, ["true"]).tolist() == [1, 2]


@pytest.mark.parametrize(
    ("values", "options", "kind"),
    [
        (["a", "b"], {}, Category),
        ([True, None], {}, Category),
        (list(range(32)), {}, Category),
        ([None, *range(33)], {}, Bins),
        ([0.5, 1.0], {}, Bins),
        ([Decimal("0.5")], {}, Bins),
        ([["a"]], {}, Multiple),
        (["a|b"], {"separator": "|"}, Multiple),
        ([1, 2], {"separator": "|"}, Category),  # as when all columns are named at once
        ([0.5], {"kind": "value"}, Value),
        ([dt.date(2024, 1, 1)], {}, Category),
        ([None], {}, Category),
    ],
)  # fmt: skip
def test_kinds_by_type(values: list[Any], options: dict[str, Any], kind: type) -> None:
    assert type(learnt(values, **options)[0]) is kind


USER, TRUTH, GENRES = ["x", "y"], [True, None], [["a", "b"], None]
FRAMES: dict[str, Any] = {
    "pandas": pd.DataFrame({
        "user": USER, "c": pd.Categorical(["b", None], categories=["z", "b"]), "n": pd.array([3, None], "Int64"),
        "g": GENRES, "b": pd.array(TRUTH, "boolean"),
    }),
    "polars": pl.DataFrame({
        "user": USER, "c": pl.Series(["b", None], dtype=pl.Categorical), "n": pl.Series([3, None], dtype=pl.UInt8),
        "g": GENRES, "b": TRUTH,
    }),
    "polars, other types": pl.DataFrame({
        "user": USER, "c": pl.Series(["b", None], dtype=pl.Enum(["z", "b"])), "n": [3.0, NAN],
        "g": pl.Series(GENRES, dtype=pl.List(pl.Categorical)), "b": TRUTH,
    }),
    "polars arrays": pl.DataFrame({
        "user": USER, "c": ["b", None], "n": pl.Series([3, None], dtype=pl.Decimal(5, 2)),
        "g": pl.Series(GENRES, dtype=pl.Array(pl.String, 2)), "b": TRUTH,
    }),
    "Arrow views": pa.table({
        "user": USER, "c": pa.array(["b", None], pa.string_view()), "n": [3, None],
        "g": pa.array(GENRES, pa.list_view(pa.string_view())), "b": TRUTH,
    }),
}  # fmt: skip


@pytest.mark.parametrize("frame", FRAMES)
def test_attributes_of_any_frame(frame: str) -> None:
    dataset = ep.Dataset({"user": ["y", "x"], "item": [1, 2]}, users=FRAMES[frame])
    contexts = ContextBatch.of_users(dataset, [0, 1])
    recipes = [ep.Attributes("c", "g", "b"), ep.Attributes("n", kind="category")]
    description = Description("context", recipes, dataset, contexts)
    for rows in (
        contexts,
        ContextBatch.of_requests([{"c": "b", "n": 3, "g": ["b", "a"], "b": True}, {"c": None, "g": None, "n": NAN}], dataset),
    ):
        found = {name: dense(column).tolist() for name, column in description.columns(rows).items()}
        assert found == {"c": [0, -1, 1], "b": [0, -1, 1], "n": [0, -1, 1], "g": [pytest.approx([0.5**0.5] * 2), [0, 0]]}
        assert description.known(rows).tolist() == [True, False]


USERS = {"user": ["x", "y"], "age": [31, 40], "country": ["NA", "DE"], "none": pa.nulls(2)}
DATA = ep.Dataset({"user": ["x", "y", "x"], "item": [1, 2, 2], "device": ["tv", "pc", None]}, users=USERS)


def test_requests_that_say_something_new() -> None:
    recipes = [
        ep.UserId(),
        ep.Previous(),
        ep.History(),
        ep.Attributes("country", "device", "none"),
        ep.Attributes("age", kind="category"),
    ]
    description = Description("context", recipes, DATA, ContextBatch.of_events(DATA))
    requests: list[dict[str, Any]] = [
        {},
        {"user": "nobody", "history": [7, 8], "country": "FR", "device": "radio", "age": 31.5, "none": "some"},
        {"user": None, "history": None, "country": None, "device": NAN, "age": NAN, "none": None},
        {"country": pd.NA, "device": "tv", "age": 300, "history": np.array([9, 2])},
        {"user": "y", "history": (), "age": 31.0},
    ]
    found = description.columns(ContextBatch.of_requests(requests, DATA))
    assert found["user"].codes.tolist() == [-1, -1, -1, -1, 1]
    assert found["previous"].codes.tolist() == [-1, -1, -1, 1, -1]
    assert found["history"].toarray().tolist() == [[0, 0]] * 3 + [[0, 1], [0, 0]]
    assert found["country"].codes.tolist() == [-1, -1, -1, -1, 0]  # of y, from the dataset
    assert found["device"].codes.tolist() == [-1, -1, -1, 1, -1]
    assert found["age"].codes.tolist() == [-1, -1, -1, -1, 0]
    unknown = description.unknown(ContextBatch.of_requests(requests, DATA))
    assert {name: rows.sum() for name, rows in unknown.items()} == {"country": 1, "device": 1, "none": 1, "age": 2}
    assert len(ContextBatch.of_requests([], DATA)) == 0


def test_attributes_named_like_what_requests_say() -> None:
    dataset = ep.Dataset({"uid": [1], "item": [2]}, users={"uid": [1], "user": ["ann"], "history": ["long"]}, user="uid")
    contexts = ContextBatch.of_requests([{"uid": 1, "history": [2]}, {"uid": 1, "user": "eve"}], dataset)
    said = [lookup.values.take(lookup.index).to_pylist() for lookup in contexts.attributes.values()]
    assert said == [["ann", "eve"], ["long", "long"]]
    assert (contexts.user.tolist(), contexts.items.tolist()) == ([0, 0], [0, 0])


def test_an_attribute_of_events_is_not_filled_from_the_users() -> None:
    dataset = ep.Dataset({"user": [1], "item": [2], "c": ["tv"]}, users={"user": [1], "c": [5]})
    for contexts in (ContextBatch.of_users(dataset, [0]), ContextBatch.of_requests([{"user": 1}], dataset)):
        values, index = contexts.attributes["c"]
        assert np.append(values.to_pylist(), None)[index].tolist() == [None]


@pytest.mark.parametrize(
    ("requests", "words"),
    [
        ({"user": "x"}, ["requests must be a list of mappings", "dict"]),
        (5, ["requests must be a list", "int"]),
        (["x"], ["request 0 must be a mapping", "str"]),
        ([{}, {"agee": 3}], ["request 1 has 'agee'", "'user' (an id), 'history' (items), 'history_times', and attributes: 'age',"]),
        ([{"user": 5}], ["'user' of requests", "integers, such as 5", "strings, such as 'x'"]),
        ([{"user": 5}, {"user": "x"}], ["'user' of requests", "all be strings"]),
        ([{}, {"history": "1"}], ["'history' of request 1", "list of item ids", "'1'"]),
        ([{"history": {1, 2}}], ["'history' of request 0", "oldest first"]),
        ([{"history": 3}], ["'history' of request 0", "3"]),
        ([{"history": ["1"]}], ["'history' of requests", "strings, such as '1'", "integers, such as 1"]),
        ([{"history": [1, None]}], ["'history' of requests", "must not be missing", "row 1"]),
        ([{}, {"age": "old"}], ["attribute 'age' of request 1", "int64", "'old'"]),
        ([{"country": True}], ["attribute 'country' of request 0", "string", "True"]),
    ],
)  # fmt: skip
def test_refused_requests(requests: Any, words: list[str]) -> None:
    with pytest.raises((ValueError, TypeError)) as caught:
        ContextBatch.of_requests(requests, DATA)
    for word in words:
        assert word in str(caught.value), word


@pytest.mark.parametrize(
    ("values", "kind", "words"),
    [
        (["a"], "bins", ["'x'", "numbers for kind='bins'", "string"]),
        ([True], "value", ["'x'", "numbers", "bool"]),
        ([["a"]], "category", ["'x' holds lists", "kind='multiple'", "'category'"]),
        ([{"a": 1}], "auto", ["'x' must hold strings", "struct<a: int64>"]),
        ([[{"a": 1}]], "auto", ["'x' must hold strings", "struct<a: int64>"]),
        ([[["a"]]], "auto", ["'x' must hold strings", "list<"]),
        ([b"a"], "auto", ["'x' must hold strings", "binary"]),
    ],
)  # fmt: skip
def test_refused_attributes(values: list[Any], kind: str, words: list[str]) -> None:
    with pytest.raises(TypeError) as caught:
        learnt(values, kind)
    for word in words:
        assert word in str(caught.value), word


@pytest.mark.parametrize(
    ("values", "facts"),
    [
        (["a"], {"kind": "value", "mean": 0.0, "spread": 1.0}),  # of strings
        ([1.0], {"kind": "value", "mean": 0.0, "spread": 0.0}),
        ([1.0], {"kind": "bins", "edges": [2.0, 1.0], "levels": ["0", "1", "2"], "whole": True}),
        ([1.0], {"kind": "bins", "edges": [[1.0]], "levels": ["0", "1"], "whole": True}),
        ([1.0], {"kind": "bins", "edges": [float("nan")], "levels": ["0", "1"], "whole": True}),
        (["a"], {"kind": "category", "levels": ["a", None]}),
        (["a"], {"kind": "category", "levels": ["a", "a"]}),
        (["a"], {"kind": "multiple", "levels": ["a"], "separator": 3}),
        (["a"], {"kind": "auto", "levels": ["a"]}),
        (["a"], {"kind": "os.system"}),
    ],
)
def test_stored_encoders_fit_their_column(values: list[Any], facts: dict[str, Any]) -> None:
    with pytest.raises((ValueError, TypeError)):
        restored("x", pa.chunked_array([values]), facts)
