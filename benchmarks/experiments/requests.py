"""Single requests, updates, and opening of a large model: ``python -m benchmarks recommend``."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import everypair as ep

REQUESTS = 200  # of each kind
NEW_EVENTS = (1, 100, 1_000)
LARGE = (3_000_000, 1_000_000, 6_000_000)  # users, items and events of a model of about a gigabyte


def measure_requests(dataset: ep.Dataset) -> None:
    """Median milliseconds of a request on one thread."""
    history = {"history": [dataset.items[3], dataset.items[9]]}
    models = {
        "MF": (ep.MF(factors=64, epochs=1), None),
        "FM": (ep.FM(factors=64, epochs=1), [ep.UserId(), ep.Previous(), ep.History(last=50)]),
    }
    for name, (model, context) in models.items():
        recommender = ep.Recommender(model, context).fit(dataset)
        recommender.model.set_params(n_threads=1)
        requests: dict[str, dict[str, Any]] = {
            "a user": {"users": [dataset.users[5]]},
            "a history": {"requests": [history]},
            "8 users": {"users": dataset.users.take(np.arange(8)).to_pylist()},
        }
        for kind, arguments in requests.items():
            recommender.recommend(**arguments)
            times = [_seconds(lambda arguments=arguments, r=recommender: r.recommend(**arguments)) for _ in range(REQUESTS)]
            print(f"{name}, {kind:<10} {1e3 * np.median(times):6.2f} ms")


def measure_updates(dataset: ep.Dataset) -> None:
    """Seconds to fold new events in."""
    models = {
        "MF, k = 64": (ep.MF(factors=64, epochs=2), None),
        "FM, k = 32": (ep.FM(factors=32, epochs=1), [ep.UserId(), ep.Previous()]),
    }
    for name, (model, context) in models.items():
        recommender = ep.Recommender(model, context).fit(dataset)
        for n in NEW_EVENTS:
            random = np.random.default_rng(n)
            new: dict[str, Any] = {"user": dataset.users.take(random.integers(0, dataset.n_users, n))}
            new |= {"item": dataset.items.take(random.integers(0, dataset.n_items, n))}
            new |= {} if dataset.timestamp is None else {dataset.timestamp: np.full(n, 2**40)}
            print(f"{name}: {n:>5} events {_seconds(lambda new=new, r=recommender: r.update(new)):6.2f} s")


def measure_open() -> None:
    """Seconds to save, open and verify models of about a gigabyte."""
    random = np.random.default_rng(0)
    n_users, n_items, n = LARGE
    user, item = (np.append(np.arange(size), random.integers(0, size, n - size)) for size in (n_users, n_items))
    dataset = ep.Dataset({"user": user, "item": item})
    for name, model, context in (
        ("MF", ep.MF(factors=64, epochs=1), None),
        ("FM", ep.FM(factors=64, epochs=1), [ep.UserId(), ep.Previous()]),
    ):
        recommender = ep.Recommender(model, context).fit(dataset)
        with tempfile.TemporaryDirectory() as folder:
            saving = _seconds(lambda folder=folder, r=recommender: r.save(folder))
            size = sum(path.stat().st_size for path in Path(folder).iterdir()) / 1e9
            times = [_seconds(lambda folder=folder: ep.load(folder)) for _ in range(5)]
            verified = _seconds(lambda folder=folder: ep.load(folder, verify=True))
            print(f"{name}, {size:.1f} GB: opens in {np.median(times):.2f} s, verified {verified:.1f} s, saved in {saving:.1f} s")


def _seconds(call: Callable[[], Any]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began
