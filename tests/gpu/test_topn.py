"""The best items on a GPU: the lists of the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everypair.gpu import topn
from everypair.gpu.backend import Backend
from everypair.gpu.topn import ExcludedItems, GpuTopN, ItemTable
from everypair.ranking import rank as ranking
from everypair.ranking.rank import InnerProducts, ItemVectors, Lists, rank
from everypair.runtime.parallel import SERIAL

from profiles import EXAMPLES


@pytest.fixture(autouse=True)
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even the smallest lists come from the GPU."""
    monkeypatch.setattr(ranking, "pays", lambda n_rows, n_items, n: n <= topn.MOST)


def some_lists(random: np.random.Generator, n_rows: int, n_items: int) -> Lists:
    lengths = random.integers(0, n_items, n_rows)
    end = np.cumsum(lengths)
    items = np.concatenate([[0], *[random.choice(n_items, length, replace=False) for length in lengths]]).astype(np.int64)
    items[random.random(len(items)) < 0.1] = -1
    return Lists(end - lengths + 1, end + 1, items)


@given(
    seed=st.integers(0, 10**6),
    n_rows=st.integers(1, 4),
    n_items=st.integers(1, 700),
    n=st.integers(1, 12),
    k=st.integers(1, 9),
    equal=st.booleans(),
    excluding=st.booleans(),
    allowing=st.booleans(),
)
@settings(max_examples=max(EXAMPLES // 2, 4))
def test_lists_are_those_of_the_cpu(
    seed: int, n_rows: int, n_items: int, n: int, k: int, equal: bool, excluding: bool, allowing: bool
) -> None:
    """With many equal scores, too, which the GPU leaves to the CPU if they are more than it takes."""
    random = np.random.default_rng(seed)
    draw: Any = (
        (lambda *size: random.integers(-1, 2, size).astype(np.float32))
        if equal
        else (lambda *size: random.normal(size=size).astype(np.float32))
    )
    phi, psi, n = draw(n_rows, k), draw(n_items, k), min(n, n_items)
    exclude = some_lists(random, n_rows, n_items) if excluding else None
    allowed = random.random(n_items) < 0.7 if allowing else None
    on_gpu, on_cpu = (
        rank(InnerProducts(phi, ItemVectors(psi, device=device)), n, SERIAL, exclude, allowed=allowed) for device in ("cuda", "cpu")
    )
    np.testing.assert_array_equal(on_gpu[0], on_cpu[0])
    np.testing.assert_array_equal(on_gpu[1], on_cpu[1])


def test_rows_with_too_many_equal_scores_are_left_to_the_caller(backend: Backend) -> None:
    psi = np.zeros((2_000, 3), np.float32)
    psi[:5, 0] = np.arange(5)
    phi = np.array([[1, 0, 0], [0, 1, 0]], np.float32)
    ids, scores, left = GpuTopN(ItemTable.of(backend, psi), 4).lists(phi)
    assert left.tolist() == [1]
    assert ids[0].tolist() == [4, 3, 2, 1]
    assert scores[0].tolist() == [4.0, 3.0, 2.0, 1.0]


def test_any_number_of_rows_may_be_left_to_the_cpu() -> None:
    phi, psi = np.zeros((20, 4), np.float32), np.ones((600, 4), np.float32)
    on_gpu = rank(InnerProducts(phi, ItemVectors(psi, device="cuda")), 3, SERIAL)
    np.testing.assert_array_equal(on_gpu[0], np.tile([0, 1, 2], (20, 1)))


@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning", "ignore:invalid value:RuntimeWarning")
def test_scores_that_overflow_are_left_to_the_cpu() -> None:
    random = np.random.default_rng(0)
    phi, psi = random.normal(size=(3, 4)).astype(np.float32), (3e19 * random.normal(size=(60, 4))).astype(np.float32)
    phi[1:] *= 3e19
    on_gpu, on_cpu = (rank(InnerProducts(phi, ItemVectors(psi, device=device)), 5, SERIAL) for device in ("cuda", "cpu"))
    for one, other in zip(on_gpu, on_cpu, strict=True):
        np.testing.assert_array_equal(one, other)


def test_ranges_of_rows(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists do not depend on how many rows are searched at a time."""
    random = np.random.default_rng(0)
    phi, psi = random.normal(size=(7, 4)).astype(np.float32), random.normal(size=(50, 4)).astype(np.float32)
    excluded = ExcludedItems(*some_lists(random, 7, 50))
    search = GpuTopN(ItemTable.of(backend, psi), 5)
    whole = search.lists(phi, excluded)
    search.step = 3
    for one, other in zip(whole, search.lists(phi, excluded), strict=True):
        np.testing.assert_array_equal(one, other)


def test_long_lists(backend: Backend) -> None:
    random = np.random.default_rng(0)
    phi, psi = random.normal(size=(2, 4)).astype(np.float32), random.normal(size=(3_000, 4)).astype(np.float32)
    ids, _, left = GpuTopN(ItemTable.of(backend, psi), 300).lists(phi)
    assert not len(left)
    np.testing.assert_array_equal(ids, rank(InnerProducts(phi, psi), 300, SERIAL)[0])


def test_when_a_gpu_pays() -> None:
    assert topn.pays(10_000, 20_000, 100)
    assert not topn.pays(10_000, 20_000, 1_000), "longer lists than a block sorts"
    assert not topn.pays(10, 20_000, 100), "a few requests"
