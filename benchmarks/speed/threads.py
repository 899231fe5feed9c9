"""What more threads bring: seconds of an epoch of matrix factorization."""

from __future__ import annotations

import statistics
from contextlib import ExitStack
from typing import Any

from benchmarks.harness.clock import per_epoch
from benchmarks.harness.part import Part, figure, numbered, spread
from benchmarks.harness.process import Remote
from benchmarks.harness.store import Unit
from benchmarks.speed.contenders import OURS
from benchmarks.speed.setup import Setup

EPOCHS = 4
TARGET = 1.8  # times as fast on two threads


def counts(threads: int) -> list[int]:
    """1, 2, 4, ... up to so many."""
    return sorted({*(2**j for j in range(threads.bit_length())), threads})


def units(setup: Setup) -> list[Unit]:
    """Each set of pairs with each number of factors."""
    return [
        Unit(
            {"data": name, "factors": k, "threads": max(2, setup.threads), "repeats": setup.sizes.repeats},
            lambda name=name, k=k: measure(setup, name, k),
        )
        for name in setup.sources
        for k in setup.sizes.factors
    ]


def measure(setup: Setup, name: str, factors: int) -> dict[str, Any]:
    """A process for each number of threads, their runs in turn; an epoch's seconds are the median of a run's."""
    pairs = setup.matrix(name)
    remotes: dict[int, Remote] = {}
    found: dict[int, list[float]] = {}
    with ExitStack() as stack:
        for n in counts(max(2, setup.threads)):
            remotes[n] = stack.enter_context(Remote("speed.mf:Contestant", name=OURS, pairs=pairs, factors=factors, threads=n))
            remotes[n].call("begin")
        for _ in range(setup.sizes.repeats):
            for n, remote in remotes.items():
                found.setdefault(n, []).append(per_epoch(remote.call("run", epochs=EPOCHS)["stamps"]))
    return {"epoch": [[n, seconds] for n, seconds in found.items()]}


def part(entries: list[dict[str, Any]]) -> Part:
    """Seconds, and how many times as fast as one thread."""
    told = Part("Threads")
    told.say("Seconds of an epoch of MF, transposition left out, by the number of threads.")
    rows, least = [], []
    for entry in numbered(entries, "data", "factors"):
        found = dict(map(tuple, entry["result"]["epoch"]))
        alone = statistics.median(found[1])
        for n, seconds in found.items():
            faster = alone / statistics.median(seconds)
            rows.append([
                entry["arguments"]["data"], str(entry["arguments"]["factors"]), str(n), spread(seconds), f"{faster:.2f}"
            ])  # fmt: skip
            if n == 2:
                least.append(faster)
    told.table(["data", "k", "threads", "seconds per epoch", "times as fast as one"], rows)
    told.aim(
        "MF on two threads, times as fast as on one, least of all rows",
        f"at least {TARGET}",
        figure(min(least)),
        min(least) >= TARGET,
    )
    return told
