"""Start-up: imports, ``everypair --help``, and the first fit with compilation. Each in a new process."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
from typing import Any

import numpy as np

from benchmarks.harness.clock import Clock
from benchmarks.harness.process import MeasuredProcess
from benchmarks.harness.section import ReportSection, median_and_range, three_digits
from benchmarks.harness.store import Measurement
from benchmarks.speed import data
from benchmarks.speed.setup import SpeedSetup
from everypair.engine.feedback import Feedback
from everypair.engine.solver import compile_timer
from everypair.models import FM, MF

MODELS = ("MF", "FM")
COLD = {"MF": 10.0, "FM": 8.5}  # targets in seconds
WARM, IMPORT, HELP = 1.0, 0.1, 0.3
# The import of the package alone, after its dependencies.
OWN = """
import importlib, json, sys, time
for name in json.load(sys.stdin):
    try:
        importlib.import_module(name)
    except Exception:
        pass
began = time.perf_counter()
from everypair import *
print(time.perf_counter() - began)
"""
WHOLE = "import time; began = time.perf_counter(); from everypair import *; print(time.perf_counter() - began)"
LAZY = "import time; began = time.perf_counter(); import everypair; print(time.perf_counter() - began)"
# The modules of other packages that the package imports.
DEPENDENCIES = """
import json, sys
before = set(sys.modules)
from everypair import *
print(json.dumps([name for name in sys.modules if name not in before and name.split(".")[0] != "everypair"]))
"""


class FirstFitWorker:
    """The first fit of a process."""

    def fit(self, model: str) -> dict[str, float]:
        """Seconds from arrays to a fitted model, without imports; and those of compilation."""
        random = np.random.default_rng(0)
        user, item = np.unique(random.integers(0, data.SMALL[:2], (data.SMALL.pairs, 2)), axis=0).T
        with compile_timer() as compiled:
            clock = Clock()
            if model == "MF":
                MF(factors=16, epochs=2, popularity_exponent=0.0).fit(Feedback(user, item))
            else:
                feedback = Feedback(np.arange(len(user)), item)
                FM(factors=16, epochs=2, popularity_exponent=0.0).fit(
                    feedback, contexts={"user": user, "previous": np.roll(item, 1)}
                )
            return {"seconds": clock.now(), "compilation": compiled()}


def plan(setup: SpeedSetup) -> list[Measurement]:
    """Imports and help, and the first fit of each model."""
    repeats = setup.sizes.repeats
    fits = [Measurement({"what": model, "repeats": repeats}, lambda model=model: first_fits(model, repeats)) for model in MODELS]
    return [Measurement({"what": "imports", "repeats": repeats}, lambda: imports(repeats)), *fits]


def imports(repeats: int) -> dict[str, Any]:
    """Seconds to import the package: lazily, completely, and without dependencies; and of ``everypair --help``."""
    dependencies = _python(DEPENDENCIES)
    found: dict[str, list[float]] = {"lazy": [], "whole": [], "own": [], "help": []}
    for _ in range(repeats + 1):  # the first run fills the file cache
        found["lazy"].append(float(_python(LAZY)))
        found["whole"].append(float(_python(WHOLE)))
        found["own"].append(float(_python(OWN, dependencies)))
        found["help"].append(_help())
    return {name: seconds[1:] for name, seconds in found.items()}


def _help() -> float:
    clock = Clock()
    subprocess.run([sys.executable, "-m", "everypair.cli", "--help"], check=True, capture_output=True)
    return clock.now()


def _python(code: str, stdin: str = "") -> str:
    done = subprocess.run([sys.executable, "-c", code], input=stdin, check=True, capture_output=True, text=True)
    return done.stdout


def first_fits(model: str, repeats: int) -> dict[str, Any]:
    """With an empty cache of compiled kernels, then with the cache of the first fit."""
    found: dict[str, list[dict[str, float]]] = {"cold": [], "warm": []}
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as cache:
            for state in ("cold", "warm"):
                with MeasuredProcess("speed.startup:FirstFitWorker", environment={"NUMBA_CACHE_DIR": cache}) as worker:
                    found[state].append(worker.call("fit", model=model))
    return found


def summarize(entries: list[dict[str, Any]]) -> ReportSection:
    """Seconds of imports, help and first fits."""
    section = ReportSection("Start")
    section.add_paragraph(
        f"New processes. A first fit has two epochs on {data.SMALL.pairs:,} pairs, from arrays to the fitted model: with an empty",
        "cache of compiled kernels, then with the cache that it left.",
    )
    rows = []
    for entry in entries:
        found, what = entry["result"], entry["arguments"]["what"]
        if what == "imports":
            rows.append(["import everypair (lazy: names are imported when used)", median_and_range(found["lazy"])])
            rows.append(
                ["import of all its names, including numba, scipy and other dependencies", median_and_range(found["whole"])]
            )
            rows.append(["the same, after its dependencies", median_and_range(found["own"])])
            rows.append(["everypair --help", median_and_range(found["help"])])
            lazy, own, shown = (statistics.median(found[name]) for name in ("lazy", "own", "help"))
            section.add_target("seconds of import everypair", f"at most {IMPORT}", three_digits(lazy), lazy <= IMPORT)
            section.add_target(
                "seconds to import all of everypair, beyond its dependencies", f"at most {IMPORT}", three_digits(own), own <= IMPORT
            )
            section.add_target("seconds of everypair --help", f"under {HELP}", three_digits(shown), shown < HELP)
            continue
        for state, limit in (("cold", COLD[what]), ("warm", WARM)):
            seconds = [run["seconds"] for run in found[state]]
            compiling = statistics.median(run["compilation"] for run in found[state])
            rows.append(
                [f"first fit of {what}, {state} cache ({three_digits(compiling)} s of it compiling)", median_and_range(seconds)]
            )
            median = statistics.median(seconds)
            section.add_target(
                f"seconds of a first fit, {what}, {state} cache", f"at most {limit:g}", three_digits(median), median <= limit
            )
    section.add_table(["", "seconds"], rows)
    return section
