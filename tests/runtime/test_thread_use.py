"""Seconds by the number of busy threads, on a clock that only the tests move."""

from __future__ import annotations

import itertools
import threading
from typing import Any

import numpy as np
import pytest

import everypair as ep
from everypair.runtime.parallel import Workers
from everypair.runtime.thread_use import ThreadUse, partly_idle


class Clock:
    """Stands still until it is told otherwise."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds

    def wait(self, seconds: float) -> None:
        self.seconds += seconds


def test_seconds_by_the_number_of_busy_threads() -> None:
    clock, both = Clock(), threading.Barrier(2)
    use = ThreadUse(clock)

    def together(start: int, stop: int) -> None:
        both.wait()
        if start == 0:
            clock.wait(3.0)
        both.wait()

    with use.observe(), Workers(2) as workers:
        clock.wait(5.0)
        workers.run(together, [0, 1, 2])
        workers.run(lambda start, stop: clock.wait(2.0), [0, 2])
        workers.alone().run(lambda start, stop: clock.wait(0.5), [0, 2])
        clock.wait(1.0)
        lap = use.lap()
        assert lap == [6.0, 2.5, 3.0]
        assert partly_idle(lap, 2) == 8.5
        assert use.lap() == [0.0] * 3
        clock.wait(1.0)
        assert use.lap() == [1.0, 0.0, 0.0]


def test_a_loop_within_a_loop_is_one_busy_thread() -> None:
    clock = Clock()
    use = ThreadUse(clock)
    with use.observe(), Workers(1) as workers:
        workers.run(lambda *outer: workers.run(lambda *inner: clock.wait(2.0), [0, 1]), [0, 1])
        clock.wait(1.0)
    assert use.lap() == [1.0, 2.0]


def test_a_failed_loop_leaves_no_busy_thread() -> None:
    clock = Clock()
    use = ThreadUse(clock)

    def fail(start: int, stop: int) -> None:
        clock.wait(1.0)
        raise ArithmeticError

    with use.observe(), Workers(2) as workers:
        for bounds in ([0, 1], [0, 1, 2]):
            with pytest.raises(ArithmeticError):
                workers.run(fail, bounds)
    use.lap()
    clock.wait(4.0)
    assert use.lap()[0] == 4.0


def test_workers_made_elsewhere_are_not_observed() -> None:
    clock = Clock()
    use = ThreadUse(clock)
    before = Workers(1)
    with use.observe():
        pass
    for workers in (before, Workers(1)):
        workers.run(lambda start, stop: clock.wait(2.0), [0, 1])
    assert use.lap() == [2.0 * 2]


def test_a_fit_has_the_same_bits_if_it_is_observed() -> None:
    random = np.random.default_rng(0)
    feedback = ep.Feedback(*np.unique(random.integers(0, 30, (200, 2)), axis=0).T)
    ticks = itertools.count()
    plain: Any = ep.MF(3, epochs=2, n_threads=2).fit(feedback)
    use = ThreadUse(lambda: float(next(ticks)))
    with use.observe():
        observed: Any = ep.MF(3, epochs=2, n_threads=2).fit(feedback)
    assert observed.phi_.tobytes() == plain.phi_.tobytes()
    assert min(use.lap()[:2]) > 0.0
