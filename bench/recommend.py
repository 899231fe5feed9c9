"""What recommending costs: ``python bench/recommend.py NAME [--data FOLDER]`` (see ``--help``).

``request``: milliseconds of a single request, by a known user and by a history, and of eight users at once, of MF and FM.
``update``: seconds to fold new events in.
``open``: seconds to open a model of a gigabyte, and to verify it.

``--data`` is a folder with ``train.parquet`` (columns user and item); without it, a log is generated. Recommendations for everyone
at once, beside another library, are timed by ``everypair benchmark speed --only topn``.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

import everypair as ep


def seconds(call: Callable[[], Any]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def events(folder: Path | None) -> ep.Dataset:
    if folder is None:
        return ep.datasets.youtube_like(20_000, 20_000, seed=0)
    return ep.Dataset(pq.read_table(folder / "train.parquet").select(["user", "item"]))


def request(dataset: ep.Dataset) -> None:
    history = {"history": [dataset.items[3], dataset.items[9]]}
    models = {
        "MF": (ep.MF(factors=64, epochs=1), None),
        "FM": (ep.FM(factors=64, epochs=1), [ep.UserId(), ep.Previous(), ep.History(last=50)]),
    }
    for name, (model, context) in models.items():
        recommender = ep.Recommender(model, context).fit(dataset)
        recommender.model.set_params(n_threads=1)
        asked: dict[str, dict[str, Any]] = {
            "a user": {"users": [dataset.users[5]]},
            "a history": {"requests": [history]},
            "8 users": {"users": dataset.users.take(np.arange(8)).to_pylist()},
        }
        for what, options in asked.items():
            recommender.recommend(**options)
            times = [seconds(lambda options=options, r=recommender: r.recommend(**options)) for _ in range(200)]
            print(f"{name}, {what:<10} {1e3 * np.median(times):6.2f} ms")


def update(dataset: ep.Dataset) -> None:
    models = {
        "MF, k = 64": (ep.MF(factors=64, epochs=2), None),
        "FM, k = 32": (ep.FM(factors=32, epochs=1), [ep.UserId(), ep.Previous()]),
    }
    for name, (model, context) in models.items():
        recommender = ep.Recommender(model, context).fit(dataset)
        for n in (1, 100, 1_000):
            random = np.random.default_rng(n)
            new: dict[str, Any] = {"user": dataset.users.take(random.integers(0, dataset.n_users, n))}
            new |= {"item": dataset.items.take(random.integers(0, dataset.n_items, n))}
            new |= {} if dataset.timestamp is None else {dataset.timestamp: np.full(n, 2**40)}
            print(f"{name}: {n:>5} events {seconds(lambda new=new, r=recommender: r.update(new)):6.2f} s")


def opening() -> None:
    random = np.random.default_rng(0)
    n_users, n_items, n = 3_000_000, 1_000_000, 6_000_000
    user, item = (np.append(np.arange(size), random.integers(0, size, n - size)) for size in (n_users, n_items))
    dataset = ep.Dataset({"user": user, "item": item})
    for name, model, context in (
        ("MF", ep.MF(factors=64, epochs=1), None),
        ("FM", ep.FM(factors=64, epochs=1), [ep.UserId(), ep.Previous()]),
    ):
        recommender = ep.Recommender(model, context).fit(dataset)
        with tempfile.TemporaryDirectory() as folder:
            saving = seconds(lambda folder=folder, r=recommender: r.save(folder))
            size = sum(path.stat().st_size for path in Path(folder).iterdir()) / 1e9
            times = [seconds(lambda folder=folder: ep.load(folder)) for _ in range(5)]
            verified = seconds(lambda folder=folder: ep.load(folder, verify=True))
            print(f"{name}, {size:.1f} GB: opens in {np.median(times):.2f} s, verified {verified:.1f} s, saved in {saving:.1f} s")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=["request", "update", "open"])
    parser.add_argument("--data", type=Path)
    given = parser.parse_args()
    if given.name == "open":
        opening()
    else:
        {"request": request, "update": update}[given.name](events(given.data))
