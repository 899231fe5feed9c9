"""Batches of contexts: users with their attributes and histories, the same for training events and for live requests."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from everypair.data import Dataset, Ids
from everypair.data.arrow import decoded, is_number, is_text, value_type
from everypair.data.text_columns import INTEGER, NUMBER
from everypair.data.times import times

LONGEST = 20  # characters of a 64-bit integer
HISTORY = "history"  # the key of a request for the items seen so far
HISTORY_TIMES = "history_times"  # that for their times


class AttributeColumn(NamedTuple):
    """An attribute of many rows: its values, and for each row the position of its value, -1 where there is none."""

    values: pa.ChunkedArray
    index: np.ndarray

    def compact(self) -> AttributeColumn:
        """With the values of its rows alone, where those are few."""
        there = self.index >= 0
        if 2 * len(self.index) >= len(self.values):
            return self
        return AttributeColumn(self.values.take(pa.array(self.index[there])), np.where(there, np.cumsum(there) - 1, -1))


@dataclass(frozen=True)
class ContextBatch:
    """The rows that contexts are made of.

    The histories of all rows share one array: a user's events lie one after the other, and the history at an event is the part
    before it. So an event with a history of a thousand items costs two numbers.

    Attributes
    ----------
    user : array of integers
        Codes of users, -1 for an unknown one.
    items, bounds : arrays of integers
        Sequences of items, end to end, and where each begins.
    begin, end : arrays of integers
        The history of each row: ``items[begin:end]``; ``begin`` is the beginning of a sequence.
    attributes : dict of AttributeColumn
    user_ids, item_ids : Ids
        The ids that codes of users and items stand for.
    own_history : array of booleans
        Whether the history is that of a request, and not that of the dataset.
    unknown : dict
        How many users and items of histories the requests name that are not in the dataset.
    times : array, optional
        The times of ``items``, in the unit of the dataset's; None: it has none.
    untimed : int
        How many histories of requests have several items and no times, which are taken for events of one moment.
    """

    side = "context"
    user: np.ndarray
    items: np.ndarray
    bounds: np.ndarray
    begin: np.ndarray
    end: np.ndarray
    attributes: dict[str, AttributeColumn]
    user_ids: Ids
    item_ids: Ids
    own_history: np.ndarray
    unknown: dict[str, int] = field(default_factory=dict)
    times: np.ndarray | None = None
    untimed: int = 0

    def content(self) -> Iterator[Any]:
        """All it holds, for a fingerprint: attributes as the bytes of an Arrow stream."""
        yield from (self.user, self.items, self.bounds, self.begin, self.end, self.own_history)
        for name, (values, index) in self.attributes.items():
            own = decoded(values).take(pa.array(index, mask=index < 0))
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, pa.schema([pa.field("values", own.type)])) as stream:
                stream.write_table(pa.table({"values": own}).combine_chunks())
            yield name
            yield np.frombuffer(sink.getvalue(), np.uint8)

    @classmethod
    def of_events(cls, dataset: Dataset, events: Any = None) -> ContextBatch:
        """The contexts of events: the history of each is all that its user did before."""
        events = np.arange(len(dataset)) if events is None else np.asarray(events, np.int64)
        user = dataset.user[events]
        attributes = {name: AttributeColumn(dataset.user_table[name], user) for name in dataset.user_table.column_names}
        attributes |= {name: AttributeColumn(dataset.event_table[name], events) for name in dataset.event_table.column_names}
        own, begin = np.zeros(len(user), bool), dataset.bounds[user]
        return cls(
            user, dataset.item, dataset.bounds, begin, events, attributes, dataset.users, dataset.items, own, times=dataset.time
        )

    @classmethod
    def of_users(cls, dataset: Dataset, users: Any) -> ContextBatch:
        """The contexts of these users (codes, -1 for unknown ones) after all their events."""
        user = np.asarray(users, np.int64)
        attributes = {name: AttributeColumn(dataset.user_table[name], user) for name in dataset.user_table.column_names}
        nothing = np.full(len(user), -1)
        attributes |= {name: AttributeColumn(dataset.event_table[name], nothing) for name in dataset.event_table.column_names}
        begin, end = (np.where(user >= 0, dataset.bounds[user + after], 0) for after in (0, 1))
        own = np.zeros(len(user), bool)
        return cls(
            user, dataset.item, dataset.bounds, begin, end, attributes, dataset.users, dataset.items, own, times=dataset.time
        )

    @classmethod
    def of_requests(cls, requests: Sequence[Mapping[str, Any]], dataset: Dataset) -> ContextBatch:
        """The contexts of live requests.

        A request is a mapping of attributes by name, ``"history"`` (items, oldest first), ``"history_times"`` (the time of
        each) and, for a known user, the id, named as in the interactions. Where the request of a known user has no value, that of
        the dataset is used. Unknown items are left out.
        """
        if isinstance(requests, Mapping) or not isinstance(requests, Sequence):
            raise TypeError(f"requests must be a list of mappings, such as [{{{HISTORY!r}: []}}], got {type(requests).__name__}.")
        user = dataset.user_column
        types = {**_types(dataset.user_table), **_types(dataset.event_table)}
        for r, request in enumerate(requests):
            _check_names(r, request, user, types)
        users = np.full(len(requests), -1)
        named = [r for r, request in enumerate(requests) if request.get(user) is not None]
        with blamed_on(named[0] if len(named) == 1 else None, user):
            users[named] = dataset.users.codes([requests[r][user] for r in named], f"{user!r} of requests")
        histories = _histories(requests, users, dataset)
        bounds = np.append(0, np.cumsum([len(history) for history in histories.items])).astype(np.int64)
        items = np.concatenate([np.empty(0, np.int32), *histories.items]).astype(np.int32)
        times = None if dataset.time is None else np.concatenate([dataset.time[:0], *histories.times])
        others = (user, HISTORY, HISTORY_TIMES)
        given = [{name: value for name, value in request.items() if name not in others} for request in requests]
        attributes = {name: _attribute(name, dtype, given, users, dataset) for name, dtype in types.items()}
        own = np.array([request.get(HISTORY) is not None for request in requests], bool)
        unknown = {user: int(np.sum(users[named] < 0)), HISTORY: histories.unknown}
        return cls(
            users, items, bounds, bounds[:-1], bounds[1:], attributes, dataset.users, dataset.items, own, unknown, times,
            histories.untimed,
        )  # fmt: skip

    def take(self, index: np.ndarray) -> ContextBatch:
        """Some of the rows."""
        attributes = {name: AttributeColumn(values, at[index]) for name, (values, at) in self.attributes.items()}
        rows = {name: getattr(self, name)[index] for name in ("user", "begin", "end", "own_history")}
        return replace(self, **rows, attributes=attributes)

    def compact(self) -> ContextBatch:
        """The same rows with their own histories and attributes alone, where those are few.

        The cost of features grows with all items and values that a batch holds.
        """
        attributes = {name: column.compact() for name, column in self.attributes.items()}
        lengths = self.end - self.begin
        if 2 * lengths.sum() >= len(self.items):
            return replace(self, attributes=attributes)
        bounds = np.append(0, np.cumsum(lengths)).astype(np.int64)
        at = np.repeat(self.begin - bounds[:-1], lengths) + np.arange(bounds[-1])
        times = None if self.times is None else self.times[at]
        return replace(
            self, items=self.items[at], bounds=bounds, begin=bounds[:-1], end=bounds[1:], attributes=attributes, times=times
        )

    def anonymous(self) -> ContextBatch:
        """The same rows with their attributes alone: no user, no history."""
        return replace(self, user=np.full_like(self.user, -1), end=self.begin)

    def previous(self, back: int = 1) -> np.ndarray:
        """The last item of each history, or an earlier one (``back`` 2 is the one before the last); -1 for none."""
        return np.append(self.items, -1)[np.where(self.end - back >= self.begin, self.end - back, -1)]

    def __len__(self) -> int:
        return len(self.user)


@contextmanager
def blamed_on(request: int | None, name: str) -> Iterator[None]:
    """Mark errors raised in the block as caused by a key of a request: :func:`place_of` returns both."""
    try:
        yield
    except (TypeError, ValueError) as error:
        error.place = request, name  # type: ignore[union-attr]
        raise


def place_of(error: Exception) -> tuple[int | None, str | None]:
    """The number of the request and the key in it that caused an error; None where that is not known."""
    return getattr(error, "place", (None, None))


def _types(table: pa.Table) -> dict[str, pa.DataType]:
    return dict(zip(table.column_names, table.schema.types, strict=True))


def _check_names(r: int, request: Any, user: str, attributes: Iterable[str]) -> None:
    if not isinstance(request, Mapping):
        raise TypeError(f"request {r} must be a mapping of names to values, got {type(request).__name__}.")
    for name in request:
        if name not in attributes and name not in (user, HISTORY, HISTORY_TIMES):
            known = ", ".join(map(repr, attributes)) or "none"
            with blamed_on(r, name):
                raise ValueError(
                    f"request {r} has {name!r}, which the data do not have. A request may have {user!r} (an id), "
                    f"{HISTORY!r} (items), {HISTORY_TIMES!r}, and attributes: {known}."
                )


class Histories(NamedTuple):
    """The histories of requests: the codes of their items, their times, and how many items are unknown."""

    items: list[np.ndarray]
    times: list[np.ndarray]  # empty where the dataset has none
    unknown: int
    untimed: int


def _histories(requests: Sequence[Mapping[str, Any]], users: np.ndarray, dataset: Dataset) -> Histories:
    """Those that requests have, or else those of their users."""
    places = [slice(dataset.bounds[user], dataset.bounds[user + 1]) if user >= 0 else slice(0) for user in users]
    histories = [dataset.item[place] for place in places]
    given = {r: _history(r, request[HISTORY]) for r, request in enumerate(requests) if request.get(HISTORY) is not None}
    with blamed_on(next(iter(given)) if len(given) == 1 else None, HISTORY):
        codes = dataset.items.codes([item for history in given.values() for item in history], f"{HISTORY!r} of requests")
    parts = np.split(codes, np.cumsum([len(history) for history in given.values()]))
    times = [] if dataset.time is None else [dataset.time[place] for place in places]
    untimed = 0
    for r, request in enumerate(requests):
        if r not in given and request.get(HISTORY_TIMES) is not None:
            with blamed_on(r, HISTORY_TIMES):
                raise ValueError(f"request {r} has {HISTORY_TIMES!r} without {HISTORY!r}, whose times they would be.")
    for (r, history), part in zip(given.items(), parts, strict=False):
        histories[r] = part[part >= 0]
        own = None
        if requests[r].get(HISTORY_TIMES) is not None:
            with blamed_on(r, HISTORY_TIMES):
                own = _times(r, requests[r][HISTORY_TIMES], len(history), dataset)
        untimed += own is None and len(histories[r]) > 1
        if dataset.time is not None:
            times[r] = (np.zeros(len(part), dataset.time.dtype) if own is None else own)[part >= 0]
    return Histories(histories, times, int(np.sum(codes < 0)), untimed)


def _times(r: int, given: Any, n: int, dataset: Dataset) -> np.ndarray:
    """The times of a request's history, in the unit of those of the dataset."""
    what = f"{HISTORY_TIMES!r} of request {r}"
    if isinstance(given, str | bytes | Mapping | Set) or not isinstance(given, Iterable) or len(given := list(given)) != n:
        raise TypeError(f"{what} must be a list with a time for each of the {n:,} items of its {HISTORY!r}, got {given!r}.")
    if dataset.time is None:
        raise ValueError(f"{what} cannot be used: the data have no timestamps.")
    if not n:
        return dataset.time[:0]
    try:
        values = pa.chunked_array([pa.array(given)])
    except (pa.ArrowException, TypeError, OverflowError) as error:
        raise TypeError(f"{what} must be numbers, dates, times or ISO 8601 strings, all of one kind, got {given!r}.") from error
    found = times(values, what)
    if (found.unit is None) != (dataset.time_unit is None) or (
        None not in (found.zoned, dataset.time_zoned) and found.zoned != dataset.time_zoned
    ):
        kinds = [_kind_of_times(unit, zoned) for unit, zoned in ((dataset.time_unit, dataset.time_zoned), found[1:])]
        raise TypeError(f"{what} must be {kinds[0]}, like the timestamps of the data, got {kinds[1]}.")
    values = found.values * {("us", "ns"): 1000, ("ns", "us"): 0.001}.get((found.unit, dataset.time_unit), 1)  # type: ignore[call-overload]
    if np.any(values[1:] < values[:-1]):
        raise ValueError(f"{what} must not fall, as its {HISTORY!r} is in the order of time, oldest first; got {given!r}.")
    return values


