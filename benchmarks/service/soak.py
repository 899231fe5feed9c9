"""Endurance of the service: memory of its workers under a mix of requests, dropped connections and model switches."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import everypair as ep
from benchmarks.service import processes
from benchmarks.service.client import connect

N = 10  # items of a recommendation
CONNECTIONS = 8
DROPPED = 0.01  # share of requests whose connection is closed before the answer
SWITCH_SECONDS, SAMPLE_SECONDS = 20.0, 2.0  # between versions of the model, and between readings of memory

Requests = list[Callable[[], tuple[str, Any]]]  # path and body


class Reading(NamedTuple):
    """Memory of the workers (resident and private bytes of each) at a time."""

    seconds: float
    memory: list[tuple[int, int]]


def soak(dataset: ep.Dataset, factors: int, workers: int, seconds: float) -> None:
    """Fit a model, start the service, send requests, and print responses by status and memory over time."""
    with tempfile.TemporaryDirectory() as name:
        folder, port = Path(name) / "model", processes.free_port()
        processes.fit_model(dataset, folder, factors)
        with processes.everypair_service(folder, port, workers) as process:
            pids = processes.worker_pids(process)
            counts, readings = asyncio.run(_run(dataset, folder, port, pids, seconds))
    print(f"answers by status: {dict(sorted(counts.items()))}, {sum(counts.values()) / seconds:.0f}/s")
    for j, pid in enumerate(pids):
        _print_memory(pid, readings, j, seconds)


async def _run(
    dataset: ep.Dataset, folder: Path, port: int, pids: list[int], seconds: float
) -> tuple[dict[int, int], list[Reading]]:
    end, random = time.perf_counter() + seconds, np.random.default_rng(0)
    counts: dict[int, int] = {}
    readings: list[Reading] = []
    mix = _mix(dataset, random)
    clients = (_send(port, mix, end, random, counts) for _ in range(CONNECTIONS))
    await asyncio.gather(*clients, _switch_models(folder, end), _read_memory(pids, end, readings))
    return counts, readings


def _mix(dataset: ep.Dataset, random: np.random.Generator) -> Requests:
    """Recommendations by user and by history, batches, similar items, explanations, and an invalid request."""

    def draw(ids: Any) -> Any:
        return ids[int(random.integers(len(ids)))]

    return [
        lambda: ("/recommend", {"user": draw(dataset.users), "n": N}),
        lambda: ("/recommend", {"request": {"history": [draw(dataset.items) for _ in range(20)]}, "n": N}),
        lambda: ("/recommend/batch", {"users": [draw(dataset.users) for _ in range(16)], "n": N}),
        lambda: ("/similar", {"item": draw(dataset.items), "n": N}),
        lambda: ("/explain", {"user": draw(dataset.users), "item": draw(dataset.items)}),
        lambda: ("/recommend", {"user": None, "n": -1}),
    ]


async def _send(port: int, mix: Requests, end: float, random: np.random.Generator, counts: dict[int, int]) -> None:
    while time.perf_counter() < end:
        async with connect(port) as client:
            for _ in range(int(random.integers(1, 50))):
                path, body = mix[int(random.integers(len(mix)))]()
                answer = client.request("POST", path, body)
                if random.random() < DROPPED:
                    asyncio.ensure_future(answer).add_done_callback(lambda f: f.cancelled() or f.exception())
                    break
                status, _ = await answer
                counts[status] = counts.get(status, 0) + 1


async def _switch_models(folder: Path, end: float) -> None:
    """Save another version of the same model at intervals."""
    recommender = ep.load(folder)
    while time.perf_counter() < end - SWITCH_SECONDS:
        await asyncio.sleep(SWITCH_SECONDS)
        recommender.unknown_["switch"] = recommender.unknown_.get("switch", 0) + 1  # changes the version, not the answers
        await asyncio.to_thread(recommender.save, folder)


async def _read_memory(pids: list[int], end: float, readings: list[Reading]) -> None:
    began = time.perf_counter()
    while time.perf_counter() < end:
        readings.append(Reading(time.perf_counter() - began, [processes.resident_memory(pid) for pid in pids]))
        await asyncio.sleep(SAMPLE_SECONDS)


def _print_memory(pid: int, readings: list[Reading], j: int, seconds: float) -> None:
    """Memory of the j-th worker over time, and its slope over the second half: caches and allocator pools are full by then."""
    moments = np.array([reading.seconds for reading in readings])
    whole, private = np.array([reading.memory[j] for reading in readings]).T / 2**20
    late = moments > seconds / 2
    if late.sum() > 1:
        slopes = [np.polyfit(moments[late], size[late], 1)[0] * 60 for size in (whole, private)]
        print(f"worker {pid}: slope over the last half {slopes[0]:+.2f} MiB per minute, {slopes[1]:+.2f} of private memory")
    for at in np.unique(np.linspace(0, len(moments) - 1, 11).astype(int)):
        print(f"  {moments[at]:5.0f} s  {whole[at]:6.1f} MiB, {private[at]:6.1f} of them private")
