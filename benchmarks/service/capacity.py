"""How much memory the service takes and how many requests it answers, by items, factors and workers."""

from __future__ import annotations

import asyncio
import itertools
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

import everypair as ep
from benchmarks.service import processes
from benchmarks.service.client import closed_loop

N = 10  # items of a recommendation
USERS, EVENTS_PER_USER = 20_000, 20
WARM_UP = 1.0  # seconds


class Capacity(NamedTuple):
    """What a service of so many items, factors and workers takes and gives.

    Attributes
    ----------
    shared, private : float
        MiB of memory: of files that all workers map, and of each worker alone.
    rate : float
        Requests per second, with twice as many clients as workers.
    median, high : float
        Milliseconds of a response: the median and the 99th percentile.
    """

    n_items: int
    factors: int
    workers: int
    shared: float
    private: float
    rate: float
    median: float
    high: float


def measure_capacity(items: Sequence[int], factors: Sequence[int], workers: Sequence[int], seconds: float) -> list[Capacity]:
    """Measure each combination, printing the table of those so far."""
    found: list[Capacity] = []
    for n_items, k in itertools.product(items, factors):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name) / "model"
            _fit(n_items, k, folder)
            for n in workers:
                found.append(_measure(folder, n_items, k, n, seconds))
                print(markdown(found[-1:]) if len(found) == 1 else markdown(found[-1:]).splitlines()[-1], flush=True)
    return found


def _fit(n_items: int, factors: int, folder: Path) -> None:
    """A model of generated events in which every item occurs; what it recommends does not matter here."""
    random = np.random.default_rng(0)
    n = max(USERS * EVENTS_PER_USER, n_items)
    item = np.concatenate([np.arange(n_items), random.integers(0, n_items, n - n_items)])
    dataset = ep.Dataset({"user": random.integers(0, USERS, n), "item": random.permutation(item)})
    ep.Recommender(ep.MF(factors=factors, epochs=1)).fit(dataset).save(folder)


def _measure(folder: Path, n_items: int, factors: int, workers: int, seconds: float) -> Capacity:
    random, port = np.random.default_rng(0), processes.free_port()
    with processes.everypair_service(folder, port, workers) as process:

        def body() -> dict[str, int]:
            return {"user": int(random.integers(USERS)), "n": N}

        asyncio.run(closed_loop(port, 2 * workers, WARM_UP, body))
        times = asyncio.run(closed_loop(port, 2 * workers, seconds, body))
        memory = np.array([processes.resident_memory(pid) for pid in processes.worker_pids(process)]) / 2**20
    whole, private = memory.max(axis=0)
    median, high = np.quantile(1e3 * np.array(times), [0.5, 0.99])
    return Capacity(n_items, factors, workers, whole - private, private, len(times) / seconds, float(median), float(high))


def markdown(rows: Sequence[Capacity]) -> str:
    """The figures as a table in Markdown."""
    header = "| items | k | workers | MiB shared | MiB per worker | requests/s | p50 ms | p99 ms |\n|" + "---:|" * 8
    lines = [
        f"| {row.n_items:,} | {row.factors} | {row.workers} | {row.shared:,.0f} | {row.private:,.0f} | {row.rate:,.0f} "
        f"| {row.median:.1f} | {row.high:.1f} |"
        for row in rows
    ]
    return "\n".join([header, *lines])
