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


@given(st.integers(0, 50), st.sampled_from([np.float32, np.float64]))
def test_aligned_arrays_begin_with_a_line_of_the_cache(n: int, dtype: type) -> None:
    found = numerics.aligned((n, 16), dtype)
    assert (found.shape, found.dtype, found.flags.c_contiguous) == ((n, 16), dtype, True)
    assert found.ctypes.data % 64 == 0 or n == 0
    found[...] = 1.0
    assert found.sum() == 16 * n
