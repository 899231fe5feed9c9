"""Vectors that are sums of few: how fields are joined, and what is made of them, against the vectors themselves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from everypair.engine import level_parts, summed_vectors
from everypair.engine.level_parts import Coded, LevelParts, join
from everypair.engine.summed_vectors import SummedVectors
from everypair.engine.vectors import Vectors
from everypair.runtime.parallel import SERIAL, Workers

seeds = st.integers(0, 10**6)


def random_fields(random: np.random.Generator, n: int) -> list[Coded]:
    """Up to five, some of which are constant in the levels of the first."""
    sizes = random.integers(1, 6, random.integers(1, 6)).tolist()
    fields = [Coded(random.integers(0, size + int(random.integers(0, 2)), n).astype(np.uint32), size) for size in sizes]
    if random.integers(0, 2):
        outer = Coded(random.integers(0, 8, n).astype(np.uint32), 8)
        fields = [outer, *(Coded(field.codes[outer.codes % n], field.n) for field in fields)]
    return fields


def dense(fields: list[Coded], W: np.ndarray) -> np.ndarray:
    """The vectors of rows."""
    out, start = np.zeros((len(fields[0].codes), W.shape[1])), 0
    for field in fields:
        out += np.vstack([W[start : start + field.n], np.zeros(W.shape[1])])[field.codes]
        start += field.n
    return out


@given(seed=seeds, n=st.integers(1, 40), k=st.sampled_from([1, 16, 19]), rows_per_cell=st.sampled_from([0, 2, 5, 1000]))
def test_sums_of_parts_are_the_vectors(seed: int, n: int, k: int, rows_per_cell: int) -> None:
    """Also where fields are joined, and levels nested; a row may lack a level of any field."""
    random = np.random.default_rng(seed)
    fields = random_fields(random, n)
    W = random.normal(size=(sum(field.n for field in fields), k))
    w = random.normal(size=len(W))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(level_parts, "ROWS_PER_CELL", rows_per_cell)
        parts = LevelParts(fields)
    assert sorted(j for joint in parts.joint for j in joint.fields) == list(range(len(fields)))
    tables = parts.tables(W)
    found = sum(table[codes] for table, codes in zip(tables, parts.codes, strict=True))
    np.testing.assert_allclose(found[:, :k], dense(fields, W), atol=1e-12)
    assert not np.any(found[:, k:])
    out = np.ones(n)
    parts.add_sums(w, out, SERIAL)
    np.testing.assert_allclose(out, 1.0 + dense(fields, w[:, None])[:, 0], atol=1e-12)


@given(
    seed=seeds,
    n=st.integers(1, 40),
    k=st.sampled_from([1, 16, 19]),
    n_beside=st.integers(0, 2),
    weighted=st.booleans(),
    dtype=st.sampled_from([np.float32, np.float64]),
)
def test_grams_scores_and_norms_are_those_of_the_vectors(
    seed: int, n: int, k: int, n_beside: int, weighted: bool, dtype: Any
) -> None:
    random = np.random.default_rng(seed)
    fields = random_fields(random, n)
    W = random.normal(size=(sum(field.n for field in fields), k)).astype(dtype)
    weight = random.random(n) if weighted else 0.7
    beside = [random.normal(size=n).astype(dtype) for _ in range(n_beside)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(level_parts, "ROWS_PER_CELL", int(random.integers(0, 8)))
        patch.setattr(summed_vectors, "GRAM_ROWS", int(random.integers(1, n + 1)))
        parts = LevelParts(fields)
        if len(parts.joint) > level_parts.MOST:
            return
        summed = SummedVectors(parts, W, SERIAL)
        J = summed.gram(beside, weight)
    phi = np.column_stack([dense(fields, W), *beside])
    tolerance = 1e-5 if dtype is np.float32 else 1e-11
    np.testing.assert_allclose(J, Vectors(rows=phi).gram(weight, SERIAL), atol=tolerance * (1.0 + np.abs(J).max()))
    np.testing.assert_array_equal(J, J.T)

    lengths, m = random.integers(0, 3, n), 6
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    indices = random.integers(0, m, indptr[-1])
    psi = np.zeros((m, -(-(k + 2) // 16) * 16), dtype)
    psi[:, : k + 2] = random.normal(size=(m, k + 2))
    scores = np.empty(indptr[-1], dtype)
    summed.score(indptr, indices, psi, beside, list(range(k, k + n_beside)), scores)
    expected = np.sum(np.repeat(phi, lengths, axis=0) * psi[indices, : k + n_beside], axis=1)
    np.testing.assert_allclose(scores, expected, atol=30 * tolerance)

    out = np.ones(n, dtype)
    summed.add_half_norms(out)
    np.testing.assert_allclose(out, 1.0 + 0.5 * np.sum(phi[:, :k] ** 2, axis=1), atol=30 * tolerance)


def test_bits_do_not_depend_on_threads() -> None:
    random = np.random.default_rng(0)
    n = 150_000
    fields = [
        Coded(np.sort(random.integers(0, 900, n)).astype(np.uint32), 900),
        Coded(random.integers(0, 80, n).astype(np.uint32), 80),
    ]
    W, beside, weight = (
        random.normal(size=(980, 20)).astype(np.float32),
        [random.normal(size=n).astype(np.float32)],
        random.random(n),
    )
    parts = LevelParts(fields)
    with Workers(3) as workers:
        grams = [SummedVectors(parts, W, each).gram(beside, weight) for each in (SERIAL, workers)]
    np.testing.assert_array_equal(*grams)


def test_fields_are_joined_while_cells_are_few() -> None:
    n = 10_000
    user = np.sort(np.arange(n) % 500)
    of_user = {"kind": np.arange(500) % 3, "age": np.arange(500) % 7}
    coded = {name: Coded(codes[user], int(codes.max()) + 1) for name, codes in of_user.items()}
    previous, day = Coded(np.arange(n) % 300, 300), Coded(np.arange(n) % 7, 7)
    users = Coded(user, 500)

    def joined(*fields: Coded) -> list[tuple[tuple[int, ...], bool]]:
        return [(joint.fields, joint.nested) for joint in join(fields)]

    assert joined(users, *coded.values(), previous) == [((0, 1, 2), True), ((3,), False)]
    assert joined(*coded.values(), users) == [((0, 1), False), ((2,), False)]
    assert joined(users, day, coded["kind"]) == [((0,), False), ((1, 2), False)]
    assert joined(Coded(np.where(user == 3, 500, user), 500), coded["kind"]) == [
        ((0,), False),
        ((1,), False),
    ]  # rows without a user
