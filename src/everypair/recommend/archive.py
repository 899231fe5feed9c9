"""Recommenders in folders: arrays as safetensors, tables and ids as Arrow, the rest as JSON. No pickle, nothing is executed.

What is counted with (codes, bounds, ids, tables) is checked by its checksum whenever a folder is opened, and for sense. Parameters
are numbers whatever they are: they are mapped into memory, and checked against their checksum on demand.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from importlib.metadata import version
from typing import Any

import numpy as np
import pyarrow as pa

from everypair.data import Dataset, Ids
from everypair.data.dataset import REPEATS
from everypair.models.base import Model
from everypair.persistence.folder import RECOMMENDER, Folder, checksum
from everypair.recommend import adapters
from everypair.recommend.adapters import Stored, VectorAdapter
from everypair.recommend.config import built, classes, described
from everypair.recommend.context_batch import ContextBatch
from everypair.recommend.fitted import FittedState, ItemColumns
from everypair.recommend.recipes import Catalogue, Description
from everypair.recommender import Recommender

KIND, VERSION = RECOMMENDER
MAPPED = ("numbers",)  # payloads that are not read when a folder is opened
NONE = type(None)
FACTS: dict[str, tuple[type, ...]] = {
    "repeats": (str,), "timestamp": (str, NONE), "time_unit": (str, NONE), "time_counts": (bool,), "user_column": (str,),
    "item_column": (str,), "weight_column": (str, NONE), "rating": (str, NONE), "at_least": (int, float, NONE),
    "frame": (str, NONE), "notes": (list,),
}  # fmt: skip
UNREADABLE = (
    KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError, RecursionError, MemoryError, OSError,
    pa.ArrowException,
)  # fmt: skip
TABLES = ("user_table", "item_table", "event_table")


def save(recommender: Recommender, path: str | os.PathLike[str], custom: Iterable[type] = ()) -> None:
    """See :meth:`everypair.Recommender.save`."""
    served, known = recommender._fitted, classes(custom)
    stored = served.reader.stored()
    numbers, index = {**stored.numbers, "popularity": served.popularity}, dict(stored.index)
    facts: dict[str, Any] = {"model": stored.facts}
    for side, description in (("context", served.contexts), ("item", served.items)):
        arrays, facts[side] = description.learnt()
        index |= {f"{side} {name}": array for name, array in arrays.items()}
    data_numbers, data_index, tables, facts["dataset"] = _dataset_stored(served.dataset)
    manifest = {
        "package": version("everypair"),
        "configuration": {
            "model": described(served.reader.model, known),  # as it was fitted: the settings of the next fit may be others
            **{name: described(getattr(recommender, name), known) for name in ("context", "item", "unit", "unknown")},
        },
        "by_user": served.by_user,
        "facts": facts,
        "unknown": recommender.unknown_,
        "evaluation": recommender.evaluation_,
    }
    payloads: dict[str, Any] = {"numbers": {**numbers, **data_numbers}, "index": {**index, **data_index}, **tables}
    Folder(path, KIND, VERSION).write(manifest, payloads)


def load(path: str | os.PathLike[str], *, verify: bool = False, custom: Iterable[type] = ()) -> Recommender:
    """Open a recommender that was saved.

    Parameters
    ----------
    path : path
        Of the folder.
    verify : bool
        Compare all of it with its checksums: reads all of it. Otherwise parameters are read as they are needed.
    custom : list of classes
        Models, towers and recipes of your own that it is made of.

    Examples
    --------
    >>> import tempfile
    >>> import everypair as ep
    >>> recommender = ep.Recommender(ep.MF(factors=4)).fit(ep.datasets.youtube_like(50, 20, seed=0))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = recommender.save(f"{folder}/model")
    ...     again = ep.load(f"{folder}/model")
    >>> again
    Recommender(MF(factors=4), context=[UserId()], item=[ItemId()])
    """
    return opened(path, verify, custom)[0]


def opened(path: str | os.PathLike[str], verify: bool = False, custom: Iterable[type] = ()) -> tuple[Recommender, str]:
    """A recommender that was saved, and the checksum of its folder's content."""
    known = classes(custom)
    folder = Folder(path, KIND, VERSION)
    contents = folder.open(MAPPED, verify)
    try:
        return _restored(contents.manifest, contents.payloads, known), checksum(contents.manifest)
    except UNREADABLE as error:
        what = f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else str(error)
        raise ValueError(f"{folder.path} does not hold a recommender that can be used: {what}") from error


