"""The experiments of docs/log.md, to be run again: ``python bench/experiments.py NAME`` (see ``--help``).

``fields``: one feature at a time or the whole field as a block, for MFSI and FM on event contexts (user, previous item, history).
``epoch``: seconds per epoch of FM on event contexts (user, previous item).
``start``: the objective of FM and MF by the size of their start values.
``models``: seconds per epoch of every model on event contexts.
``towers``: the same model as one tower and as a sum of towers.
``drift``: the reported objective after many epochs in float32 against a dense evaluation.
``load``: seconds and memory from tables of a million and of five million events to a data set (each in a process of its own).
``rank``: seconds and memory of the best 100 of 40,000 items for 30,000 users.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

import everypair as ep
from everypair import reference
from everypair.models.mixins import PAPER

PLAIN: dict[str, Any] = {"unobserved_weight": 0.01, **PAPER}
BY_WEIGHT: dict[str, Any] = {**PLAIN, "regularization": 0.001, "regularization_exponent": 1.0}


def events(path: Path | None, share: float) -> tuple[np.ndarray, np.ndarray]:
    """User and item of each event, users together and in time order: from a Parquet table, or generated."""
    if path is None:
        random = np.random.default_rng(0)
        return np.repeat(np.arange(int(3_000 * share)), 20), random.zipf(1.3, int(3_000 * share) * 20) % 800
    import pyarrow.parquet as pq

    table = pq.read_table(path, columns=["user", "item", "user_order"])
    user, item = (np.unique(table[name].to_numpy(), return_inverse=True)[1] for name in ("user", "item"))
    order = np.lexsort((table["user_order"].to_numpy(), user))
    user, item = user[order], item[order]
    some = user < share * (user.max() + 1)
    return user[some], item[some]


def describe(user: np.ndarray, item: np.ndarray, history: int) -> dict[str, sp.csr_array]:
    """Fields user, previous item and, if any, the last items, each weighted 1 / sqrt(their number)."""
    n, n_items = len(user), int(item.max()) + 1
    began = np.concatenate([[True], user[1:] != user[:-1]])
    position = np.arange(n) - np.maximum.accumulate(np.where(began, np.arange(n), 0))

    def before(last: int) -> sp.csr_array:
        rows = [np.flatnonzero(position >= back) for back in range(1, last + 1)]
        columns = [item[at - back] for back, at in enumerate(rows, start=1)]
        at = np.concatenate(rows)
        values = (1 / np.sqrt(np.minimum(position[at], last))).astype(np.float32)
        return sp.csr_array((values, (at, np.concatenate(columns))), shape=(n, n_items))

    one_hot = sp.csr_array((np.ones(n, np.float32), (np.arange(n), user)))
    fields = {"user": one_hot, "previous": before(1)}
    return {**fields, "history": before(history)} if history else fields


def report(name: str, model: Any) -> None:
    seconds = float(np.median([record.seconds for record in model.history_]))
    objectives = ", ".join(f"{record.objective:,.0f}" for record in model.history_)
    print(f"{name:<24} {seconds:6.2f} s per epoch; objective {objectives}", flush=True)


def fields(data: tuple[np.ndarray, np.ndarray], k: int) -> None:
    user, item = data
    feedback, contexts = ep.Feedback(np.arange(len(user)), item), describe(user, item, history=10)
    for model in (ep.FM, ep.MFSI):
        for solver in ("block", "cd"):
            settings = {**BY_WEIGHT, "epochs": 4, "n_threads": 2}
            report(f"{model.__name__} {solver}", model(k, field_solver=solver, **settings).fit(feedback, contexts=contexts))


def epoch(data: tuple[np.ndarray, np.ndarray], k: int) -> None:
    user, item = data
    feedback, contexts = ep.Feedback(np.arange(len(user)), item), describe(user, item, history=0)
    for threads in (1, 2):
        settings = {**BY_WEIGHT, "epochs": 2, "n_threads": threads}
        report(f"FM, {threads} threads", ep.FM(k, **settings).fit(feedback, contexts=contexts))


def start(data: tuple[np.ndarray, np.ndarray], k: int) -> None:
    user, item = data
    by_event, by_user = ep.Feedback(np.arange(len(user)), item), ep.Feedback(user, item, duplicates="sum")
    contexts = describe(user, item, history=0)
    for std in (0.1 / k**0.5, 0.1, k**-0.25):
        common = {**PAPER, "regularization": 0.3, "epochs": 8, "init_std": std}
        report(f"FM, std {std:.3f}", ep.FM(k, unobserved_weight=0.003, **common).fit(by_event, contexts=contexts))
        report(f"MF, std {std:.3f}", ep.MF(k, unobserved_weight=0.03, **common).fit(by_user))


def models(data: tuple[np.ndarray, np.ndarray], k: int) -> None:
    user, item = data
    common: dict[str, Any] = {"epochs": 16, "n_threads": 2, **PLAIN, "regularization": 0.1}
    report("MF", ep.MF(4 * k, **common).fit(ep.Feedback(user, item, duplicates="sum")))
    events, contexts = ep.Feedback(np.arange(len(user)), item), describe(user, item, history=0)
    common["epochs"] = 5
    report("MFSI", ep.MFSI(k, **common).fit(events, contexts=contexts))
    report("FM", ep.FM(k, **common).fit(events, contexts=contexts))
    hour = np.random.default_rng(0).integers(0, 24, len(user))
    pairs = np.stack([user, hour], axis=1)
    listed, context = np.unique(pairs, axis=0, return_inverse=True)
    for name, model, size in (("PARAFAC", ep.PARAFAC, k), ("Tucker", ep.Tucker, k // 2)):
        report(name, model(size, **common).fit(events, contexts=pairs))
        merged = ep.Feedback(context, item, duplicates="sum")
        report(f"{name}, all", model(size, combinations="all", **common).fit(merged, contexts=listed))


def towers(data: tuple[np.ndarray, np.ndarray], k: int) -> None:
    from everypair.towers import Embedding, Linear, Sum  # not in older commits, which the other experiments can be run on

    user, item = data
    columns = {"user": user, "history": describe(user, item, history=10)["history"]}
    feedback, item_tower = ep.Feedback(np.arange(len(user)), item), Embedding(k)
    for context in (Linear(k, "user", "history"), Sum(Embedding(k, "user"), Linear(k, "history"))):
        model = ep.Separable(context=context, item=item_tower, epochs=5, n_threads=2, regularization=0.1)
        report(type(context).__name__, model.fit(feedback, contexts=columns))


def drift(data: tuple[np.ndarray, np.ndarray], k: int) -> None:
    """On 400 x 300 contexts and items of its own: a dense evaluation must be possible."""
    random = np.random.default_rng(0)
    cells = np.unique(random.integers(0, 400 * 300, 6_000))
    feedback = ep.Feedback(cells // 300, cells % 300, shape=(400, 300))
    tags = sp.random_array((400, 50), density=0.1, rng=random)
    cases: list[Any] = [(ep.MF, {}), (ep.FM, {"contexts": {"user": sp.eye_array(400), "tags": tags}})]
    for model, arguments in cases:
        for epochs in (10, 100, 1000):
            settings = {**PLAIN, "unobserved_weight": 0.05, "regularization": 0.1, "epochs": epochs}
            fitted = model(k, **settings).fit(feedback, **arguments)
            scores = fitted.phi_.astype(float) @ fitted.psi_.astype(float).T
            penalties = dict.fromkeys(fitted.parameters_, 0.1)
            dense = reference.objective(scores, feedback, 0.05, fitted.parameters_, penalties).objective
            error = fitted.history_[-1].objective / dense - 1
            print(f"{model.__name__}, {epochs} epochs: relative error of the reported objective {error:.1e}", flush=True)


def load(data: tuple[np.ndarray, np.ndarray], k: int) -> None:
    """From Arrow, a Parquet file and a CSV file, with text ids, a timestamp and an attribute."""
    import tempfile

    import pyarrow as pa
    from pyarrow import csv, parquet

    random = np.random.default_rng(0)
    for n in (1_000_000, 5_000_000):
        user, item = (np.array([f"{letter}{j:06d}" for j in range(size)]) for letter, size in (("u", 100_000), ("i", 50_000)))
        place = np.array(["DE", "FR", "US"])
        table = pa.table({
            "user": user[random.integers(0, len(user), n)], "item": item[random.integers(0, len(item), n)],
            "time": random.integers(0, 10**9, n), "place": place[random.integers(0, 3, n)],
        })  # fmt: skip
        with tempfile.TemporaryDirectory() as folder:
            parquet.write_table(table, f"{folder}/events.parquet")
            csv.write_csv(table, f"{folder}/events.csv")
            print(f"{n:,} events, {table.nbytes / 1e6:.0f} MB", flush=True)
            for kind in ("parquet", "csv"):
                seconds, memory = apart(_load, f"{folder}/events.{kind}")
                print(f"  {kind:<8} {seconds:5.2f} s, {memory:5.0f} MB more than before", flush=True)


def _load(path: str) -> None:
    ep.Dataset(path, timestamp="time")


def rank(data: tuple[np.ndarray, np.ndarray], k: int) -> None:
    seconds, memory = apart(_rank, "")
    print(f"30,000 users, 40,000 items, top 100: {seconds:.1f} s, {memory:.0f} MB more than before")


def _rank(path: str) -> None:
    from everypair.ranking.rank import Products, rank
    from everypair.runtime.parallel import Workers

    with Workers(2) as workers:
        rank(Products(PHI, PSI), 100, workers)


PHI, PSI = (np.random.default_rng(0).normal(size=(n, 64)).astype(np.float32) for n in (30_000, 40_000))


def apart(run: Any, path: str) -> tuple[float, float]:
    """Seconds and added peak memory (MB) of a second run, in a process of its own."""
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(_measured, run, path).result()


def _measured(run: Any, path: str) -> tuple[float, float]:
    import time

    before = _peak()
    began = time.perf_counter()
    run(path)  # also compiles, or finds what was compiled
    first, peak = time.perf_counter() - began, _peak()
    began = time.perf_counter()
    run(path)
    return min(first, time.perf_counter() - began), (peak - before) / 1e3


def _peak() -> int:
    """The most memory (kB) that this process has held; Linux."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=list(EXPERIMENTS))
    parser.add_argument("--events", type=Path, help="Parquet table with columns user, item, user_order; default: generated")
    parser.add_argument("--share", type=float, default=1.0, help="share of the users")
    parser.add_argument("--factors", type=int, default=16)
    arguments = parser.parse_args()
    data = events(arguments.events, arguments.share)
    print(f"{len(data[0]):,} events, k = {arguments.factors}")
    EXPERIMENTS[arguments.name](data, arguments.factors)


EXPERIMENTS = {
    "fields": fields,
    "epoch": epoch,
    "start": start,
    "models": models,
    "towers": towers,
    "drift": drift,
    "load": load,
    "rank": rank,
}


if __name__ == "__main__":
    main()
