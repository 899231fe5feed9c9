"""Dataset: interactions sorted by user and time, with ids encoded as integers, and tables of attributes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from everypair.data import extend
from everypair.data.arrow import no_nulls
from everypair.data.extend import Changed
from everypair.data.frames import frame_of
from everypair.data.ids import Ids, as_ids
from everypair.data.row_order import UNSORTED, row_order, worse
from everypair.data.tables import Source, decide_ids, numbers, opened
from everypair.data.times import Times, refuse_mixed_objects, times
from everypair.kernels.order import compress, stable_order
from everypair.runtime import validation as check
from everypair.runtime.wording import named, setting

REPEATS = ("keep", "sum", "drop")
RESULT_COLUMNS = ("score", "rank", "request", "similar")  # of tables of recommendations


class Dataset:
    """Interactions between users and items, with timestamps and attributes.

    Parameters
    ----------
    interactions, users, items : data frame, mapping of columns, or path
        Tables of any data frame library, or Parquet or CSV files, or folders of Parquet files. ``interactions`` has a row per
        event; ``users`` and ``items`` have a row per id, and their other columns are attributes. Other columns of ``interactions``
        are attributes of events and take precedence over columns of ``users`` with the same name. In CSV files, ids are integers if
        all of them, in all files, are written as integers; an attribute is a number, or true or false, if its text survives that:
        "01234", and "1.10" beside "1.1", stay strings, and ``notes`` say so.
    user, item : str
        The columns of ids (strings or integers) in all tables.
    users_key, items_key : str, optional
        The column of ids in ``users`` (in ``items``), where it has another name than in ``interactions``.
    all_items : bool
        Keep items of the table ``items`` that have no events. A model is trained as if they had been there and nobody chose them,
        they are recommended, by their attributes if the model has these, and they are candidates in evaluations.
    timestamp : str, optional
        The column that orders events: numbers, dates, times or ISO 8601 strings. None: the order of rows. Ties keep that order.
    chronological : bool
        Whether each user's rows are in the order of time, though no column says so. Without it, and without ``timestamp``, splits
        and recipes that need an order say that they follow the rows, and warn if these are sorted by user or item.
    rating : str, optional
        A column of ratings; events with a rating below ``at_least`` are left out.
    at_least : number, optional
        The smallest rating that counts.
    weight : str, optional
        A column of positive numbers (plays, seconds): the confidence alpha of an event.
    repeats : {"keep", "sum", "drop"}
        How to treat several events of the same user and item. "keep": each is an event. "drop": only the first is kept. "sum":
        the first counts with the sum of all weights. Sums are computed when a model is fitted, so that the training part of a
        split does not include weights of the test part.

    Attributes
    ----------
    users, items : Ids
        The ids of the interactions. Rows of the other tables with other ids are left out and counted in ``notes``.
    user, item : arrays of integers
        The codes of each event; events are sorted by user, then by time.
    bounds : array
        Events ``bounds[u]:bounds[u + 1]`` are those of user u.
    time, weight : arrays, or None
    row_order : str, or None
        How the rows were sorted if nothing says that they are in the order of time: "unsorted", "sorted by item", ...
    time_counts : bool
        Whether timestamps are only positions in each user's history, which cannot be compared between users.
    time_zoned : bool or None
        Whether timestamps have a time zone; None if they are numbers, or where files of before 0.2 do not say it.
    user_column, item_column : str
        The names of the id columns; requests use the first for the user's id.
    frame : str, or None
        The data frame library of the interactions, such as "pandas"; None for paths and mappings.
    user_table, item_table, event_table : Arrow tables
        Attributes, with a row per user (item, event) in the order of the codes; missing where a table has no row for an id.
    notes : list of str
        Rows that were left out or did not match, with counts.

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
        chronological: bool = False,
        users_key: str | None = None,
        items_key: str | None = None,
        all_items: bool = False,
    ) -> None:
        check.choice("repeats", repeats, REPEATS)
        if (rating is None) != (at_least is None):
            column_of, least_of = named("rating", "Dataset"), named("at_least", "Dataset")
            raise ValueError(f"{column_of} (the column) and {least_of} (the smallest rating that counts) must be given together.")
        columns = {"user": user, "item": item, "timestamp": timestamp, "rating": rating, "weight": weight}
        for option, name in {**columns, "users_key": users_key, "items_key": items_key}.items():
            if not isinstance(name, str) and (name is not None or option in ("user", "item")):
                raise TypeError(f"{option} must be the name of a column, got {name!r} of type {type(name).__name__}.")
        if chronological and timestamp is not None:
            ordered, given_too = setting("chronological", True, "Dataset"), setting("timestamp", timestamp, "Dataset")
            raise ValueError(f"{ordered} is for tables without timestamps, got {given_too}: leave one out.")
        if user == "history":
            raise ValueError(
                f"{named('user', 'Dataset')} must not be 'history': in requests, that is the list of items. Rename the column."
            )
        for name in (user, item):
            if name in RESULT_COLUMNS:
                raise ValueError(
                    f"a column of ids must not be named {name!r}, which is another column of recommendations. Rename it."
                )
        if user == item:
            both = " and ".join(named(name, "Dataset") for name in ("user", "item"))
            raise ValueError(f"{both} must be different columns, got {user!r} for both.")
        for option, value, argument, table in (
            ("users_key", users_key, "users", users), ("items_key", items_key, "items", items),
            ("all_items", all_items or None, "items", items),
        ):  # fmt: skip
            if value is not None and table is None:
                own, of = setting(option, value, "Dataset"), named(argument, "Dataset")
                raise ValueError(f"{own} is for a table of {argument}: give {of}, or leave it out.")
        self.users_key, self.items_key, self.all_items = users_key or user, items_key or item, bool(all_items)
        if timestamp is not None:
            refuse_mixed_objects(interactions, timestamp, f"column {timestamp!r}")
        events = opened("interactions", interactions, (user, item))
        user_source = None if users is None else opened("users", users, (self.users_key,))
        item_source = None if items is None else opened("items", items, (self.items_key,))
        for name, other, key, what in (
            (user, user_source, self.users_key, "user ids"),
            (item, item_source, self.items_key, "item ids"),
        ):
            decide_ids([(events, name), *([] if other is None else [(other, key)])], None, what)
        self.notes: list[str] = []
        self.repeats, self.timestamp, self.user_column, self.item_column = repeats, timestamp, user, item
        self.weight_column, self.rating, self.at_least = weight, rating, at_least
        self.frame = frame_of(interactions)
        given = {option: events.column(name, option) for option, name in columns.items() if name is not None}
        untyped = frozenset(events.untyped)
        table = events.typed(self.notes, columns.values())
        _not_empty("interactions", table)
        when = None if timestamp is None else times(given["timestamp"], f"column {timestamp!r}")
        time, self.time_unit, self.time_zoned = (None, None, None) if when is None else when
        strength = None if weight is None else numbers(given["weight"], f"column {weight!r}", weight in untyped)
        if strength is not None:
            check.refuse(f"column {weight!r}", strength <= 0, strength, "be greater than 0")
        self.users, user_codes = Ids.coded(given["user"], f"user ids (column {user!r} of interactions)")
        self.items, item_codes = Ids.coded(given["item"], f"item ids (column {item!r} of interactions)")
        attributes = table.select([name for name in table.column_names if name not in columns.values()])
        order = self._sort(user_codes, item_codes, time, strength, attributes)
        unordered = timestamp is None and not chronological
        self.row_order = row_order((user_codes, item_codes), (self.user, self.item)) if unordered else None
        self.time_counts = self._has_positions()
        if rating is not None and at_least is not None:
            least = check.number("at_least", at_least, low=-np.inf)
            kept = numbers(given["rating"], f"column {rating!r}", rating in untyped) >= least
            if not kept.any():
                raise ValueError(
                    f"interactions must hold an event with {rating!r} of at least {at_least:g}, but all {len(table):,} are below."
                )
            self._note(int((~kept).sum()), "event", "is", "are", f"left out: {rating} below {at_least:g}.")
            self._keep(np.flatnonzero(kept[order]))
            self._drop_ids_without_events()
        if repeats == "drop":
            first = self.first_of_pair()
            self._note(int((~first).sum()), "event", "is", "are", "left out: a later one of the same user and item.")
            self._keep(np.flatnonzero(first))
        if item_source is not None and all_items:
            self._keep_items(item_source)
        self.user_table = self._attributes(user_source, self.users_key, "user", self.users)
        self.item_table = self._attributes(item_source, self.items_key, "item", self.items)
        for name in {"history", "history_times", user} & {*self.user_table.column_names, *self.event_table.column_names}:
            self.notes.append(f"requests cannot have an attribute {name!r}, which has another meaning there: rename the column.")
        for name in self.user_table.column_names:
            if name in self.event_table.column_names:
                self.notes.append(f"users and interactions both have a column {name!r}: that of the interactions is used.")

    def _sort(
        self, user: np.ndarray, item: np.ndarray, time: np.ndarray | None, weight: np.ndarray | None, attributes: pa.Table
    ) -> np.ndarray:
        """Store events by user, then time, then row; returns the rows in that order."""
        by_time = np.arange(len(user)) if time is None else np.argsort(time, kind="stable")
        self.bounds = compress(user, len(self.users))
        order = np.empty_like(by_time)
        stable_order(user, self.bounds, by_time, order)
        self.user, self.item = (codes[order].astype(np.int32, copy=False) for codes in (user, item))
        self.time, self.weight = (None if values is None else values[order] for values in (time, weight))
        self.event_table = attributes.take(pa.array(order)) if attributes.num_columns else attributes
        return order

    def _has_positions(self) -> bool:
        """Whether times are positions: they rise by one with each event of a user, for several users."""
        same = self.user[1:] == self.user[:-1]
        return self.time is not None and bool(same.any() and not same.all() and np.all(np.diff(self.time)[same] == 1))

    def _drop_ids_without_events(self) -> None:
        users, user = np.unique(self.user, return_inverse=True)
        items, item = np.unique(self.item, return_inverse=True)
        self.users, self.items = Ids(self.users.take(users)), Ids(self.items.take(items))
        self.user, self.item = user.astype(np.int32, copy=False), item.astype(np.int32, copy=False)
        self.bounds = compress(self.user, len(self.users))

    def _keep(self, index: np.ndarray) -> None:
        """Keep only these events, given in order."""
        self.user, self.item = self.user[index], self.item[index]
        self.time, self.weight = (None if values is None else values[index] for values in (self.time, self.weight))
        self.event_table = self.event_table.take(pa.array(index)) if self.event_table.num_columns else self.event_table
        self.bounds = compress(self.user, len(self.users))

    def _keep_items(self, source: Source) -> None:
        """Add the items of a table, which need not have events."""
        before, what = self.items, f"item ids (column {self.items_key!r} of items)"
        given = as_ids(source.column(self.items_key, "items_key"), what)
        before.require_same_kind(given, what)
        self.items = Ids.of(pa.chunked_array([before.values, *given.chunks]), what)
        self.item = self.items.codes(before.values)[self.item].astype(np.int32, copy=False)
        self._note(len(self.items) - len(before), "item", "has", "have", "no events: kept.")

    def _attributes(self, source: Source | None, key: str, name: str, ids: Ids) -> pa.Table:
        """A table of attributes with its rows in the order of the ids of users or items (``name``: one of them)."""
        if source is None:
            return pa.table({})
        argument, what = source.argument, f"{name} ids (column {key!r} of {source.argument})"
        given, table = as_ids(source.column(key, f"{argument}_key"), what), source.typed(self.notes)
        _not_empty(argument, table)
        codes = ids.codes(given, what)
        known = np.flatnonzero(codes >= 0)
        if len(known) < len(codes):
            example = given[int(np.argmin(codes))].as_py()
            self._note(
                len(codes) - len(known), f"row of {argument}", "has an id", "have ids",
                f"without interactions, such as {example!r}: left out.", plural=f"rows of {argument}",
            )  # fmt: skip
        rows = np.full(len(ids), -1)
        rows[codes[known]] = known
        repeated = np.bincount(codes[known], minlength=len(ids)) > 1
        if repeated.any():
            example, count = ids[int(np.argmax(repeated))], int(repeated.sum())
            raise ValueError(
                f"{argument} must have one row per id, but {count:,} ids have several, such as {example!r}. Keep one row of each."
            )
        missing = f"no row in {argument}: attributes missing."
        self._note(int((rows < 0).sum()), name, "has", "have", missing, plural=f"{name}s")
        return table.drop_columns([key]).take(pa.array(rows, mask=rows < 0))

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
        """``user * n_items + item`` of each event: equal for equal pairs, ordered by user, then item."""
        return self.user.astype(np.int64) * self.n_items + self.item

    def first_of_pair(self) -> np.ndarray:
        """Whether each event is the first of its user and item."""
        key = self.pairs
        order = np.argsort(key, kind="stable")
        first = np.ones(len(key), bool)
        first[order[1:]] = key[order[1:]] != key[order[:-1]]
        return first

    def counted(self) -> tuple[np.ndarray, Any]:
        """The events that a model is trained on, and their confidence; with ``repeats="sum"``, the first of each user and item."""
        if self.repeats != "sum":
            return np.arange(len(self)), 1.0 if self.weight is None else self.weight
        _, first, pair = np.unique(self.pairs, return_index=True, return_inverse=True)
        order = np.argsort(first)
        return first[order], np.bincount(pair, self.weight)[order].astype(np.float64)

    def subset(self, events: Any) -> Dataset:
        """The same users and items with some of the events, given by index or by a mask."""
        index = np.asarray(events)
        if index.dtype == bool and index.shape != (len(self),):
            raise ValueError(f"a mask of events must have one entry per event ({len(self):,}), got shape {index.shape}.")
        index = np.flatnonzero(index) if index.dtype == bool else np.unique(check.indices("events", index, len(self)))
        part = self._copy()
        part._keep(index)
        return part

    def weighted(self, factor: np.ndarray) -> Dataset:
        """The same events with other weights: their own times these."""
        other = self._copy()
        other.weight = factor if self.weight is None else self.weight * factor
        return other

    def _copy(self) -> Dataset:
        """A shallow copy without notes."""
        copy = object.__new__(Dataset)
        vars(copy).update(vars(self), notes=[])
        return copy

    def extended(self, interactions: Any = None, users: Any = None, items: Any = None) -> Dataset:
        """A dataset with more events, users and items; users and items need not have events.

        Parameters
        ----------
        interactions, users, items : tables, optional
            As for the constructor, with the same names of columns. New events follow earlier ones of the same time. Values of
            ``users`` and ``items`` replace earlier ones; columns that the dataset does not have are left out and noted.
        """
        return self.extended_with_changes(interactions, users, items)[0]

    def extended_with_changes(self, interactions: Any = None, users: Any = None, items: Any = None) -> tuple[Dataset, Changed]:
        """:meth:`extended`, and the users and items with new events or attributes."""
        new = None if interactions is None else self._read_more(interactions)
        user_rows = extend.attribute_rows(users, "users", self.users_key, self.users)
        item_rows = extend.attribute_rows(items, "items", self.items_key, self.items)
        result = self._copy()
        result.users = extend.union(self.users, None if new is None else new.users, user_rows)
        result.items = extend.union(self.items, None if new is None else new.items, item_rows)
        result._merge_events([self] if new is None else [self, new])
        result.row_order = worse(self.row_order, None if new is None else new.row_order)
        tables = (("users", self.user_table, self.users, result.users, user_rows),
                  ("items", self.item_table, self.items, result.items, item_rows))  # fmt: skip
        result.notes.extend([] if new is None else new.notes)
        result.user_table, result.item_table = (extend.merged_attributes(*table, result.notes) for table in tables)
        return result, Changed(
            extend.changed_codes(result.users, None if new is None else (new.users, new.user), user_rows),
            extend.changed_codes(result.items, None if new is None else (new.items, new.item), item_rows),
        )

    def _read_more(self, interactions: Any) -> Dataset:
        """More interactions, read with the options of this dataset."""
        options: Any = {
            "user": self.user_column, "item": self.item_column, "timestamp": self.timestamp,
            "rating": self.rating, "at_least": self.at_least, "weight": self.weight_column,
            "chronological": self.timestamp is None and self.row_order is None,
        }  # fmt: skip
        if self.timestamp is not None:
            refuse_mixed_objects(interactions, self.timestamp, f"column {self.timestamp!r}")
        read = opened("interactions", interactions, (self.user_column, self.item_column))
        for name, ids, what in ((self.user_column, self.users, "user ids"), (self.item_column, self.items, "item ids")):
            decide_ids([(read, name)], ids.kind if len(ids) else None, what)
        read.untyped &= {self.rating, self.weight_column}  # attributes get the types of the earlier ones
        for name in (self.user_column, self.item_column, self.timestamp, self.rating, self.weight_column):
            if name is not None:
                no_nulls(read.column(name), f"column {name!r}", "Drop those rows, or fill them.")
        new = Dataset(read, **options)
        self.users.require_same_kind(as_ids(new.users.values, "users"), "user ids of the new interactions")
        self.items.require_same_kind(as_ids(new.items.values, "items"), "item ids of the new interactions")
        return new

    def _merge_events(self, parts: list[Dataset]) -> None:
        """The events of an earlier dataset and of a new one, in order."""
        before = parts[0]
        user = np.concatenate([self.users.codes(part.users.values)[part.user] for part in parts])
        item = np.concatenate([self.items.codes(part.items.values)[part.item] for part in parts])
        weight = None if before.weight is None else np.concatenate([np.asarray(part.weight) for part in parts])
        schema = before.event_table.schema
        added = [extend.cast_columns(schema, part.event_table, len(part), "interactions") for part in parts[1:]]
        events = pa.concat_tables([before.event_table, *added]) if added else before.event_table
        time, earlier, later = before.time, before._times, parts[-1]._times
        if len(parts) > 1 and earlier is not None and later is not None:
            time, self.time_unit, self.time_zoned = earlier.followed_by(later)
        self._sort(user, item, time, weight, events)
        if self.repeats == "drop":
            self._keep(np.flatnonzero(self.first_of_pair()))

    @property
    def _times(self) -> Times | None:
        return None if self.time is None else Times(self.time, self.time_unit, self.time_zoned)

    def __len__(self) -> int:
        return len(self.user)

    def __repr__(self) -> str:
        tables = {"users": self.user_table, "items": self.item_table, "events": self.event_table}
        known = "".join(f"; {name}: {', '.join(table.column_names)}" for name, table in tables.items() if table.num_columns)
        order = f"; ordered by {self.timestamp}" if self.timestamp else f"; in the order of rows{self._doubt}"
        return f"Dataset({len(self):,} events, {self.n_users:,} users, {self.n_items:,} items{known}{order})"

    @property
    def _doubt(self) -> str:
        return "" if self.row_order in (None, UNSORTED) else f", which are {self.row_order}"


def _not_empty(argument: str, table: pa.Table) -> None:
    if not len(table):
        raise ValueError(f"{argument} must hold at least one row, got none.")