def _kind_of_times(unit: str | None, zoned: bool | None) -> str:
    if unit is None:
        return "numbers"
    return "dates or times" + {True: " with a time zone", False: " without a time zone", None: ""}[zoned]


def _history(r: int, items: Any) -> list[Any]:
    if isinstance(items, str | bytes | Mapping | Set) or not isinstance(items, Iterable):
        with blamed_on(r, HISTORY):
            raise TypeError(f"{HISTORY!r} of request {r} must be a list of item ids, oldest first, got {items!r}.")
    return list(items)


def _attribute(
    name: str, dtype: pa.DataType, requests: Sequence[Mapping[str, Any]], users: np.ndarray, dataset: Dataset
) -> AttributeColumn:
    """An attribute of requests; where a known user's request does not have it, that of the dataset."""
    given, rows = np.array([name in request for request in requests], bool), np.arange(len(requests))
    values = _typed(name, dtype, [request.get(name) for request in requests])
    if given.all() or name in dataset.event_table.column_names:
        return AttributeColumn(pa.chunked_array([values]), rows)
    known = decoded(dataset.user_table[name].take(pa.array(users, mask=users < 0))).cast(values.type, safe=False)
    return AttributeColumn(pa.chunked_array([values, *known.chunks]), np.where(given, rows, len(rows) + rows))


