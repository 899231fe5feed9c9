"""By the number of threads: seconds of an epoch, and those of them in which not all threads were busy."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, NamedTuple

from benchmarks.harness.clock import Clock, per_epoch
from benchmarks.harness.process import MeasuredProcess
from benchmarks.harness.section import ReportSection, median_and_range, sorted_by, three_digits
from benchmarks.harness.store import Measurement
from benchmarks.harness.system import physical_cores
from benchmarks.speed import contenders, data, events
from benchmarks.speed.feature_models import PLAIN, SETTINGS, recipes_of
from benchmarks.speed.loss import SharedLoss
from benchmarks.speed.setup import SpeedSetup
from everypair.models import FM
from everypair.recommender import Recommender
from everypair.runtime.thread_use import ThreadUse, partly_idle

EPOCHS = 4  # the first includes the preparation, and does not count
TARGET = 1.8  # times as fast on two threads


class Goal(NamedTuple):
    """For one model on many rows (pairs or events), k = 64."""

    rows: int  # at least
    idle: float  # share of a one-thread epoch in which not all threads are busy, at most
    speed: float  # times as fast as on one thread, over the number of physical cores, at least


GOALS = {"MF": Goal(9_000_000, 0.02, 0.55), PLAIN: Goal(900_000, 0.03, 0.45)}
GOAL_FACTORS = 64


class MFThreads:
    """Matrix factorization on pairs."""

    def __init__(self, pairs: str, factors: int, threads: int) -> None:
        self._contender = contenders.EveryPairMF(SharedLoss(), factors, threads)
        self._matrix = data.read(pairs)

    def begin(self) -> int:
        """A first fit, which loads libraries and compiles kernels; returns the number of pairs."""
        self._contender.fit(self._matrix[:500], 1)
        return self._matrix.nnz

    def run(self) -> dict[str, float]:
        return observe(lambda after: self._contender.fit(self._matrix, EPOCHS, lambda _: after()), self._contender.threads)


class FMThreads:
    """A factorization machine with the features of events."""

    def __init__(self, factors: int, threads: int, path: str | None, users: int, items: int) -> None:
        self._dataset, attributes = events.load(path, users, items)
        self._model, self._threads = FM(factors, n_threads=threads, **SETTINGS), threads
        self._recommender = Recommender(self._model, recipes_of(PLAIN, attributes))

    def begin(self) -> int:
        """As :meth:`MFThreads.begin`; returns the number of events."""
        self._model.set_params(epochs=1)
        self._recommender.fit(self._dataset)
        self._model.set_params(epochs=EPOCHS)
        return len(self._dataset)

    def run(self) -> dict[str, float]:
        return observe(lambda after: self._recommender.fit(self._dataset, callback=lambda *_: after()), self._threads)


def observe(fit: Callable[[Callable[[], None]], Any], threads: int) -> dict[str, float]:
    """Seconds of an epoch, and those with fewer than ``threads`` busy threads: medians of a fit, which calls what it is given after
    each epoch."""
    use, clock = ThreadUse(), Clock()
    stamps, idle = [], []

    def after() -> None:
        stamps.append(clock.now())
        idle.append(partly_idle(use.lap(), threads))

    with use.observe():
        fit(after)
    return {"seconds": per_epoch(stamps), "idle": statistics.median(idle[1:] or idle)}


def counts(threads: int) -> list[int]:
    """The powers of two up to ``threads``, and ``threads`` itself."""
    return sorted({*(2**j for j in range(threads.bit_length())), threads})


def plan(setup: SpeedSetup) -> list[Measurement]:
    """Matrix factorization on each data set with each number of factors, and the factorization machine."""
    sizes, common = setup.sizes, {"threads": max(2, setup.threads), "repeats": setup.sizes.repeats}
    features = {"what": PLAIN, "data": setup.events_name, "factors": sizes.feature_factors, **common}
    return [
        *(
            Measurement({"data": name, "factors": k, **common}, lambda name=name, k=k: measure(setup, name, k))
            for name in setup.sources
            for k in sizes.factors
        ),
        Measurement(features, lambda: measure(setup, None, sizes.feature_factors)),
    ]


def measure(setup: SpeedSetup, name: str | None, factors: int) -> dict[str, Any]:
    """A process for each number of threads, in alternating runs. ``name``: of the pairs; None: features of events."""
    target = "speed.threads:FMThreads" if name is None else "speed.threads:MFThreads"
    given: dict[str, Any] = setup.events if name is None else {"pairs": setup.matrix(name)}
    workers: dict[int, MeasuredProcess] = {}
    runs: dict[int, list[dict[str, float]]] = {}
    rows = 0
    with ExitStack() as stack:
        for n in counts(max(2, setup.threads)):
            workers[n] = stack.enter_context(MeasuredProcess(target, factors=factors, threads=n, **given))
            rows = workers[n].call("begin")
        for _ in range(setup.sizes.repeats):
            for n, worker in workers.items():
                runs.setdefault(n, []).append(worker.call("run"))
    found = {
        what: [[n, [run[key] for run in own]] for n, own in runs.items()] for what, key in (("epoch", "seconds"), ("idle", "idle"))
    }
    return {**found, "rows": rows, "cores": physical_cores()}


def summarize(entries: list[dict[str, Any]]) -> ReportSection:
    """Seconds of an epoch, the speed-up over one thread, and the seconds in which not all threads were busy."""
    section = ReportSection("Threads")
    section.add_paragraph(
        "Seconds of an epoch by the number of threads: MF without transposition, and a factorization machine with user, attributes",
        "and previous item. *Not all busy* are the seconds of an epoch in which fewer than all threads ran kernels (Python between",
        "kernels, serial computations, waiting for the slowest range), and their share of an epoch on one thread.",
    )
    rows, of_two = [], []
    goals = ReportSection("")  # their targets follow that of all rows
    for entry in sorted_by([{**e, "arguments": {"what": "MF", **e["arguments"]}} for e in entries], "what", "data", "factors"):
        arguments, found = entry["arguments"], dict(map(tuple, entry["result"]["epoch"]))
        idle = dict(map(tuple, entry["result"].get("idle", [])))  # reports of 0.1 do not have it
        alone = statistics.median(found[1])
        for n, seconds in found.items():
            faster = alone / statistics.median(seconds)
            waiting = "-" if n not in idle else f"{median_and_range(idle[n])}, {statistics.median(idle[n]) / alone:.1%}"
            named = [arguments["what"], arguments["data"], str(arguments["factors"]), str(n)]
            rows.append([*named, median_and_range(seconds), f"{faster:.2f}", waiting])
            if n == 2 and arguments["what"] == "MF":
                of_two.append(faster)
        if idle and arguments["factors"] == GOAL_FACTORS:
            _add_goals(goals, entry, found, idle)
    section.add_table(["model", "data", "k", "threads", "seconds per epoch", "times as fast as one", "not all busy"], rows)
    if of_two:
        section.add_target(
            "MF on two threads, times as fast as on one, least of all rows",
            f"at least {TARGET}",
            three_digits(min(of_two)),
            min(of_two) >= TARGET,
        )
    section.targets += goals.targets
    return section


def _add_goals(section: ReportSection, entry: dict[str, Any], found: dict[int, list[float]], idle: dict[int, list[float]]) -> None:
    """Those of the largest number of threads, where there are enough rows for them."""
    arguments, result, n = entry["arguments"], entry["result"], max(found)
    goal, name = GOALS[arguments["what"]], f"{arguments['what']}, {arguments['data']}, k = {arguments['factors']}, {n} threads"
    if result["rows"] < goal.rows:
        return
    alone = statistics.median(found[1])
    share = statistics.median(idle[n]) / alone
    quantity = f"{name}: seconds with fewer than all threads busy, of an epoch on one thread"
    section.add_target(quantity, f"at most {goal.idle:.0%}", f"{share:.1%}", share <= goal.idle)
    cores = min(n, result["cores"])
    if cores > 2:
        faster = alone / statistics.median(found[n]) / cores
        quantity = f"{name}: times as fast as on one, over {cores} physical cores"
        section.add_target(quantity, f"at least {goal.speed:g}", f"{faster:.2f}", faster >= goal.speed)
