"""Steps on one-hot fields in the order of the rows, and on several of them together where rows lie in runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from everypair.columns.features import Features
from everypair.columns.fields import Compressed, Field, OneHotField, with_none
from everypair.kernels import one_hot, row_vectors
from everypair.kernels.jit import slice_of
from everypair.kernels.machine_state import PHI
from everypair.kernels.newton import NewtonSettings
from everypair.runtime.numerics import Values
from everypair.runtime.parallel import Workers

LENGTH = 4  # average rows per run from which runs pay


class Runs(NamedTuple):
    """Consecutive rows that share their levels of some fields: where each run begins, and its level of each field."""

    rows: Compressed
    codes: list[np.ndarray]

    @property
    def bounds(self) -> np.ndarray:
        return self.rows.arrays.indptr


class Stage(NamedTuple):
    """Fields that are stepped on together, each with its slice of all features: one field, or several with common runs."""

    fields: list[tuple[Field, slice]]
    runs: Runs | None = None
    last: bool = False


def stages(features: Features) -> list[Stage]:
    """All fields, in order; consecutive ones with common runs share a stage."""
    found: list[Stage] = []
    shared: list[tuple[Field, slice]] = []
    edges = np.empty(0, bool)  # where the runs of these fields begin

    def close() -> None:
        if shared:
            starts = np.flatnonzero(edges)
            runs = Compressed(np.append(starts, len(edges)), np.empty(0, np.int32), 1.0)
            found.append(Stage(shared.copy(), Runs(runs, [field.codes[starts] for field, _ in shared])))  # type: ignore[attr-defined]
            shared.clear()

    for field, at in columns_of(features):
        if not isinstance(field, OneHotField):
            close()
            found.append(Stage([(field, at)]))
            continue
        own = np.append(True, field.codes[1:] != field.codes[:-1])[: len(field.codes)]
        both = own | edges if shared else own
        if shared and not _long(both):
            close()
            both = own
        if _long(both):
            edges = both
            shared.append((field, at))
        else:
            found.append(Stage([(field, at)]))
    close()
    return _with_last(found)


def separately(features: Features) -> list[Stage]:
    """Every field in a stage of its own."""
    return _with_last([Stage([one]) for one in columns_of(features)])


def _with_last(found: list[Stage]) -> list[Stage]:
    return [*found[:-1], found[-1]._replace(last=True)]


def spread_runs(stage: Stage, W: np.ndarray, out: np.ndarray, workers: Workers) -> None:
    """``out[f] = X W[f]`` for all fields of the stage together, for every dimension f."""
    assert stage.runs is not None
    table = np.zeros((len(W), len(stage.runs.bounds) - 1), W.dtype)
    for (_, at), codes in zip(stage.fields, stage.runs.codes, strict=True):
        table += with_none(W[:, at], axis=1)[:, codes]
    workers.run(one_hot.spread_runs, stage.runs.rows.ranges(workers), stage.runs.bounds, table, out)


def add_rows(stage: Stage, start: int, stop: int, W: np.ndarray, out: np.ndarray) -> None:
    """``out += X[start:stop] W`` for all fields of the stage; ``W`` has a row for each feature."""
    if stage.runs is None or stop == start:
        for field, at in stage.fields:
            field.add_rows(start, stop, W[at], out)
        return
    bounds = stage.runs.bounds
    first, last = np.searchsorted(bounds, start, side="right") - 1, np.searchsorted(bounds, stop)
    vectors = np.zeros((last - first, W.shape[1]), W.dtype)
    for (_, at), codes in zip(stage.fields, stage.runs.codes, strict=True):
        row_vectors.add_levels(first, last, codes, W[at], vectors)
    row_vectors.add_runs(start, stop, first, bounds, vectors, out)


def _long(edges: np.ndarray) -> bool:
    return 0 < LENGTH * int(np.count_nonzero(edges)) <= len(edges)


def columns_of(features: Features) -> Iterator[tuple[Field, slice]]:
    """Each field with its slice of all features."""
    start = 0
    for field in features.fields.values():
        yield field, slice(start, start + field.shape[1])
        start += field.shape[1]


def step_linear_runs(
    stage: Stage, w: np.ndarray, penalty: Values, g: np.ndarray, h: np.ndarray, delta: np.ndarray, eta: float, workers: Workers
) -> None:
    """Exact steps on all fields of the stage, one after the other; ``w`` and ``penalty`` are those of all features."""
    assert stage.runs is not None
    bounds, ranges = stage.runs.bounds, stage.runs.rows.ranges(workers)
    sums, U = np.empty((len(bounds) - 1, 2)), np.zeros(len(bounds) - 1)
    workers.run(one_hot.linear_runs, ranges, bounds, g, h, sums)
    for (field, at), codes in zip(stage.fields, stage.runs.codes, strict=True):
        l2, total = slice_of(penalty, at.start, at.stop), np.empty((field.shape[1] + 1, 2))
        one_hot.step_linear_runs(codes, l2, eta, sums, U, w[at], total)
    workers.run(one_hot.advance_linear_runs, ranges, bounds, U, g, h, delta)


def step_linear_rows(
    field: OneHotField,
    w: np.ndarray,
    penalty: Values,
    g: np.ndarray,
    h: np.ndarray,
    delta: np.ndarray,
    eta: float,
    workers: Workers,
) -> None:
    """Exact steps on all levels of a field."""
    sums, step = np.empty((len(field.ranges) - 1, len(w) + 1, 2)), np.empty(len(w) + 1)
    workers.run(one_hot.linear_sums, range(len(field.ranges)), field.ranges, field.codes, g, h, sums)
    workers.run(one_hot.linear_steps, workers.even(len(w)), workers.partial_totals(sums), penalty, eta, w, step)
    workers.run(one_hot.advance_linear, workers.even(len(g)), field.codes, step, g, h, delta)


def step_machine_runs(
    stage: Stage, w: np.ndarray, penalty: Values, state: np.ndarray, eta: float, tiny: float, workers: Workers
) -> None:
    """As :func:`step_linear_runs` for a factorization machine; ``state`` is (8, rows)."""
    assert stage.runs is not None
    bounds, ranges = stage.runs.bounds, stage.runs.rows.ranges(workers)
    n = len(bounds) - 1
    base = state[PHI, bounds[:-1]].astype(np.float64)
    runs = one_hot.MachineRuns(np.empty((n, one_hot.MOMENTS)), base, np.zeros(n), np.zeros(n))
    workers.run(one_hot.machine_runs, ranges, bounds, state, runs.moments)
    for (field, at), codes in zip(stage.fields, stage.runs.codes, strict=True):
        total = np.empty((field.shape[1] + 1, 2))
        settings = NewtonSettings(slice_of(penalty, at.start, at.stop), eta, tiny)
        one_hot.step_machine_runs(codes, settings, runs, w[at], total)
    workers.run(one_hot.advance_machine_runs, ranges, bounds, runs, state)


def step_machine_rows(
    field: OneHotField, w: np.ndarray, penalty: Values, state: np.ndarray, eta: float, tiny: float, last: bool, workers: Workers
) -> None:
    """As :func:`step_linear_rows` for a factorization machine; after the ``last`` steps only the sums of the moves are valid."""
    before = with_none(w)
    sums, step = np.empty((len(field.ranges) - 1, len(w) + 1, 2)), np.empty(len(w) + 1)
    workers.run(one_hot.machine_sums, range(len(field.ranges)), field.ranges, field.codes, before, tiny, state, sums)
    workers.run(one_hot.linear_steps, workers.even(len(w)), workers.partial_totals(sums), penalty, eta, w, step)
    workers.run(one_hot.advance_machine, workers.even(state.shape[1]), field.codes, before, step, last, state)
