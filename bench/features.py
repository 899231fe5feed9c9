"""Feature towers on event contexts, beside implicit's MF on the same pairs: ``python bench/features.py NAME --data FOLDER``.

``epochs``: seconds per epoch of FM on the events of MovieLens-1M with contexts user, gender, age, occupation and previous item, the
same with a history of 50 and of everything, and of implicit (conjugate gradients) on the (user, item) pairs, in turn.
``train``: Linear towers on user, previous item and a history of 30, the item side plain rows: seconds and NDCG@10 of each user's
last event (all items ranked, those seen left out), trained on the events before.

``FOLDER`` has ``interactions.parquet`` (user, item, user_order) and ``users.parquet`` (user, gender, age, occupation).
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import scipy.sparse as sp
from threadpoolctl import threadpool_limits

import everypair as ep
from everypair.history import HistoryField, Window
from everypair.towers import Embedding, Linear

SETTINGS = {"unobserved_weight": 0.01, "regularization": 0.001, "regularization_exponent": 1.0, "n_threads": 2}


class Events:
    """Users together, in time order."""

    def __init__(self, folder: Path) -> None:
        table = pq.read_table(folder / "interactions.parquet", columns=["user", "item", "user_order"])
        self.users = pq.read_table(folder / "users.parquet")
        names, user = np.unique(table["user"].to_numpy(), return_inverse=True)
        item = np.unique(table["item"].to_numpy(), return_inverse=True)[1]
        order = np.lexsort((table["user_order"].to_numpy(), user))
        self.user, self.item = user[order], item[order].astype(np.int32)
        self.n_items = int(item.max()) + 1
        self.bounds = np.append(np.flatnonzero(np.append(True, np.diff(self.user) > 0)), len(self.user))
        self._row = np.searchsorted(self.users["user"].to_numpy(), names)

    def attribute(self, name: str) -> np.ndarray:
        values = np.unique(np.array(self.users[name].to_pylist()), return_inverse=True)[1]
        return values[self._row][self.user]

    def previous(self) -> ep.Levels:
        here = np.arange(len(self.user)) > self.bounds[self.user]
        return ep.Levels(np.where(here, np.append(-1, self.item[:-1]), -1), self.n_items)

    def history(self, last: int) -> HistoryField:
        begin, end = self.bounds[self.user], np.arange(len(self.user))
        return HistoryField(self.item, self.bounds, begin, end, self.n_items, Window(last, 1.0, "sqrt"))


def implicit_seconds(events: Events, k: int, epochs: int) -> list[float]:
    from implicit.cpu.als import AlternatingLeastSquares

    pairs = sp.csr_matrix((np.ones(len(events.user), np.float32), (events.user, events.item)))
    seconds: list[float] = []
    with threadpool_limits(1, "blas"):
        model = AlternatingLeastSquares(k, iterations=epochs, num_threads=2, random_state=0)
        model.fit(pairs, show_progress=False, callback=lambda _, elapsed, *__: seconds.append(elapsed))
    return seconds


def epochs(events: Events, factors: list[int], rounds: int) -> None:
    feedback = ep.Feedback(np.arange(len(events.user)), events.item)
    attributes = {name: events.attribute(name) for name in ("gender", "age", "occupation")}
    plain = {"user": events.user, **attributes, "previous": events.previous()}
    contexts = {
        "U+A+P": plain,
        "U+A+P+H(50)": {**plain, "history": events.history(50)},
        "U+A+P+H(all)": {**plain, "history": events.history(0)},
    }
    print(f"{len(events.user):,} events, {rounds} rounds of one epoch and a second one, medians")
    for k in factors:
        seconds: dict[str, list[float]] = {name: [] for name in ("implicit", *contexts)}
        for _ in range(rounds):
            seconds["implicit"] += implicit_seconds(events, k, 2)
            for name, columns in contexts.items():
                seconds[name] += [
                    record.seconds for record in ep.FM(k, epochs=2, **SETTINGS).fit(feedback, contexts=columns).history_
                ]
        base = float(np.median(seconds["implicit"]))
        for name, measured in seconds.items():
            print(f"k = {k:<4} {name:<14} {np.median(measured):6.3f} s  {np.median(measured) / base:5.1f} of implicit", flush=True)


def train(events: Events, k: int, n_epochs: int) -> None:
    last = events.bounds[1:] - 1
    before = np.delete(np.arange(len(events.user)), last)
    contexts: dict[str, Any] = {"user": ep.Levels(events.user), "previous": events.previous(), "history": events.history(30)}
    known = {name: column.take(before) for name, column in contexts.items()}
    feedback = ep.Feedback(np.arange(len(before)), events.item[before], shape=(len(before), events.n_items))
    context = Linear(k, "user", "previous", "history")
    began = time.perf_counter()
    model = ep.Separable(context=context, item=Embedding(k), epochs=n_epochs, **SETTINGS).fit(feedback, contexts=known)
    seconds = time.perf_counter() - began
    scores = model.context_vectors({name: column.take(last) for name, column in contexts.items()}) @ model.psi_.T
    target = scores[np.arange(len(last)), events.item[last]].copy()
    scores[events.user[before], events.item[before]] = -np.inf
    rank = (scores > target[:, None]).sum(axis=1)
    ndcg, hits = np.where(rank < 10, 1 / np.log2(rank + 2), 0.0).mean(), (rank < 10).mean()
    per_epoch = np.median([record.seconds for record in model.history_])
    print(f"k = {k}, {n_epochs} epochs: {seconds:.1f} s in all, {per_epoch:.2f} s per epoch; NDCG@10 {ndcg:.4f}, HR@10 {hits:.4f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=["epochs", "train"])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--factors", type=int, nargs="+", default=[32])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=8)
    arguments = parser.parse_args()
    events = Events(arguments.data)
    if arguments.name == "epochs":
        epochs(events, arguments.factors, arguments.rounds)
    for k in arguments.factors if arguments.name == "train" else []:
        train(events, k, arguments.epochs)


if __name__ == "__main__":
    main()
