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
    """Print the figures of services under closed-loop and open-loop load, in alternating rounds."""
    times: dict[str, list[float]] = {}
    for _ in range(load.repeats):
        for service in services:
            port, seconds, body = service.port, load.seconds, service.body
            found = asyncio.run(closed_loop(port, load.connections, seconds, body))
            times.setdefault(f"{service.name}, {load.connections} clients", []).extend(found)
            found = asyncio.run(open_loop(port, OPEN_LOOP_CONNECTIONS, seconds, body, load.rate))
            times.setdefault(f"{service.name}, {load.rate:g} per second", []).extend(found)
    for name, own in times.items():
        median, high, longest = np.quantile(1e3 * np.array(own), [0.5, 0.99, 1.0])
        rate = len(own) / (load.repeats * load.seconds)
        print(f"{name:<42} {rate:7.0f}/s   p50 {median:6.1f} ms   p99 {high:6.1f} ms   longest {longest:6.1f} ms", flush=True)
