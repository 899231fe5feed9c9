"""The sections of the benchmark of speed, and their measurements."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType

from benchmarks.harness.store import Measurement
from benchmarks.speed import cost, features, memory, mf, startup, tensors, threads, topn
from benchmarks.speed.setup import SpeedSetup

SECTIONS: dict[str, ModuleType] = {
    "mf": mf,
    "threads": threads,
    "features": features,
    "tensors": tensors,
    "cost": cost,
    "startup": startup,
    "memory": memory,
    "topn": topn,
}


def plan(setup: SpeedSetup, only: Sequence[str] = ()) -> list[tuple[str, Measurement]]:
    """The measurements of all sections, or of those of these names, each with the name of its section."""
    chosen = {name: module for name, module in SECTIONS.items() if not only or name in only}
    return [(name, measurement) for name, module in chosen.items() for measurement in module.plan(setup)]
