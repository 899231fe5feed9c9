"""The best items by tiles of scores are those of a search through all of them, to the bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from everypair.kernels import masks
from everypair.kernels import topn_tiles as kernels
from everypair.kernels.jit import kernel
from everypair.ranking import pruned
from everypair.ranking.rank import InnerProducts, Lists, rank
from everypair.runtime.parallel import SERIAL, Workers

seeds = st.integers(0, 10**6)
dtypes = st.sampled_from([np.float32, np.float64])


@kernel
def run_masks(values, at, least):
    mask = masks.reaching(values, at, least)
    return mask, masks.count(mask), masks.lowest(mask) if mask else -1


@given(seeds, dtypes)
def test_masks_equal_their_plain_twins(seed: int, dtype: type) -> None:
    random = np.random.default_rng(seed)
    values = random.integers(-2, 3, 100).astype(dtype)
    values[random.random(100) < 0.1] = np.nan
    values[random.random(100) < 0.1] = -np.inf
    for least in (-np.inf, 0.0, 2.0, 3.0, np.nan):
        mask, count, lowest = run_masks(values, 17, dtype(least))
        expected = values[17:81] >= least
        assert (
            int(mask)
            == int(masks.reaching_plain(values, 17, dtype(least)))
            == sum(1 << j for j in np.flatnonzero(expected).tolist())
        )
        assert count == masks.count_plain(np.uint64(mask)) == expected.sum()
        assert lowest == (masks.lowest_plain(np.uint64(mask)) if mask else -1) == (np.argmax(expected) if mask else -1)


@given(seeds, st.integers(1, 20), st.integers(1, 200), dtypes, st.floats(0.0, 1.0))
def test_a_cut_leaves_what_may_be_best(seed: int, n: int, more: int, dtype: type, slack: float) -> None:
    random = np.random.default_rng(seed)
    size = n + more
    values, items = np.full(256, np.nan, dtype), random.permutation(256).astype(np.int32)
    values[:size] = np.round(random.normal(size=size), int(random.integers(0, 4)))
    before = dict(zip(items[:size].tolist(), values[:size].tolist(), strict=True))
    least, left = kernels.cut(values, items, size, n, n, slack)
    kept = dict(zip(items[:left].tolist(), values[:left].tolist(), strict=True))
    nth = sorted(before.values())[-n]
    assert least <= nth - slack + 1e-6
    assert kept == {item: value for item, value in before.items() if value >= least}
    if slack == 0:
        assert left == sum(value >= nth for value in before.values())


def vectors(random: np.random.Generator, rows: int, n_items: int, k: int, kind: str, dtype: type) -> tuple[np.ndarray, np.ndarray]:
    phi, psi = random.normal(size=(rows, k)), random.normal(size=(n_items, k))
    if kind == "norms":
        psi *= random.pareto(1.0, (n_items, 1))
    elif kind == "ties":
        phi, psi = np.round(phi), np.round(psi)
    elif kind == "near":
        psi = 1 + 1e-7 * psi
    elif kind == "nan":
        phi[random.random(rows) < 0.5] = np.nan
    return phi.astype(dtype), psi.astype(dtype)


@given(
    seeds, st.integers(1, 30), st.integers(1, 400), st.integers(1, 12), st.integers(1, 5), dtypes,
    st.sampled_from(["norms", "ties", "near", "nan", "even"]), st.booleans(), st.booleans(), st.integers(1, 2),
)  # fmt: skip
def test_tiles_change_nothing(
    seed: int, rows: int, n_items: int, n: int, k: int, dtype: type, kind: str, filtered: bool, denied: bool, n_threads: int
) -> None:
    random = np.random.default_rng(seed)
    phi, psi = vectors(random, rows, n_items, k, kind, dtype)
    seen = Lists.of([random.integers(0, n_items, random.integers(0, n_items)) for _ in range(rows)]) if filtered else None
    allowed = random.random(n_items) < 0.8 if denied else None
    found = {}
    with pytest.MonkeyPatch.context() as patch, Workers(n_threads) as workers:
        for few in (1, 10**9):
            for name, value in {"FEW_ROWS": few, "ROWS": 7, "ITEMS": 70, "LENGTH": 1}.items():
                patch.setattr(pruned, name, value)
            found[few] = rank(InnerProducts(phi, psi), n, workers, seen, None, allowed)
    for one, other in zip(*found.values(), strict=True):
        np.testing.assert_array_equal(one, other)
    if kind == "ties":
        scores = phi @ psi.T
        for r in range(rows):
            left = set(range(n_items)) - set([] if seen is None else seen.items[seen.begin[r] : seen.end[r]].tolist())
            expected = sorted((i for i in left if allowed is None or allowed[i]), key=lambda i: (-scores[r, i], i))[:n]
            assert found[1][0][r].tolist() == expected + [-1] * (n - len(expected))


@pytest.mark.full
def test_lists_do_not_depend_on_tiles() -> None:
    """In the sizes that tiles have; a row alone is searched for without them."""
    random = np.random.default_rng(0)
    phi = random.normal(size=(700, 24)).astype(np.float32)
    psi = (random.normal(size=(6_000, 24)) * random.pareto(2.0, (6_000, 1))).astype(np.float32)
    psi[1_000:3_000] = psi[1_000] * (1 + 1e-7 * random.normal(size=(2_000, 1)))  # more that are nearly equal than a list holds
    seen = Lists.of([random.integers(0, 6_000, 50) for _ in range(700)])
    with Workers(2) as workers:
        together = rank(InnerProducts(phi, psi), 50, workers, seen)
    assert pruned.rows_at_once(700, 6_000, 50, 2) == 350
    assert pruned.rows_at_once(1, 6_000, 50, 1) == 0
    for r in range(0, 700, 23):
        apart = rank(InnerProducts(phi[r : r + 1], psi), 50, SERIAL, seen.rows(r, r + 1))
        assert all(np.array_equal(one[r : r + 1], other) for one, other in zip(together, apart, strict=True))


def test_rows_that_are_done_are_not_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    """One item far above the others, in the direction of every row: after the first tile nothing else can be best."""
    computed: list[Any] = []
    monkeypatch.setattr(pruned, "FEW_ROWS", 1)
    monkeypatch.setattr(pruned, "ITEMS", 64)
    search = pruned.topn_tiles.search
    monkeypatch.setattr(pruned.topn_tiles, "search", lambda *args: computed.append(1) or search(*args))
    random = np.random.default_rng(0)
    phi, psi = np.abs(random.normal(size=(20, 4))), 1e-3 * random.normal(size=(640, 4))
    psi[400] = 10.0
    ids, _ = rank(InnerProducts(phi, psi), 1, SERIAL)
    assert ids[:, 0].tolist() == [400] * 20
    assert len(computed) == 1