def _restored(manifest: Mapping[str, Any], payloads: Mapping[str, Any], known: Mapping[str, type]) -> Recommender:
    configuration = {name: built(value, known) for name, value in manifest["configuration"].items()}
    model, facts = configuration["model"], manifest["facts"]
    if not isinstance(model, Model):
        raise ValueError(f"its model must be one, got {model!r}.")
    recommender = Recommender(**{**configuration, "context": list(configuration["context"]), "item": list(configuration["item"])})
    numbers, index = payloads["numbers"], payloads["index"]
    dataset = _dataset_restored(facts["dataset"], numbers, index, payloads)
    rows = {"context": ContextBatch.of_users(dataset, []), "item": Catalogue.of(dataset)}
    descriptions = {}
    for side, recipes in (("context", recommender.context), ("item", recommender.item)):
        mine = {key.removeprefix(f"{side} "): array for key, array in index.items() if key.startswith(f"{side} ")}
        descriptions[side] = Description.restored(side, recipes, dataset, rows[side], mine, facts[side])
    contexts, items = descriptions["context"], descriptions["item"]
    recipes = {"context": recommender.context, "item": recommender.item}
    reader = adapters.reader(model)
    reader.check(recommender.context, recommender.item)
    popularity = numbers["popularity"]
    if popularity.shape != (dataset.n_items,) or popularity.dtype.kind != "f":
        raise ValueError(f"popularity must be {dataset.n_items} numbers, got {popularity.dtype} of shape {popularity.shape}.")
    served = FittedState(dataset, recipes, contexts, items, reader, popularity, bool(manifest["by_user"]))
    reader.restore(Stored(numbers, index, facts["model"]), served.without_rows(), dataset.n_items)
    if isinstance(reader, VectorAdapter):
        reader.catalogue = ItemColumns(items, recipes["item"], dataset)
    recommender._served = replace(served, reader=reader.ended())
    recommender.evaluation_ = manifest.get("evaluation")
    if not isinstance(recommender.evaluation_, dict | NONE):
        raise ValueError(f"its evaluation must be figures by name, got {recommender.evaluation_!r}.")
    recommender.unknown_ = {str(name): int(count) for name, count in manifest["unknown"].items()}
    return recommender


def _dataset_stored(dataset: Dataset) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray], dict[str, bytes], dict[str, Any]]:
    """Numbers, integers, tables and facts."""
    numbers = {f"events {name}": array for name in ("time", "weight") if (array := getattr(dataset, name)) is not None}
    index = {"events item": dataset.item, "events bounds": dataset.bounds}
    tables = {name: _arrow(pa.table({"id": getattr(dataset, name).values})) for name in ("users", "items")}
    tables |= {name: _arrow(getattr(dataset, name)) for name in TABLES if getattr(dataset, name).num_columns}
    return numbers, index, tables, {name: getattr(dataset, name) for name in FACTS}


def _dataset_restored(
    facts: Mapping[str, Any], numbers: Mapping[str, np.ndarray], index: Mapping[str, np.ndarray], tables: Mapping[str, bytes]
) -> Dataset:
    dataset = object.__new__(Dataset)
    for name, kinds in FACTS.items():
        if not isinstance(facts[name], kinds) or (isinstance(facts[name], bool) and bool not in kinds):
            raise ValueError(f"{name} of the dataset cannot be {facts[name]!r}.")
        setattr(dataset, name, facts[name])
    if dataset.repeats not in REPEATS or not all(isinstance(note, str) for note in dataset.notes):
        raise ValueError("what is said of the dataset makes no sense.")
    for name in ("users", "items"):
        setattr(dataset, name, Ids.restored(table_of(tables[name])["id"]))
    item = adapters.check_index(index["events item"], 0, dataset.n_items)
    dataset.bounds, dataset.item = adapters.check_bounds(index["events bounds"], dataset.n_users, len(item)), item
    dataset.user = np.repeat(np.arange(dataset.n_users, dtype=np.int32), np.diff(dataset.bounds))
    for name in ("time", "weight"):
        array = numbers.get(f"events {name}")
        if array is not None and (array.shape != item.shape or array.dtype.kind not in "if"):
            raise ValueError(f"there must be a {name} for each event, a number, got {array.dtype} {array.shape}.")
        setattr(dataset, name, array)
    for name, n in zip(TABLES, (dataset.n_users, dataset.n_items, len(item)), strict=True):
        table = table_of(tables[name]) if name in tables else pa.table({})
        if table.num_columns and len(table) != n:
            raise ValueError(f"{name} must have {n} rows, got {len(table)}.")
        setattr(dataset, name, table)
    return dataset


def _arrow(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def table_of(content: bytes) -> pa.Table:
    """A table as it was stored."""
    for message in pa.ipc.MessageReader.open_stream(content):
        if message.type in ("record batch", "dictionary") and _compressed(message.metadata.to_pybytes(), message.type):
            raise ValueError("a table is compressed, which none is here: it could claim any size.")
    table = pa.ipc.open_stream(content).read_all()
    table.validate(full=True)  # what it says of itself may be wrong, though its checksum is right
    return table


def _compressed(metadata: bytes, kind: str) -> bool:
    """Whether the header of a batch (a flatbuffer: tables of offsets) has the field "compression"."""

    def number(at: int, size: int, signed: bool = False) -> int:
        if not 0 <= at <= len(metadata) - size:
            raise ValueError("a table's header points beyond its end.")
        return int.from_bytes(metadata[at : at + size], "little", signed=signed)

    def place(table: int, field: int) -> int:
        """Where a field of a table is; 0 if it is not there."""
        offsets = table - number(table, 4, signed=True)
        slot = 4 + 2 * field
        offset = number(offsets + slot, 2) if slot < number(offsets, 2) else 0
        return table + offset if offset else 0

    def inner(table: int, field: int) -> int:
        at = place(table, field)
        return at + number(at, 4)

    batch = inner(number(0, 4), 2)  # Message.header
    return place(inner(batch, 1) if kind == "dictionary" else batch, 3) != 0  # DictionaryBatch.data, RecordBatch.compression
