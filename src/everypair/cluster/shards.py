"""``Shards``: interactions in a folder, divided by user, written and read in bounded memory."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import dataset as arrow_datasets
from pyarrow import parquet

from everypair.cluster.tree import is_power_of_two
from everypair.data import Dataset
from everypair.data.arrow import no_nulls, pc
from everypair.data.ids import as_ids
from everypair.data.keys import keys_of
from everypair.data.tables import numbers
from everypair.runtime import validation as check

VERSION = 1
MANIFEST = "shards.json"
ROWS = 2**20  # rows that are divided at a time
COLUMNS = ("user", "item", "timestamp", "rating", "weight")  # options that name columns
MOST = 4_096


class Shards:
    """Interactions divided by a hash of the user, in a folder: each shard has all events and attributes of its users.

    A shard is one member of a fit (``Recommender.fit(shards, on=...)``); what a fit computes depends on their number, and not on
    how many processes share them. Items are the same in all shards.

    Parameters
    ----------
    folder : path
        As :meth:`from_parquet` has written it.

    Attributes
    ----------
    n : int
        Number of shards.
    rows : list of int
        Events of each shard.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        try:
            facts = json.loads((self.folder / MANIFEST).read_text())
        except FileNotFoundError:
            raise FileNotFoundError(
                f"{self.folder} does not hold shards: it has no {MANIFEST}. Shards.from_parquet, or everypair shard, writes them."
            ) from None
        except ValueError as error:
            raise ValueError(f"{self.folder / MANIFEST} cannot be read: {error}.") from error
        if facts.get("version") != VERSION:
            raise ValueError(f"{self.folder} was written by another version of everypair. Write the shards again.")
        self.n, self.rows, self._options, self._parts = facts["n"], facts["rows"], facts["options"], facts["parts"]

    @classmethod
    def from_parquet(
        cls,
        events: Any,
        users: Any = None,
        items: Any = None,
        user: str = "user",
        item: str = "item",
        timestamp: str | None = None,
        *,
        cache: str | os.PathLike[str],
        shards: int = 16,
        rating: str | None = None,
        at_least: float | None = None,
        weight: str | None = None,
        repeats: str = "keep",
        users_key: str | None = None,
        items_key: str | None = None,
        all_items: bool = False,
    ) -> Shards:
        """Divide Parquet files, in the memory of a million rows and of all ids of items.

        The result does not depend on the order of files or rows: events of a user with the same time are in the order of the ids of
        their items, and then of their other columns.

        Parameters
        ----------
        events, users, items : path, location or list of those
            Parquet files or folders of them, also ``s3://`` and other locations of :mod:`pyarrow.fs`; or an object with
            ``iter_batches``, such as a Ray Dataset. As for :class:`~everypair.Dataset` otherwise.
        cache : path
            The folder to write. Shards that are there already, of the same files and options, are taken as they are.
        shards : int
            A power of two: at least the number of processes of a fit. A process that holds several has the parameters that all
            shards share once for each.
        user, item, timestamp, rating, at_least, weight, repeats, users_key, items_key, all_items
            As for :class:`~everypair.Dataset`.

        Examples
        --------
        >>> import everypair as ep, pyarrow as pa, pyarrow.parquet, tempfile
        >>> folder = tempfile.mkdtemp()
        >>> table = pa.table({"user": [1, 2, 3, 4] * 4, "item": [1, 2, 3, 4, 2, 3, 4, 1, 3, 4, 1, 2, 4, 1, 2, 3]})
        >>> pa.parquet.write_table(table, f"{folder}/events.parquet")
        >>> ep.Shards.from_parquet(f"{folder}/events.parquet", cache=f"{folder}/shards", shards=2)
        Shards(2 shards, 16 events)
        """
        if not is_power_of_two(check.integer("shards", shards, low=1, high=MOST)):
            raise ValueError(f"shards must be a power of two, got {shards}: sums run in a binary tree over them.")
        if (rating is None) != (at_least is None):
            raise ValueError("rating (the column) and at_least (the smallest rating that counts) must be given together.")
        if all_items and items is None:
            raise ValueError("all_items=True is for a table of items: give items, or leave it out.")
        options = {
            "user": user, "item": item, "timestamp": timestamp, "rating": rating, "at_least": at_least, "weight": weight,
            "repeats": repeats, "users_key": users_key, "items_key": items_key, "all_items": bool(all_items),
        }  # fmt: skip
        folder = Path(cache)
        sources = {name: _described(source) for name, source in (("events", events), ("users", users), ("items", items))}
        key = json.loads(json.dumps({"shards": shards, "options": options, "sources": sources}))
        if (folder / MANIFEST).exists():
            if json.loads((folder / MANIFEST).read_text()).get("key") != key:
                raise ValueError(f"{folder} holds shards of other files or options. Choose another folder, or delete it.")
            return cls(folder)
        if folder.exists() and any(folder.iterdir()):
            raise ValueError(f"{folder} is not empty, and does not hold complete shards. Choose another folder, or delete it.")
        writer = _Writer(folder, shards, options)
        writer.write("events", events)
        if users is not None:
            writer.write("users", users)
        writer.write_items(items)
        writer.finish(key)
        return cls(folder)

    @property
    def has_users(self) -> bool:
        return "users" in self._parts

    def dataset(self, shard: int | None = None) -> Dataset:
        """The data of a shard, with all items; or all data, for one machine."""
        options = {name: value for name, value in self._options.items() if name not in ("users_key", "items_key", "all_items")}
        user, item, timestamp = (options[name] for name in ("user", "item", "timestamp"))
        events = self._table("events", shard)
        first = [name for name in (user, timestamp, item) if name is not None]
        events = _sorted(events, first)
        users_key, items_key = self._options["users_key"] or user, self._options["items_key"] or item
        given: dict[str, Any] = {
            "items": parquet.read_table(self.folder / "items.parquet"),
            "items_key": items_key,
            "all_items": True,
        }
        if self.has_users:
            people = self._table("users", shard)
            if len(people):
                given |= {"users": _sorted(people, [users_key]), "users_key": users_key}
        if given["items"].num_columns == 1:
            given["items"] = given["items"].append_column(" ", pa.nulls(len(given["items"]), pa.bool_()))
        dataset = Dataset(events, **given, **options, chronological=timestamp is None)
        if " " in dataset.item_table.column_names:
            dataset.item_table = pa.table({})
        dataset.all_items, dataset.notes = bool(self._options["all_items"]), []
        dataset.frame = None
        return dataset

    @property
    def ordered(self) -> bool:
        """Whether events have times."""
        return self._options["timestamp"] is not None

    def _table(self, name: str, shard: int | None) -> pa.Table:
        tables = []
        for part, owners in sorted(self._parts[name].items()):
            wanted = [group for group, owner in enumerate(owners) if shard is None or owner == shard]
            with parquet.ParquetFile(self.folder / name / part) as file:
                tables.append(file.read_row_groups(wanted))
        return pa.concat_tables(tables, promote_options="permissive").combine_chunks()

    def __repr__(self) -> str:
        return f"Shards({self.n:,} shards, {sum(self.rows):,} events)"


