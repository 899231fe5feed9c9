"""BLAS runs on one thread within the context, in whichever threads enter it, and as before once they have left."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest
from forks import ended_well, fork, forks_beside_threads
from threadpoolctl import ThreadpoolController

import everypair as ep
from everypair.runtime import blas
from everypair.runtime.blas import limit_own_thread, one_blas_thread
from everypair.runtime.parallel import Workers

FEW, MANY = 2, 3  # threads: whatever this machine has


def in_thread(function: Callable[[], Any]) -> Any:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result()


class OfProcess:
    """A library with one limit for the process."""

    filepath = "libprocess.so"

    def __init__(self) -> None:
        self.num_threads: int = MANY

    def set_num_threads(self, n: int) -> None:
        self.num_threads = n


class Controlled(OfProcess):
    """The same as threadpoolctl 3.8 has it: the first thread to set the limit controls it until it is done or ends."""

    filepath = "libcontrolled.so"
    controlling: threading.Thread | None = None

    def set_num_threads(self, n: int) -> None:
        if self.controlling is None or not self.controlling.is_alive():
            self.controlling = threading.current_thread()
        if self.controlling is threading.current_thread():
            self.num_threads = n

    def clear_controlling_thread(self, force: bool = False) -> None:
        if force or self.controlling is threading.current_thread():
            self.controlling = None


class OfThread(threading.local):
    """A library with a limit for each thread."""

    filepath = "libthread.so"

    def __init__(self) -> None:
        self.num_threads: int = MANY

    def set_num_threads(self, n: int) -> None:
        self.num_threads = n


class Loaded:
    """What threadpoolctl finds of the libraries that are loaded."""

    def __init__(self) -> None:
        self.lib_controllers = ThreadpoolController().select(user_api="blas").lib_controllers


@pytest.fixture(params=[OfProcess, Controlled, OfThread, Loaded])
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A library that would use several threads."""
    if request.param is not Loaded:
        made = request.param()
        monkeypatch.setattr(blas, "libraries", blas.Libraries())
        monkeypatch.setattr(blas, "ThreadpoolController", lambda: type("Found", (), {"lib_controllers": [made]}))
        yield made
        return
    found, *_ = ThreadpoolController().select(user_api="blas").lib_controllers
    before = found.num_threads
    in_thread(lambda: found.set_num_threads(MANY))
    if found.num_threads != MANY:
        pytest.skip("this BLAS has a limit for each thread, or no more than a few")
    yield found
    in_thread(lambda: found.set_num_threads(before))


def test_in_every_thread(library: Any) -> None:
    def used() -> tuple[int, int]:
        with one_blas_thread():
            within = library.num_threads
        return within, library.num_threads

    assert used() == (1, MANY)
    assert in_thread(used) == (1, MANY)
    assert used() == (1, MANY)


def test_nested(library: Any) -> None:
    with one_blas_thread():
        with one_blas_thread():
            assert library.num_threads == 1
        assert library.num_threads == 1
    assert library.num_threads == MANY


def test_after_an_exception(library: Any) -> None:
    with pytest.raises(ZeroDivisionError), one_blas_thread():
        raise ZeroDivisionError
    assert library.num_threads == MANY


@pytest.mark.parametrize("order", ["enters last leaves first", "enters first leaves first"])
def test_threads_that_overlap(library: Any, order: str) -> None:
    """Each has one thread for as long as it is in the context, whoever enters and leaves meanwhile."""
    with ThreadPoolExecutor(1) as one, ThreadPoolExecutor(1) as two, ExitStack() as first, ExitStack() as second:
        one.submit(first.enter_context, one_blas_thread()).result()
        two.submit(second.enter_context, one_blas_thread()).result()
        assert one.submit(lambda: library.num_threads).result() == two.submit(lambda: library.num_threads).result() == 1
        last_pool, last = (one, first) if order == "enters last leaves first" else (two, second)
        if last is first:
            two.submit(second.close).result()
        else:
            one.submit(first.close).result()
        assert last_pool.submit(lambda: library.num_threads).result() == 1
        last_pool.submit(last.close).result()
        assert one.submit(lambda: library.num_threads).result() == two.submit(lambda: library.num_threads).result() == MANY
    assert library.num_threads == MANY


def test_many_threads_at_once(library: Any) -> None:
    def used(_: int) -> int:
        with one_blas_thread():
            return library.num_threads

    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(used, range(200))) == {1}
        assert set(pool.map(lambda _: library.num_threads, range(20))) == {MANY}
    assert library.num_threads == MANY


def test_where_another_thread_has_set_a_limit_and_holds_it(library: Any) -> None:
    """``threadpool_limits(2)`` in the main thread, say, and fits in others."""
    library.set_num_threads(FEW)

    def used() -> tuple[int, int, int]:
        before = library.num_threads
        with one_blas_thread():
            within = library.num_threads
        return before, within, library.num_threads

    before, within, after = in_thread(used)
    assert within == 1
    assert before == after
    assert library.num_threads == FEW
    library.set_num_threads(MANY)


def test_the_threads_of_workers_too(library: Any) -> None:
    """They are limited for good, as they are never used for anything else; a limit of the process is not theirs to set."""
    in_thread(limit_own_thread)
    assert library.num_threads == MANY
    used, both = [], threading.Barrier(2)

    def use(start: int, stop: int) -> None:
        both.wait()
        used.append(library.num_threads)

    with one_blas_thread(), Workers(2) as workers:
        workers.run(use, range(3))
    assert used == [1, 1]


def test_during_fits_and_answers_in_any_thread(library: Any) -> None:
    used = []
    feedback = ep.Feedback([0, 0, 1, 2], [0, 1, 1, 2])

    def fit() -> None:
        ep.MF(2, epochs=1, n_threads=1).fit(feedback, callback=lambda *_: used.append(library.num_threads))

    fit()
    in_thread(fit)
    assert used == [1, 1]
    assert library.num_threads == MANY


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@forks_beside_threads
def test_a_child_that_is_forked_meanwhile(library: Any) -> None:
    """The thread that was in the context does not exist in the child: the next to leave lifts the limit there."""
    entered, leave = threading.Event(), threading.Event()

    def stay() -> None:
        with one_blas_thread():
            entered.set()
            leave.wait()

    def work() -> None:
        with one_blas_thread():
            assert library.num_threads == 1
        assert library.num_threads == MANY

    with ThreadPoolExecutor(1) as pool:
        staying = pool.submit(stay)
        entered.wait()
        try:
            assert ended_well(fork(work))
        finally:
            leave.set()
        staying.result()
    assert library.num_threads == MANY
