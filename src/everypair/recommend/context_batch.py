"""Moments: who is there, with which attributes, after having watched what. Training events and live requests alike."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from everypair.data import Dataset, Ids
from everypair.data.tables import decoded

HISTORY = "history"  # what a request calls the items watched so far


class Lookup(NamedTuple):
    """An attribute of many rows: its values, and for each row the place of its own, -1 where there is none."""

    values: pa.ChunkedArray
    index: np.ndarray

    def compact(self) -> Lookup:
        """With no more than the values of its rows, where those are few."""
        there = self.index >= 0
        if 2 * len(self.index) >= len(self.values):
            return self
        return Lookup(self.values.take(pa.array(self.index[there])), np.where(there, np.cumsum(there) - 1, -1))


@dataclass(frozen=True)
class ContextBatch:
    """The rows that contexts are made of.

    The pasts of all moments share one array: a user's events lie one after the other, and the past of a moment is the part of
    them before it. So an event with a history of a thousand items costs two numbers.

    Attributes
    ----------
    user : array of integers
        Codes of users, -1 for someone not known.
    items, bounds : arrays of integers
        Sequences of items, end to end, and where each begins.
    begin, end : arrays of integers
        The past of each moment: ``items[begin:end]``; ``begin`` is the beginning of a sequence.
    attributes : dict of Lookup
    people, catalogue : Ids
        Of users and items: what their codes mean.
    told : array of booleans
        Whether the past is what a request says, and not what the dataset has.
    unknown : dict
        How many users ("user") and items of histories ("history") requests name that the dataset does not have.
    """

    user: np.ndarray
    items: np.ndarray
    bounds: np.ndarray
    begin: np.ndarray
    end: np.ndarray
    attributes: dict[str, Lookup]
    people: Ids
    catalogue: Ids
    told: np.ndarray
    unknown: dict[str, int] = field(default_factory=dict)

    def content(self) -> Iterator[Any]:
        """All that it says, for a fingerprint: attributes as the bytes of an Arrow stream."""
        yield from (self.user, self.items, self.bounds, self.begin, self.end, self.told)
        for name, (values, index) in self.attributes.items():
            own = decoded(values).take(pa.array(index, mask=index < 0))
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, pa.schema([pa.field("values", own.type)])) as stream:
                stream.write_table(pa.table({"values": own}).combine_chunks())
            yield name
            yield np.frombuffer(sink.getvalue(), np.uint8)

    @classmethod
    def of_events(cls, dataset: Dataset, events: Any = None) -> ContextBatch:
        """The moments at which events happen: what is known is all that the user did before."""
        events = np.arange(len(dataset)) if events is None else np.asarray(events, np.int64)
        user = dataset.user[events]
        attributes = {name: Lookup(dataset.user_table[name], user) for name in dataset.user_table.column_names}
        attributes |= {name: Lookup(dataset.event_table[name], events) for name in dataset.event_table.column_names}
        told = np.zeros(len(user), bool)
        return cls(user, dataset.item, dataset.bounds, dataset.bounds[user], events, attributes, dataset.users, dataset.items, told)

    @classmethod
    def of_users(cls, dataset: Dataset, users: Any) -> ContextBatch:
        """The moments after all events of the dataset, a row for each of these users (codes)."""
        user = np.asarray(users, np.int64)
        attributes = {name: Lookup(dataset.user_table[name], user) for name in dataset.user_table.column_names}
        nothing = np.full(len(user), -1)
        attributes |= {name: Lookup(dataset.event_table[name], nothing) for name in dataset.event_table.column_names}
        begin, end = dataset.bounds[user], dataset.bounds[user + 1]
        told = np.zeros(len(user), bool)
        return cls(user, dataset.item, dataset.bounds, begin, end, attributes, dataset.users, dataset.items, told)

    @classmethod
    def of_requests(cls, requests: Sequence[Mapping[str, Any]], dataset: Dataset) -> ContextBatch:
        """What live requests say: attributes by name, ``"history"`` (items, oldest first) and, for a known user, the id, named as
        in the interactions.

        What a request does not say of a known user is taken from the dataset. Items that are not known are left out.
        """
        if isinstance(requests, Mapping) or not isinstance(requests, Sequence):
            raise TypeError(f"requests must be a list of mappings, such as [{{{HISTORY!r}: []}}], got {type(requests).__name__}.")
        user = dataset.user_column
        names = {**_types(dataset.user_table), **_types(dataset.event_table)}
        for r, request in enumerate(requests):
            if not isinstance(request, Mapping):
                raise TypeError(f"request {r} must be a mapping of names to values, got {type(request).__name__}.")
            for name in request:
                if name not in names and name not in (user, HISTORY):
                    known = ", ".join(map(repr, names)) or "none"
                    with at(r, name):
                        raise ValueError(
                            f"request {r} says {name!r}, which the data do not have. A request says {user!r} (an id), "
                            f"{HISTORY!r} (items), and attributes: {known}."
                        )
        users = np.full(len(requests), -1)
        named = [r for r, request in enumerate(requests) if request.get(user) is not None]
        with at(named[0] if len(named) == 1 else None, user):
            users[named] = dataset.users.codes([requests[r][user] for r in named], f"{user!r} of requests")
        pasts, strange_items = _pasts(requests, users, dataset)
        bounds = np.append(0, np.cumsum([len(past) for past in pasts])).astype(np.int64)
        items = np.concatenate([np.empty(0, np.int32), *pasts]).astype(np.int32)
        said = [{name: value for name, value in request.items() if name not in (user, HISTORY)} for request in requests]
        attributes = {name: _lookup(name, dtype, said, users, dataset) for name, dtype in names.items()}
        told = np.array([request.get(HISTORY) is not None for request in requests], bool)
        unknown = {user: int(np.sum(users[named] < 0)), HISTORY: strange_items}
        return cls(users, items, bounds, bounds[:-1], bounds[1:], attributes, dataset.users, dataset.items, told, unknown)

    def take(self, index: np.ndarray) -> ContextBatch:
        """Some of the rows."""
        attributes = {name: Lookup(values, at[index]) for name, (values, at) in self.attributes.items()}
        rows = {name: getattr(self, name)[index] for name in ("user", "begin", "end", "told")}
        return replace(self, **rows, attributes=attributes)

    def compact(self) -> ContextBatch:
        """The same with no more than their own pasts and attributes, where those are few: features cost as much as all of them."""
        attributes = {name: lookup.compact() for name, lookup in self.attributes.items()}
        lengths = self.end - self.begin
        if 2 * lengths.sum() >= len(self.items):
            return replace(self, attributes=attributes)
        bounds = np.append(0, np.cumsum(lengths)).astype(np.int64)
        at = np.repeat(self.begin - bounds[:-1], lengths) + np.arange(bounds[-1])
        return replace(self, items=self.items[at], bounds=bounds, begin=bounds[:-1], end=bounds[1:], attributes=attributes)

    def anonymous(self) -> ContextBatch:
        """The same with nothing but the attributes: nobody's id, and no past."""
        return replace(self, user=np.full_like(self.user, -1), end=self.begin)

    def previous(self, back: int = 1) -> np.ndarray:
        """The item before, or so many before; -1 for none."""
        return np.append(self.items, -1)[np.where(self.end - back >= self.begin, self.end - back, -1)]

    def __len__(self) -> int:
        return len(self.user)


