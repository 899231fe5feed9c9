"""Interactions, users and items as tables: ids coded, events in order, attributes beside them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from everypair.data.frames import frame_of
from everypair.data.ids import Ids, as_ids
from everypair.data.tables import as_table, column, numbers, times
from everypair.kernels.order import compress, stable_order
from everypair.runtime import validation as check

REPEATS = ("keep", "sum", "drop")
ANSWERS = ("score", "rank", "request", "similar")  # columns of recommendations


class Dataset:
    """Who interacted with what, when, and what is known of both.

    Parameters
    ----------
    interactions, users, items : data frame, mapping of columns, or path
        Tables of any data frame library, or Parquet or CSV files. ``interactions`` has a row per event; ``users`` and ``items``
        have a row per id, and their other columns are attributes. Further columns of ``interactions`` are attributes of events;
        one that ``users`` have, too, counts instead of theirs. In a CSV file, ids are integers if all of them are written as such.
    user, item : str
        The columns of ids, texts or integers, in all tables.
    timestamp : str, optional
        The column that orders events: numbers, dates, times or ISO 8601 texts. None: the order of rows. Ties keep that order.
    rating : str, optional
        A column of ratings; events below ``at_least`` are left out.
    at_least : number, optional
        See ``rating``.
    weight : str, optional
        A column of positive numbers (plays, seconds): the confidence alpha of an event.
    repeats : {"keep", "sum", "drop"}
        What to do with events of the same user and item. "keep": each is an event. "drop": the first counts. "sum": the
        first counts, with the weights of all; they are added up when a model is fitted, so that a later part of a split never
        shows in an earlier one.

    Attributes
    ----------
    users, items : Ids
        The ids of the interactions. Rows of the other tables with other ids are counted in ``notes``.
    user, item : arrays of integers
        Their codes in each event; events are sorted by user, then by time.
    bounds : array
        Where each user's events begin: those of user u are ``bounds[u]`` to ``bounds[u + 1]``.
    time, weight : arrays, or None
    time_counts : bool
        Whether timestamps are but positions in each user's history: no use for a cutoff in time.
    user_column, item_column : str
        What ids are called in tables; a request says the user's id by that name.
    frame : str, or None
        The data frame library that the interactions came in, such as "pandas"; None for paths and mappings.
    user_table, item_table, event_table : Arrow tables
        Attributes, a row per user (item, event) in the order of the codes; missing where a table has no row for an id.
    notes : list of str
        What was left out or did not match, with counts.

    Examples
    --------
    >>> import everypair as ep
    >>> events = {"user": ["ann", "bob", "ann"], "item": ["x", "x", "y"], "t": [1, 2, 3]}
    >>> dataset = ep.Dataset(events, users={"user": ["ann", "bob", "eve"], "age": [30, 41, 27]}, timestamp="t")
    >>> dataset
    Dataset(3 events, 2 users, 2 items; users: age; ordered by t)
    >>> dataset.notes
    ["1 row of users has an id without interactions, such as 'eve': left out."]
    """

    def __init__(
        self,
        interactions: Any,
        users: Any = None,
        items: Any = None,
        user: str = "user",
        item: str = "item",
        timestamp: str | None = None,
        *,
        rating: str | None = None,
        at_least: float | None = None,
        weight: str | None = None,
        repeats: str = "keep",
    ) -> None:
        check.choice("repeats", repeats, REPEATS)
        if (rating is None) != (at_least is None):
            raise ValueError("rating (the column) and at_least (the smallest rating that counts) must be given together.")
        asked = {"user": user, "item": item, "timestamp": timestamp, "rating": rating, "weight": weight}
        for option, name in asked.items():
            if not isinstance(name, str) and (name is not None or option in ("user", "item")):
                raise TypeError(f"{option} must be the name of a column, got {name!r} of type {type(name).__name__}.")
        if user == "history":
            raise ValueError("the column of users must not be named 'history': in requests that means items. Rename it.")
        for name in (user, item):
            if name in ANSWERS:
                raise ValueError(
                    f"a column of ids must not be named {name!r}: in tables of recommendations that is another. Rename it."
                )
        if user == item:
            raise ValueError(f"user and item must be two columns, got {user!r} for both.")
        table = as_table("interactions", interactions, (user, item))
        self.notes: list[str] = []
        self.repeats, self.timestamp, self.user_column, self.item_column = repeats, timestamp, user, item
        self.weight_column, self.rating, self.at_least = weight, rating, at_least
        self.frame = frame_of(interactions)
        given = {option: column(table, name, "interactions", option) for option, name in asked.items() if name is not None}
        _not_empty("interactions", table)
        time, self.time_unit = (None, None) if timestamp is None else times(given["timestamp"], f"column {timestamp!r}")
        strength = None if weight is None else numbers(given["weight"], f"column {weight!r}")
        if strength is not None:
            check.refuse(f"column {weight!r}", strength <= 0, strength, "be greater than 0")
        self.users, users_of = Ids.coded(given["user"], f"user ids (column {user!r} of interactions)")
        self.items, items_of = Ids.coded(given["item"], f"item ids (column {item!r} of interactions)")
        others = table.select([name for name in table.column_names if name not in asked.values()])
        order = self._sort(users_of, items_of, time, strength, others)
        self.time_counts = self._positions()
        if rating is not None and at_least is not None:
            least = check.number("at_least", at_least, low=-np.inf)
            kept = numbers(given["rating"], f"column {rating!r}") >= least
            if not kept.any():
                raise ValueError(
                    f"interactions must hold an event that counts, but {rating!r} is below {at_least:g} in all {len(table):,}."
                )
            self._note(int((~kept).sum()), "event", "is", "are", f"left out: {rating} below {at_least:g}.")
            self._keep(np.flatnonzero(kept[order]))
            self._forget()
        if repeats == "drop":
            first = self.first_of_pair()
            self._note(int((~first).sum()), "event", "is", "are", "left out: a later one of the same user and item.")
            self._keep(np.flatnonzero(first))
        self.user_table = self._attributes(users, "users", user, self.users)
        self.item_table = self._attributes(items, "items", item, self.items)
        for name in {"history", user} & {*self.user_table.column_names, *self.event_table.column_names}:
            self.notes.append(f"a request cannot tell the attribute {name!r}, which means something else there: rename the column.")
        for name in self.user_table.column_names:
            if name in self.event_table.column_names:
                self.notes.append(f"users and interactions both have a column {name!r}: that of the interactions counts.")

    def _sort(
        self, user: np.ndarray, item: np.ndarray, time: np.ndarray | None, weight: np.ndarray | None, others: pa.Table
    ) -> np.ndarray:
        """By user, then time, then row; returns the rows in that order."""
        by_time = np.arange(len(user)) if time is None else np.argsort(time, kind="stable")
        self.bounds = compress(user, len(self.users))
        order = np.empty_like(by_time)
        stable_order(user, self.bounds, by_time, order)
        self.user, self.item = (codes[order].astype(np.int32, copy=False) for codes in (user, item))
        self.time, self.weight = (None if values is None else values[order] for values in (time, weight))
        self.event_table = others.take(pa.array(order)) if others.num_columns else others
        return order

    def _positions(self) -> bool:
        """Whether times are but positions: they rise by one with each event of a user, for all of several users."""
        same = self.user[1:] == self.user[:-1]
        return self.time is not None and bool(same.any() and not same.all() and np.all(np.diff(self.time)[same] == 1))

    def _forget(self) -> None:
        """Users and items without events."""
        users, user = np.unique(self.user, return_inverse=True)
        items, item = np.unique(self.item, return_inverse=True)
        self.users, self.items = Ids(self.users.take(users)), Ids(self.items.take(items))
        self.user, self.item = user.astype(np.int32, copy=False), item.astype(np.int32, copy=False)
        self.bounds = compress(self.user, len(self.users))

    def _keep(self, index: np.ndarray) -> None:
        """Only these events, in their order."""
        self.user, self.item = self.user[index], self.item[index]
        self.time, self.weight = (None if values is None else values[index] for values in (self.time, self.weight))
        self.event_table = self.event_table.take(pa.array(index)) if self.event_table.num_columns else self.event_table
        self.bounds = compress(self.user, len(self.users))

    def _attributes(self, source: Any, argument: str, name: str, ids: Ids) -> pa.Table:
        """The rows of a table of attributes in the order of the ids."""
        if source is None:
            return pa.table({})
        table = as_table(argument, source, (name,))
        what = f"{name} ids (column {name!r} of {argument})"
        given = as_ids(column(table, name, argument, argument[:-1]), what)
        _not_empty(argument, table)
        codes = ids.codes(given, what)
        known = np.flatnonzero(codes >= 0)
        if len(known) < len(codes):
            stranger = given[int(np.argmin(codes))].as_py()
            self._note(
                len(codes) - len(known), f"row of {argument}", "has an id", "have ids",
                f"without interactions, such as {stranger!r}: left out.", plural=f"rows of {argument}",
            )  # fmt: skip
        rows = np.full(len(ids), -1)
        rows[codes[known]] = known
        repeated = np.bincount(codes[known], minlength=len(ids)) > 1
        if repeated.any():
            example, count = ids[int(np.argmax(repeated))], int(repeated.sum())
            raise ValueError(
                f"{argument} must have one row per id, but has more for {count:,} of them, such as {example!r}. Keep one."
            )
        missing = f"no row in {argument}: attributes missing."
        self._note(int((rows < 0).sum()), name, "has", "have", missing, plural=f"{name}s")
        return table.drop_columns([name]).take(pa.array(rows, mask=rows < 0))

    def _note(self, count: int, what: str, one: str, many: str, rest: str, plural: str | None = None) -> None:
        if count:
            self.notes.append(f"{count:,} {what if count == 1 else plural or what + 's'} {one if count == 1 else many} {rest}")

    @property
    def n_users(self) -> int:
        return len(self.users)

    @property
    def n_items(self) -> int:
        return len(self.items)

    @property
    def pairs(self) -> np.ndarray:
        """A number for the user and item of each event: equal for equal ones, in the order of users, then items."""
        return self.user.astype(np.int64) * self.n_items + self.item

    def first_of_pair(self) -> np.ndarray:
        """For each event, whether it is the first one of its user and item."""
        key = self.pairs
        order = np.argsort(key, kind="stable")
        first = np.ones(len(key), bool)
        first[order[1:]] = key[order[1:]] != key[order[:-1]]
        return first

    def counted(self) -> tuple[np.ndarray, Any]:
        """The events that a model is trained on, and their confidence: with ``repeats="sum"`` the first of each user and item."""
        if self.repeats != "sum":
            return np.arange(len(self)), 1.0 if self.weight is None else self.weight
        _, first, pair = np.unique(self.pairs, return_index=True, return_inverse=True)
        order = np.argsort(first)
        return first[order], np.bincount(pair, self.weight)[order].astype(np.float64)

    def subset(self, events: Any) -> Dataset:
        """The same users and items with some of the events, given by number or by a mask."""
        index = np.asarray(events)
        if index.dtype == bool and index.shape != (len(self),):
            raise ValueError(f"a mask of events must have one entry per event ({len(self):,}), got shape {index.shape}.")
        index = np.flatnonzero(index) if index.dtype == bool else np.unique(check.indices("events", index, len(self)))
        part = object.__new__(Dataset)
        vars(part).update(vars(self), notes=[])
        part._keep(index)
        return part

    def extended(self, interactions: Any = None, users: Any = None, items: Any = None) -> Dataset:
        """With more events, and more users and items, also such as have no events yet.

        Parameters
        ----------
        interactions, users, items : tables, optional
            As for the dataset, with its names of columns. Events come after earlier ones of the same time. What ``users`` or
            ``items`` say of an id takes the place of what was known; columns that the data do not have are left out, and noted.
        """
        from everypair.data.extend import extended

        return extended(self, interactions, users, items)[0]

    def __len__(self) -> int:
        return len(self.user)

    def __repr__(self) -> str:
        tables = {"users": self.user_table, "items": self.item_table, "events": self.event_table}
        known = "".join(f"; {name}: {', '.join(table.column_names)}" for name, table in tables.items() if table.num_columns)
        order = f"; ordered by {self.timestamp}" if self.timestamp else "; in the order of rows"
        return f"Dataset({len(self):,} events, {self.n_users:,} users, {self.n_items:,} items{known}{order})"


def _not_empty(argument: str, table: pa.Table) -> None:
    if not len(table):
        raise ValueError(f"{argument} must hold at least one row, got none.")
