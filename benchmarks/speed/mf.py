"""Matrix factorization: seconds until the objective that each peer has after ten epochs.

The clock begins at the CSR matrix: transposition, rotation and whatever else a library does are on it. The objective is ours, of
all pairs, in float64, for everyone's factors, and computed beside the clock.
"""

from __future__ import annotations

import math
import statistics
from contextlib import ExitStack
from typing import Any

from benchmarks.harness.clock import Clock, per_epoch
from benchmarks.harness.part import Part, megabytes, numbered, slug, spread
from benchmarks.harness.pictures import Line, lines
from benchmarks.harness.process import AbsentError, Remote, forget_peak, memory, peak_memory
from benchmarks.harness.store import Unit
from benchmarks.speed import contenders, data
from benchmarks.speed.contenders import OURS, Factors, State
from benchmarks.speed.loss import Loss
from benchmarks.speed.setup import Setup

LONGEST = 4  # times as many epochs as the peers have, to reach their objectives
EXACT = 1e-6  # relative: rounding of the objective that a fit in float32 reports
FLOOR = 0.1  # %: of logarithmic pictures
CORNER = 500  # rows to begin with: libraries load, kernels compile


class Contestant:
    """One contender on one set of pairs, in a process of its own."""

    def __init__(self, name: str, pairs: str, factors: int, threads: int, loss: tuple[float, float] = Loss()) -> None:
        self._loss = Loss(*loss)
        self._contender = contenders.ALL[name](self._loss, factors, threads)
        self._matrix = data.read(pairs)

    def begin(self) -> float:
        """Seconds of a first fit on a corner of the data: loading, compilation."""
        clock = Clock()
        self._contender.fit(self._matrix[:CORNER], 1)
        return clock.now()

    def run(self, epochs: int) -> dict[str, Any]:
        """A fit: its seconds, those after each epoch, and the exact objective that it leaves; bytes on top of the matrix."""
        forget_peak()
        held, stamps = memory(), []
        clock = Clock()
        found = self._contender.fit(self._matrix, epochs, lambda state: stamps.append(clock.now()))
        seconds, most = clock.now(), peak_memory() - held
        return {"seconds": seconds, "stamps": stamps, "memory": most, "objective": self._value(found)}

    def reach(self, goals: dict[str, float], epochs: int) -> dict[str, Any]:
        """A fit until all goals are reached: seconds and epochs to each; None where one is not.

        The seconds to a goal are those at the end of the epoch that reached it, and those from the last epoch to the end of the
        fit: what a fit that ended there would have taken.
        """
        forget_peak()
        held, stamps, objectives = memory(), [], []

        def after(state: State) -> bool:
            stamps.append(clock.now())
            objectives.append(state.objective)
            return objectives[-1] <= min(goals.values())

        clock = Clock()
        found = self._contender.fit(self._matrix, epochs, after)
        ending, most = clock.now() - stamps[-1], peak_memory() - held
        exact = self._value(found)
        if abs(exact / objectives[-1] - 1) > EXACT:
            raise ArithmeticError(f"the reported objective {objectives[-1]} is not the exact one, {exact}.")
        reached = {}
        for name, goal in goals.items():
            epoch = next((j for j, objective in enumerate(objectives) if objective <= goal), None)
            reached[name] = None if epoch is None else {"seconds": stamps[epoch] + ending, "epochs": epoch + 1}
        return {"reached": reached, "stamps": stamps, "objectives": objectives, "memory": most, "objective": exact}

    def curve(self, epochs: int) -> list[tuple[float, float]]:
        """Seconds and exact objective after epochs; a fit each where epochs cannot be watched."""
        wanted = [epoch for epoch in range(1, epochs + 1) if epoch <= 4 or epoch % 2 == 0 or epoch == epochs]
        points: list[tuple[float, float]] = []
        if not self._contender.watched:
            for epoch in (epoch for epoch in wanted if epoch != 3 or epoch == epochs):
                clock = Clock()
                found = self._contender.fit(self._matrix, epoch)
                points.append((clock.now(), self._value(found)))
            return points
        done = 0

        def after(state: State) -> None:
            nonlocal done
            done += 1
            if done in wanted:
                points.append((clock.now(), clock.beside(lambda: self._value(state.factors()))))

        clock = Clock()
        self._contender.fit(self._matrix, epochs, after)
        return points

    def _value(self, factors: Factors) -> float:
        root = factors.scale**0.5
        return self._loss.value(self._matrix, factors.phi * root, factors.psi * root)


def units(setup: Setup) -> list[Unit]:
    """Each set of pairs with each number of factors."""
    sizes, peers = setup.sizes, ", ".join(setup.peers)
    common = {"threads": setup.threads, "epochs": sizes.epochs, "repeats": sizes.repeats, "peers": peers}
    return [
        Unit({"data": name, "factors": k, **common}, lambda name=name, k=k: measure(setup, name, k))
        for name in setup.sources
        for k in sizes.factors
    ]


def measure(setup: Setup, name: str, factors: int) -> dict[str, Any]:
    """All contenders on one set of pairs, a process each, their runs in turn."""
    arguments = {"pairs": setup.matrix(name), "factors": factors, "threads": setup.threads}
    remotes: dict[str, Remote] = {}
    absent = dict(setup.missing_peers)
    with ExitStack() as stack:
        for contender in (*setup.peers, OURS):
            try:
                blas = contenders.ALL[contender].blas
                remotes[contender] = stack.enter_context(Remote("speed.mf:Contestant", blas, name=contender, **arguments))
            except AbsentError as error:
                absent[contender] = str(error)
        found = _race(remotes, setup.sizes.epochs, setup.sizes.repeats, setup.sizes.patience)
    return {**found, "left_out": absent, **data.count(setup.matrix(name))._asdict()}


