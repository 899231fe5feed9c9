"""Sweeps level by level: however many matrices of a tensor are held at a time, the same steps."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from everypair.engine import level_sweep

from problems import problems, shown

MATRIX = 16 * 16 * 8  # bytes, in float64, with up to 16 dimensions


@pytest.mark.parametrize("name", ["Tucker", "Tucker all"])
@given(data=st.data(), held=st.integers(0, 4))
def test_parts_of_the_levels(name: str, data: st.DataObject, held: int) -> None:
    """All at once, some at a time, or, where one level has too many contexts, dimension by dimension."""
    problem = data.draw(problems(name, positive=True, max_size=5, max_k=3))
    at_once = problem.solver(rotate=False)
    list(at_once.sweeps())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(level_sweep, "LARGEST", held * MATRIX)
        in_parts = problem.solver(rotate=False)
        list(in_parts.sweeps())
    for letter, value in shown(at_once).items():
        np.testing.assert_allclose(shown(in_parts)[letter], value, rtol=1e-7, atol=1e-8 * max(1.0, np.abs(value).max()))
