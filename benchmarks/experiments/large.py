"""Seconds and memory of loading large tables and of ranking: ``python -m benchmarks experiments load|rank``."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import csv, parquet

from benchmarks.harness.clock import Clock
from benchmarks.harness.process import MeasuredProcess, peak_memory
from benchmarks.harness.section import megabytes
from everypair.data import Dataset
from everypair.ranking.rank import Products
from everypair.ranking.rank import rank as rank_products
from everypair.runtime.parallel import Workers

EVENTS = (1_000_000, 5_000_000)
RANKED = (30_000, 40_000, 100)  # users, items, and length of the lists


class LoadingWorker:
    """Reads a table of events."""

    def measure(self, path: str) -> tuple[float, int]:
        return _measure(lambda: Dataset(path, timestamp="time"))


class RankingWorker:
    """Ranks all items for all users by random vectors."""

    def __init__(self, users: int, items: int) -> None:
        self._vectors = [np.random.default_rng(0).normal(size=(n, 64)).astype(np.float32) for n in (users, items)]

    def measure(self, n: int) -> tuple[float, int]:
        def call() -> None:
            with Workers(2) as workers:
                rank_products(Products(*self._vectors), n, workers)

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
    first, added = clock.now(), peak_memory() - before
    clock = Clock()
    call()
    return min(first, clock.now()), added
