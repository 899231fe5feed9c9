"""The row sweep: its leaves against their plain twins, and the whole against one coordinate after the other in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import everypair as ep
from everypair.engine.row_sweep import RowSweep, score
from everypair.engine.vectors import Vectors
from everypair.kernels import permute, row_sweep, simd
from everypair.kernels.jit import kernel
from everypair.kernels.newton import SweepSettings
from everypair.kernels.pairs import RowPairs
from everypair.runtime.parallel import Workers

seeds = st.integers(0, 10**6)
dtypes = st.sampled_from([np.float32, np.float64])


@kernel
def run_descend(pairs, psi, lo, hi, gram, row, moving, at):
    simd.descend(pairs, psi, lo, hi, gram, row, moving, at)


@kernel
def run_steps(total, gram, row, moving, at):
    simd.steps(total, gram, row, moving, at)


@given(
    seeds, dtypes, st.sampled_from([np.int32, np.int64]), st.booleans(), st.sampled_from([0.0, 0.1]), st.sampled_from([1.0, 0.5])
)
def test_steps_in_registers_equal_the_plain_ones(seed: int, dtype: type, index: type, coupled: bool, l2: float, eta: float) -> None:
    """Also for dimensions that nothing depends on, without L2, for curvature lost in rounding, and for steps that are left out."""
    random = np.random.default_rng(seed)
    n = int(random.integers(0, 40))
    lo, hi = sorted(random.integers(0, n + 1, 2).tolist())
    psi = random.normal(size=(7, 48)).astype(dtype)
    gone = random.random(48) < 0.2
    psi[:, gone] = 0.0
    indices, scores = random.integers(0, 7, max(n, 1)).astype(index), random.normal(size=n).astype(dtype)
    a_step, b_step = random.integers(0, 2, 2).tolist()
    a, b = (random.random(max(n, 1)).astype(dtype) for _ in range(2))
    other = random.random(7).astype(dtype)
    a += dtype(0.7)
    implicit, tiny = float(random.choice([0.0, 0.7])), float(random.choice([1e-6, np.nan]))
    J = np.zeros((17, 16), dtype)
    full = psi[:, 16:32].T @ psi[:, 16:32]
    J[0] = np.diag(full)
    if coupled:
        J[1:] = full - np.diag(J[0])
    rest = random.normal(size=20).astype(dtype) * ~np.concatenate([np.zeros(3, bool), gone[16:32], [False]])
    w = random.normal(size=24).astype(dtype)
    found, expected = w.copy(), w.copy()
    delta, plain = np.zeros(20, dtype), np.zeros(20, dtype)
    pairs, gram = simd.WeightedPairs(indices, scores, a, a_step, b, b_step, other, 1), simd.GramBlock(J, coupled, rest)
    lost = 1e-2 if dtype is np.float64 and random.random() < 0.5 else 0.0  # in float32 some would be on either side of it
    row, at = simd.RowSettings(implicit, l2, eta, tiny, lost), simd.Offsets(16, 3, 5, 2)
    run_descend(pairs, psi, lo, hi, gram, row, simd.Moving(found, delta), at)
    scores64, a64, b64, J64, rest64, w64, psi64 = (x.astype(np.float64) for x in (scores, a, b, J, rest, expected, psi))
    delta64 = np.zeros(20)
    other64 = other.astype(np.float64)
    pairs64 = simd.WeightedPairs(indices, scores64, a64, a_step, b64, b_step, other64, 1)
    gram64 = simd.GramBlock(J64, coupled, rest64)
    simd.descend_plain(pairs64, psi64, lo, hi, gram64, row, simd.Moving(w64, delta64), at)
    total = np.zeros((17, 16))
    simd.accumulate_plain(pairs, psi64, lo, hi, 16, implicit, total)
    from_total = w.copy()
    run_steps(total, gram, row, simd.Moving(from_total, plain), at)
    if dtype is np.float64 or hi - lo > 16 or implicit > 0 or l2 > 0:  # otherwise the block may be close to singular
        tolerance = 2e-2 if dtype is np.float32 else 1e-7
        scale = np.abs(w64).max() + np.abs(w).max()
        np.testing.assert_allclose(found, w64, rtol=tolerance, atol=tolerance * scale)
        np.testing.assert_allclose(from_total, w64, rtol=tolerance, atol=tolerance * scale)
        np.testing.assert_allclose(delta, delta64, rtol=tolerance, atol=tolerance * scale)
        np.testing.assert_allclose(plain, delta64, rtol=tolerance, atol=tolerance * scale)
    untouched = np.ones(24, bool)
    untouched[5:21] = False
    np.testing.assert_array_equal(found[untouched], w[untouched])
    assert np.all(delta[:2] == 0.0)
    assert np.all(delta[18:] == 0.0)
    if l2 == 0.0 and (implicit == 0.0 or not coupled):
        dead = gone[16:32] & (J[0] == 0.0)
        assert np.all(found[5:21][dead] == 0.0)


@given(seeds, st.integers(1, 40), st.booleans(), st.booleans(), st.integers(1, 3))
def test_a_sweep_is_coordinate_descent(seed: int, k: int, diagonal: bool, weighted: bool, n_threads: int) -> None:
    """One dimension of a row after the other, each at the minimum of the loss with all others held."""
    random = np.random.default_rng(seed)
    n, m = 6, 5
    seen = random.random((n, m)) < 0.5
    indptr = np.concatenate([[0], np.cumsum(seen.sum(axis=1))])
    c, i = (x.copy() for x in np.nonzero(seen))
    psi, W = random.normal(size=(m, k)), random.normal(size=(n, k))
    J = np.diag(random.random(k)) if diagonal else psi.T @ psi
    alpha, b, weight, penalty = random.random(len(c)), random.normal(size=len(c)), random.random(n), 0.1 + random.random(n)
    other = random.random(m) if weighted else 0.0
    alpha += weighted  # a is not negative: J is not that of these pairs, and would not make up for it
    a = alpha - weight[c] * np.broadcast_to(other, m)[i]
    scores = np.einsum("pf,pf->p", W[c], psi[i])
    expected = W.copy()
    for row in range(n):
        mine = c == row
        A = (psi[i[mine]] * a[mine, None]).T @ psi[i[mine]] + weight[row] * J + penalty[row] * np.eye(k)
        right = psi[i[mine]].T @ b[mine]
        for f in range(k):
            expected[row, f] -= (A[f] @ expected[row] - right[f]) / A[f, f]
    with Workers(n_threads, small=1) as workers:
        sweep = RowSweep(indptr, workers)
        settings = SweepSettings(penalty, 1.0, 1e-12, 0.0, 0.0)
        sweep(RowPairs(indptr, i, alpha, other, b, scores), Vectors(rows=psi), J, weight, settings, W)
        np.testing.assert_allclose(W, expected, rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(scores, np.einsum("pf,pf->p", expected[c], psi[i]), rtol=1e-8, atol=1e-8)
        for own in (Vectors(rows=W), Vectors(dims=W.T.copy())):
            again = np.full(len(c), np.nan)
            score(indptr, i, own, Vectors(dims=psi.T.copy()), again, workers)
            np.testing.assert_allclose(again, scores, rtol=1e-8, atol=1e-8)


@pytest.mark.full
def test_rows_that_threads_share() -> None:
    """A row in several pieces: the same bits on any number of threads, and the steps of whole rows."""
    random = np.random.default_rng(0)
    n = 2 * row_sweep.SHARED + 77
    item = np.concatenate([np.zeros(n, int), np.ones(99, int), np.full(3 * row_sweep.RUN, 2)])
    context = np.concatenate([np.arange(n), np.arange(99), np.arange(3 * row_sweep.RUN)])
    feedback = ep.Feedback(context, item, random.normal(1.0, 0.1, len(item)), 2.0, shape=(n, 3))
    for settings in ({"dtype": "float64"}, {"dtype": "float64", "rotate": False}, {}):
        one, two, three = (ep.MF(20, epochs=2, n_threads=t, **settings).fit(feedback) for t in (1, 2, 3))
        for other in (two, three):
            np.testing.assert_array_equal(one.psi_, other.psi_)
            np.testing.assert_array_equal(one.phi_, other.phi_)
            assert [epoch[1:5] for epoch in one.history_] == [epoch[1:5] for epoch in other.history_]
    plain: dict[str, Any] = {
        "unobserved_weight": 0.01, "regularization": 0.01, "regularization_exponent": 0.0, "popularity_exponent": 0.0,
        "epochs": 1, "dtype": "float64",
    }  # fmt: skip
    whole = ep.MF(20, **plain).fit(feedback)
    held = ep.MF(20, **plain, rotate=False).fit(feedback, fixed={"W": whole.phi_}, start={"H": whole.psi_})
    W, H = whole.phi_, whole.psi_.copy()
    for i in range(3):
        mine = item == i
        x = W[context[mine]]
        y = feedback_values(feedback, context[mine], item[mine])
        A = 1.99 * x.T @ x + 0.01 * W.T @ W + 0.01 * np.eye(20)
        right = 2.0 * x.T @ y
        for f in range(20):
            H[i, f] -= (A[f] @ H[i] - right[f]) / A[f, f]
    np.testing.assert_allclose(held.psi_, H, rtol=1e-6, atol=1e-9)


def feedback_values(feedback: ep.Feedback, context: np.ndarray, item: np.ndarray) -> np.ndarray:
    """y of given pairs."""
    key = feedback.rows.astype(np.int64) * feedback.n_items + feedback.by_context.indices
    assert isinstance(feedback.b, np.ndarray)
    return feedback.b[np.searchsorted(key, context * feedback.n_items + item)] / 2.0


@given(seeds, st.integers(1, 40), dtypes, st.booleans(), st.booleans())
def test_sums_over_vectors(seed: int, k: int, dtype: type, by_rows: bool, weighted: bool) -> None:
    random = np.random.default_rng(seed)
    x = random.normal(size=(2500, k)).astype(dtype)
    vectors = Vectors(rows=x) if by_rows else Vectors(dims=x.T.copy())
    weight = random.random(len(x)) if weighted else 0.5
    w = np.broadcast_to(weight, len(x))[:, None]
    expected = (x * w).T @ x.astype(np.float64)
    tolerance = {"rtol": 1e-5, "atol": 1e-2} if dtype is np.float32 else {"rtol": 1e-10, "atol": 1e-8}
    with Workers(2) as workers:
        np.testing.assert_allclose(vectors.gram(weight, workers), expected, **tolerance)
        np.testing.assert_allclose(vectors.norms(weight, workers), np.diag(expected), rtol=1e-6)
        assert (vectors.shape, vectors.has_rows) == ((len(x), k), by_rows)
        first, stop = sorted(random.integers(0, k + 1, 2).tolist())
        panel = vectors.panel(first, stop, workers)
    assert panel.flags.c_contiguous
    assert panel.shape == (len(x), -(-(stop - first) // 16) * 16)
    np.testing.assert_array_equal(panel[:, : stop - first], x[:, first:stop])
    assert not panel[:, stop - first :].any()


@given(seeds)
def test_there_and_back(seed: int) -> None:
    random = np.random.default_rng(seed)
    order, values = random.permutation(20), random.normal(size=20)
    there, back = np.empty(20), np.empty(20)
    permute.take(0, 20, order, values, there)
    permute.put(0, 20, order, there, back)
    np.testing.assert_array_equal(there, values[order])
    np.testing.assert_array_equal(back, values)
