"""What an epoch costs as data grow: a line in |S|, nothing in |C| x |I|; and what it costs to visit every pair."""

from __future__ import annotations

import statistics
from contextlib import ExitStack
from typing import Any

import numpy as np

from benchmarks.harness.clock import per_epoch
from benchmarks.harness.part import Part, figure, spread
from benchmarks.harness.pictures import Line, lines
from benchmarks.harness.process import Remote
from benchmarks.harness.store import Unit
from benchmarks.speed import data
from benchmarks.speed.contenders import OURS
from benchmarks.speed.setup import Setup
from everypair.reproduce import cost
from everypair.reproduce.common import rounded

EPOCHS = 3
FACTORS = 64
PAIRS = "pairs"  # the unit whose pairs grow
ROWS = "rows"  # the unit whose pairs and rows stay, while |C| x |I| grows
COST_FACTORS = 8


class Conventional:
    """The comparison of the paper's experiments, in a process of its own."""

    def compare(self, events: int, catalogue: list[int], alone: int, factors: int, repeats: int) -> dict[str, Any]:
        """See :func:`everypair.reproduce.cost.compare`."""
        costs = cost.compare(events, catalogue, alone, factors, repeats, 0, lambda text: None)
        return {"measured": [c.json for c in costs.measured], "paper": [c.json for c in costs.paper]}


