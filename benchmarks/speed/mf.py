"""Matrix factorization: seconds until EveryPair reaches the objective that each peer has after ten epochs.

The clock starts with the CSR matrix: transposition, rotation and other preparation count. The objective is the same for all
contenders (all pairs, in float64); its computation does not count.
"""

from __future__ import annotations

import math
import statistics
from contextlib import ExitStack
from typing import Any

from benchmarks.harness.charts import Curve, curve_chart
from benchmarks.harness.clock import Clock, per_epoch
from benchmarks.harness.process import MeasuredProcess, MissingLibraryError, memory, peak_memory, reset_peak_memory
from benchmarks.harness.section import ReportSection, median_and_range, megabytes, slug, sorted_by
from benchmarks.harness.store import Measurement
from benchmarks.speed import contenders, data
from benchmarks.speed.contenders import OURS, EpochState, Factors
from benchmarks.speed.loss import SharedLoss
from benchmarks.speed.setup import SpeedSetup

MAX_EPOCHS = 4  # times those of the peers, to reach their objectives
EXACT = 1e-6  # relative rounding error of the objective reported by a fit in float32
FLOOR = 0.1  # %: lowest value of the logarithmic charts
CORNER = 500  # rows of the first fit, which loads libraries and compiles kernels


class MFWorker:
    """One contender on one set of pairs."""

    def __init__(self, name: str, pairs: str, factors: int, threads: int, loss: tuple[float, float] = SharedLoss()) -> None:
        self._loss = SharedLoss(*loss)
        self._contender = contenders.ALL[name](self._loss, factors, threads)
        self._matrix = data.read(pairs)

    def begin(self) -> float:
        """Seconds of a first fit on few rows: loading and compilation."""
        clock = Clock()
        self._contender.fit(self._matrix[:CORNER], 1)
        return clock.now()

    def run(self, epochs: int) -> dict[str, Any]:
        """Fit: seconds in all and after each epoch, the exact final objective, and peak memory in addition to the matrix."""
        reset_peak_memory()
        before, stamps = memory(), []
        clock = Clock()
        found = self._contender.fit(self._matrix, epochs, lambda state: stamps.append(clock.now()))
        seconds, added = clock.now(), peak_memory() - before
        return {"seconds": seconds, "stamps": stamps, "memory": added, "objective": self._value(found)}

    def reach(self, goals: dict[str, float], epochs: int) -> dict[str, Any]:
        """Fit until all goals (objectives) are reached: seconds and epochs to each, or None.

        The seconds to a goal are those until the end of its epoch plus those from the last epoch to the end of the fit: the
        duration of a fit that ends there.
        """
        reset_peak_memory()
        before, stamps, objectives = memory(), [], []

        def after(state: EpochState) -> bool:
            stamps.append(clock.now())
            objectives.append(state.objective)
            return objectives[-1] <= min(goals.values())

        clock = Clock()
        found = self._contender.fit(self._matrix, epochs, after)
        ending, added = clock.now() - stamps[-1], peak_memory() - before
        exact = self._value(found)
        if abs(exact / objectives[-1] - 1) > EXACT:
            raise ArithmeticError(f"the reported objective {objectives[-1]} differs from the exact one, {exact}.")
        reached = {}
        for name, goal in goals.items():
            epoch = next((j for j, objective in enumerate(objectives) if objective <= goal), None)
            reached[name] = None if epoch is None else {"seconds": stamps[epoch] + ending, "epochs": epoch + 1}
        return {"reached": reached, "stamps": stamps, "objectives": objectives, "memory": added, "objective": exact}

    def curve(self, epochs: int) -> list[tuple[float, float]]:
        """Seconds and exact objective after several epochs; from separate fits if the library has no callback."""
        wanted = [epoch for epoch in range(1, epochs + 1) if epoch <= 4 or epoch % 2 == 0 or epoch == epochs]
        points: list[tuple[float, float]] = []
        if not self._contender.watched:
            for epoch in (epoch for epoch in wanted if epoch != 3 or epoch == epochs):
                clock = Clock()
                found = self._contender.fit(self._matrix, epoch)
                points.append((clock.now(), self._value(found)))
            return points
        done = 0

        def after(state: EpochState) -> None:
            nonlocal done
            done += 1
            if done in wanted:
                points.append((clock.now(), clock.exclude(lambda: self._value(state.factors()))))

        clock = Clock()
        self._contender.fit(self._matrix, epochs, after)
        return points

    def _value(self, factors: Factors) -> float:
        root = factors.scale**0.5
        return self._loss.value(self._matrix, factors.phi * root, factors.psi * root)


