"""Small shards in Parquet files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet
from shards import close, linked_hubs, on_members

import everypair as ep
from everypair.cluster.fit import FitJob, assembled, train_shard
from everypair.cluster.hub import Counts
from everypair.runtime.group import joined


def tables(seed: int = 0, users: int = 60, items: int = 20) -> dict[str, pa.Table]:
    """Events with times (some of them equal), users and items with attributes."""
    random = np.random.default_rng(seed)
    n = 12 * users
    events = pa.table(
        {
            "user": [f"u{code}" for code in random.permutation(np.arange(n) % users)],
            "item": [f"i{code}" for code in (items * random.random(n) ** 2).astype(int)],
            "t": random.integers(0, 50, n),
            "device": random.choice(["phone", "tv", "web"], n),
        }
    )
    names = [f"u{code}" for code in range(users)]
    ages, tags = random.integers(18, 80, users), [["a", "b", "c"][: 1 + code % 3] for code in range(users)]
    people = pa.table({"user": names, "age": ages, "country": random.choice(["de", "fr", "jp", None], users), "tags": tags})
    catalogue = pa.table(
        {"item": [f"i{code}" for code in range(items)], "price": random.random(items), "kind": [f"k{c % 4}" for c in range(items)]}
    )
    return {"events": events, "users": people, "items": catalogue}


def write(folder: Path, files: int = 3, seed: int = 0, order: int = 0, **options: Any) -> dict[str, Path]:
    """Events in several files, with rows in an order of their own."""
    found = {}
    for name, table in tables(seed, **options).items():
        shuffled = table.take(pa.array(np.random.default_rng(order).permutation(len(table)))) if order else table
        found[name] = folder / name
        found[name].mkdir(parents=True)
        for j, part in enumerate(np.array_split(np.arange(len(table)), files)):
            parquet.write_table(shuffled.take(pa.array(part)), found[name] / f"part-{(7 * j) % files}.parquet")
    return found


def shards(folder: Path, n: int = 4, **options: Any) -> ep.Shards:
    paths = write(folder / "files", **options)
    return ep.Shards.from_parquet(
        paths["events"], users=paths["users"], items=paths["items"], timestamp="t", cache=folder / "shards", shards=n
    )


def fit_in_threads(
    recommender: ep.Recommender, data: ep.Shards, folder: Path, processes: int = 1, every: int = 1
) -> tuple[ep.Recommender, Counts]:
    """A fit as that of several processes, which are threads of this one: :class:`everypair.Processes` without the time to start."""
    folder.mkdir(parents=True, exist_ok=True)
    recipes = {"context": recommender.context, "item": recommender.item}
    model: Any = recommender.model
    job = FitJob.of(model, recipes, recommender.unit, data, folder, every)
    hubs = linked_hubs(data.n, processes)
    try:
        for error in on_members(hubs, lambda member: train_shard(member, job, 1)):
            if isinstance(error, BaseException):
                raise error
    finally:
        close(hubs)
    dataset, finished = assembled(data, folder)
    with joined(finished):
        recommender.fit(dataset)
    return recommender, hubs[0].counts
