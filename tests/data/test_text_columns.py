"""A column of text gets a type only where its text survives that."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import everypair as ep
from everypair.data.text_columns import as_type, guess
from everypair.recommend.context_batch import ContextBatch
from everypair.recommend.encoders import Category

FINITE = st.floats(allow_nan=False, allow_infinity=False)
DIGITS = st.from_regex(r"-?[0-9]{1,3}(\.[0-9]{1,3})?", fullmatch=True)
ANYTHING = st.one_of(DIGITS, st.from_regex(r"[0-9]{0,2}[.,eE+-]?[0-9]{0,2}", fullmatch=True), st.text(max_size=3), st.just("true"))
PRINTED = {
    "repr": repr,
    "shortest": "{:.12g}".format,
    "two places": "{:.2f}".format,
    "scientific": "{:.6e}".format,
    "java": lambda number: repr(number).replace("e-0", "E-").replace("e-", "E-") if "e-" in repr(number) else repr(number),
}


def column(texts: list[str | None]) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(texts, pa.string())])


@given(st.lists(ANYTHING, min_size=1))
def test_different_texts_stay_different(texts: list[str]) -> None:
    values = guess(column(texts)).values
    assert len(values) == len(texts)
    kept = [text for text, value in zip(texts, values.to_pylist(), strict=True) if value is not None]
    assert len(values.unique().drop_null()) == len(set(kept))
    if pa.types.is_string(values.type):
        assert values.to_pylist() == texts


@given(st.lists(ANYTHING, min_size=1), st.data())
def test_a_text_finds_its_level(texts: list[str], data: st.DataObject) -> None:
    """Of a file, and of a request: the same text has the same level, and another text another one."""
    asked = data.draw(st.sampled_from(texts))
    events = {"user": ["x"] * len(texts), "item": ["a"] * len(texts), "size": guess(column(texts)).values}
    dataset, category = ep.Dataset(events), Category()
    category.learn(dataset.event_table["size"])
    batch = ContextBatch.of_requests([{"size": asked}], dataset)
    codes = category.codes(dataset.event_table["size"])
    if codes[texts.index(asked)] >= 0:  # else the text is a word for a missing value
        found = category.codes(batch.attributes["size"].values)[0]
        assert {text for text, code in zip(texts, codes, strict=True) if code == found} == {asked}


@pytest.mark.parametrize("style", PRINTED)
@given(numbers=st.lists(st.floats(-1e6, 1e6) | st.floats(1e-7, 1e-3), min_size=1))
def test_numbers_that_software_prints_are_numbers(style: str, numbers: list[float]) -> None:
    texts = [PRINTED[style](number) for number in numbers]
    values = guess(column(texts)).values
    assert not pa.types.is_string(values.type)
    np.testing.assert_array_equal(np.asarray(values.to_pylist(), float), [float(text) for text in texts])


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1))
def test_integers(numbers: list[int]) -> None:
    assert guess(column([str(number) for number in numbers])).values.to_pylist() == numbers


@given(st.lists(FINITE, min_size=1))
def test_values_are_those_of_the_text(numbers: list[float]) -> None:
    values = guess(column([repr(number) for number in numbers])).values
    if not pa.types.is_string(values.type):
        np.testing.assert_array_equal(np.asarray(values.to_pylist(), float), numbers)


@pytest.mark.parametrize(
    ("texts", "kind", "remark"),
    [
        (["01234", "1234"], "string", "'01234'"),
        (["007"], "string", "'007'"),
        (["1.10", "1.1"], "string", "'1.10'"),
        (["1.9", "1.10"], "string", "'1.10'"),
        (["1", "1.0"], "string", ""),
        (["100", "1e+02"], "string", ""),
        (["12e5", "3e1"], "string", "'12e5'"),
        (["+5", "5"], "string", "'+5'"),
        (["3,5", "2"], "string", "decimal comma"),
        (["12345678901234567890", "1.5"], "string", "'12345678901234567890'"),
        (["9223372036854775808"], "string", "'9223372036854775808'"),
        (["true", "True"], "string", None),
        (["12:30", "12:30:00"], "string", None),
        (["2024-05-01", "2024-05-02"], "string", None),
        (["1", "2", "NA"], "int64", None),
        (["9.90", "10.00", ""], "double", None),
        (["9.9", "10", "nan"], "double", None),
        (["9.9", "10.0"], "double", None),
        ([".5", "1.5"], "double", None),
        (["1e-05", "0.5"], "double", None),
        (["1e+20", "3"], "double", None),
        (["TRUE", "FALSE"], "bool", None),
        (["True", None], "bool", None),
        (["NA", "NA"], "string", None),
    ],
)
def test_kinds(texts: list[str | None], kind: str, remark: str | None) -> None:
    values, found = guess(column([text or None for text in texts]))
    assert str(values.type) == kind
    assert (found is None) if remark is None else (found is not None and remark in found)


@given(st.lists(ANYTHING, min_size=1), st.sampled_from([pa.int64(), pa.int8(), pa.float64(), pa.bool_(), pa.date32(), pa.string()]))
def test_a_known_type_keeps_the_text_or_refuses(texts: list[str], kind: pa.DataType) -> None:
    values = None
    with contextlib.suppress(TypeError):  # what it says is tested with updates
        values = as_type(column(texts), kind, "column 'c'")
    if values is None:
        return
    found = dict(zip(texts, values.to_pylist(), strict=True))
    if pa.types.is_integer(kind):
        assert all(value is None or str(value) == text for text, value in found.items())


def frame(tmp_path: Path, text: str, name: str) -> Path:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


def test_attributes_of_a_file_keep_their_text(tmp_path: Path) -> None:
    plays = frame(tmp_path, "user,item,version\nx,1,1.10\ny,2,1.1\nz,2,2.0\n", "plays.csv")
    users = frame(tmp_path, "user,zip,age,height,price\nx,01234,31,1.5,9.90\ny,1234,,2,10.00\nz,99999,40,1.75,0.50\n", "users.csv")
    dataset = ep.Dataset(plays, users=users)
    assert dataset.event_table["version"].to_pylist() == ["1.10", "1.1", "2.0"]
    assert dataset.user_table["zip"].to_pylist() == ["01234", "1234", "99999"]
    kinds = dict(zip(dataset.user_table.column_names, map(str, dataset.user_table.schema.types), strict=True))
    assert kinds == {"zip": "string", "age": "int64", "height": "double", "price": "double"}
    assert dataset.notes == [
        "column 'version' of interactions holds strings, since numbers would not keep '1.10' as it is written.",
        "column 'zip' of users holds strings, since numbers would not keep '01234' as it is written.",
    ]
    recommender = ep.Recommender(ep.FM(factors=2, epochs=2), [ep.Attributes("zip"), ep.Attributes("version")]).fit(dataset)
    assert recommender.state.contexts.fields["zip"].encoder.levels.to_pylist() == ["01234", "1234", "99999"]  # type: ignore[attr-defined]
    for zip_code in ("01234", "1234", 1234):
        recommender.context_vectors(requests=[{"zip": zip_code, "version": "1.10"}])
    assert recommender.unknown_ == {}
    different = recommender.context_vectors(requests=[{"zip": "01234", "version": "1.1"}, {"zip": "1234", "version": "1.1"}])
    assert not np.array_equal(different[0], different[1])
    recommender.context_vectors(requests=[{"zip": "001234", "version": "1.100"}, {"zip": "1234"}])
    assert recommender.unknown_ == {"zip": 1, "version": 1}


@pytest.mark.parametrize(("price", "same"), [("2.5", 2.5), ("10", 10.0), (" 3.10", 3.1)])
def test_numbers_written_in_several_ways_are_numbers_where_they_are_declared(tmp_path: Path, price: str, same: float) -> None:
    plays = frame(tmp_path, "user,item,w,stars,price\nx,1,1.0,4.50,2.5\ny,2,2.50,5,10\nz,2,3,4.0,3.10\nz,1,1,1,4\n", "plays.csv")
    dataset = ep.Dataset(plays, weight="w", rating="stars", at_least=4)
    assert dataset.weight is not None
    assert dataset.weight.tolist() == [1.0, 2.5, 3.0]
    assert str(dataset.event_table["price"].type) == "string"
    for kind in ("value", "bins"):
        recommender = ep.Recommender(ep.FM(factors=2, epochs=2), [ep.Attributes("price", kind=kind, bins=2)]).fit(dataset)
        found = recommender.context_vectors(requests=[{"price": price}, {"price": same}])
        np.testing.assert_array_equal(found[0], found[1])
        recommender.context_vectors(requests=[{"price": "2.5"}])
        assert recommender.unknown_ == {}
        recommender.state.request_batch(requests=[{"price": "cheap"}])
        assert recommender.unknown_ == {"price": 1}


def test_text_among_declared_numbers_is_refused(tmp_path: Path) -> None:
    plays = frame(tmp_path, "user,item,w\nx,1,1.0\ny,2,lots\n", "plays.csv")
    with pytest.raises(TypeError, match="column 'w' must hold numbers, but row 1 has 'lots'"):
        ep.Dataset(plays, weight="w")
    dataset = ep.Dataset(plays)
    with pytest.raises(TypeError, match="attribute 'w' must hold numbers for kind='value', got string, such as 'lots'"):
        ep.Recommender(ep.FM(), [ep.Attributes("w", kind="value")]).fit(dataset)


REQUESTS: list[tuple[pa.DataType, Any, Any]] = [
    (pa.int64(), "18", 18),
    (pa.int64(), "18.5", 18.5),
    (pa.float64(), "9.90", 9.9),
    (pa.float64(), "1e-3", 0.001),
    (pa.bool_(), "True", True),
    (pa.string(), 18, "18"),
    (pa.string(), 1.5, "1.5"),
]


@pytest.mark.parametrize(("kind", "given_value", "expected"), REQUESTS)
def test_requests_in_the_other_kind(kind: pa.DataType, given_value: Any, expected: Any) -> None:
    dataset = ep.Dataset({"user": [1], "item": [1], "size": pa.array([None], kind)})
    batch = ContextBatch.of_requests([{"size": given_value}, {}], dataset)
    assert batch.attributes["size"].values.to_pylist()[:1] == [expected]


@pytest.mark.parametrize(
    ("kind", "refused"),
    [(pa.int64(), "018"), (pa.int64(), ""), (pa.float64(), "-"), (pa.float64(), "01.5"), (pa.int64(), "old"), (pa.string(), True)],
)
def test_requests_that_would_not_keep_the_text(kind: pa.DataType, refused: Any) -> None:
    dataset = ep.Dataset({"user": [1], "item": [1], "size": pa.array([None], kind)})
    with pytest.raises(TypeError, match=f"'size' of request 0 must be of type {kind}, as in the data, got {refused!r}"):
        ContextBatch.of_requests([{"size": refused}], dataset)