def _typed(name: str, dtype: pa.DataType, values: list[Any]) -> pa.Array:
    """Values with the type of their column; numbers that do not fit it as floats."""
    dtype = kind = value_type(dtype)
    values = [_as_written(value, dtype) for value in values]
    if pa.types.is_null(dtype):  # the data have no value, so none is known
        return pa.array([None if value is None else str(value) for value in values], pa.large_string())
    if pa.types.is_integer(dtype) or pa.types.is_decimal(dtype):
        fractions = pa.types.is_integer(dtype) and any(
            isinstance(value, float | np.floating | Decimal) and not float(value).is_integer() for value in values
        )
        if not fractions and (exact := _array(values, dtype)) is not None:  # Arrow would cut them
            return exact
        kind = pa.float64()
    if pa.types.is_temporal(dtype) and (parsed := _parsed(values, dtype)) is not None:
        return parsed
    if (found := _array(values, kind)) is None:
        r = next((r for r, value in enumerate(values) if _array([value], kind) is None), 0)
        with blamed_on(r, name):
            raise TypeError(f"attribute {name!r} of request {r} must be of type {dtype}, as in the data, got {values[r]!r}.")
    return found


def _as_written(value: Any, dtype: pa.DataType) -> Any:
    """A number or truth value given as the text that a file has for it, for a column of such; for a column of text, the text of a
    number."""
    if isinstance(value, str):
        if is_number(dtype) and re.fullmatch(NUMBER, value):
            return int(value) if len(value) <= LONGEST and re.fullmatch(INTEGER, value) else float(value)
        if pa.types.is_boolean(dtype) and value.lower() in ("true", "false"):
            return value.lower() == "true"
    elif is_text(dtype) and isinstance(value, int | float | np.number) and not isinstance(value, bool) and value == value:
        return str(value)
    return value


def _parsed(values: list[Any], dtype: pa.DataType) -> pa.Array | None:
    """Times and dates given as strings ("2017-04-03"), if all are strings."""
    if not all(value is None or isinstance(value, str) for value in values):
        return None
    try:
        return pa.array(values, pa.string()).cast(dtype)
    except pa.ArrowException:
        return None


def _array(values: list[Any], dtype: pa.DataType) -> pa.Array | None:
    """None where they are not of that type; NaN and the like are missing."""
    try:
        return pa.array(values, dtype, from_pandas=True)
    except (pa.ArrowException, TypeError, OverflowError):
        return None