def plan(setup: SpeedSetup) -> list[Measurement]:
    """Each data set with each number of factors."""
    sizes, peers = setup.sizes, ", ".join(setup.peers)
    common = {"threads": setup.threads, "epochs": sizes.epochs, "repeats": sizes.repeats, "peers": peers}
    return [
        Measurement({"data": name, "factors": k, **common}, lambda name=name, k=k: measure(setup, name, k))
        for name in setup.sources
        for k in sizes.factors
    ]


def measure(setup: SpeedSetup, name: str, factors: int) -> dict[str, Any]:
    """All contenders on one data set, each in its own process, in alternating runs."""
    arguments = {"pairs": setup.matrix(name), "factors": factors, "threads": setup.threads}
    workers: dict[str, MeasuredProcess] = {}
    missing = dict(setup.missing_peers)
    with ExitStack() as stack:
        for contender in (*setup.peers, OURS):
            try:
                blas = contenders.ALL[contender].blas
                workers[contender] = stack.enter_context(MeasuredProcess("speed.mf:MFWorker", blas, name=contender, **arguments))
            except MissingLibraryError as error:
                missing[contender] = str(error)
        found = _race(workers, setup.sizes.epochs, setup.sizes.repeats, setup.sizes.patience)
    return {**found, "left_out": missing, **data.count(setup.matrix(name))._asdict()}


def _race(workers: dict[str, MeasuredProcess], epochs: int, repeats: int, patience: float) -> dict[str, Any]:
    first = {name: worker.call("begin") for name, worker in workers.items()}
    ours, peers = workers[OURS], {name: worker for name, worker in workers.items() if name != OURS}
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in workers}
    spent = dict.fromkeys(workers, 0.0)
    for _ in range(repeats):
        for name, worker in peers.items():
            if not runs[name] or spent[name] < patience:
                runs[name].append(worker.call("run", epochs=epochs))
                spent[name] += runs[name][-1]["seconds"]
        if peers:
            goals = {name: runs[name][0]["objective"] for name in peers}
            runs[OURS].append(ours.call("reach", goals=goals, epochs=MAX_EPOCHS * epochs))
        else:
            runs[OURS].append(ours.call("reach", goals={"nobody": 0.0}, epochs=epochs))
    found: dict[str, Any] = {}
    for name, worker in peers.items():
        curve = worker.call("curve", epochs=epochs)
        own = runs[name]
        found[name] = {
            "first": first[name],
            "seconds": [run["seconds"] for run in own],
            "epoch": [
                per_epoch(run["stamps"]) if run["stamps"] else (run["seconds"] - curve[0][0]) / max(epochs - 1, 1) for run in own
            ],
            "memory": own[0]["memory"],
            "objective": own[0]["objective"],
            "curve": curve,
            "ours": [run["reached"][name] for run in runs[OURS]],
        }
    own = runs[OURS]
    ours_found = {
        "first": first[OURS],
        "epoch": [per_epoch(run["stamps"]) for run in own],
        "memory": own[0]["memory"],
        "objective": own[0]["objective"],
        "curve": list(zip(own[0]["stamps"], own[0]["objectives"], strict=True)),
    }
    return {"epochs": epochs, "ours": ours_found, "peers": found}


def ratio(peer: dict[str, Any]) -> float | None:
    """Our median seconds to a peer's objective over its own; None if a run did not reach it."""
    if any(run is None for run in peer["ours"]):
        return None
    return statistics.median(run["seconds"] for run in peer["ours"]) / statistics.median(peer["seconds"])


