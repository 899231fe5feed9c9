"""How this run is done: with compiled kernels or not, and with how many examples."""

from __future__ import annotations

import os

import numba

COMPILED = not numba.config.DISABLE_JIT  # type: ignore[attr-defined]
SMALL = not COMPILED or os.environ.get("NUMBA_BOUNDSCHECK") == "1"
PROFILE = os.environ.get("HYPOTHESIS_PROFILE") or ("small" if SMALL else "fixed")
EXAMPLES = {"small": 4, "fixed": 25, "many": 100, "search": 1000}[PROFILE]  # of a Hypothesis test
