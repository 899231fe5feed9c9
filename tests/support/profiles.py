"""Whether kernels are compiled in this run, and whether tests are to be small because they are not."""

from __future__ import annotations

import os

import numba

COMPILED = not numba.config.DISABLE_JIT  # type: ignore[attr-defined]
SMALL = not COMPILED or os.environ.get("NUMBA_BOUNDSCHECK") == "1"
