"""The panel sweep: its leaves against their plain twins, and the whole against dense coordinate descent in the same order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

import everypair as ep
from everypair import reference
from everypair.engine import level_parts, panel_sources, panel_sweep, side
from everypair.engine.solver import ICD
from everypair.kernels import panel_histories, panel_rows, panel_simd
from everypair.kernels.jit import kernel
from everypair.kernels.panel_histories import Adjoints, PanelSequence, SquareSum, Sums
from everypair.kernels.panel_rows import Path, RowGram
from everypair.kernels.panel_simd import EventLevels, Moves, PairVisits, PanelPairs, PanelTables, Parts, RowState, RowVisits, Tile
from everypair.kernels.running_sums import RunningSum
from everypair.runtime.parallel import Workers
from everypair.towers import Concat, Embedding, Linear, Machine, Sum

from problems import Problem, make, problems, shown

seeds = st.integers(0, 10**6)
VARIANTS = [(np.float32, True, 0), (np.float64, False, 0), (np.float64, True, 3), (np.float32, False, 1)]
variants = st.sampled_from(VARIANTS)  # dtype, pairwise terms, parts: each is compiled
LANES = 16


# leaves


class Random:
    """Random arguments of the leaves: some rows, each with a few pairs, and visits to some of them."""

    def __init__(self, seed: int, dtype: type, pairwise: bool, parts: int = 0) -> None:
        random = self.random = np.random.default_rng(seed)
        self.dtype, n, m = dtype, int(random.integers(1, 30)), 7
        lengths = random.integers(0, 3, n)
        self.indptr = np.concatenate([[0], np.cumsum(lengths)])
        n_pairs = max(int(self.indptr[-1]), 1)

        def numbers(*shape: int) -> np.ndarray:
            return random.normal(size=shape).astype(dtype)

        a_step, b_step, weight_step, x_step, rest_step = random.integers(0, 2, 5).tolist()
        indices, index = random.integers(0, m, n_pairs), random.choice([np.int32, np.int64])
        self.pairs = PanelPairs(
            indices.astype(index), numbers(n_pairs), numbers(n_pairs), a_step, numbers(n_pairs), b_step
        )  # fmt: skip
        psi_q, q_step = (numbers(m), seed % 2) if pairwise else (None, 0)
        self.tables = PanelTables(numbers(m, LANES), psi_q, q_step, numbers(n, LANES))
        phi_q, t = (numbers(n), numbers(n)) if pairwise else (None, None)
        self.state = RowState(np.abs(numbers(n)), weight_step, numbers(n * LANES), LANES * rest_step, phi_q, t)
        rows = random.permutation(n)[: random.integers(0, n + 1)].astype(index)
        pair_row = np.repeat(rows, lengths[rows])
        pair = np.concatenate([np.arange(self.indptr[c], self.indptr[c + 1]) for c in rows] + [np.empty(0, int)])
        x = numbers(n_pairs)
        self.pair_visits = PairVisits(pair_row.astype(index), pair.astype(index), x, x_step)
        self.row_visits = RowVisits(rows, numbers(n), x_step)
        self.base, self.delta = numbers(LANES), numbers(LANES)
        A = numbers(LANES + 1, LANES)
        A[1:] += A[1:].T.copy()
        self.gram = RowGram(
            A if seed % 2 else np.vstack([A[:1], np.zeros((LANES, LANES), dtype)]), bool(seed % 2), numbers(LANES), 0.7
        )
        self.path = Path(numbers(n, LANES), numbers(n), numbers(n))
        if parts:  # one or two for this side, three for the other
            sizes, visits = (3, 5, 4), max(n, n_pairs, len(pair))
            codes = [random.integers(0, size, visits).astype(np.uint32) for size in sizes]
            of_all = [array for j, size in enumerate(sizes) for array in (codes[j], numbers(size, LANES))]
            self.tables = self.tables._replace(F=None, own=Parts(*of_all[: 2 * parts]), other=Parts(*of_all))
            if parts == 1:  # as for a side whose rows have one feature
                self.tables = self.tables._replace(psi=None)
            else:
                self.tables = self.tables._replace(other=None)
            self.row_visits = RowVisits(pair_row.astype(index), numbers(n_pairs), x_step)  # every row has one pair
        self.tile = Tile(np.zeros((99, LANES), dtype), *np.zeros((3, 99), dtype))
        self.numbers = numbers

    @property
    def rows(self) -> tuple[Any, ...]:
        return self.indptr, self.pairs, self.tables, self.state, self.gram, 0, len(self.indptr) - 1, 0

    def changed(self) -> list[np.ndarray]:
        """What moves write to."""
        of_rows = [] if self.state.t is None else [self.state.phi_q, self.state.t]
        return [self.pairs.scores, *([] if self.tables.F is None else [self.tables.F]), *of_rows]


@kernel
def run_sums(visits, rows, pairs, tables, state, base, tile, linear, by_event, out):
    panel_simd.gather_rows(rows, tables, state, base, 0, len(rows.row), tile, linear, out[37])
    panel_simd.sum_first(tile, linear, len(rows.row), out[34:36])
    panel_simd.sum_rest(rows, state, linear, 0, len(rows.row), out[36])
    if state.t is not None:
        panel_simd.sum_outer(tile, len(rows.row), out[17:34])
    if by_event:
        panel_simd.pair_rows(visits, pairs, tables, base, 0, len(visits.pair), tile)
    else:
        panel_simd.gather_pairs(visits, pairs, tables, base, 0, len(visits.pair), tile)
    panel_simd.sum_outer(tile, len(visits.pair), out[0:17])
    if state.t is not None:
        panel_simd.sum_shifts(tile, len(visits.pair), out[38:40])


@kernel
def run_moves(visits, rows, pairs, tables, state, base, delta, tile):
    panel_simd.gather_pairs(visits, pairs, tables, base, 0, len(visits.pair), tile)
    panel_simd.move_pairs(visits, pairs, tile, delta, 0, len(visits.pair))
    panel_simd.move_rows(rows, tables, state, base, delta, 0.4, 0.5, 0, len(rows.row))


@kernel
def run_events(levels, pairs, tables, state, moves, lo, hi):
    panel_simd.move_events(levels, pairs, tables, state, moves, 0.5, lo, hi)


@kernel
def run_rows(indptr, pairs, tables, state, gram, lo, hi, at, slope, curvature, of_q, u, path, line):
    panel_rows.gradients(indptr, pairs, tables, state, gram, lo, hi, at, slope, curvature, of_q)
    panel_rows.products(indptr, pairs, tables, state, gram, lo, hi, at, u)
    panel_rows.line(indptr, pairs, tables, state, gram, lo, hi, at, path, line)


@kernel
def run_advance(indptr, pairs, tables, state, gram, lo, hi, at, path):
    panel_rows.advance(indptr, pairs, tables, state, gram, lo, hi, at, path, 0.8)


@kernel
def run_history(sequence, x, x2, indptr, pairs, tables, state, gram, P, squares, u, room, out, product, line):
    panel_histories.gradient(sequence, x, x2, indptr, pairs, tables, state, gram, room, out)
    panel_histories.product(sequence, x, indptr, pairs, tables, state, gram, P, u, room.adjoint, product)
    panel_histories.loss_along(sequence, x, x2, indptr, pairs, tables, state, gram, P, squares, line)
    panel_histories.move(sequence, x, x2, indptr, pairs, tables, state, gram, P, squares, 0.8)


def assert_close(found: Any, expected: Any, dtype: type) -> None:
    scale = 1.0 + float(np.abs(expected).max(initial=0.0))
    np.testing.assert_allclose(found, expected, atol=scale * (2e-5 if dtype is np.float32 else 1e-12), rtol=0)


@given(seeds, variants)
def test_sums_in_registers_equal_the_plain_ones(seed: int, variant: tuple[type, bool, int]) -> None:
    dtype, pairwise, parts = variant
    r = Random(seed, dtype, pairwise, parts)
    found, expected = np.zeros((40, LANES)), np.zeros((40, LANES))
    visits, rows, tile, linear = r.pair_visits, r.row_visits, r.tile, np.zeros(99, dtype)
    run_sums(visits, rows, r.pairs, r.tables, r.state, r.base, tile, linear, parts > 0, found)
    n = len(rows.row)
    panel_simd.gather_rows_plain(rows, r.tables, r.state, r.base, 0, n, tile, linear, expected[37])
    panel_simd.sum_first_plain(tile, linear, n, expected[34:36])
    panel_simd.sum_rest_plain(rows, r.state, linear, 0, n, expected[36])
    if pairwise:
        panel_simd.sum_outer_plain(tile, n, expected[17:34])
    panel_simd.gather_pairs_plain(visits, r.pairs, r.tables, r.base, 0, len(visits.pair), tile)
    panel_simd.sum_outer_plain(tile, len(visits.pair), expected[:17])
    if pairwise:
        panel_simd.sum_shifts_plain(r.tile, len(visits.pair), expected[38:40])
    for block in (slice(1, 17), slice(18, 34)):  # rows after the eighth may have anything before theirs
        for matrix in (found[block], expected[block]):
            matrix[8:, :8] = 0.0
    assert_close(found, expected, dtype)


@given(seeds, variants)
def test_moves_in_registers_equal_the_plain_ones(seed: int, variant: tuple[type, bool, int]) -> None:
    dtype, pairwise, parts = variant
    r, plain = Random(seed, dtype, pairwise, parts), Random(seed, dtype, pairwise, parts)
    run_moves(r.pair_visits, r.row_visits, r.pairs, r.tables, r.state, r.base, r.delta, r.tile)
    pairs, rows = plain.pair_visits, plain.row_visits
    panel_simd.gather_pairs_plain(pairs, plain.pairs, plain.tables, plain.base, 0, len(pairs.pair), plain.tile)
    panel_simd.move_pairs_plain(pairs, plain.pairs, plain.tile, plain.delta, 0, len(pairs.pair))
    panel_simd.move_rows_plain(rows, plain.tables, plain.state, plain.base, plain.delta, 0.4, 0.5, 0, len(rows.row))
    for found, expected in zip(r.changed(), plain.changed(), strict=True):
        assert_close(found, expected, dtype)


@given(seeds, st.sampled_from(VARIANTS[:3]))
def test_moves_of_events_equal_the_plain_ones(seed: int, variant: tuple[type, bool, int]) -> None:
    dtype, pairwise, parts = variant
    r, plain = Random(seed, dtype, pairwise, parts), Random(seed, dtype, pairwise, parts)
    n, levels = min(len(r.indptr) - 1, len(r.pairs.scores)), 4
    codes, step = r.random.integers(0, levels + 1, n).astype(np.uint32), seed % 2  # the last is none
    rows = EventLevels(codes, r.numbers(n), step)
    moves = Moves(r.numbers(levels, LANES), r.numbers(levels, LANES), r.numbers(levels), r.numbers(levels))
    lo = seed % max(n, 1)
    run_events(rows, r.pairs, r.tables, r.state, moves, lo, n)
    panel_simd.move_events_plain(rows, plain.pairs, plain.tables, plain.state, moves, 0.5, lo, n)
    for found, expected in zip(r.changed(), plain.changed(), strict=True):
        assert_close(found, expected, dtype)


@given(seeds, st.sampled_from(VARIANTS[:2]))
def test_passes_over_rows_equal_the_plain_ones(seed: int, variant: tuple[type, bool, int]) -> None:
    dtype, pairwise, _ = variant
    r, plain = Random(seed, dtype, pairwise), Random(seed, dtype, pairwise)
    n = len(r.indptr) - 1
    found, expected = (
        [np.zeros((n, LANES), dtype), np.zeros((n, LANES), dtype), np.zeros(n, dtype), one.path.u.copy(), one.path, np.zeros(4)]
        for one in (r, plain)
    )
    run_rows(*r.rows, *found)
    panel_rows.gradients_plain(*plain.rows, *expected[:3])
    panel_rows.products_plain(*plain.rows, expected[3])
    panel_rows.line_plain(*plain.rows, *expected[4:])
    run_advance(*r.rows, r.path)
    panel_rows.advance_plain(*plain.rows, plain.path, 0.8)
    for one, other in zip([*found[:4], found[5], *r.changed()], [*expected[:4], expected[5], *plain.changed()], strict=True):
        assert_close(one, other, dtype)


@given(seeds, st.sampled_from(VARIANTS[:2]), st.integers(1, 6), st.sampled_from([0.5, 1.0, None]))
def test_passes_over_sequences_equal_the_plain_ones(
    seed: int, variant: tuple[type, bool, int], last: int, decay: float | None
) -> None:
    """With rows that share a history, and rows without one; a decay that differs from event to event is None."""
    dtype, pairwise, _ = variant
    r, plain = Random(seed, dtype, pairwise), Random(seed, dtype, pairwise)
    random, levels = r.random, 5
    rows = len(r.indptr) - 1
    lo = int(random.integers(0, rows + 1))
    count = np.sort(random.integers(0, 9, rows - lo)).astype(np.uint32)
    events = int(count.max(initial=0))
    sequence = PanelSequence(lo, 2, random.integers(0, levels, events).astype(np.uint32), count)
    if decay is None:
        x = RunningSum(random.random(events + 3), last, 1.0, random.random(events + 2), random.random(events + 3))
    else:
        x = RunningSum(decay, last, 1.0, decay**last, random.random(last + 1))
    x2 = SquareSum(x.decay**2, random.random(events + 2), random.random(events + 2), random.random(len(x.scale)))
    P, squares = r.numbers(levels, LANES), random.normal(size=(levels, 2))

    def room() -> tuple[Any, ...]:
        of_rows = np.empty((rows, LANES), dtype), np.empty((rows, LANES), dtype), np.empty(rows, dtype)
        adjoints = Adjoints(*of_rows, np.empty((events, LANES), dtype), np.empty((events, LANES), dtype), np.empty(events))
        sums = Sums(np.ones((levels, LANES), dtype), np.ones((levels, LANES), dtype), np.ones(levels, dtype))
        return np.empty((rows, LANES), dtype), adjoints, sums, np.ones((levels, LANES), dtype), np.zeros(4)

    (u, adjoints, *found), (_, _, *expected) = room(), room()
    run_history(sequence, x, x2, *r.rows[:5], P, squares, u, adjoints, *found)
    of_rows = plain.rows[:5]
    panel_histories.gradient_plain(sequence, x, x2, *of_rows, adjoints, expected[0])
    panel_histories.product_plain(sequence, x, *of_rows, P, u, adjoints.adjoint, expected[1])
    panel_histories.loss_along_plain(sequence, x, x2, *of_rows, P, squares, expected[2])
    panel_histories.move_plain(sequence, x, x2, *of_rows, P, squares, 0.8)
    for one, other in zip([*found[0], *found[1:], *r.changed()], [*expected[0], *expected[1:], *plain.changed()], strict=True):
        assert_close(one, other, dtype)


# the whole sweep


Coordinates = Iterator[tuple[str, tuple[int, ...]]]


def dense_steps(problem: Problem, parameters: dict[str, np.ndarray], order: Coordinates) -> None:
    """The exact minimum of the dense objective in one coordinate after the other; a score is linear in each."""
    raw, penalties = problem.raw, problem.penalties()
    y, alpha = np.zeros(problem.feedback.shape), np.full(problem.feedback.shape, problem.alpha0)
    m, n = raw["m"], raw["n"]
    alpha *= np.outer(np.ones(len(alpha)) if m is None else m, np.ones(alpha.shape[1]) if n is None else n)
    c, i = raw["cells"].T
    y[c, i], alpha[c, i] = raw["y"], raw["alpha"]
    for letter, index in order:
        value = parameters[letter]
        scores = problem.score(parameters)
        value[index] += 1.0
        slope = problem.score(parameters) - scores
        value[index] -= 1.0
        l2 = float(np.broadcast_to(penalties[letter], value.shape)[index])
        curvature = float(np.sum(alpha * slope**2)) + l2
        if curvature > 1e-14 * alpha.sum():
            value[index] -= (float(np.sum(alpha * (scores - y) * slope)) + l2 * value[index]) / curvature
        else:
            value[index] = 0.0


def by_panel(letter: str, fields: list[int], k: int) -> Coordinates:
    """Panel, field, level, dimension."""
    for first in range(0, k, LANES):
        start = 0
        for width in fields:
            for level in range(start, start + width):
                for f in range(first, min(first + LANES, k)):
                    yield letter, (level, f)
            start += width


def one_hot_problem(
    name: str, seed: int, k: int, alpha0: float, strength: float, weighted: bool, values: bool, events: bool, nested: bool
) -> Problem:
    """A problem of the model with one-hot fields alone, on both sides; ``events``: each context has one pair; ``nested``: the
    contexts' first field has a level in each, and in a level the others are constant."""
    problem = make(name, seed, 8, 6, k, "mixed", weighted, strength, 0.5, alpha0)
    random = np.random.default_rng(seed)
    if events:
        n_items, n_events = 6, 9
        cells = np.stack([np.arange(n_events), random.integers(0, n_items, n_events)], axis=1)
        raw = problem.raw = {
            "cells": cells,
            "y": random.uniform(0.5, 1.5, n_events),
            "alpha": random.uniform(0.01, 3.0, n_events),
            "m": random.uniform(0.0, 2.0, n_events) if weighted else None,
            "n": random.uniform(0.0, 2.0, n_items) if weighted else None,
        }
        weights = {"context_weight": raw["m"], "item_weight": raw["n"]}
        problem.feedback = ep.Feedback(*cells.T, raw["y"], raw["alpha"], shape=(n_events, n_items), **weights)

    def fields(n: int, sizes: tuple[int, ...]) -> dict[str, Any]:
        codes = [random.integers(0, size, n) for size in sizes]
        hot = [np.eye(size)[code] * (random.random((n, 1)) < 0.8) for code, size in zip(codes, sizes, strict=True)]
        if values:
            hot[1] *= random.normal(size=(n, 1))
        return {f"f{j}": sp.csr_array(one) for j, one in enumerate(hot)}

    contexts, items = fields(problem.feedback.n_contexts, SIZES), fields(problem.feedback.n_items, SIZES[:2])
    if nested:
        level = random.permutation(np.arange(problem.feedback.n_contexts) % OUTER)
        contexts = {name: sp.csr_array(field.toarray()[level]) for name, field in fields(OUTER, SIZES[1:]).items()}
        contexts = {"first": sp.csr_array(np.eye(OUTER)[level]), **contexts}
    if events and seed % 2:
        items = {"f0": sp.eye_array(problem.feedback.n_items, format="csr")}
    X, Z = (np.hstack([x.toarray() for x in side.values()]) for side in (contexts, items))
    m, n = problem.feedback.total_weight(alpha0)
    problem.arguments = {"contexts": contexts, "items": items}
    problem.score = (reference.fm if name == "FM" else reference.mfsi)(X, Z)
    x2, z2 = (X**2).T @ m, (Z**2).T @ n
    problem.weights = {"W": x2[:, None], "H": z2[:, None]}
    if name == "FM":
        problem.weights |= {"b": m.sum(), "w": x2, "h": z2}
    return problem


