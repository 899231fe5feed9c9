"""Sums in parts have the bits of sums of whole arrays."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from everypair.engine.parameter import Parameter
from everypair.runtime import numerics


@given(st.integers(1, 3_000), st.integers(1, 40), st.integers(1, 20), st.integers(0, 10**6))
def test_a_sum_in_parts_has_the_bits_of_the_whole(n: int, width: int, blocks: int, seed: int) -> None:
    values = np.random.default_rng(seed).normal(size=(n, width)) ** 2
    flat = values.reshape(-1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(numerics, "SUMMED_AT_ONCE", 128 * blocks)
        assert numerics.pairwise_sum(lambda start, stop: flat[start:stop], flat.size) == np.sum(values)


@given(st.integers(0, 300), st.integers(1, 9), st.booleans(), st.integers(0, 10**6))
def test_l2_has_the_bits_of_the_formula(n: int, width: int, transposed: bool, seed: int) -> None:
    random = np.random.default_rng(seed)
    value = random.normal(size=(width, n) if transposed else (n, width)).astype(np.float32)
    penalty = random.uniform(size=n if transposed else (n, 1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(numerics, "SUMMED_AT_ONCE", 256)
        found = Parameter(value, penalty, transposed=transposed).l2()
    assert found == float(np.sum(penalty * np.square(value, dtype=np.float64)))