@contextmanager
def at(request: int | None, name: str) -> Iterator[None]:
    """Errors in here are the fault of what a request says under a name: :func:`place_of` tells."""
    try:
        yield
    except (TypeError, ValueError) as error:
        error.place = request, name  # type: ignore[union-attr]
        raise


def place_of(error: Exception) -> tuple[int | None, str | None]:
    """The request, by number, and the name in it that an error is about, as far as it says."""
    return getattr(error, "place", (None, None))


def _types(table: pa.Table) -> dict[str, pa.DataType]:
    return dict(zip(table.column_names, table.schema.types, strict=True))


def _pasts(requests: Sequence[Mapping[str, Any]], users: np.ndarray, dataset: Dataset) -> tuple[list[np.ndarray], int]:
    """The codes of the items that each request says, or else of those of its user; and how many items are not known."""
    pasts = [
        dataset.item[dataset.bounds[user] : dataset.bounds[user + 1]] if user >= 0 else np.empty(0, np.int32) for user in users
    ]
    said = {r: _history(r, request[HISTORY]) for r, request in enumerate(requests) if request.get(HISTORY) is not None}
    with at(next(iter(said)) if len(said) == 1 else None, HISTORY):
        codes = dataset.items.codes([item for history in said.values() for item in history], f"{HISTORY!r} of requests")
    for r, part in zip(said, np.split(codes, np.cumsum([len(history) for history in said.values()])), strict=False):
        pasts[r] = part[part >= 0]
    return pasts, int(np.sum(codes < 0))


