"""Requests per second and response times of the service, beside a minimal service around implicit."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import everypair as ep
from benchmarks.service import processes
from benchmarks.service.client import closed_loop, open_loop

N = 10  # items of a recommendation
OPEN_LOOP_CONNECTIONS = 64
WARM_UP = 1.0  # seconds, which do not count


class Load(NamedTuple):
    """``connections`` of the closed loop, ``rate`` (requests per second) of the open loop, ``seconds`` of each, and rounds."""

    connections: int
    rate: float
    seconds: float
    repeats: int


class Service(NamedTuple):
    """A running service, and the body of a request to it."""

    name: str
    port: int
    body: Callable[[], Any]


def measure_load(dataset: ep.Dataset, factors: int, workers: int, load: Load) -> None:
    """Fit both models, start both services, and print the figures of each."""
    random = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as name:
        folder, ports = Path(name), (processes.free_port(), processes.free_port())
        processes.fit_implicit_model(dataset, folder, factors)
        processes.fit_model(dataset, folder / "model", factors)
        services = [
            Service("EveryPair", ports[0], lambda: {"user": dataset.users[int(random.integers(dataset.n_users))], "n": N}),
            Service("implicit, minimal FastAPI service", ports[1], lambda: {"user": int(random.integers(dataset.n_users)), "n": N}),
        ]
        with (
            processes.everypair_service(folder / "model", ports[0], workers),
            processes.implicit_service(folder, ports[1], workers),
        ):
            compare(services, load)


def compare(services: list[Service], load: Load) -> None:
    """Print the figures of two services under closed-loop and open-loop load; they take turns, and each is first in turn."""

    def closed(service: Service) -> list[float]:
        return asyncio.run(closed_loop(service.port, load.connections, load.seconds, service.body))

    def opened(service: Service) -> list[float]:
        return asyncio.run(open_loop(service.port, OPEN_LOOP_CONNECTIONS, load.seconds, service.body, load.rate))

    measures = {f"{load.connections} clients": closed, f"{load.rate:g} per second": opened}
    times: dict[tuple[str, str], list[float]] = {}
    for service in services:
        asyncio.run(closed_loop(service.port, load.connections, WARM_UP, service.body))
    for turn in range(load.repeats):
        for kind, measure in measures.items():
            for service in services if turn % 2 == 0 else services[::-1]:
                times.setdefault((service.name, kind), []).extend(measure(service))
    found = {key: _figures(own, load.repeats * load.seconds) for key, own in times.items()}
    for (name, kind), figures in sorted(found.items()):
        print(
            f"{name + ', ' + kind:<42} {figures.rate:7.0f}/s   p50 {figures.median:6.1f} ms   p99 {figures.high:6.1f} ms   "
            f"longest {figures.longest:6.1f} ms"
        )
    for kind in measures:
        own, other = (found[service.name, kind] for service in services)
        print(f"{kind}: {own.rate / other.rate:.2f} times the requests, p50 {own.median / other.median:.2f} and p99 "
              f"{own.high / other.high:.2f} times that of {services[1].name}")  # fmt: skip


class Figures(NamedTuple):
    """Answers per second; milliseconds of a response: median, 99th percentile, longest."""

    rate: float
    median: float
    high: float
    longest: float


def _figures(times: list[float], seconds: float) -> Figures:
    median, high, longest = np.quantile(1e3 * np.array(times), [0.5, 0.99, 1.0]).tolist()
    return Figures(len(times) / seconds, median, high, longest)
