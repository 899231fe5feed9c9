"""How this run is done: with compiled kernels or not, with how many examples, and where compiled kernels are kept."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

WORKER = os.environ.get("PYTEST_XDIST_WORKER")
if WORKER:  # a cache of its own, before Numba is imported: two processes that write to one may take each other's code
    _caches = Path(os.environ.get("NUMBA_CACHE_DIR", Path(__file__).parents[2] / ".numba"))
    _warm, _own = _caches / "warm", _caches / WORKER
    if _warm.exists() and not _own.exists():
        shutil.copytree(_warm, _own)
    os.environ["NUMBA_CACHE_DIR"] = str(_own)

import numba  # noqa: E402

COMPILED = not numba.config.DISABLE_JIT  # type: ignore[attr-defined]
SMALL = not COMPILED or os.environ.get("NUMBA_BOUNDSCHECK") == "1"
PROFILE = os.environ.get("HYPOTHESIS_PROFILE") or ("small" if SMALL else "fixed")
EXAMPLES = {"small": 4, "fixed": 25, "many": 100, "search": 1000}[PROFILE]  # of a Hypothesis test
