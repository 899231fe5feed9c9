"""Measurements one after the other: what is kept is not measured again, and the report is written first and after each of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness import report
from benchmarks.harness.store import Store, Unit, Watch

RESULTS = "results.json"


def store_of(out: Path) -> Store:
    """What was measured for a report."""
    return Store(out.with_suffix("") / RESULTS)


def run(
    planned: Sequence[tuple[str, Unit]], store: Store, out: Path, again: bool = False, watch: Watch = lambda text: None
) -> dict[str, Any]:
    """Measure what is not there yet; returns all that the file of results has."""
    store.check()
    report.write(store.content, out)
    for section, unit in planned:
        watch(f"{section}: {unit.title}")
        if again or store.find(section, unit.arguments) is None:
            store.keep(section, unit.arguments, unit.measure())
            report.write(store.content, out)
    return store.content