class _Writer:
    """Writes the folder of shards."""

    def __init__(self, folder: Path, shards: int, options: dict[str, Any]) -> None:
        self._folder, self._n, self._options = folder, shards, options
        self._rows = [0] * shards
        self._parts: dict[str, dict[str, list[int]]] = {}
        self._items: list[pa.Array] = []
        folder.mkdir(parents=True, exist_ok=True)

    def write(self, name: str, source: Any) -> None:
        """Divide a table by its column of users."""
        (self._folder / name).mkdir()
        parts = self._parts[name] = {}
        key = self._options["user"] if name == "events" else self._options["users_key"] or self._options["user"]
        schema: pa.Schema | None = None
        for number, table in enumerate(_batches(source, name)):
            table = self._checked(table) if name == "events" else table
            ids = _ids(table, key, name)
            table = table.set_column(table.column_names.index(key), key, ids)
            if schema is not None and table.schema.remove_metadata() != schema:
                table = _cast(table, schema, name)
            schema = table.schema.remove_metadata()
            shard = shards_of(keys_of(ids.combine_chunks()), self._n)
            if name == "events":
                self._count(table, shard)
            order = np.argsort(shard, kind="stable")
            table, bounds = table.take(pa.array(order)), np.searchsorted(shard[order], np.arange(self._n + 1))
            part = f"part-{number:06d}.parquet"
            owners = parts[part] = []
            with parquet.ParquetWriter(self._folder / name / part, table.schema) as file:
                for owner, (start, stop) in enumerate(zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)):
                    if stop > start:
                        file.write_table(table.slice(start, stop - start), row_group_size=stop - start)
                        owners.append(owner)
        if schema is None:
            raise ValueError(f"{name} must hold at least one row, got none.")

    def _checked(self, table: pa.Table) -> pa.Table:
        """Events that count, with all columns that are named."""
        for option in COLUMNS:
            name = self._options[option]
            if name is not None and name not in table.column_names:
                raise ValueError(f"events have no column {name!r}; they have {', '.join(table.column_names)}. Set {option}.")
            if name is not None:
                no_nulls(table[name], f"column {name!r}", "Drop those rows, or fill them.")
        if self._options["rating"] is not None:
            rating = numbers(table[self._options["rating"]], f"column {self._options['rating']!r}")
            table = table.filter(pa.array(rating >= self._options["at_least"]))
        item = self._options["item"]
        return table.set_column(table.column_names.index(item), item, _ids(table, item, "events"))

    def _count(self, table: pa.Table, shard: np.ndarray) -> None:
        for owner, rows in enumerate(np.bincount(shard, minlength=self._n).tolist()):
            self._rows[owner] += rows
        self._items.append(table[self._options["item"]].unique())
        if len(self._items) > 16:
            self._items = [pa.chunked_array(self._items).unique()]

    def write_items(self, source: Any) -> None:
        """The ids of all items that are trained on, with their attributes."""
        found = pa.chunked_array(self._items).unique()
        key = self._options["items_key"] or self._options["item"]
        table = pa.table({key: found})
        if source is not None:
            tables = list(_batches(source, "items"))
            given = pa.concat_tables(tables, promote_options="permissive").combine_chunks()
            ids = _ids(given, key, "items")
            given = given.set_column(given.column_names.index(key), key, ids)
            if not self._options["all_items"]:
                given = given.filter(pc.is_in(given[key], value_set=found))
            missing = found.filter(pc.invert(pc.is_in(found, value_set=given[key].combine_chunks())))
            table = pa.concat_tables([given, pa.table({key: missing})], promote_options="default")
        parquet.write_table(_sorted(table, [key]), self._folder / "items.parquet")

    def finish(self, key: dict[str, Any]) -> None:
        empty = [shard for shard, rows in enumerate(self._rows) if not rows]
        if empty:
            raise ValueError(
                f"{len(empty)} of {self._n} shards have no events: there are too few users for so many. Set shards to fewer, and "
                f"delete {self._folder}."
            )
        facts = {
            "version": VERSION, "n": self._n, "rows": self._rows, "options": self._options, "parts": self._parts, "key": key,
        }  # fmt: skip
        temporary = self._folder / f".{MANIFEST}"
        temporary.write_text(json.dumps(facts))
        temporary.replace(self._folder / MANIFEST)


