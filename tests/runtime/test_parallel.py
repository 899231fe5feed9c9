"""Sums over rows are those of the whole group, and rows that all processes hold are summed by each alone."""

from __future__ import annotations

import numpy as np

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
        group: ep.MF(2, random_state=0).build_solver(feedback, None, None, Workers(1, group=group)) for group in (ALONE, Doubled())
    }
    own, doubled = (solver.engine.objective for solver in solvers.values())
    np.testing.assert_array_equal(doubled.grams["context"], 2 * own.grams["context"])
    np.testing.assert_array_equal(doubled.grams["item"], own.grams["item"])
