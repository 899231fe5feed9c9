"""Cost of an epoch: linear in |S|, independent of |C| x |I|; and compared with coordinate descent that visits every pair."""

from __future__ import annotations

import statistics
from contextlib import ExitStack
from typing import Any

import numpy as np

from benchmarks.harness.charts import Curve, curve_chart
from benchmarks.harness.clock import per_epoch
from benchmarks.harness.process import MeasuredProcess
from benchmarks.harness.section import ReportSection, median_and_range, three_digits
from benchmarks.harness.store import Measurement
from benchmarks.speed import data
from benchmarks.speed.contenders import OURS
from benchmarks.speed.setup import SpeedSetup
from everypair.reproduce import cost as reproduced_cost
from everypair.reproduce.common import rounded

EPOCHS = 3
FACTORS = 64
CONVENTIONAL_FACTORS = 8
# Kinds of measurement: |S| grows; |C| x |I| grows with |S| and |C| + |I| fixed; conventional coordinate descent.
PAIRS, CELLS, CONVENTIONAL = "pairs", "rows", "conventional"


class ConventionalWorker:
    """The comparison with conventional coordinate descent of ``everypair reproduce``."""

    def compare(self, events: int, catalogue: list[int], alone: int, factors: int, repeats: int) -> dict[str, Any]:
        """See :func:`everypair.reproduce.cost.compare`."""
        costs = reproduced_cost.compare(events, catalogue, alone, factors, repeats, 0, lambda text: None)
        return {"measured": [c.json for c in costs.measured], "paper": [c.json for c in costs.paper]}