def target(entry: dict[str, Any]) -> float:
    """The largest acceptable ratio: a third; a half with ten million pairs and 128 factors or more."""
    large = entry["result"]["pairs"] > 5_000_000 and entry["arguments"]["factors"] >= 128
    return 1 / 2 if large else 1 / 3


def summarize(entries: list[dict[str, Any]]) -> ReportSection:
    """A table for each data set and number of factors, and the objective against seconds."""
    section = ReportSection("Matrix factorization beside others")
    section.add_paragraph(
        "All contenders minimise the same loss: observed pairs have y = 1 and weight 1, all others y = 0 and weight 0.01; L2 is",
        "0.01 for every row. Seconds of peers are those of a whole fit from the CSR matrix; ours are those until our objective is",
        "at most theirs. The objective is that of all pairs in float64, computed from the factors while the clock is stopped.",
        "Memory is the peak of a fit in addition to the matrix. *First* is a fit of one epoch on 500 rows in a new process:",
        "loading and compiling (with kernels in the cache if they were compiled before; *Start* has an empty cache).",
        f"Charts show objectives less than {FLOOR:g} % above the lowest at {FLOOR:g} %.",
    )
    worst: dict[float, list[tuple[float, str]]] = {}
    for entry in sorted_by(entries, "data", "factors"):
        _add_data(section, entry)
        name = f"{entry['arguments']['data']}, k = {entry['arguments']['factors']}"
        for peer, found in entry["result"]["peers"].items():
            share = ratio(found)
            worst.setdefault(target(entry), []).append((math.inf if share is None else share, f"{peer}, {name}"))
    for most, ratios in sorted(worst.items()):
        share, where = max(ratios)
        quantity = "MF, our seconds to a peer's objective over its own, worst of all"
        quantity += " with ten million pairs and k >= 128" if most == 1 / 2 else ""
        section.add_target(quantity, f"at most {most:.2f}", f"{share:.2f} ({where})", share <= most)
    return section


def _add_data(section: ReportSection, entry: dict[str, Any]) -> None:
    arguments, result = entry["arguments"], entry["result"]
    name, k, epochs = arguments["data"], arguments["factors"], result["epochs"]
    section.add_paragraph(f"### {name}, k = {k}")
    size = f"{result['pairs']:,} pairs, {result['users']:,} x {result['items']:,}"
    section.add_paragraph(f"{size}; {arguments['threads']} threads, up to {arguments['repeats']} runs of each, alternating.")
    rows = []
    for peer, found in result["peers"].items():
        share = ratio(found)
        reached = [run for run in found["ours"] if run is not None]
        rows.append([
            f"{peer} ({contenders.ALL[peer].settings})" if peer in contenders.ALL else peer,
            median_and_range(found["epoch"]),
            median_and_range(found["seconds"]),
            f"{found['objective']:,.0f}",
            f"{median_and_range([run['seconds'] for run in reached])}, {reached[0]['epochs']} epochs" if reached else "not reached",
            "-" if share is None else f"**{share:.2f}**",
            megabytes(found["memory"]),
            f"{found['first']:.2f} s",
        ])  # fmt: skip
    ours = result["ours"]
    rows.append([OURS, median_and_range(ours["epoch"]), "", "", "", "", megabytes(ours["memory"]), f"{ours['first']:.2f} s"])
    header = ["contender", "seconds per epoch", f"{epochs} epochs", "objective then", "ours to it", "ratio", "memory", "first"]
    section.add_table(header, rows)
    if result["left_out"]:
        section.add_paragraph("Left out: " + "; ".join(f"{peer}: {why}" for peer, why in result["left_out"].items()) + ".")
    curves = [Curve(OURS, ours["curve"], thick=True), *(Curve(peer, found["curve"]) for peer, found in result["peers"].items())]
    least = min(value for curve in curves for _, value in curve.points)
    above = [curve._replace(points=[(x, max(FLOOR, 100 * (value / least - 1))) for x, value in curve.points]) for curve in curves]
    title, y_label = f"Objective against seconds: {name}, k = {k}", "objective, % above the lowest of this run"
    chart = curve_chart(title, "seconds from the CSR matrix", y_label, above, log=(True, True))
    section.add_chart(f"mf-{slug(name)}-{k}", title, chart)
