"""Threads that share the ranges of a loop: every range once, the same bits on any number of threads, errors reach the caller."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from threadpoolctl import threadpool_info

from everypair.runtime.parallel import CHUNK, Workers, one_blas_thread

THREADS = [1, 2, 4]


@pytest.mark.parametrize("n_threads", THREADS)
@pytest.mark.parametrize("n", [1, 7, 1000])
def test_every_row_is_in_one_range(n: int, n_threads: int) -> None:
    def count(start: int, stop: int, visits: np.ndarray) -> None:
        visits[start:stop] += 1

    with Workers(n_threads, small=0) as workers:
        for bounds in (workers.even(n), workers.singly(n, n), workers.split(np.arange(n + 1) ** 2)):
            visits = np.zeros(n)
            workers.run(count, bounds, visits)
            np.testing.assert_array_equal(visits, 1)


def test_sums_do_not_depend_on_the_number_of_threads() -> None:
    values = np.random.default_rng(0).normal(size=5 * CHUNK + 3)
    found = []
    for n_threads in THREADS:
        with Workers(n_threads) as workers:
            found.append(workers.sum(len(values), lambda start, stop: values[start:stop].sum()).tobytes())
            assert workers.chunks(len(values), lambda start, stop: start) == list(range(0, len(values), CHUNK))
    assert len(set(found)) == 1


@pytest.mark.parametrize("n_threads", THREADS)
def test_an_error_in_any_range_reaches_the_caller(n_threads: int) -> None:
    def fail(start: int, stop: int) -> None:
        if start <= 50 < stop:
            raise ArithmeticError("row 50")

    with Workers(n_threads) as workers:
        for _ in range(20):  # on any of the threads
            with pytest.raises(ArithmeticError, match="row 50"):
                workers.run(fail, range(101))


def test_matrix_products_run_on_one_thread_until_the_last_fit_is_done() -> None:
    def threads() -> set[int]:
        return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}

    before = threads()
    first, second = one_blas_thread(), one_blas_thread()
    first.__enter__()
    inside = threading.Thread(target=second.__enter__)
    inside.start()
    inside.join()
    first.__exit__(None, None, None)
    assert threads() == {1}
    second.__exit__(None, None, None)
    assert threads() == before
