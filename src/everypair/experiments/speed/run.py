"""Sections one after the other: what is kept is not measured again, and the report is written first and after each measurement."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from everypair.experiments.speed import report
from everypair.experiments.speed.setup import Setup
from everypair.experiments.speed.store import Store, Unit, Watch

RESULTS = "results.json"


def units(setup: Setup, only: Sequence[str] = ()) -> list[tuple[str, Unit]]:
    """What to measure, with the section that it is of: all sections, or those of these names."""
    chosen = [name for name in report.SECTIONS if not only or name in only]
    return [(name, unit) for name in chosen for unit in report.SECTIONS[name].units(setup)]


def run(planned: Sequence[tuple[str, Unit]], out: Path, again: bool = False, watch: Watch = lambda text: None) -> dict[str, Any]:
    """Measure what is not there yet; returns all that the file of results has."""
    store = Store(out.with_suffix("") / RESULTS)
    store.check()
    report.write(store.content, out)
    for section, unit in planned:
        watch(f"{section}: {unit.title}")
        if again or store.find(section, unit.arguments) is None:
            store.keep(section, unit.arguments, unit.measure())
            report.write(store.content, out)
    return store.content