SIZES, OUTER = (3, 2, 2), 7
WAYS: dict[str, tuple[bool, int, int]] = {  # events; rows per joint level; most parts
    "events, fields nested in the first": (True, 2, 0),
    "events, fields nested in the first, sums of parts": (True, 2, 3),
    "rows with many pairs": (False, 10**9, 0),
    "events, vectors stored": (True, 10**9, 0),
    "events, fields joined": (True, 0, 0),
    "events, fields joined in part, sums of parts": (True, 2, 3),
}


@pytest.mark.parametrize("name", ["MFSI", "FM"])
@pytest.mark.parametrize("way", WAYS)
@given(
    seed=seeds,
    k=st.sampled_from([1, 3, 16, 18]),
    alpha0=st.sampled_from([0.0, 0.3, 2.0]),
    strength=st.sampled_from([0.0, 0.1]),
    weighted=st.booleans(),
    values=st.booleans(),
)
def test_one_hot_fields_are_swept_as_by_dense_coordinate_descent(
    name: str, way: str, seed: int, k: int, alpha0: float, strength: float, weighted: bool, values: bool
) -> None:
    """In the order panel, field, level, dimension, for features of any value; whatever way the vectors and sums come about."""
    if strength == 0.0:
        k = min(k, 3)  # without L2, steps in more dimensions than there are rows are rounding
    events, rows_per_cell, most = WAYS[way]
    problem = one_hot_problem(name, seed, k, alpha0, strength, weighted, values, events, "nested" in way)
    with pytest.MonkeyPatch.context() as patch:
        for setting, value in (("ROWS_PER_CELL", rows_per_cell), ("MOST", most), ("ROWS_PER_LEVEL", 0), ("FEWEST_ROWS", 0)):
            patch.setattr(level_parts, setting, value)
        patch.setattr(panel_sweep, "FEWEST_ROWS", 0 if most else 10**9)
        patch.setattr(panel_sources, "MOST", most)
        solver = problem.solver(rotate=False, field_solver="block")
        expected = {letter: value.astype(float) for letter, value in shown(solver).items()}
        sweeps = solver.sweeps()
        for letter, linear in (("W", ["b", "w"]), ("H", ["h"])):
            next(sweeps)
            first = [(x, (j,)) for x in linear if name == "FM" for j in range(len(expected[x]))]
            side_of = problem.arguments["contexts" if letter == "W" else "items"]
            widths = [field.shape[1] for field in side_of.values()]
            dense_steps(problem, expected, iter([*first, *by_panel(letter, widths, k)]))
            for parameter, value in shown(solver).items():
                scale = max(1.0, float(np.abs(expected[parameter]).max()))
                np.testing.assert_allclose(value, expected[parameter], atol=1e-7 * scale, rtol=0, err_msg=parameter)