def plan(setup: SpeedSetup) -> list[Measurement]:
    """Growing |S|, growing |C| x |I|, and conventional coordinate descent."""
    sizes = setup.sizes
    contexts, items, pairs = sizes.growth
    events, catalogue, alone = sizes.cost
    more_pairs = [data.PairCounts(contexts, items, pairs // by) for by in (8, 4, 2, 1)]
    rows = contexts + items
    more_cells = [data.PairCounts(rows - n, n, pairs // 4) for n in (rows // 12, rows // 6, rows // 3, rows // 2)]
    common = {"factors": FACTORS, "threads": setup.threads, "repeats": sizes.repeats}
    return [
        Measurement({"what": PAIRS, "shapes": more_pairs, **common}, lambda: measure(setup, more_pairs)),
        Measurement({"what": CELLS, "shapes": more_cells, **common}, lambda: measure(setup, more_cells)),
        Measurement(
            {"what": CONVENTIONAL, "events": events, "catalogue": catalogue, "alone": alone, "repeats": sizes.repeats},
            lambda: compare(events, list(catalogue), alone, sizes.repeats),
        ),
    ]


def measure(setup: SpeedSetup, shapes: list[data.PairCounts]) -> dict[str, Any]:
    """Seconds of an epoch for each shape, in alternating runs."""
    workers: list[tuple[dict[str, Any], MeasuredProcess]] = []
    with ExitStack() as stack:
        for j, shape in enumerate(shapes):
            folder = setup.folder / f"growth{j}-{shape.users}-{shape.items}-{shape.pairs}"
            if not folder.exists():
                data.write(data.generate(shape), folder)
            point = {"contexts": shape.users, "items": shape.items, "pairs": data.count(folder).pairs, "seconds": []}
            arguments = {"name": OURS, "pairs": str(folder), "factors": FACTORS, "threads": setup.threads}
            workers.append((point, stack.enter_context(MeasuredProcess("speed.mf:MFWorker", **arguments))))
            workers[-1][1].call("begin")
        for _ in range(setup.sizes.repeats):
            for point, worker in workers:
                point["seconds"].append(per_epoch(worker.call("run", epochs=EPOCHS)["stamps"]))
    return {"points": [point for point, _ in workers]}


def compare(events: int, catalogue: list[int], alone: int, repeats: int) -> dict[str, Any]:
    """Epochs of iCD and of conventional coordinate descent."""
    with MeasuredProcess("speed.cost:ConventionalWorker") as worker:
        arguments = {"events": events, "catalogue": catalogue, "alone": alone, "factors": CONVENTIONAL_FACTORS, "repeats": repeats}
        return worker.call("compare", **arguments)


def summarize(entries: list[dict[str, Any]]) -> ReportSection:
    """Tables and charts of the three measurements."""
    section = ReportSection("Cost")
    for entry in entries:
        if entry["arguments"]["what"] == CONVENTIONAL:
            _add_conventional(section, entry["result"])
        else:
            _add_growth(section, entry)
    return section


def _add_growth(section: ReportSection, entry: dict[str, Any]) -> None:
    points, growing, k = entry["result"]["points"], entry["arguments"]["what"] == PAIRS, entry["arguments"]["factors"]
    medians = [statistics.median(point["seconds"]) for point in points]
    first, last = points[0], points[-1]
    if growing:
        section.add_paragraph(f"An epoch of MF with k = {k} for a growing number of pairs of the same contexts and items:")
        pairs = np.array([point["pairs"] for point in points], float)
        slope, fixed = np.polyfit(pairs, medians, 1)
        error = float(np.max(np.abs(np.polyval([slope, fixed], pairs) / medians - 1)))
        line = f"{three_digits(1e3 * fixed)} ms for the rows and {three_digits(1e9 * slope)} ns per pair"
        measured = f"{line}, off by at most {100 * error:.0f} %"
        section.add_target("seconds of an epoch against |S|", "a straight line", measured, None)
    else:
        section.add_paragraph("The same number of pairs and the same |C| + |I|, with growing |C| x |I|:")
        by = last["contexts"] * last["items"] / (first["contexts"] * first["items"])
        quantity = f"seconds, largest over smallest, while |C| x |I| grows {by:.1f} times"
        section.add_target(quantity, "independent: near 1", f"{max(medians) / min(medians):.2f}", None)
    rows = [
        [
            f"{point['pairs']:,}",
            f"{point['contexts']:,} x {point['items']:,}",
            f"{point['contexts'] * point['items'] / 1e6:,.0f}",
            median_and_range(point["seconds"]),
            f"{1e9 * seconds / point['pairs']:.0f}",
        ]
        for point, seconds in zip(points, medians, strict=True)
    ]
    section.add_table(["pairs", "contexts x items", "million cells", "seconds per epoch", "nanoseconds per pair"], rows)
    if growing:
        title = f"Seconds of an epoch of MF: {first['contexts']:,} x {first['items']:,}, k = {k}"
        curve = Curve(OURS, [(point["pairs"] / 1e6, seconds) for point, seconds in zip(points, medians, strict=True)], thick=True)
        section.add_chart("cost-pairs", title, curve_chart(title, "observed pairs, millions", "seconds", [curve]))


def _add_conventional(section: ReportSection, result: dict[str, Any]) -> None:
    k, items = result["paper"][0]["factors"], result["paper"][0]["items"]
    section.add_paragraph(
        f"Conventional coordinate descent visits every pair of the same factorization machine (k = {k}, one thread, both",
        f"compiled); rows with {items:,} items are extrapolated from the measured cost per operation (marked *). P: previous",
        "item, A: attributes, U: user, H: history.",
    )
    rows = []
    for cost in (*result["measured"], *result["paper"]):
        star = "*" if cost["extrapolated"] else ""
        rows.append([
            cost["context"],
            f"{cost['contexts']:,}",
            f"{cost['items']:,}",
            f"{rounded(cost['icd_operations'])} / {rounded(cost['cd_operations'])}",
            f"{three_digits(cost['icd_seconds'])}{star} / {rounded(cost['cd_seconds'])}{star}",
            f"{rounded(cost['ratio_operations'])}",
            f"{rounded(cost['ratio_seconds'])}{star}",
        ])  # fmt: skip
    header = ["context", "events", "items", "operations: iCD / CD", "seconds: iCD / CD", "ratio of operations", "ratio of seconds"]
    section.add_table(header, rows)
    contexts = dict.fromkeys(cost["context"] for cost in result["measured"])
    curves = []
    for solver, key, dash in (("iCD", "icd_seconds", ""), ("CD", "cd_seconds", "6 4")):
        for j, name in enumerate(contexts):
            points = [(cost["items"], cost[key]) for cost in result["measured"] if cost["context"] == name]
            curves.append(Curve(f"{solver}, {name}", points, dash, j))
    title = "Seconds of an epoch: iCD and conventional CD (dashed)"
    section.add_chart("cost-conventional", title, curve_chart(title, "items", "seconds", curves, log=(True, True)))
