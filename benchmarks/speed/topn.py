"""The exact top 100 of every user without seen items: EveryPair beside implicit, with the same vectors."""

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
from benchmarks.harness.process import MeasuredProcess, MissingLibraryError, memory, peak_memory, reset_peak_memory
from benchmarks.harness.section import ReportSection, median_and_range, megabytes, sorted_by, three_digits
from benchmarks.harness.store import Measurement
from benchmarks.speed import contenders, data
from benchmarks.speed.setup import SpeedSetup
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


class EveryPairTopN:
    """EveryPair; fits MF, and writes its vectors for implicit."""

    def __init__(self, pairs: str, factors: int, threads: int, vectors: str) -> None:
        self._matrix = data.read(pairs)
        users = np.repeat(np.arange(self._matrix.shape[0]), np.diff(self._matrix.indptr))
        self._dataset = Dataset({"user": users, "item": self._matrix.indices})
        self._model = MF(factors, n_threads=threads, **SETTINGS).fit(self._matrix)
        self._recommender = Recommender(MF(factors, n_threads=threads, **SETTINGS)).fit(self._dataset)
        for name, value in (("phi", self._model.phi_), ("psi", self._model.psi_)):
            np.save(Path(vectors) / f"{name}.npy", value)

    def run(self, kind: str, keep: str | None = None) -> dict[str, Any]:
        """Seconds and memory of a call; ``keep``: file for the item ids."""
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore", FewerItemsWarning)
            users, values = np.arange(self._matrix.shape[0]), self._dataset.users.values
            calls: dict[str, Callable[[], Any]] = {
                ARRAYS: lambda: self._model.recommend(users, n=BEST, exclude=self._matrix),
                TABLE: lambda: self._recommender.recommend(values, n=BEST),
                FILE: lambda: self._recommender.recommend_all(Path(folder) / "all.parquet", n=BEST),
            }
            return _timed(calls[kind], keep)


class ImplicitTopN:
    """implicit's ``recommend``, with the vectors of EveryPair."""

    def __init__(self, pairs: str, factors: int, threads: int, vectors: str) -> None:
        self._matrix = data.read(pairs)
        self._model = importlib.import_module("implicit.cpu.als").AlternatingLeastSquares(factors, num_threads=threads)
        self._model.user_factors, self._model.item_factors = (np.load(Path(vectors) / f"{n}.npy") for n in ("phi", "psi"))

    def run(self, kind: str, keep: str | None = None) -> dict[str, Any]:
        """Seconds and memory of a call; ``keep``: file for the item ids."""
        users = np.arange(self._matrix.shape[0])
        return _timed(lambda: self._model.recommend(users, self._matrix, N=BEST, filter_already_liked_items=True), keep)


def _timed(call: Callable[[], Any], keep: str | None) -> dict[str, Any]:
    reset_peak_memory()
    before, clock = memory(), Clock()
    found = call()
    result = {"seconds": clock.now(), "memory": peak_memory() - before}
    if keep is not None:
        np.save(keep, found[0])
    return result


def plan(setup: SpeedSetup) -> list[Measurement]:
    """On Gowalla if available, otherwise on the first data set."""
    name = data.GOWALLA if data.GOWALLA in setup.sources else next(iter(setup.sources))
    arguments = {"data": name, "factors": setup.sizes.top_factors, "threads": setup.threads, "repeats": setup.sizes.repeats}
    available = setup.why_not(contenders.ImplicitMF.name) is None
    return [Measurement({**arguments, "peers": "implicit" if available else ""}, lambda: measure(setup, name))]


def measure(setup: SpeedSetup, name: str) -> dict[str, Any]:
    """Alternating runs of both; and the share of equal ids."""
    folder = setup.folder / "topn"
    folder.mkdir(exist_ok=True)
    arguments = {"pairs": setup.matrix(name), "factors": setup.sizes.top_factors, "threads": setup.threads, "vectors": str(folder)}
    missing = {} if (why := setup.why_not(contenders.ImplicitMF.name)) is None else {IMPLICIT: why}
    with ExitStack() as stack:
        # Before implicit, which reads the vectors.
        ours = stack.enter_context(MeasuredProcess("speed.topn:EveryPairTopN", **arguments))
        workers: dict[str, MeasuredProcess] = dict.fromkeys((ARRAYS, TABLE, FILE), ours)
        if not missing:
            try:
                workers = {IMPLICIT: stack.enter_context(MeasuredProcess("speed.topn:ImplicitTopN", 1, **arguments)), **workers}
            except MissingLibraryError as error:
                missing[IMPLICIT] = str(error)
        for kind in (IMPLICIT, ARRAYS):
            if kind in workers:
                workers[kind].call("run", kind=kind, keep=str(folder / f"{kind}.npy"))
        runs: dict[str, list[dict[str, Any]]] = {kind: [] for kind in workers}
        for _ in range(setup.sizes.repeats):
            for kind, worker in workers.items():
                runs[kind].append(worker.call("run", kind=kind))
    return {
        "seconds": {kind: [run["seconds"] for run in own] for kind, own in runs.items()},
        "memory": {kind: max(run["memory"] for run in own) for kind, own in runs.items()},
        "same": _share_of_equal_ids(folder) if IMPLICIT in runs else None,
        "left_out": missing,
    }


def _share_of_equal_ids(folder: Path) -> float:
    """The share of equal ids at the same rank."""
    return float(np.mean(np.load(folder / f"{IMPLICIT}.npy") == np.load(folder / f"{ARRAYS}.npy")))


def summarize(entries: list[dict[str, Any]]) -> ReportSection:
    """Seconds and memory of each call, and the speed-up over implicit."""
    section = ReportSection("Recommending to everyone")
    section.add_paragraph(
        f"The exact top {BEST} of every user, without the items of the training data. Both libraries use the same vectors: those",
        "of MF after 8 epochs, with L2 proportional to frequency.",
    )
    for entry in sorted_by(entries, "data", "factors"):
        arguments, found = entry["arguments"], entry["result"]
        section.add_paragraph(f"{arguments['data']}, k = {arguments['factors']}, {arguments['threads']} threads:")
        theirs = statistics.median(found["seconds"][IMPLICIT]) if IMPLICIT in found["seconds"] else None
        rows = []
        for kind, seconds in found["seconds"].items():
            faster = "-" if theirs is None else f"{theirs / statistics.median(seconds):.2f}"
            rows.append([kind, median_and_range(seconds), faster, megabytes(found["memory"][kind])])
        section.add_table(["call", "seconds", "times as fast as implicit's", "added memory"], rows)
        if theirs is not None:
            section.add_paragraph(f"{100 * found['same']:.2f} % of the ids are implicit's, at the same rank.")
            times = theirs / statistics.median(found["seconds"][ARRAYS])
            quantity = f"the best {BEST} for all users, times as fast as implicit"
            section.add_target(quantity, f"at least {TARGET:g}", three_digits(times), times >= TARGET)
        for kind, why in found["left_out"].items():
            section.add_paragraph(f"Left out: {kind}: {why}.")
    return section
