"""What recommending costs: ``python bench/recommend.py NAME [--data FOLDER]`` (see ``--help``).

``all``: the best 100 items of every user, what was seen left out, beside implicit's batch ``recommend``: same vectors and threads.
``request``: milliseconds of a single request, by a known user and by a history, of MF and FM.
``update``: seconds to fold new events in.
``open``: seconds to open a model of a gigabyte, and to verify it.

``--data`` is a folder with ``train.parquet`` (columns user and item); without it, a log is generated.
"""

from __future__ import annotations

import argparse
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import scipy.sparse as sp
from threadpoolctl import threadpool_limits

import everypair as ep


def seconds(call: Callable[[], Any]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def events(folder: Path | None) -> ep.Dataset:
    if folder is None:
        return ep.datasets.youtube_like(20_000, 20_000, seed=0)
    return ep.Dataset(pq.read_table(folder / "train.parquet").select(["user", "item"]))


def everyone(dataset: ep.Dataset, runs: int, factors: int) -> None:
    from implicit.als import AlternatingLeastSquares  # type: ignore[import-untyped]

    settings: dict[str, Any] = {"unobserved_weight": 0.01, "regularization": 0.01, "regularization_exponent": 1.0}
    recommender = ep.Recommender(ep.MF(factors=factors, epochs=8, **settings)).fit(dataset)
    seen = sp.csr_matrix((np.ones(len(dataset), np.float32), (dataset.user, dataset.item)), (dataset.n_users, dataset.n_items))
    peer = AlternatingLeastSquares(factors=factors, num_threads=2)
    vectors = recommender.context_vectors(dataset.users.values), recommender.item_vectors()
    peer.user_factors, peer.item_factors = vectors
    users = np.arange(dataset.n_users)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore", ep.FewerItemsWarning)
        out = Path(folder) / "all.parquet"
        calls = {
            "implicit recommend": lambda: peer.recommend(users, seen, N=100, filter_already_liked_items=True),
            "recommend": lambda: recommender.recommend(dataset.users.values, n=100),
            "recommend_all, to Parquet": lambda: recommender.recommend_all(out, n=100),
        }
        found: dict[str, list[float]] = {name: [] for name in calls}
        for _ in range(runs + 1):  # the first compiles, and does not count
            for name, call in calls.items():
                with threadpool_limits(1 if "implicit" in name else None):  # as implicit asks for: its own threads share the work
                    found[name].append(seconds(call))
    medians = {name: np.median(times[1:]) for name, times in found.items()}
    peers = medians["implicit recommend"]
    for name, median in medians.items():
        print(f"k = {factors}: {name:<28} {median:6.2f} s, {median / peers:.2f} of implicit's, {peers / median:.2f} times as fast")


def request(dataset: ep.Dataset) -> None:
    history = {"history": [dataset.items[3], dataset.items[9]]}
    models = {
        "MF": (ep.MF(factors=64, epochs=1), None),
        "FM": (ep.FM(factors=64, epochs=1), [ep.UserId(), ep.Previous(), ep.History(last=50)]),
    }
    for name, (model, context) in models.items():
        recommender = ep.Recommender(model, context).fit(dataset)
        for what, asked in (("a user", {"user": dataset.users[5]}), ("a history", history)):
            recommender.recommend(requests=[asked])
            times = [seconds(lambda asked=asked, r=recommender: r.recommend(requests=[asked])) for _ in range(100)]
            print(f"{name}, {what:<10} {1e3 * np.median(times):6.1f} ms")


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
    parser.add_argument("name", choices=["all", "request", "update", "open"])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--factors", type=int, default=128, help="of the model for all")
    given = parser.parse_args()
    if given.name == "open":
        opening()
    elif given.name == "all":
        everyone(events(given.data), given.runs, given.factors)
    else:
        {"request": request, "update": update}[given.name](events(given.data))