def units(setup: Setup) -> list[Unit]:
    """Two lines, and the comparison."""
    sizes = setup.sizes
    contexts, items, pairs = sizes.growth
    events, catalogue, alone = sizes.cost
    growing = [data.Shape(contexts, items, pairs // by) for by in (8, 4, 2, 1)]
    rows = contexts + items
    turned = [data.Shape(rows - n, n, pairs // 4) for n in (rows // 12, rows // 6, rows // 3, rows // 2)]
    common = {"factors": FACTORS, "threads": setup.threads, "repeats": sizes.repeats}
    return [
        Unit({"what": PAIRS, "shapes": growing, **common}, lambda: measure(setup, growing)),
        Unit({"what": ROWS, "shapes": turned, **common}, lambda: measure(setup, turned)),
        Unit(
            {"what": "conventional", "events": events, "catalogue": catalogue, "alone": alone, "repeats": sizes.repeats},
            lambda: compare(events, list(catalogue), alone, sizes.repeats),
        ),
    ]


def measure(setup: Setup, shapes: list[data.Shape]) -> dict[str, Any]:
    """Seconds of an epoch for each shape, runs in turn."""
    remotes: list[tuple[dict[str, Any], Remote]] = []
    with ExitStack() as stack:
        for j, shape in enumerate(shapes):
            folder = setup.folder / f"growth{j}-{shape.users}-{shape.items}-{shape.pairs}"
            if not folder.exists():
                data.write(data.generate(shape), folder)
            entry = {"contexts": shape.users, "items": shape.items, "pairs": data.count(folder).pairs, "seconds": []}
            arguments = {"name": OURS, "pairs": str(folder), "factors": FACTORS, "threads": setup.threads}
            remotes.append((entry, stack.enter_context(Remote("speed.mf:Contestant", **arguments))))
            remotes[-1][1].call("begin")
        for _ in range(setup.sizes.repeats):
            for entry, remote in remotes:
                entry["seconds"].append(per_epoch(remote.call("run", epochs=EPOCHS)["stamps"]))
    return {"points": [entry for entry, _ in remotes]}


def compare(events: int, catalogue: list[int], alone: int, repeats: int) -> dict[str, Any]:
    """Conventional CD and iCD."""
    with Remote("speed.growth:Conventional") as remote:
        arguments = {"events": events, "catalogue": catalogue, "alone": alone, "factors": COST_FACTORS, "repeats": repeats}
        return remote.call("compare", **arguments)


def part(entries: list[dict[str, Any]]) -> Part:
    """Tables and lines."""
    told = Part("Cost")
    for entry in entries:
        if entry["arguments"]["what"] == "conventional":
            _tell_conventional(told, entry["result"])
        else:
            _tell_growth(told, entry)
    return told


def _tell_growth(told: Part, entry: dict[str, Any]) -> None:
    points, grows, k = entry["result"]["points"], entry["arguments"]["what"] == PAIRS, entry["arguments"]["factors"]
    middle = [statistics.median(point["seconds"]) for point in points]
    first, last = points[0], points[-1]
    if grows:
        told.say(f"An epoch of MF with k = {k} for more and more pairs of the same contexts and items:")
        pairs = np.array([point["pairs"] for point in points], float)
        slope, fixed = np.polyfit(pairs, middle, 1)
        off = float(np.max(np.abs(np.polyval([slope, fixed], pairs) / middle - 1)))
        line = f"{figure(1e3 * fixed)} ms for the rows and {figure(1e9 * slope)} ns per pair"
        told.aim("seconds of an epoch against |S|", "a straight line", f"{line}, off by at most {100 * off:.0f} %", None)
    else:
        told.say("The same number of pairs, of contexts and items together as many, |C| x |I| growing:")
        by = last["contexts"] * last["items"] / (first["contexts"] * first["items"])
        what = f"seconds, largest over smallest, while |C| x |I| grows {by:.1f} times"
        told.aim(what, "independent: near 1", f"{max(middle) / min(middle):.2f}", None)
    rows = [
        [
            f"{point['pairs']:,}",
            f"{point['contexts']:,} x {point['items']:,}",
            f"{point['contexts'] * point['items'] / 1e6:,.0f}",
            spread(point["seconds"]),
            f"{1e9 * seconds / point['pairs']:.0f}",
        ]
        for point, seconds in zip(points, middle, strict=True)
    ]  # fmt: skip
    told.table(["pairs", "contexts x items", "million cells", "seconds per epoch", "nanoseconds per pair"], rows)
    if grows:
        title = f"Seconds of an epoch of MF: {first['contexts']:,} x {first['items']:,}, k = {k}"
        measured = [(point["pairs"] / 1e6, seconds) for point, seconds in zip(points, middle, strict=True)]
        told.picture("cost-pairs", title, lines(title, "observed pairs, millions", "seconds", [Line(OURS, measured, thick=True)]))


def _tell_conventional(told: Part, result: dict[str, Any]) -> None:
    k, items = result["paper"][0]["factors"], result["paper"][0]["items"]
    told.say(
        f"Conventional coordinate descent visits every pair of the same factorization machine (k = {k}, one thread, both",
        f"compiled); the rows with {items:,} items are extrapolated from the cost per operation that was measured (marked *).",
        "P: the item before, A: attributes, U: the user, H: all items so far.",
    )
    rows = []
    for found in (*result["measured"], *result["paper"]):
        star = "*" if found["extrapolated"] else ""
        rows.append([
            found["context"],
            f"{found['contexts']:,}",
            f"{found['items']:,}",
            f"{rounded(found['icd_operations'])} / {rounded(found['cd_operations'])}",
            f"{figure(found['icd_seconds'])}{star} / {rounded(found['cd_seconds'])}{star}",
            f"{rounded(found['ratio_operations'])}",
            f"{rounded(found['ratio_seconds'])}{star}",
        ])  # fmt: skip
    header = ["context", "events", "items", "operations: iCD / CD", "seconds: iCD / CD", "ratio of operations", "ratio of seconds"]
    told.table(header, rows)
    series = []
    for name in dict.fromkeys(found["context"] for found in result["measured"]):
        own = [found for found in result["measured"] if found["context"] == name]
        series.append((name, own))
    title = "Seconds of an epoch: iCD and conventional CD (dashed)"
    drawn = [Line(f"iCD, {name}", [(f["items"], f["icd_seconds"]) for f in own], look=j) for j, (name, own) in enumerate(series)]
    drawn += [Line(f"CD, {name}", [(f["items"], f["cd_seconds"]) for f in own], "6 4", j) for j, (name, own) in enumerate(series)]
    told.picture("cost-conventional", title, lines(title, "items", "seconds", drawn, log=(True, True)))
