"""The objective that sweeps by panels of dimensions come to, beside that of the clear path: dimension by dimension."""

from __future__ import annotations

from typing import Any

from benchmarks.harness.section import ReportSection, three_digits
from benchmarks.speed import events
from benchmarks.speed.feature_models import PLAIN, SETTINGS, SHORT, recipes_of
from everypair.models import FM
from everypair.recommender import Recommender

MODELS = (PLAIN, SHORT)
EPOCHS = 10
TARGET = 1.001
PATHS = {"panels": "block", "dimensions": "cd"}  # values of field_solver


class PanelWorker:
    """Fits of the same model from the same start."""

    def __init__(self, factors: int, threads: int, path: str | None, users: int, items: int) -> None:
        self._dataset, self._attributes = events.load(path, users, items)
        self._settings = {"n_threads": threads, "epochs": EPOCHS, **SETTINGS}
        self._factors = factors

    def compare(self, kind: str) -> dict[str, dict[str, float]]:
        """By path: the last objective, and the seconds of all epochs."""
        found = {}
        for name, solver in PATHS.items():
            model = FM(self._factors, field_solver=solver, **self._settings)
            Recommender(model, recipes_of(kind, self._attributes)).fit(self._dataset)
            seconds = sum(epoch.seconds for epoch in model.history_)
            found[name] = {"objective": model.history_[-1].objective, "seconds": seconds}
        return found


def summarize(section: ReportSection, entry: dict[str, Any]) -> None:
    """A row and a target for each model."""
    arguments, rows = entry["arguments"], []
    section.add_paragraph(
        'Sweeps by panels of sixteen dimensions beside those by dimension (`field_solver="cd"`), from the same start,',
        f"{arguments['epochs']} epochs, {arguments['data']}, k = {arguments['factors']}, {arguments['threads']} threads:",
    )
    for kind, found in entry["result"].items():
        panels, dimensions = found["panels"], found["dimensions"]
        ratio = panels["objective"] / dimensions["objective"]
        objectives = (f"{path['objective']:,.0f}" for path in (panels, dimensions))
        seconds = (f"{three_digits(path['seconds'])} s" for path in (panels, dimensions))
        rows.append([kind, *objectives, f"{ratio:.5f}", *seconds])
        quantity = f"objective of {kind} by panels over that by dimension, after {arguments['epochs']} epochs"
        section.add_target(quantity, f"at most {TARGET}", f"{ratio:.5f}", ratio <= TARGET)
    header = ["model", "objective, panels", "objective, dimensions", "ratio", "seconds, panels", "seconds, dimensions"]
    section.add_table(header, rows)