def _history(r: int, items: Any) -> list[Any]:
    if isinstance(items, str | bytes | Mapping | Set) or not isinstance(items, Iterable):
        with at(r, HISTORY):
            raise TypeError(f"{HISTORY!r} of request {r} must be a list of item ids, oldest first, got {items!r}.")
    return list(items)


def _lookup(name: str, dtype: pa.DataType, requests: Sequence[Mapping[str, Any]], users: np.ndarray, dataset: Dataset) -> Lookup:
    """An attribute as requests say it, and of known users, where it is theirs, as the dataset does."""
    said, rows = np.array([name in request for request in requests], bool), np.arange(len(requests))
    values = _said(name, dtype, [request.get(name) for request in requests])
    if said.all() or name in dataset.event_table.column_names:
        return Lookup(pa.chunked_array([values]), rows)
    known = decoded(dataset.user_table[name].take(pa.array(users, mask=users < 0))).cast(values.type, safe=False)
    return Lookup(pa.chunked_array([values, *known.chunks]), np.where(said, rows, len(rows) + rows))


def _said(name: str, dtype: pa.DataType, values: list[Any]) -> pa.Array:
    """Values as the column's type or, numbers that do not fit it, as floats."""
    dtype = kind = dtype.value_type if pa.types.is_dictionary(dtype) else dtype
    if pa.types.is_null(dtype):  # nothing in the data: whatever it is, it is not known
        return pa.array([None if value is None else str(value) for value in values], pa.large_string())
    if pa.types.is_integer(dtype) or pa.types.is_decimal(dtype):
        if (exact := _array(values, dtype, from_pandas=False)) is not None:
            return exact
        kind = pa.float64()
    if pa.types.is_temporal(dtype) and (parsed := _parsed(values, dtype)) is not None:
        return parsed
    if (found := _array(values, kind)) is None:
        r = next((r for r, value in enumerate(values) if _array([value], kind) is None), 0)
        with at(r, name):
            raise TypeError(f"attribute {name!r} of request {r} must be of type {dtype}, as in the data, got {values[r]!r}.")
    return found


def _parsed(values: list[Any], dtype: pa.DataType) -> pa.Array | None:
    """Times and dates that are said as text ("2017-04-03"), if all are."""
    if not all(value is None or isinstance(value, str) for value in values):
        return None
    try:
        return pa.array(values, pa.string()).cast(dtype)
    except pa.ArrowException:
        return None


def _array(values: list[Any], dtype: pa.DataType, from_pandas: bool = True) -> pa.Array | None:
    """None where they are not of that type; with ``from_pandas``, NaN and the like are missing, and integers are cut."""
    try:
        return pa.array(values, dtype, from_pandas=from_pandas)
    except (pa.ArrowException, TypeError, OverflowError):
        return None
