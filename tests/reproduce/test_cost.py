"""Nothing grows with |C| x |I|, nor with the number of combinations of levels."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import everypair as ep

N, PAIRS = 100_000, 1_000


@pytest.mark.full
@pytest.mark.parametrize("name", ["MF", "MFSI", "FM", "PARAFAC", "PARAFAC all", "Tucker", "Tucker all"])
def test_memory_is_that_of_pairs_and_vectors(name: str) -> None:
    """10^10 pairs (and, for tensors with all combinations, 10^10 contexts): a fit needs a few arrays of N x K numbers."""
    random = np.random.default_rng(0)
    feedback = ep.Feedback(random.permutation(N)[:PAIRS], random.integers(0, N, PAIRS), shape=(N, N))
    arguments: dict[str, Any] = {}
    if name in ("MFSI", "FM"):
        arguments["contexts"] = {"kind": sp.csr_array((np.ones(N), (np.arange(N), np.arange(N) % 7)), shape=(N, 7))}
    elif name != "MF":
        feedback = ep.Feedback(np.arange(PAIRS), random.integers(0, N, PAIRS), shape=(PAIRS, N))
        arguments = {"contexts": np.stack([random.permutation(N)[:PAIRS]] * 2, axis=1), "levels": (N, N)}
    model = getattr(ep, name.split()[0])(factors=3, epochs=1)
    if name.endswith("all"):
        model.set_params(combinations="all")
    model.fit(feedback, **arguments)  # compiles
    tracemalloc.start()
    model.fit(feedback, **arguments)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert np.isfinite(model.history_[-1].objective)
    assert peak < 100 * 8 * N
