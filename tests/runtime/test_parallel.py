"""Sums over rows are those of the whole group, and rows that all processes hold are summed by each alone."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import everypair as ep
from everypair.runtime.group import ALONE, Group
from everypair.runtime.parallel import Workers


class Doubled(Group):
    """Stands for two processes with the same rows, and remembers what it was asked to add."""

    size = 2

    def __init__(self) -> None:
        self.shapes: list[tuple[int, ...]] = []

    def total(self, own: np.ndarray) -> np.ndarray:
        self.shapes.append(np.shape(own))
        return 2 * own


def test_sums_end_in_the_group() -> None:
    x, group = np.arange(10_000.0), Doubled()
    with Workers(2, small=1, group=group) as workers:
        assert workers.sum(len(x), lambda start, stop: x[start:stop].sum(keepdims=True)) == 2 * x.sum()
        assert workers.total(np.ones((3, 4))).tolist() == [6.0] * 4
        assert workers.partial_totals(np.ones((3, 4))).tolist() == [[6.0] * 4]
        assert workers.alone().total(np.ones((3, 4))).tolist() == [3.0] * 4
    assert group.shapes == [(1,), (4,), (4,)]


def test_alone_nothing_is_added() -> None:
    sums = np.ones((3, 4))
    assert Workers().group is ALONE
    assert Workers().partial_totals(sums) is sums
    assert ALONE.agreed(True)
    assert not ALONE.agreed(False)


def test_the_gram_of_contexts_is_that_of_the_group_and_the_gram_of_items_is_not() -> None:
    feedback = ep.Feedback([0, 0, 1, 2], [0, 1, 1, 2])
    solvers = {
        group: ep.MF(2, random_state=0, init_std=0.1).build_solver(feedback, None, None, Workers(1, group=group))
        for group in (ALONE, Doubled())
    }
    own, doubled = (solver.engine.objective for solver in solvers.values())
    np.testing.assert_array_equal(doubled.grams["context"], 2 * own.grams["context"])
    np.testing.assert_array_equal(doubled.grams["item"], own.grams["item"])


@given(n_threads=st.integers(1, 40), small=st.sampled_from([0, 100, 20_000]), data=st.data())
def test_ranges_divide_the_work(n_threads: int, small: int, data: st.DataObject) -> None:
    """Every row is in one range; there are few ranges, none of them tiny but the last, and none too large for threads to share."""
    n = data.draw(st.sampled_from([0, 1, 99, 30_000, 1_000_000]))
    bounds = Workers(n_threads, small=small).even(n)
    assert bounds[0] == 0
    assert bounds[-1] == n
    sizes = np.diff(bounds)
    assert np.all(sizes > 0) or n == 0
    assert len(sizes) <= 1 + 4 * n_threads
    if n >= max(small, 1):
        assert np.all(sizes[:-1] >= min(4_096, small) - 1)
        assert sizes.max() <= max(n / n_threads / 2, min(4_096, small)) + 1 or n_threads == 1
    lengths = np.random.default_rng(n_threads).integers(0, 9, 500)
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    bounds = Workers(n_threads, small=small).split(indptr)
    assert bounds[0] == 0
    assert bounds[-1] == 500
    assert np.all(np.diff(bounds) > 0)
