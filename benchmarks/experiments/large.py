"""Seconds and memory of loading large tables, of fits and of ranking: ``python -m benchmarks experiments load|peak|rank``."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import csv, parquet

import everypair as ep
from benchmarks.harness.clock import Clock
from benchmarks.harness.process import MeasuredProcess, memory, peak_memory, reset_peak_memory
from benchmarks.harness.section import megabytes
from everypair.data import Dataset
from everypair.ranking.rank import InnerProducts
from everypair.ranking.rank import rank as rank_products
from everypair.runtime.parallel import Workers

EVENTS = (1_000_000, 5_000_000)
FITTED = (1_000_000, 100_000, 64)  # users, items and factors
RANKED = (30_000, 40_000, 100)  # users, items, and length of the lists


class LoadingWorker:
    """Reads a table of events."""

    def measure(self, path: str) -> tuple[float, int]:
        return _measure(lambda: Dataset(path, timestamp="time"))


class FittingWorker:
    """Fits many users with two events each for one epoch."""

    def measure(self, model: str, users: int, items: int, factors: int) -> tuple[int, int]:
        """Bytes of the parameters, and of the memory that the fit added at its peak."""
        random, common = np.random.default_rng(0), {"factors": factors, "epochs": 1}
        made: Any = {"MF": ep.MF, "MFSI": ep.MFSI}[model](**common)
        feedback = ep.Feedback(
            np.repeat(np.arange(users), 2), random.integers(0, items, 2 * users), shape=(users, items), duplicates="sum"
        )
        options: dict[str, Any] = {} if model == "MF" else {"contexts": {"user": ep.Levels(np.arange(users))}}
        type(made)(**common).fit(ep.Feedback([0, 1], [0, 1]))  # loads libraries and compiles kernels
        reset_peak_memory()
        before = memory()
        made.fit(feedback, **options)
        added = peak_memory() - before
        return sum(value.nbytes for value in made.parameters_.values()), added


class RankingWorker:
    """Ranks all items for all users by random vectors."""

    def __init__(self, users: int, items: int) -> None:
        self._vectors = [np.random.default_rng(0).normal(size=(n, 64)).astype(np.float32) for n in (users, items)]

    def measure(self, n: int) -> tuple[float, int]:
        def call() -> None:
            with Workers(2) as workers:
                rank_products(InnerProducts(*self._vectors), n, workers)

        return _measure(call)


def load() -> None:
    """From a Parquet file and a CSV file, with string ids, a timestamp and an attribute, to a data set."""
    random = np.random.default_rng(0)
    for n in EVENTS:
        table = _random_events(random, n)
        with tempfile.TemporaryDirectory() as folder:
            parquet.write_table(table, f"{folder}/events.parquet")
            csv.write_csv(table, f"{folder}/events.csv")
            print(f"{n:,} events, {table.nbytes / 1e6:.0f} MB", flush=True)
            for kind in ("parquet", "csv"):
                with MeasuredProcess("experiments.large:LoadingWorker") as worker:
                    seconds, memory = worker.call("measure", path=str(Path(folder) / f"events.{kind}"))
                print(f"  {kind:<8} {seconds:5.2f} s, {megabytes(memory)} added", flush=True)


def peak() -> None:
    """Memory that a fit adds at its peak, relative to the size of its parameters."""
    users, items, factors = FITTED
    for model in ("MF", "MFSI"):
        with MeasuredProcess("experiments.large:FittingWorker") as worker:
            size, added = worker.call("measure", model=model, users=users, items=items, factors=factors)
        print(f"{model}: parameters {megabytes(size)}, peak {megabytes(added)}, ratio {added / size:.2f}", flush=True)


def rank() -> None:
    """The top 100 of all users."""
    users, items, n = RANKED
    with MeasuredProcess("experiments.large:RankingWorker", users=users, items=items) as worker:
        seconds, memory = worker.call("measure", n=n)
    print(f"{users:,} users, {items:,} items, top {n}: {seconds:.1f} s, {megabytes(memory)} added")


def _random_events(random: np.random.Generator, n: int) -> pa.Table:
    user, item = (np.array([f"{prefix}{j:06d}" for j in range(size)]) for prefix, size in (("u", 100_000), ("i", 50_000)))
    place = np.array(["DE", "FR", "US"])
    return pa.table({
        "user": user[random.integers(0, len(user), n)],
        "item": item[random.integers(0, len(item), n)],
        "time": random.integers(0, 10**9, n),
        "place": place[random.integers(0, 3, n)],
    })  # fmt: skip


def _measure(call: Callable[[], Any]) -> tuple[float, int]:
    """Seconds of the faster of two calls (the first compiles), and the bytes that the first adds to the peak."""
    before, clock = peak_memory(), Clock()
    call()
    first, added = clock.now(), max(peak_memory() - before, 0)  # the system counts pages in batches: a peak may seem to fall
    clock = Clock()
    call()
    return min(first, clock.now()), added
