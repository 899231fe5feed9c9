"""Timestamps are compared only with those that can be compared."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import everypair as ep

NOON = dt.datetime(2024, 5, 1, 12)
UTC, EAST = NOON.replace(tzinfo=dt.UTC), NOON.replace(tzinfo=dt.timezone(dt.timedelta(hours=5)))
NAIVE, ZONED = [NOON, NOON + dt.timedelta(1)], [UTC, EAST + dt.timedelta(1)]
LARGE = 2**60
WHOLE = st.integers(-100, 100) | st.integers(-(2**53), 2**53) | st.integers(-(2**63) + 1, 2**63 - 1)


def table(times: Any, item: str = "a") -> dict[str, Any]:
    return {"user": ["x"] * len(times), "item": [f"{item}{j}" for j in range(len(times))], "t": times}


@given(st.lists(WHOLE, min_size=1), st.lists(st.floats(-1e6, 1e6) | st.floats(-1e18, 1e18), min_size=1), st.booleans())
def test_numbers_of_both_kinds_are_ordered_or_refused(integers: list[int], floats: list[float], integers_first: bool) -> None:
    first, second = (integers, floats) if integers_first else (floats, integers)
    dataset = ep.Dataset(table(first), timestamp="t")
    if max(map(abs, [*integers, *floats])) > 2**53:
        with pytest.raises(TypeError, match=r"timestamps of the new interactions must be .*: beyond 2\*\*53, floats are rounded"):
            dataset.extended(table(second, "b"))
        return
    both = dataset.extended(table(second, "b"))
    names = [f"a{j}" for j in range(len(first))] + [f"b{j}" for j in range(len(second))]
    expected = [name for _, name in sorted(zip([*first, *second], names, strict=True), key=lambda row: row[0])]
    assert both.items.take(both.item).to_pylist() == expected


KINDS: dict[str, list[Any]] = {
    "zoned": ZONED,
    "zoned strings": ["2024-05-01T12:00:00+05:00", "2024-05-02T12:00:00Z"],
    "naive": NAIVE,
    "naive strings": ["2024-05-01T12:00:00", "2024-05-02T12:00:00"],
    "dates": ["2024-05-01", "2024-05-02"],
    "numbers": [1, 2],
}
COMPARABLE = {"zoned": {"zoned", "zoned strings"}, "naive": {"naive", "naive strings", "dates"}, "numbers": {"numbers"}}


@pytest.mark.parametrize("first", KINDS)
@pytest.mark.parametrize("second", KINDS)
@pytest.mark.parametrize("stored", [False, True])
def test_an_update_takes_the_times_that_a_table_would(tmp_path: Any, first: str, second: str, stored: bool) -> None:
    recommender = ep.Recommender(ep.MF(factors=2, epochs=1)).fit(ep.Dataset(table(KINDS[first]), timestamp="t"))
    if stored:
        recommender = ep.load(recommender.save(tmp_path / "model"))
    if any({first, second} <= kinds for kinds in COMPARABLE.values()):
        recommender.update(table(KINDS[second], "b"))
        assert len(recommender.dataset_) == 4
        assert recommender.dataset_.time_zoned == (None if first == "numbers" else first.startswith("zoned"))
    else:
        with pytest.raises(TypeError, match="timestamps of the new interactions must be"):
            recommender.update(table(KINDS[second], "b"))
        assert len(recommender.dataset_) == 2


def test_folders_that_do_not_know_their_zone_take_any() -> None:
    dataset = ep.Dataset(table(NAIVE), timestamp="t")
    dataset.time_zoned = None
    extended = dataset.extended(table(ZONED, "b"))
    assert (len(extended), extended.time_zoned) == (4, None)


MIXED: dict[str, list[Any]] = {
    "naive first": [NOON, EAST],
    "zoned first": [EAST, NOON],
    "date first": [NOON.date(), NOON],
    "time first": [NOON, NOON.date()],
}


@pytest.mark.parametrize("name", MIXED)
@pytest.mark.parametrize("kind", ["list", "numpy", "pandas", "frame"])
def test_objects_of_different_kinds_are_refused(name: str, kind: str) -> None:
    values: Any = MIXED[name]
    if kind != "list":
        values = np.array(values, object) if kind == "numpy" else pd.Series(values, dtype=object)
    events: Any = table(values)
    events = pd.DataFrame(events) if kind == "frame" else events
    with pytest.raises(TypeError, match=r"column 't' must hold values of one kind, got a .* in row 0 and a .* in row 1"):
        ep.Dataset(events, timestamp="t")
    dataset = ep.Dataset(table([values[0]]), timestamp="t")
    with pytest.raises(TypeError, match="column 't' must hold values of one kind"):
        dataset.extended(events)


def test_objects_of_one_kind_are_not() -> None:
    for values in (NAIVE, ZONED, [NOON.date(), NOON.date()], [pd.Timestamp(NOON), NOON]):
        assert len(ep.Dataset(table(values), timestamp="t")) == 2


@pytest.mark.parametrize(
    "values",
    [
        [str(LARGE), f"{LARGE + 1}.0"],
        ["1714566600.000000001", "1714566600.000000002"],
        [Decimal("1714566600.000000001"), Decimal("1714566600.000000002")],
    ],
)
def test_numbers_that_floats_do_not_tell_apart_are_refused(values: list[Any]) -> None:
    with pytest.raises(
        ValueError, match=r"column 't' has .*, which are the same as floats: the order would be lost. Give integers"
    ):
        ep.Dataset(table(values), timestamp="t")


def test_the_same_number_written_twice_is_not() -> None:
    assert ep.Dataset(table(["100.0", "100", "1e2", "7.50"]), timestamp="t").time is not None
