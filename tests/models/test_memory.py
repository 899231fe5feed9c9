"""The memory of a fit, where parameters are most of it."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest

import everypair as ep

MOST = 2.5  # times the size of the parameters, at the peak


@pytest.mark.full
@pytest.mark.parametrize("kind", [ep.MF, ep.MFSI])
def test_a_fit_takes_few_times_its_parameters(kind: Any) -> None:
    """Two events for each user: start values, Grams, sweeps and scores hold few dimensions of all users at a time."""
    users, items = 40_000, 4_000
    item = np.random.default_rng(0).integers(0, items, 2 * users)
    feedback = ep.Feedback(np.repeat(np.arange(users), 2), item, shape=(users, items), duplicates="sum")

    def arguments(n: int) -> dict[str, Any]:
        return {"contexts": {"user": ep.Levels(np.arange(n))}} if kind is ep.MFSI else {}

    kind(64, epochs=1, n_threads=1).fit(ep.Feedback([0, 1], [0, 1]), **arguments(2))  # compiles
    model = kind(64, epochs=1, n_threads=1)
    tracemalloc.start()
    try:
        model.fit(feedback, **arguments(users))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < MOST * sum(value.nbytes for value in model.parameters_.values())