def shards_of(keys: np.ndarray, n: int) -> np.ndarray:
    """The shard of each key (:mod:`everypair.data.keys`): the highest bits of its hash (the finalizer of SplitMix64).

    >>> shards_of(np.arange(6, dtype=np.uint64), 4).tolist()
    [0, 1, 3, 0, 2, 2]
    """
    with np.errstate(over="ignore"):
        z = keys.astype(np.uint64)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
    bits = n.bit_length() - 1
    return (z >> np.uint64(64 - bits)).astype(np.int64) if bits else np.zeros(len(z), np.int64)


def _ids(table: pa.Table, name: str, argument: str) -> pa.ChunkedArray:
    if name not in table.column_names:
        raise ValueError(f"{argument} have no column {name!r}; they have {', '.join(table.column_names)}.")
    return as_ids(table[name], f"ids in column {name!r} of {argument}")


def _batches(source: Any, name: str) -> Iterator[pa.Table]:
    """Tables of about a million rows."""
    held: list[pa.Table] = []
    for table in _tables(source, name):
        for start in range(0, len(table), ROWS):
            held.append(table.slice(start, ROWS))
            if sum(map(len, held)) >= ROWS:
                yield pa.concat_tables(held, promote_options="permissive").combine_chunks()
                held = []
    if held:
        yield pa.concat_tables(held, promote_options="permissive").combine_chunks()


def _tables(source: Any, name: str) -> Iterable[pa.Table]:
    if hasattr(source, "iter_batches"):  # a Ray Dataset
        return source.iter_batches(batch_size=ROWS, batch_format="pyarrow")
    try:
        opened = [arrow_datasets.dataset(path, format="parquet") for path in _paths(source)]
        options: dict[str, Any] = {"batch_size": ROWS // 4, "batch_readahead": 1, "fragment_readahead": 1}
        batches = (batch for each in opened for batch in each.to_batches(**options))
        return (pa.Table.from_batches([batch]) for batch in batches if len(batch))
    except (pa.ArrowException, OSError, TypeError) as error:
        raise ValueError(f"{name} cannot be read as Parquet: {error}") from error


def _paths(source: Any) -> list[str]:
    return [os.fspath(path) for path in (source if isinstance(source, list | tuple) else [source])]


def _described(source: Any) -> Any:
    """What tells whether shards are of these files: names, sizes and times of local files."""
    if source is None:
        return None
    if hasattr(source, "iter_batches"):
        return repr(type(source))
    described = []
    for path in source if isinstance(source, list | tuple) else [source]:
        local = Path(path)
        files = sorted(local.rglob("*")) if local.is_dir() else [local]
        described += [[str(file), *_stat(file)] for file in files if not file.is_dir()]
    return sorted(described)


def _stat(file: Path) -> list[int]:
    try:
        found = file.stat()
    except OSError:
        return []
    return [found.st_size, found.st_mtime_ns]


def _sorted(table: pa.Table, first: list[str]) -> pa.Table:
    """By these columns, then by the others as far as they can be ordered."""
    others = [name for name in sorted(table.column_names) if name not in first and _can_be_ordered(table[name].type)]
    order = pc.sort_indices(table, sort_keys=[(name, "ascending") for name in (*first, *others)])
    return table.take(order)


def _can_be_ordered(kind: pa.DataType) -> bool:
    types = pa.types
    return types.is_primitive(kind) or types.is_string(kind) or types.is_large_string(kind) or types.is_binary(kind)


def _cast(table: pa.Table, schema: pa.Schema, name: str) -> pa.Table:
    try:
        return table.select(schema.names).cast(schema)
    except (pa.ArrowException, ValueError, KeyError) as error:
        raise ValueError(f"the files of {name} hold columns of different types: {error}. Write them with one.") from error
