"""A fit of the model that ranks best in the published results on MovieLens-1M, with the settings found there."""

from __future__ import annotations

import statistics
from typing import Any

from benchmarks.harness.clock import Clock
from benchmarks.harness.section import ReportSection, median_and_range, three_digits
from benchmarks.quality.recommenders import build
from benchmarks.quality.worker import WARM_UP_USERS
from benchmarks.speed import data, events
from everypair.evaluation import LeaveLast

SETTINGS: dict[str, Any] = {  # of "user + previous + history, k = 256" in docs/benchmarks.md
    "model": "MFSI",
    "context": ["user", "previous", "history"],
    "epochs": 4,
    "regularization_exponent": 1.0,
    "popularity_exponent": 0.3,
    "fade": 0.11,
    "unobserved_weight": 0.00382,
    "regularization": 0.00362,
}
TARGET = 10.0  # seconds on MovieLens-1M with k = 256
FACTORS = 256


class TunedWorker:
    """This model, on all events but each user's last two."""

    def __init__(self, factors: int, threads: int, path: str | None, users: int, items: int) -> None:
        self._train = LeaveLast().split(events.load(path, users, items)[0]).train
        self._settings = {**SETTINGS, "factors": factors, "n_threads": threads}

    def begin(self) -> None:
        """A fit on few users, which compiles the kernels."""
        build({**self._settings, "epochs": 1}).fit(self._train.subset(self._train.user < WARM_UP_USERS))

    def run(self) -> dict[str, Any]:
        """Seconds from the table of events to the model, those of each epoch, and the objective."""
        recommender = build(self._settings)
        clock = Clock()
        recommender.fit(self._train)
        history = recommender.model.history_  # type: ignore[attr-defined]
        return {"seconds": clock.now(), "epochs": [epoch.seconds for epoch in history], "objective": history[-1].objective}


def summarize(section: ReportSection, entry: dict[str, Any]) -> None:
    """Seconds of the fit; they have a target where data and factors are those of the published results."""
    arguments, runs = entry["arguments"], entry["result"]["runs"]
    seconds = [run["seconds"] for run in runs]
    epochs = median_and_range([epoch for run in runs for epoch in run["epochs"]])
    section.add_paragraph(
        "The tuned model of the published results (linear context tower with user, previous item and history,",
        f"{len(runs[0]['epochs'])} epochs), {arguments['data']}, k = {arguments['factors']}, {arguments['threads']} threads:",
        f"{median_and_range(seconds)} from the table of events to the model, {epochs} for an epoch.",
    )
    if (arguments["data"], arguments["factors"]) == (data.MOVIELENS, FACTORS):
        median = statistics.median(seconds)
        section.add_target("seconds of a fit of the tuned model", f"at most {TARGET:g}", three_digits(median), median <= TARGET)
