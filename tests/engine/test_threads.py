"""The same bits on any number of threads, and on a second run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import model_digests


@pytest.mark.full
def test_same_bits_on_1_2_and_4_threads() -> None:
    environment = {**os.environ, "NUMBA_NUM_THREADS": "4"}
    script = "import model_digests, json; print(json.dumps([model_digests.digests(n) for n in (1, 2, 4)]))"
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=Path(model_digests.__file__).parent,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    one, two, four = json.loads(done.stdout.strip().splitlines()[-1])
    assert one == two == four
    assert one == model_digests.digests(2), "a second run, in another process"
