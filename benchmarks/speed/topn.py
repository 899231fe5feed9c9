"""The best 100 items of every user, exactly, what was seen left out: beside implicit's, from the same vectors."""

from __future__ import annotations

import importlib
import statistics
import tempfile
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness.clock import Clock
from benchmarks.harness.part import Part, figure, megabytes, numbered, spread
from benchmarks.harness.process import AbsentError, Remote, forget_peak, memory, peak_memory
from benchmarks.harness.store import Unit
from benchmarks.speed import contenders, data
from benchmarks.speed.setup import Setup
from everypair.data import Dataset
from everypair.models import MF
from everypair.recommend.results import FewerItemsWarning
from everypair.recommender import Recommender

BEST = 100
TARGET = 2.0  # times as fast
ARRAYS, TABLE, FILE = "MF.recommend, arrays", "Recommender.recommend, a table", "Recommender.recommend_all, to Parquet"
IMPLICIT = "implicit recommend, arrays"
SETTINGS: dict[str, Any] = {
    "unobserved_weight": 0.01,
    "regularization": 0.01,
    "regularization_exponent": 1.0,
    "popularity_exponent": 0.0,
    "epochs": 8,
}


class Ours:
    """Fits, and writes its vectors for the other."""

    def __init__(self, pairs: str, factors: int, threads: int, vectors: str) -> None:
        self._matrix = data.read(pairs)
        users = np.repeat(np.arange(self._matrix.shape[0]), np.diff(self._matrix.indptr))
        self._dataset = Dataset({"user": users, "item": self._matrix.indices})
        self._model = MF(factors, n_threads=threads, **SETTINGS).fit(self._matrix)
        self._recommender = Recommender(MF(factors, n_threads=threads, **SETTINGS)).fit(self._dataset)
        for name, value in (("phi", self._model.phi_), ("psi", self._model.psi_)):
            np.save(Path(vectors) / f"{name}.npy", value)

    def run(self, kind: str, keep: str | None = None) -> dict[str, Any]:
        """Seconds and memory of a call; its ids are kept on request."""
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore", FewerItemsWarning)
            users, values = np.arange(self._matrix.shape[0]), self._dataset.users.values
            calls: dict[str, Callable[[], Any]] = {
                ARRAYS: lambda: self._model.recommend(users, n=BEST, exclude=self._matrix),
                TABLE: lambda: self._recommender.recommend(values, n=BEST),
                FILE: lambda: self._recommender.recommend_all(Path(folder) / "all.parquet", n=BEST),
            }
            return _timed(calls[kind], keep)


class Implicit:
    """implicit's search, with our vectors."""

    def __init__(self, pairs: str, factors: int, threads: int, vectors: str) -> None:
        self._matrix = data.read(pairs)
        self._model = importlib.import_module("implicit.cpu.als").AlternatingLeastSquares(factors, num_threads=threads)
        self._model.user_factors, self._model.item_factors = (np.load(Path(vectors) / f"{n}.npy") for n in ("phi", "psi"))

    def run(self, kind: str, keep: str | None = None) -> dict[str, Any]:
        """As above."""
        users = np.arange(self._matrix.shape[0])
        return _timed(lambda: self._model.recommend(users, self._matrix, N=BEST, filter_already_liked_items=True), keep)


def _timed(call: Callable[[], Any], keep: str | None) -> dict[str, Any]:
    forget_peak()
    held, clock = memory(), Clock()
    found = call()
    result = {"seconds": clock.now(), "memory": peak_memory() - held}
    if keep is not None:
        np.save(keep, found[0])
    return result


def units(setup: Setup) -> list[Unit]:
    """Gowalla where it is there, else the first of the sets."""
    name = data.GOWALLA if data.GOWALLA in setup.sources else next(iter(setup.sources))
    arguments = {"data": name, "factors": setup.sizes.top_factors, "threads": setup.threads, "repeats": setup.sizes.repeats}
    there = setup.without(contenders.Implicit.name) is None
    return [Unit({**arguments, "peers": "implicit" if there else ""}, lambda: measure(setup, name))]


def measure(setup: Setup, name: str) -> dict[str, Any]:
    """Both in turn; and how many of the ids are the same."""
    folder = setup.folder / "topn"
    folder.mkdir(exist_ok=True)
    arguments = {"pairs": setup.matrix(name), "factors": setup.sizes.top_factors, "threads": setup.threads, "vectors": str(folder)}
    absent = {} if (why := setup.without(contenders.Implicit.name)) is None else {IMPLICIT: why}
    with ExitStack() as stack:
        ours = stack.enter_context(Remote("speed.topn:Ours", **arguments))  # first: it writes the vectors
        remotes: dict[str, Remote] = dict.fromkeys((ARRAYS, TABLE, FILE), ours)
        if not absent:
            try:
                remotes = {IMPLICIT: stack.enter_context(Remote("speed.topn:Implicit", 1, **arguments)), **remotes}
            except AbsentError as error:
                absent[IMPLICIT] = str(error)
        for kind in (IMPLICIT, ARRAYS):
            if kind in remotes:
                remotes[kind].call("run", kind=kind, keep=str(folder / f"{kind}.npy"))
        runs: dict[str, list[dict[str, Any]]] = {kind: [] for kind in remotes}
        for _ in range(setup.sizes.repeats):
            for kind, remote in remotes.items():
                runs[kind].append(remote.call("run", kind=kind))
    return {
        "seconds": {kind: [run["seconds"] for run in own] for kind, own in runs.items()},
        "memory": {kind: max(run["memory"] for run in own) for kind, own in runs.items()},
        "same": _same(folder) if IMPLICIT in runs else None,
        "left_out": absent,
    }


def _same(folder: Path) -> float:
    """The share of ids that both have at the same place."""
    return float(np.mean(np.load(folder / f"{IMPLICIT}.npy") == np.load(folder / f"{ARRAYS}.npy")))


def part(entries: list[dict[str, Any]]) -> Part:
    """Seconds, and how many times as fast."""
    told = Part("Recommending to everyone")
    told.say(
        f"The best {BEST} items of every user, exact, without those of the training data. Both libraries search among the same",
        "vectors: those of MF after 8 epochs, with L2 by frequency.",
    )
    for entry in numbered(entries, "data", "factors"):
        arguments, found = entry["arguments"], entry["result"]
        told.say(f"{arguments['data']}, k = {arguments['factors']}, {arguments['threads']} threads:")
        theirs = statistics.median(found["seconds"][IMPLICIT]) if IMPLICIT in found["seconds"] else None
        rows = []
        for kind, seconds in found["seconds"].items():
            faster = "-" if theirs is None else f"{theirs / statistics.median(seconds):.2f}"
            rows.append([kind, spread(seconds), faster, megabytes(found["memory"][kind])])
        told.table(["call", "seconds", "times as fast as implicit's", "memory on top"], rows)
        if theirs is not None:
            told.say(f"{100 * found['same']:.2f} % of the ids are implicit's, at the same place.")
            times = theirs / statistics.median(found["seconds"][ARRAYS])
            what = f"the best {BEST} for all users, times as fast as implicit"
            told.aim(what, f"at least {TARGET:g}", figure(times), times >= TARGET)
        for kind, why in found["left_out"].items():
            told.say(f"Left out: {kind}: {why}.")
    return told
