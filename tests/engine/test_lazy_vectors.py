"""Vectors that are computed when they are needed are those that are held elsewhere, and are never held whole."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import everypair as ep
from everypair.columns.history_field import HistoryField, Window
from everypair.engine import level_parts
from everypair.engine.cpu import CpuEngine
from everypair.engine.lazy_vectors import LazyVectors
from everypair.engine.solver import ICD
from everypair.runtime.parallel import SERIAL
from everypair.towers import Concat, Constant, Core, Embedding, Linear, Lookup, Machine, Product, Sum, Tower

N = 30


@pytest.fixture(scope="module", autouse=True)
def parts_of_few_rows() -> Iterator[None]:
    """Vectors that are sums of few are taken for that, though there are few rows."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(level_parts, "FEWEST_ROWS", 0)
        yield


def columns(random: np.random.Generator) -> dict[str, Any]:
    items = random.integers(0, 5, N).astype(np.int32)
    begin, end = np.repeat([0, 10, 20], 10), np.arange(N)
    begin[-3:] = end[-3:] = N  # the last past is empty
    return {
        "user": ep.Levels(random.integers(-1, 4, N), 4, {"age": random.random(4), "country": np.array([0, 1, 1, 0])}),
        "tags": sp.csr_array(random.random((N, 4)) * (random.random((N, 4)) < 0.4)),
        "text": random.normal(size=(N, 3)),
        "history": HistoryField(items, np.array([0, 10, 20, 30, 30]), begin, end, 5, Window(4, 0.9, "sqrt")),
        "place": random.integers(0, 3, N),
        "visit": np.repeat([0, 1, -1, 2, 3], 6),
        "day": np.repeat([0, 1, 0], 10),
        "everywhere": ep.Levels(np.zeros(N, int), 1),
    }


TOWERS = {
    "linear": Linear(4, "user", "tags", "text", "history"),
    "machine": Machine(3, "user", "tags", "text", "history"),
    "linear of levels": Linear(4, "user", "day", "everywhere"),
    "machine of levels": Machine(3, "user", "day"),
    "linear in runs": Linear(4, "visit", "day", "user", "history"),
    "machine in runs": Machine(3, "visit", "user"),
    "lookup": Lookup("user", Linear(4, "age", "country")),
    "lookup of a machine": Lookup("user", Machine(3, "age", "country")),
    "sum": Sum(Embedding(4, "user"), Linear(4, "history"), Embedding(4)),
    "sum with a machine": Sum(Machine(2, "history", "user"), Linear(4, "tags")),
    "core": Core(Embedding(3, "user"), Embedding(2, "place"), factors=4),
    "core of features": Core(Lookup("user", Linear(3, "age")), Embedding(2, "place"), factors=4),
    "sum with a core": Sum(Machine(2, "history"), Core(Embedding(3, "user"), Embedding(2, "place"), factors=4)),
    "product": Product(Embedding(4, "user"), Embedding(4, "place")),
    "product, one level": Product(Product(Embedding(4, "user"), Embedding(4, "place")), Embedding(4, "everywhere")),
    "with a constant": Concat(Sum(Embedding(3, "user"), Linear(3, "history")), Constant()),
}


