"""What comes before the first result: importing, compiling, the command's help. Each in fresh processes."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
from typing import Any

import numpy as np

from benchmarks.harness.clock import Clock
from benchmarks.harness.part import Part, figure, spread
from benchmarks.harness.process import Remote
from benchmarks.harness.store import Unit
from benchmarks.speed import data
from benchmarks.speed.setup import Setup
from everypair.engine.feedback import Feedback
from everypair.engine.solver import compile_timer
from everypair.models import FM, MF

MODELS = ("MF", "FM")
COLD, WARM, IMPORT, HELP = 10.0, 1.0, 0.1, 0.3  # seconds, at most
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
"""  # the package alone: what it imports of others is there already
WHOLE = "import time; began = time.perf_counter(); from everypair import *; print(time.perf_counter() - began)"
LAZY = "import time; began = time.perf_counter(); import everypair; print(time.perf_counter() - began)"
OTHERS = """
import json, sys
before = set(sys.modules)
from everypair import *
print(json.dumps([name for name in sys.modules if name not in before and name.split(".")[0] != "everypair"]))
"""


class First:
    """The first fit of a process."""

    def fit(self, model: str) -> dict[str, float]:
        """Its seconds, from arrays to a fitted model, imports apart; and how many of them were spent compiling."""
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


def units(setup: Setup) -> list[Unit]:
    """Imports and help, and the first fit of each model."""
    repeats = setup.sizes.repeats
    fits = [Unit({"what": model, "repeats": repeats}, lambda model=model: first_fits(model, repeats)) for model in MODELS]
    return [Unit({"what": "imports", "repeats": repeats}, lambda: imports(repeats)), *fits]


def imports(repeats: int) -> dict[str, Any]:
    """Seconds to import the package: all of it, and what is its own; and of ``everypair --help``."""
    others = _python(OTHERS)
    found: dict[str, list[float]] = {"lazy": [], "whole": [], "own": [], "help": []}
    for _ in range(repeats + 1):  # the first brings files into memory
        found["lazy"].append(float(_python(LAZY)))
        found["whole"].append(float(_python(WHOLE)))
        found["own"].append(float(_python(OWN, others)))
        found["help"].append(_help())
    return {name: seconds[1:] for name, seconds in found.items()}


def _help() -> float:
    clock = Clock()
    subprocess.run([sys.executable, "-m", "everypair.cli", "--help"], check=True, capture_output=True)
    return clock.now()


def _python(code: str, given: str = "") -> str:
    done = subprocess.run([sys.executable, "-c", code], input=given, check=True, capture_output=True, text=True)
    return done.stdout


def first_fits(model: str, repeats: int) -> dict[str, Any]:
    """With an empty cache of compiled kernels, and with that it leaves."""
    found: dict[str, list[dict[str, float]]] = {"cold": [], "warm": []}
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as cache:
            for state in ("cold", "warm"):
                with Remote("speed.startup:First", environment={"NUMBA_CACHE_DIR": cache}) as remote:
                    found[state].append(remote.call("fit", model=model))
    return found


def part(entries: list[dict[str, Any]]) -> Part:
    """Seconds, and what they should be at most."""
    told = Part("Start")
    told.say(
        f"Fresh processes. A first fit is one of two epochs on {data.SMALL.pairs:,} pairs, from arrays to the fitted model: with",
        "an empty cache of compiled kernels, then with the cache that it left.",
    )
    rows = []
    for entry in entries:
        found, what = entry["result"], entry["arguments"]["what"]
        if what == "imports":
            rows.append(["import everypair (its names are imported when they are used)", spread(found["lazy"])])
            rows.append(["import of all its names, with numba, scipy and all other dependencies", spread(found["whole"])])
            rows.append(["the same, dependencies imported before", spread(found["own"])])
            rows.append(["everypair --help", spread(found["help"])])
            lazy, own, shown = (statistics.median(found[name]) for name in ("lazy", "own", "help"))
            told.aim("seconds of import everypair", f"at most {IMPORT}", figure(lazy), lazy <= IMPORT)
            told.aim("seconds to import all of everypair, beyond its dependencies", f"at most {IMPORT}", figure(own), own <= IMPORT)
            told.aim("seconds of everypair --help", f"under {HELP}", figure(shown), shown < HELP)
            continue
        for state, limit in (("cold", COLD), ("warm", WARM)):
            seconds = [run["seconds"] for run in found[state]]
            compiling = statistics.median(run["compilation"] for run in found[state])
            rows.append([f"first fit of {what}, {state} cache ({figure(compiling)} s of it compiling)", spread(seconds)])
            middle = statistics.median(seconds)
            told.aim(f"seconds of a first fit, {what}, {state} cache", f"under {limit:g}", figure(middle), middle < limit)
    told.table(["", "seconds"], rows)
    return told