def _race(remotes: dict[str, Remote], epochs: int, repeats: int, patience: float) -> dict[str, Any]:
    first = {name: remote.call("begin") for name, remote in remotes.items()}
    ours, peers = remotes[OURS], {name: remote for name, remote in remotes.items() if name != OURS}
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in remotes}
    spent = dict.fromkeys(remotes, 0.0)
    for _ in range(repeats):
        for name, remote in peers.items():
            if not runs[name] or spent[name] < patience:
                runs[name].append(remote.call("run", epochs=epochs))
                spent[name] += runs[name][-1]["seconds"]
        if peers:
            goals = {name: runs[name][0]["objective"] for name in peers}
            runs[OURS].append(ours.call("reach", goals=goals, epochs=LONGEST * epochs))
        else:
            runs[OURS].append(ours.call("reach", goals={"nobody": 0.0}, epochs=epochs))
    found: dict[str, Any] = {}
    for name, remote in peers.items():
        curve = remote.call("curve", epochs=epochs)
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
    """Our seconds to a peer's objective over its seconds: of medians; None where it was not always reached."""
    if any(run is None for run in peer["ours"]):
        return None
    return statistics.median(run["seconds"] for run in peer["ours"]) / statistics.median(peer["seconds"])


def target(entry: dict[str, Any]) -> float:
    """What the ratio should be at most: a third; a half with ten million pairs and 128 factors or more."""
    many = entry["result"]["pairs"] > 5_000_000 and entry["arguments"]["factors"] >= 128
    return 1 / 2 if many else 1 / 3


def part(entries: list[dict[str, Any]]) -> Part:
    """Tables by data and factors, and the objective against seconds."""
    told = Part("Matrix factorization beside others")
    told.say(
        "Every contender minimises the same loss: observed pairs have y = 1 and weigh 1, all others have y = 0 and weigh 0.01, L2",
        "is 0.01 for every row. Seconds of peers are those of a whole fit from the CSR matrix; ours are those until our objective",
        "is at most theirs. The objective is that of all pairs in float64, computed beside the clock from anyone's factors.",
        "Memory is the most that a fit held on top of the matrix. *First* is a fit of one epoch on 500 rows in a fresh process:",
        "what loading and compiling take (kernels come from the cache where they were compiled before; *Start* has a cold one).",
        f"In pictures, an objective less than {FLOOR:g} % above the lowest is drawn there.",
    )
    worst: dict[float, list[tuple[float, str]]] = {}
    for entry in numbered(entries, "data", "factors"):
        _tell(told, entry)
        name = f"{entry['arguments']['data']}, k = {entry['arguments']['factors']}"
        for peer, found in entry["result"]["peers"].items():
            share = ratio(found)
            worst.setdefault(target(entry), []).append((math.inf if share is None else share, f"{peer}, {name}"))
    for most, ratios in sorted(worst.items()):
        share, where = max(ratios)
        what = "MF, our seconds to a peer's objective over its own, worst of all"
        what += " with ten million pairs and k >= 128" if most == 1 / 2 else ""
        told.aim(what, f"at most {most:.2f}", f"{share:.2f} ({where})", share <= most)
    return told


def _tell(told: Part, entry: dict[str, Any]) -> None:
    arguments, result = entry["arguments"], entry["result"]
    name, k, epochs = arguments["data"], arguments["factors"], result["epochs"]
    told.say(f"### {name}, k = {k}")
    size = f"{result['pairs']:,} pairs, {result['users']:,} x {result['items']:,}"
    told.say(f"{size}; {arguments['threads']} threads, up to {arguments['repeats']} runs in turn.")
    rows = []
    for peer, found in result["peers"].items():
        share = ratio(found)
        reached = [run for run in found["ours"] if run is not None]
        rows.append([
            f"{peer} ({contenders.ALL[peer].settings})" if peer in contenders.ALL else peer,
            spread(found["epoch"]),
            spread(found["seconds"]),
            f"{found['objective']:,.0f}",
            f"{spread([run['seconds'] for run in reached])}, {reached[0]['epochs']} epochs" if reached else "not reached",
            "-" if share is None else f"**{share:.2f}**",
            megabytes(found["memory"]),
            f"{found['first']:.2f} s",
        ])  # fmt: skip
    ours = result["ours"]
    rows.append([OURS, spread(ours["epoch"]), "", "", "", "", megabytes(ours["memory"]), f"{ours['first']:.2f} s"])
    header = ["contender", "seconds per epoch", f"{epochs} epochs", "objective then", "ours to it", "ratio", "memory", "first"]
    told.table(header, rows)
    if result["left_out"]:
        told.say("Left out: " + "; ".join(f"{peer}: {why}" for peer, why in result["left_out"].items()) + ".")
    curves = [Line(OURS, ours["curve"], thick=True), *(Line(peer, found["curve"]) for peer, found in result["peers"].items())]
    least = min(value for line in curves for _, value in line.points)
    above = [line._replace(points=[(x, max(FLOOR, 100 * (value / least - 1))) for x, value in line.points]) for line in curves]
    title, up = f"Objective against seconds: {name}, k = {k}", "objective, % above the lowest of this run"
    told.picture(f"mf-{slug(name)}-{k}", title, lines(title, "seconds from the CSR matrix", up, above, log=(True, True)))