def solver(tower: Tower, side: str, seed: int, **options: Any) -> ICD:
    random = np.random.default_rng(seed)
    shape = (N, 8) if side == "context" else (8, N)
    cells = random.permutation(N * 8)[:60]
    feedback = ep.Feedback(cells // shape[1], cells % shape[1], shape=shape)
    described: Any = columns(random)
    other = Concat(Embedding(3, name="other"), Constant()) if isinstance(tower, Concat) else Embedding(tower.n_dims, name="other")
    if isinstance(tower, Machine) or (isinstance(tower, Lookup) and isinstance(tower.tower, Machine)):
        other = Machine(tower.n_dims - 2, names=("w", "H") if side == "context" else ("b", "w", "H"))
    context, item = (tower, other) if side == "context" else (other, tower)
    model = ep.Separable(
        context=context, item=item, dtype="float64", regularization=0.1, random_state=seed, init_std=0.5, **options
    )
    given = (described, None) if side == "context" else (None, described)
    return model.build_solver(feedback, *given, SERIAL)


@pytest.mark.parametrize("side", ["context", "item"])
@pytest.mark.parametrize("name", TOWERS)
@given(st.integers(0, 10**6), st.integers(0, N), st.integers(0, N), st.data())
def test_any_part_of_them(name: str, side: str, seed: int, start: int, stop: int, data: st.DataObject) -> None:
    icd = solver(TOWERS[name], side, seed)
    tower, vectors = icd.towers[side], icd.engine.objective.vectors[side]
    for _ in range(2):  # as the parameters start, and as a sweep leaves them
        assert isinstance(vectors, LazyVectors)
        expected = tower.vectors().rows
        assert vectors.shape == expected.shape
        K = expected.shape[1]
        first = data.draw(st.integers(0, K - 1))
        last = data.draw(st.integers(first + 1, K))
        start, stop = sorted((start, stop))
        tolerance = {"rtol": 1e-9, "atol": 1e-10}
        np.testing.assert_allclose(vectors.range_vectors(first, last)(start, stop), expected[start:stop, first:last], **tolerance)
        np.testing.assert_allclose(np.stack([vectors.dim(f) for f in range(K)], axis=1), expected, **tolerance)
        panel = vectors.panel(first, last, SERIAL)
        np.testing.assert_allclose(panel[:, : last - first], expected[:, first:last], **tolerance)
        assert not panel[:, last - first :].any()
        np.testing.assert_allclose(vectors.rows, expected, **tolerance)
        np.testing.assert_allclose(vectors.gram(1.0, SERIAL), expected.T @ expected, **tolerance)
        factor = np.random.default_rng(seed).normal(size=(K, 2)) * data.draw(arrays(bool, (K, 1)))
        np.testing.assert_allclose(vectors.range_products(factor)(start, stop), expected[start:stop] @ factor, **tolerance)
        coefficients, out = np.random.default_rng(seed).normal(size=K), np.empty(N)
        vectors.combine(coefficients, out, SERIAL)
        np.testing.assert_allclose(out, expected @ coefficients, **tolerance)
        list(icd.sweeps())


@pytest.mark.parametrize("side", ["context", "item"])
@pytest.mark.parametrize("name", TOWERS)
@given(st.integers(0, 10**6))
def test_a_fit_is_that_of_vectors_that_are_held(name: str, side: str, seed: int) -> None:
    fits = []
    for held in (False, True):
        with pytest.MonkeyPatch.context() as patch:
            if held:
                patch.setattr(CpuEngine, "_lazy", lambda self, tower: False)
            icd = solver(TOWERS[name], side, seed)
            assert isinstance(icd.engine.objective.vectors[side], LazyVectors) is not held
            for _ in range(2):
                list(icd.sweeps())
                icd._begin_again()
            fits.append(icd.value())
    np.testing.assert_allclose(fits[0], fits[1], rtol=1e-7)


def test_vectors_are_held_where_steps_need_all_dimensions() -> None:
    """Without the rotation, a step on one dimension takes a product with all others."""
    assert not isinstance(solver(TOWERS["linear"], "context", 0, rotate=False).engine.objective.vectors["context"], LazyVectors)
    assert not isinstance(
        solver(TOWERS["linear"], "context", 0, order="dimension").engine.objective.vectors["context"], LazyVectors
    )


@pytest.mark.full
@pytest.mark.parametrize("model", [ep.FM, ep.MFSI])
def test_a_context_for_every_event_is_never_held_whole(model: Any) -> None:
    n, k = 200_000, 160
    random = np.random.default_rng(0)
    user, item = random.integers(0, 500, n), random.integers(0, 300, n)
    feedback = ep.Feedback(np.arange(n), item, shape=(n, 300))
    contexts = {"user": user, "previous": np.append(-1, item[:-1])}
    model(k, epochs=1, n_threads=1).fit(feedback, contexts=contexts)
    tracemalloc.start()
    model(k, epochs=1, n_threads=1).fit(feedback, contexts=contexts)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 0.5 * 4 * n * k