def panels_only(patch: pytest.MonkeyPatch) -> list[bool]:
    """Makes a note of whether each side could be swept in panels."""
    noted: list[bool] = []
    original: Callable[..., bool] = side.Side.sweep_panels

    def noting(self: Any, blocks: Any, settings: Any) -> bool:
        noted.append(original(self, blocks, settings))
        return noted[-1]

    patch.setattr(side.Side, "sweep_panels", noting)
    return noted


@pytest.mark.parametrize("name", ["MFSI", "FM", "sum of towers"])
@pytest.mark.parametrize("rotate", [False, True])
@given(data=st.data())
def test_scores_and_vectors_follow(name: str, rotate: bool, data: st.DataObject) -> None:
    """What a sweep leaves behind is what the parameters give, and the objective is lower."""
    problem = data.draw(problems(name, max_size=9, max_k=20))
    with pytest.MonkeyPatch.context() as patch:
        noted = panels_only(patch)
        solver = problem.solver(rotate=rotate, field_solver="block")
        before = solver.value().objective
        for _ in solver.sweeps():
            after, fresh = solver.value().objective, recomputed(solver)
            scale = 1e-9 * (problem.scale(tuple(solver.engine.objective.grams.values())) + before)  # type: ignore[attr-defined,arg-type]
            assert after == pytest.approx(fresh, abs=scale, rel=1e-9)
            assert after <= before + scale
            before = after
    assert noted
    assert all(noted)


