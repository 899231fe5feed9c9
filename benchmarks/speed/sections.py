"""The sections on speed, and what there is to measure in them."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType

from benchmarks.harness.store import Unit
from benchmarks.speed import features, growth, memory, mf, startup, tensors, threads, topn
from benchmarks.speed.setup import Setup

SECTIONS: dict[str, ModuleType] = {
    "mf": mf,
    "threads": threads,
    "features": features,
    "tensors": tensors,
    "cost": growth,
    "startup": startup,
    "memory": memory,
    "topn": topn,
}


def units(setup: Setup, only: Sequence[str] = ()) -> list[tuple[str, Unit]]:
    """What to measure, with the section that it is of: all sections, or those of these names."""
    return [(name, unit) for name in SECTIONS if not only or name in only for unit in SECTIONS[name].units(setup)]
