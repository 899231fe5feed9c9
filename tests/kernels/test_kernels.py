"""Kernels against plain NumPy."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

import everypair as ep
from everypair.engine.conjugate_gradients import lowest
from everypair.kernels import order, row_sweep, simd, sparse, topn
from everypair.kernels.jit import kernel, pick, slice_of
from everypair.runtime.parallel import Workers

seeds = st.integers(0, 10**6)


@given(seeds, st.integers(1, 8), st.integers(0, 8))
def test_solve(seed: int, n: int, rank: int) -> None:
    """Also where the matrix is singular, if the right-hand side is in its range."""
    random = np.random.default_rng(seed)
    factor = random.normal(size=(n, min(rank, n)))
    H = factor @ factor.T
    rhs = H @ random.normal(size=n)
    x = rhs.copy()
    row_sweep.solve(H.copy(), x, 1e-10)
    np.testing.assert_allclose(H @ x, rhs, atol=1e-5 * (1 + np.abs(rhs).max()))


@kernel
def run_vectorised(pairs, psi, lo, hi, first, share, total, delta):
    simd.accumulate(pairs, psi, lo, hi, first, share, total)
    simd.update(pairs.indices, psi, lo, hi, first, pairs.scores, delta, 0)


@given(seeds, st.sampled_from([np.float32, np.float64]), st.sampled_from([np.int32, np.int64]), st.booleans(), st.booleans())
def test_vector_leaves_equal_their_plain_twins(seed: int, dtype: type, index: type, many_a: bool, many_b: bool) -> None:
    random = np.random.default_rng(seed)
    n = int(random.integers(0, 40))
    lo, hi = sorted(random.integers(0, n + 1, 2).tolist())
    psi = random.normal(size=(7, 48)).astype(dtype)
    indices = random.integers(0, 7, n).astype(index)
    scores = random.normal(size=n).astype(dtype)
    a = random.normal(size=n if many_a else 1).astype(dtype)
    b = random.normal(size=n if many_b else 1).astype(dtype)
    delta = random.normal(size=16).astype(dtype)
    found, expected = np.ones((17, 16)), np.ones((17, 16))
    moved = scores.copy()
    other, share = random.random(7 if many_b else 1).astype(dtype), float(random.choice([0.0, 0.4]))
    pairs = simd.WeightedPairs(indices, moved, a, int(many_a), b, int(many_b), other, int(many_b))
    run_vectorised(pairs, psi, lo, hi, 16, share, found, delta)
    simd.accumulate_plain(pairs._replace(scores=scores), psi, lo, hi, 16, share, expected)
    simd.update_plain(indices, psi, lo, hi, 16, scores, delta, 0)
    tolerance = 1e-4 if dtype is np.float32 else 1e-12
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(moved, scores, rtol=tolerance, atol=tolerance)


@kernel
def run_product(w, at, J, out):
    simd.product(w, at, J, out)


@given(seeds, st.sampled_from([np.float32, np.float64]), st.integers(0, 3))
def test_product_with_a_gram(seed: int, dtype: type, blocks: int) -> None:
    random = np.random.default_rng(seed)
    J, w = random.normal(size=(16 * blocks, 16)).astype(dtype), random.normal(size=16 * blocks + 5).astype(dtype)
    out = np.full(16, np.nan, dtype)
    run_product(w, 3, J, out)
    tolerance = 1e-4 if dtype is np.float32 else 1e-12
    np.testing.assert_allclose(out, w[3 : 3 + 16 * blocks].astype(np.float64) @ J, rtol=tolerance, atol=tolerance)
    plain = np.full(16, np.nan)
    simd.product_plain(w, 3, J, plain)
    np.testing.assert_allclose(out, plain, rtol=tolerance, atol=tolerance)


@pytest.mark.full
def test_long_rows() -> None:
    """Longer than a run of the row sweep: the same steps as dimension by dimension."""
    random = np.random.default_rng(0)
    n = 2 * row_sweep.RUN + 77
    feedback = ep.Feedback(np.arange(n), np.zeros(n, int), random.normal(1.0, 0.1, n), 2.0, shape=(n, 2))
    settings = {"epochs": 2, "dtype": "float64", "rotate": False}
    start = {"W": random.normal(size=(n, 20)), "H": random.normal(size=(2, 20))}
    by_rows = ep.MF(20, **settings).fit(feedback, start=start)
    features = ep.MFSI(20, **settings).fit(feedback, contexts=sp.eye_array(n), items=sp.eye_array(2), start=start)
    np.testing.assert_allclose(by_rows.psi_, features.psi_, rtol=1e-9)


@given(seeds, st.integers(1, 6), st.integers(1, 12))
def test_top_n(seed: int, n: int, width: int) -> None:
    random = np.random.default_rng(seed)
    scores = random.integers(-2, 3, (3, width)).astype(np.float32)  # many ties
    scores[random.random(scores.shape) < 0.2] = -np.inf
    scores[random.random(scores.shape) < 0.1] = np.nan
    ids, best = np.full((3, n), -1), np.full((3, n), -np.inf, np.float32)
    topn.top_n(0, 3, scores, ids, best)
    for r in range(3):
        expected = [i for i in np.argsort(-scores[r], kind="stable") if scores[r, i] > -np.inf][:n]
        assert ids[r].tolist() == expected + [-1] * (n - len(expected))
        assert best[r].tolist() == [scores[r, i] for i in expected] + [-np.inf] * (n - len(expected))


@given(seeds)
def test_counting_sort(seed: int) -> None:
    keys = np.random.default_rng(seed).integers(0, 5, 20)
    indptr = order.compress(keys, 6)
    out = np.empty(20, np.int64)
    order.stable_order(keys, indptr, np.arange(20), out)
    np.testing.assert_array_equal(out, np.argsort(keys, kind="stable"))
    np.testing.assert_array_equal(indptr, np.searchsorted(np.sort(keys), np.arange(7)))


@given(seeds)
def test_products_with_sparse_matrices(seed: int) -> None:
    random = np.random.default_rng(seed)
    X = sp.random_array((5, 4), density=0.5, rng=random, format="csr")
    v, out = random.normal(size=4), np.empty(5)
    matrix = sparse.SparseRows(X.indptr, X.indices, X.data)
    sparse.multiply(0, 5, matrix, v, out)
    np.testing.assert_allclose(out, X @ v)
    sparse.multiply_squared(0, 5, matrix, v, out)
    np.testing.assert_allclose(out, X.power(2) @ v)
    sparse.multiply(0, 5, matrix._replace(values=1.0), v, out)
    np.testing.assert_allclose(out, (X != 0) @ v)


def test_a_scalar_stands_for_a_constant_array() -> None:
    assert pick(2.0, 5) == 2.0
    assert pick(np.arange(3.0), 2) == 2.0
    assert slice_of(2.0, 1, 3) == 2.0
    assert slice_of(np.arange(3.0), 1, 3).tolist() == [1.0, 2.0]


@given(seeds)
def test_lowest_point_of_a_quartic(seed: int) -> None:
    c1, c2, c3, c4 = np.random.default_rng(seed).normal(size=4)
    t = np.linspace(0.0, 2.0, 2001)
    values = c1 * t + c2 * t**2 + c3 * t**3 + c4 * t**4
    found = lowest(c1, c2, c3, c4)
    assert c1 * found + c2 * found**2 + c3 * found**3 + c4 * found**4 <= values.min() + 1e-9


@given(seeds, st.integers(1, 4))
def test_sums_do_not_depend_on_the_threads(seed: int, n_threads: int) -> None:
    x = np.random.default_rng(seed).normal(size=30_000).astype(np.float32)
    with Workers(n_threads) as workers:
        assert workers.sum(len(x), lambda i, j: x[i:j].sum()) == Workers(1).sum(len(x), lambda i, j: x[i:j].sum())


@given(st.lists(st.integers(0, 60_000), min_size=1, max_size=30), st.integers(1, 4))
def test_ranges_cover_all_rows_once(lengths: list[int], n_threads: int) -> None:
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    bounds = Workers(n_threads).split(indptr)
    assert bounds[0] == 0
    assert bounds[-1] == len(lengths)
    assert np.all(np.diff(bounds) > 0)
