"""Bytes per event at the peak of a fit of matrix factorization, from the events on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness.clock import Clock
from benchmarks.harness.part import Part, figure, megabytes, numbered
from benchmarks.harness.process import Remote, forget_peak, memory, peak_memory
from benchmarks.harness.store import Unit
from benchmarks.speed import data
from benchmarks.speed.setup import Setup

TARGET = 60.0  # bytes
GIVEN = ("arrays", "matrix")


class Maker:
    """Generated events, in a process whose memory goes away with it."""

    def write(self, folder: str, users: int, items: int, pairs: int) -> None:
        """As a matrix, and as arrays of users and items."""
        matrix = data.generate(data.Shape(users, items, pairs))
        data.write(matrix, Path(folder))
        user = np.repeat(np.arange(users, dtype=np.int32), np.diff(matrix.indptr))
        np.save(Path(folder) / "user.npy", user)


class Fit:
    """A fit in a process of its own."""

    def run(self, folder: str, given: str, factors: int, threads: int, users: int, items: int) -> dict[str, Any]:
        """Memory at its peak, and what is taken off: what a process that did a small fit holds, and the factors."""
        from everypair.engine.feedback import Feedback
        from everypair.models import MF

        model = MF(factors, epochs=1, n_threads=threads, popularity_exponent=0.0)
        model.fit(Feedback(np.arange(100), np.arange(100)))  # imports, kernels
        forget_peak()
        bare, clock = memory(), Clock()
        if given == "arrays":
            user, item = (np.load(Path(folder) / f"{name}.npy") for name in ("user", "indices"))
            model.fit(Feedback(user, item, shape=(users, items)))
        else:
            model.fit(data.read(folder))
        return {"peak": peak_memory(), "bare": bare, "factors": 4 * factors * (users + items), "seconds": clock.now()}


def units(setup: Setup) -> list[Unit]:
    """Events as arrays, and as a matrix."""
    shape, factors = setup.sizes.memory, setup.sizes.memory_factors
    common = {"users": shape.users, "items": shape.items, "events": shape.pairs, "factors": factors, "threads": setup.threads}
    return [Unit({**common, "given": given}, lambda given=given: measure(setup, given)) for given in GIVEN]


def measure(setup: Setup, given: str) -> dict[str, Any]:
    """A fit of one epoch."""
    shape, factors = setup.sizes.memory, setup.sizes.memory_factors
    folder = setup.folder / "memory"
    if not folder.exists():
        with Remote("speed.memory:Maker") as maker:
            maker.call("write", folder=str(folder), **shape._asdict())
    with Remote("speed.memory:Fit") as remote:
        arguments = {"given": given, "factors": factors, "threads": setup.threads, "users": shape.users, "items": shape.items}
        return {"events": data.count(folder).pairs, **remote.call("run", folder=str(folder), **arguments)}


def per_event(result: dict[str, Any]) -> float:
    """Bytes at the peak, less the factors and less what the bare process holds."""
    return (result["peak"] - result["bare"] - result["factors"]) / result["events"]


def part(entries: list[dict[str, Any]]) -> Part:
    """Bytes per event."""
    told = Part("Memory")
    told.say(
        "The most that a process held at any time of a fit of one epoch, from reading the events to the fitted model, per event:",
        "the input itself is included (8 bytes as arrays of 32-bit numbers, 8 as a CSR matrix with its values), and so is the",
        "construction of `Feedback`. Taken off are the factors (4 bytes per number), and what the process held before: libraries,",
        "and compiled kernels after a fit on 100 pairs.",
    )
    rows = []
    for entry in numbered(entries, "events", "given"):
        arguments, found = entry["arguments"], entry["result"]
        size = per_event(found)
        rows.append([
            f"{found['events']:,}",
            f"{arguments['users']:,} x {arguments['items']:,}",
            str(arguments["factors"]),
            arguments["given"],
            megabytes(found["peak"]),
            megabytes(found["bare"]),
            megabytes(found["factors"]),
            f"**{size:.1f}**",
            f"{figure(found['seconds'])} s",
        ])  # fmt: skip
        what = f"bytes per event at the peak, {found['events']:,} events given as {arguments['given']}"
        told.aim(what, f"at most {TARGET:g}", f"{size:.1f}", size <= TARGET)
    told.table(["events", "shape", "k", "given as", "peak", "before", "factors", "bytes per event", "seconds in all"], rows)
    return told
