"""Peak memory of a fit, in bytes per event: matrix factorization, and a factorization machine with a history."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness.clock import Clock
from benchmarks.harness.process import MeasuredProcess, memory, peak_memory, reset_peak_memory
from benchmarks.harness.section import ReportSection, megabytes, sorted_by, three_digits
from benchmarks.harness.store import Measurement
from benchmarks.speed import data, events
from benchmarks.speed.feature_models import SETTINGS, SHORT, recipes_of
from benchmarks.speed.setup import SpeedSetup

TARGET = 34.0  # bytes
FEATURES_TARGET = 150.0
FEW = (60, 40)  # users and items of the fit that compiles kernels
GIVEN = ("arrays", "matrix")


class EventWriter:
    """Generates events, in a separate process so that its memory is freed."""

    def write(self, folder: str, users: int, items: int, pairs: int) -> None:
        """Write them as a matrix, and as arrays of users and items."""
        matrix = data.generate(data.PairCounts(users, items, pairs))
        data.write(matrix, Path(folder))
        user = np.repeat(np.arange(users, dtype=np.int32), np.diff(matrix.indptr))
        np.save(Path(folder) / "user.npy", user)


class MemoryWorker:
    """A fit whose memory is measured."""

    def run(self, folder: str, given: str, factors: int, threads: int, users: int, items: int) -> dict[str, Any]:
        """Peak memory, and what is subtracted from it: the memory of the process after a small fit, and the factors."""
        from everypair.engine.feedback import Feedback
        from everypair.models import MF

        model = MF(factors, epochs=1, n_threads=threads)
        model.fit(Feedback(np.arange(100), np.arange(100)))  # loads libraries and compiles kernels
        reset_peak_memory()
        bare, clock = memory(), Clock()
        if given == "arrays":
            user, item = (np.load(Path(folder) / f"{name}.npy") for name in ("user", "indices"))
            model.fit(Feedback(user, item, shape=(users, items)))
        else:
            model.fit(data.read(folder))
        return {"peak": peak_memory(), "bare": bare, "factors": 4 * factors * (users + items), "seconds": clock.now()}


class FeaturesMemoryWorker:
    """A fit of a factorization machine on an event log."""

    def run(self, factors: int, threads: int, path: str | None, users: int, items: int) -> dict[str, Any]:
        """As :meth:`MemoryWorker.run`; the events are in memory before, and do not count."""
        from everypair.models import FM
        from everypair.recommender import Recommender

        def fit(dataset: Any, attributes: tuple[str, ...]) -> FM:
            model = FM(factors, epochs=1, n_threads=threads, **SETTINGS)
            Recommender(model, recipes_of(SHORT, attributes)).fit(dataset)
            return model

        fit(*events.load(None, *FEW))
        dataset, attributes = events.load(path, users, items)
        gc.collect()
        reset_peak_memory()
        bare, clock = memory(), Clock()
        model = fit(dataset, attributes)
        seconds, peak = clock.now(), peak_memory()
        size = sum(values.nbytes for values in model.parameters_.values())
        return {"events": len(dataset), "peak": peak, "bare": bare, "factors": size, "seconds": seconds}


def plan(setup: SpeedSetup) -> list[Measurement]:
    """Events given as arrays, and as a matrix; and with features."""
    shape, factors = setup.sizes.memory, setup.sizes.memory_factors
    common = {"users": shape.users, "items": shape.items, "events": shape.pairs, "factors": factors, "threads": setup.threads}
    features = {"data": setup.events_name, "factors": setup.sizes.feature_factors, "threads": setup.threads, "given": SHORT}
    return [
        *(Measurement({**common, "given": given}, lambda given=given: measure(setup, given)) for given in GIVEN),
        Measurement(features, lambda: measure_features(setup)),
    ]


def measure(setup: SpeedSetup, given: str) -> dict[str, Any]:
    """One fit of one epoch."""
    shape, factors = setup.sizes.memory, setup.sizes.memory_factors
    folder = setup.folder / "memory"
    if not folder.exists():
        with MeasuredProcess("speed.memory:EventWriter") as writer:
            writer.call("write", folder=str(folder), **shape._asdict())
    with MeasuredProcess("speed.memory:MemoryWorker") as worker:
        arguments = {"given": given, "factors": factors, "threads": setup.threads, "users": shape.users, "items": shape.items}
        return {"events": data.count(folder).pairs, **worker.call("run", folder=str(folder), **arguments)}


def measure_features(setup: SpeedSetup) -> dict[str, Any]:
    """One fit of one epoch of a factorization machine."""
    with MeasuredProcess("speed.memory:FeaturesMemoryWorker") as worker:
        return worker.call("run", factors=setup.sizes.feature_factors, threads=setup.threads, **setup.events)


def per_event(result: dict[str, Any]) -> float:
    """Bytes at the peak, without the factors and the memory before the fit, divided by the number of events."""
    return (result["peak"] - result["bare"] - result["factors"]) / result["events"]


def summarize(entries: list[dict[str, Any]]) -> ReportSection:
    """Bytes per event for each size and format of the input."""
    section = ReportSection("Memory")
    section.add_paragraph(
        "Peak memory of a fit of one epoch with default settings, from reading the events to the fitted model, per event. The",
        "input is included (8 bytes as arrays of 32-bit numbers, 8 as a CSR matrix with its values), and so is the construction of",
        "`Feedback`. The factors (4 bytes per number) are subtracted, and so is the memory of the process before: libraries, and",
        "compiled kernels after a fit",
        f"on 100 pairs. {SHORT} is a factorization machine with user, attributes, previous item and history; its events are in",
        "memory before, and do not count.",
    )
    rows = []
    for entry in sorted_by(entries, "given"):
        arguments, found = entry["arguments"], entry["result"]
        size, goal = per_event(found), FEATURES_TARGET if "data" in arguments else TARGET
        rows.append([
            f"{found['events']:,}",
            arguments["data"] if "data" in arguments else f"{arguments['users']:,} x {arguments['items']:,}",
            str(arguments["factors"]),
            arguments["given"],
            megabytes(found["peak"]),
            megabytes(found["bare"]),
            megabytes(found["factors"]),
            f"**{size:.1f}**",
            f"{three_digits(found['seconds'])} s",
        ])  # fmt: skip
        quantity = f"bytes per event at the peak, {found['events']:,} events given as {arguments['given']}"
        section.add_target(quantity, f"at most {goal:g}", f"{size:.1f}", size <= goal)
    section.add_table(["events", "data", "k", "given as", "peak", "before", "factors", "bytes per event", "seconds in all"], rows)
    return section