def recomputed(solver: ICD) -> float:
    """The objective from the parameters alone."""
    engine = solver.engine
    for name in ("context", "item"):
        engine.place(name)
        engine.update_gram(name)
    engine.rescore()
    return solver.value().objective


@pytest.mark.full
@pytest.mark.parametrize("model", [ep.FM, ep.MFSI])
def test_users_with_attributes_share_a_pass(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Attributes nested in users, of whom one has so many events that they are cut into pieces; vectors as sums of few."""
    monkeypatch.setattr(level_parts, "FEWEST_ROWS", 0)
    random = np.random.default_rng(1)
    n, users, items = 60_000, 700, 300
    user = np.sort(np.where(random.random(n) < 0.35, 5, random.integers(0, users, n)))
    attributes = {"kind": random.integers(-1, 3, users), "age": random.integers(0, 7, users)}
    contexts = {
        "user": ep.Levels(user, users + 1),  # one without events
        **{name: ep.Levels(codes[user]) for name, codes in attributes.items()},
        "previous": ep.Levels(random.integers(-1, items, n)),
    }
    feedback = ep.Feedback(np.arange(n), np.minimum(random.zipf(1.5, n), items) - 1, shape=(n, items))
    fits = [model(20, epochs=2, n_threads=threads).fit(feedback, contexts=contexts) for threads in (1, 2, 3)]
    for name, value in fits[0].parameters_.items():
        for other in fits[1:]:
            np.testing.assert_array_equal(other.parameters_[name], value)
    with Workers(2) as workers:
        solver = model(20).build_solver(feedback, contexts, None, workers)
        assert solver.towers["context"].level_parts is not None
        before = np.inf
        for _ in solver.sweeps():
            after = solver.value().objective
            assert after < before
            assert after == pytest.approx(recomputed(solver), rel=1e-6)
            before = after
        (plan,) = (plan for _, plan in solver.engine.objective._pairs["context"]._panel_plans.values())  # type: ignore[attr-defined]
        assert [type(stage).__name__ for stage in plan.stages] == ["NestedStage", "LevelStage"]
    clear = model(20, epochs=2, field_solver="cd").fit(feedback, contexts=contexts)
    assert fits[0].history_[-1].objective < 1.02 * clear.history_[-1].objective


@pytest.mark.full
@pytest.mark.parametrize("model", [ep.FM, ep.MFSI])
def test_many_events_have_the_same_bits_on_any_number_of_threads(model: Any) -> None:
    """With levels that are cut into pieces, fields that share passes, and features with values."""
    random = np.random.default_rng(0)
    n, items = 60_000, 300
    user, kind = np.sort(random.integers(0, 700, n)), random.integers(0, 3, n)
    contexts = {
        "kind": ep.Levels(kind),  # next to a field with many levels: its own have 20,000 rows each
        "user": ep.Levels(user),
        "hour": ep.Levels(random.integers(0, 24, n)),
        "day": ep.Levels(random.integers(0, 7, n)),
        "x": sp.csr_array((random.normal(size=n), (np.arange(n), random.integers(0, 5, n)))),
        "tags": sp.random_array((n, 9), density=0.2, rng=random, format="csr"),
    }
    feedback = ep.Feedback(np.arange(n), np.minimum(random.zipf(1.5, n), items) - 1, shape=(n, items))
    fits = [model(20, epochs=2, n_threads=threads).fit(feedback, contexts=contexts) for threads in (1, 2, 3)]
    for name, value in fits[0].parameters_.items():
        for other in fits[1:]:
            np.testing.assert_array_equal(other.parameters_[name], value)
    with Workers(2) as workers:
        solver = model(20).build_solver(feedback, contexts, None, workers)
        for _ in solver.sweeps():
            assert solver.value().objective == pytest.approx(recomputed(solver), rel=1e-6)
    clear = model(20, epochs=2, field_solver="cd").fit(feedback, contexts=contexts)
    assert fits[0].history_[-1].objective < 1.02 * clear.history_[-1].objective


@pytest.mark.parametrize(
    "tower",
    [
        Concat(Machine(3, "a", "b"), Linear(2, "tags")),
        Concat(Linear(2, "tags"), Machine(3, "a", "tags")),
        Sum(Embedding(3, "a"), Linear(3, "b", "tags"), Embedding(3)),
    ],
    ids=["machine first", "machine last", "sum"],
)
@given(seed=seeds)
def test_parts_are_swept_in_panels(tower: Any, seed: int) -> None:
    """Towers with panels inside others: scores follow, the objective falls."""
    random = np.random.default_rng(seed)
    n, items = 12, 5
    contexts = {"a": ep.Levels(random.integers(-1, 3, n), 3), "b": ep.Levels(random.integers(0, 2, n), 2)}
    contexts["tags"] = sp.random_array((n, 4), density=0.5, rng=random, format="csr")
    cells = np.argwhere(random.random((n, items)) < 0.4)
    feedback = ep.Feedback(*cells.T, shape=(n, items))
    settings: dict[str, Any] = {"unobserved_weight": 0.2, "regularization": 0.01, "dtype": "float64"}
    model = ep.Separable(context=tower, item=Embedding(tower.n_dims), **settings)
    with pytest.MonkeyPatch.context() as patch:
        noted = panels_only(patch)
        solver = model.build_solver(feedback, contexts, None, Workers(1))
        before = solver.value().objective
        for _ in solver.sweeps():
            after = solver.value().objective
            assert after == pytest.approx(recomputed(solver), rel=1e-9)
            assert after <= before * (1 + 1e-9)
            before = after
    assert any(noted)
