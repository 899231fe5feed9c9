"""Makes planned measurements one after the other, skips those that are stored, and rewrites the report after each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.harness.store import Measurement, ResultStore


def run(
    planned: Sequence[tuple[str, Measurement]],
    store: ResultStore,
    write_report: Callable[[dict[str, Any]], Any],
    again: bool = False,
    progress: Callable[[str], Any] = lambda text: None,
) -> dict[str, Any]:
    """Make the measurements (section, measurement) that are not stored, or all with ``again``; returns all stored results."""
    store.write()
    write_report(store.content)
    for section, measurement in planned:
        progress(f"{section}: {measurement.title}")
        if again or store.find(section, measurement.arguments) is None:
            store.add(section, measurement.arguments, measurement.measure())
            write_report(store.content)
    return store.content
