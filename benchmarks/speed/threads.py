"""Seconds of an epoch of matrix factorization by the number of threads."""

from __future__ import annotations

import statistics
from contextlib import ExitStack
from typing import Any

from benchmarks.harness.clock import per_epoch
from benchmarks.harness.process import MeasuredProcess
from benchmarks.harness.section import ReportSection, median_and_range, sorted_by, three_digits
from benchmarks.harness.store import Measurement
from benchmarks.speed.contenders import OURS
from benchmarks.speed.setup import SpeedSetup

EPOCHS = 4
TARGET = 1.8  # times as fast on two threads


def counts(threads: int) -> list[int]:
    """The powers of two up to ``threads``, and ``threads`` itself."""
    return sorted({*(2**j for j in range(threads.bit_length())), threads})


def plan(setup: SpeedSetup) -> list[Measurement]:
    """Each data set with each number of factors."""
    return [
        Measurement(
            {"data": name, "factors": k, "threads": max(2, setup.threads), "repeats": setup.sizes.repeats},
            lambda name=name, k=k: measure(setup, name, k),
        )
        for name in setup.sources
        for k in setup.sizes.factors
    ]


def measure(setup: SpeedSetup, name: str, factors: int) -> dict[str, Any]:
    """A process for each number of threads, in alternating runs; seconds of an epoch are the median of a run."""
    pairs = setup.matrix(name)
    workers: dict[int, MeasuredProcess] = {}
    found: dict[int, list[float]] = {}
    with ExitStack() as stack:
        for n in counts(max(2, setup.threads)):
            workers[n] = stack.enter_context(
                MeasuredProcess("speed.mf:MFWorker", name=OURS, pairs=pairs, factors=factors, threads=n)
            )
            workers[n].call("begin")
        for _ in range(setup.sizes.repeats):
            for n, worker in workers.items():
                found.setdefault(n, []).append(per_epoch(worker.call("run", epochs=EPOCHS)["stamps"]))
    return {"epoch": [[n, seconds] for n, seconds in found.items()]}


def summarize(entries: list[dict[str, Any]]) -> ReportSection:
    """Seconds of an epoch, and the speed-up over one thread."""
    section = ReportSection("Threads")
    section.add_paragraph("Seconds of an epoch of MF without transposition, by the number of threads.")
    rows, of_two = [], []
    for entry in sorted_by(entries, "data", "factors"):
        found = dict(map(tuple, entry["result"]["epoch"]))
        alone = statistics.median(found[1])
        for n, seconds in found.items():
            faster = alone / statistics.median(seconds)
            rows.append([
                entry["arguments"]["data"], str(entry["arguments"]["factors"]), str(n), median_and_range(seconds), f"{faster:.2f}"
            ])  # fmt: skip
            if n == 2:
                of_two.append(faster)
    section.add_table(["data", "k", "threads", "seconds per epoch", "times as fast as one"], rows)
    section.add_target(
        "MF on two threads, times as fast as on one, least of all rows",
        f"at least {TARGET}",
        three_digits(min(of_two)),
        min(of_two) >= TARGET,
    )
    return section
