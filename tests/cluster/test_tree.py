"""Sums in a binary tree over shards: complete, and the same bits however the shards are divided among processes."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from everypair.cluster.tree import cover, leaves, ranges_of, reduced

powers = st.integers(0, 5).map(lambda n: 2**n)


@given(st.integers(0, 70), st.integers(0, 70))
def test_a_cover_has_every_shard_once(start: int, length: int) -> None:
    nodes = cover(start, start + length)
    assert [shard for level, j in nodes for shard in range(j << level, (j + 1) << level)] == list(range(start, start + length))


@given(powers, st.data(), st.integers(0, 10**6))
def test_bits_depend_on_the_number_of_shards_alone(shards: int, data: st.DataObject, seed: int) -> None:
    arrays = list(np.random.default_rng(seed).normal(size=(shards, 3)) * 10.0 ** np.arange(3))
    cuts = sorted(data.draw(st.lists(st.integers(0, shards), max_size=5)))
    nodes = {}
    for start, stop in zip([0, *cuts], [*cuts, shards], strict=True):
        sent = reduced(leaves(arrays[start:stop], start))
        assert list(sent) == [] or set(sent) == set(cover(start, stop))
        nodes.update(sent)
    ((node, total),) = reduced(nodes).items()
    assert (1 << node.level, node.number) == (shards, 0)
    ((_, whole),) = reduced(leaves(arrays, 0)).items()
    assert total.tobytes() == whole.tobytes()
    np.testing.assert_allclose(total, np.sum(arrays, axis=0), rtol=1e-9, atol=1e-9)


@given(st.integers(1, 40), st.integers(1, 40))
def test_ranges_are_even(shards: int, processes: int) -> None:
    sizes = [stop - start for start, stop in ranges_of(shards, processes)]
    assert sum(sizes) == shards
    assert max(sizes) - min(sizes) <= 1
