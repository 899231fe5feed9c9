"""Steps on the weights of one field for one dimension: exact by feature, or the whole field as a block.

In a one-hot field no two features share a row, so each feature's exact step is independent of the others. Where they do share rows
(a history), one feature at a time is serial; the block solve takes a few steps of conjugate gradients on the whole field
instead, which lowers the same objective and runs in parallel.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from everypair.columns.fields import Field, OneHotField, OnesField, SparseField
from everypair.columns.history_field import HistoryField
from everypair.engine.conjugate_gradients import conjugate_gradients, dot, step_length
from everypair.kernels import sparse
from everypair.kernels.jit import pick, slice_of
from everypair.kernels.machine_state import G_F, G_Q, H_FF, H_FQ, H_QQ, PHI, move_all
from everypair.kernels.newton import NewtonSettings
from everypair.kernels.one_hot import linear_steps
from everypair.kernels.sparse import SparseRows
from everypair.runtime.group import Group
from everypair.runtime.numerics import Values, tiny
from everypair.runtime.parallel import Workers
from everypair.towers.steps.one_hot import Stage, step_linear_rows, step_linear_runs, step_machine_rows, step_machine_runs
from everypair.towers.steps.sequences import by_sequence, step_linear_history, step_machine_history


class Solver(NamedTuple):
    """How to step: the step size eta, "block" or "cd" for fields whose features share rows, and the threads."""

    step_size: float
    field_solver: str
    workers: Workers


def _by_feature(field: Field, solver: Solver) -> np.ndarray | None:
    """Bounds of ranges of features to sweep one at a time, or None for the block solve."""
    if not isinstance(field, OneHotField | SparseField | OnesField):
        return None
    if field.one_hot:
        return field.columns.ranges(solver.workers)
    if solver.field_solver == "cd" or field.shape[1] == 1:
        return np.array([0, field.shape[1]])
    return None


def step_linear_stage(
    stage: Stage, w: np.ndarray, penalty: Values, g: np.ndarray, h: np.ndarray, delta: np.ndarray, solver: Solver
) -> None:
    """:func:`step_linear` for all fields of a stage; ``w`` and ``penalty`` are those of all features."""
    if stage.runs is not None and not solver.workers.group.divided:
        step_linear_runs(stage, w, penalty, g, h, delta, solver.step_size, solver.workers)
        return
    for field, at in stage.fields:
        step_linear(field, w[at], slice_of(penalty, at.start, at.stop), g, h, delta, solver)


def step_linear(
    field: Field, w: np.ndarray, penalty: Values, g: np.ndarray, h: np.ndarray, delta: np.ndarray, solver: Solver
) -> None:
    """Minimise over the field's weights ``w`` of one dimension, ``phi_f = X w + ...``.

    ``g`` and ``h`` are the derivatives with respect to ``phi_f``; ``g`` follows the move, ``delta`` collects it.
    """
    group = solver.workers.group
    if group.divided:
        solver = solver._replace(workers=solver.workers.alone())
        if not field.local:
            step_linear_divided(field, w, penalty, g, h, delta, solver, group)
            return
    if isinstance(field, OneHotField) and field.by_row:
        step_linear_rows(field, w, penalty, g, h, delta, solver.step_size, solver.workers)
        return
    bounds = _by_feature(field, solver)
    if bounds is not None:
        columns = field.columns.arrays  # type: ignore[attr-defined]
        solver.workers.run(sparse.step_linear, bounds, columns, penalty, solver.step_size, w, g, h, delta)
        return
    if solver.field_solver == "cd" and field.makes_columns:
        for column, l2, weight in _dense_columns(field, w, penalty):
            solver.workers.run(sparse.step_linear, [0, 1], column, l2, solver.step_size, weight, g, h, delta)
        return
    workers = solver.workers
    if isinstance(field, HistoryField) and by_sequence(field, penalty):
        step_linear_history(field, w, penalty, g, h, delta, solver.step_size, workers)
        return
    diagonal = np.ones_like(w)
    if field.has_squares:
        diagonal = field.multiply_squared_transposed(h, workers) + penalty
        _drop_unsupported(field, w, diagonal, g, h, delta, workers)

    def apply(p: np.ndarray) -> tuple[np.ndarray, tuple[np.ndarray]]:
        u = field.multiply(p, workers)
        return field.multiply_transposed(h * u, workers) + penalty * p, (u,)

    gradient = field.multiply_transposed(g, workers) + penalty * w
    found = conjugate_gradients(apply, -gradient, diagonal)
    if found is None:
        return
    step, (u,) = found
    w += (solver.step_size * step).astype(w.dtype)
    u *= solver.step_size
    g += h * u
    delta += u


def step_linear_divided(
    field: Field, w: np.ndarray, penalty: Values, g: np.ndarray, h: np.ndarray, delta: np.ndarray, solver: Solver, group: Group
) -> None:
    """:func:`step_linear` where rows are divided among a group: sums over rows are its totals."""
    workers = solver.workers

    def sums(z: np.ndarray, squared: bool = False) -> np.ndarray:
        multiply = field.multiply_squared_transposed if squared else field.multiply_transposed
        return multiply(z.astype(np.float64, copy=False), workers)

    if isinstance(field, HistoryField):
        w[field.unseen & (penalty == 0.0)] = 0.0  # the loss does not depend on them
    slope, curvature = group.total(np.stack([sums(g), sums(h, squared=True) if field.has_squares else np.ones(len(w))]))
    if not field.has_squares:
        curvature = np.ones(len(w))
    if field.one_hot or field.shape[1] == 1:
        by_level, step = np.zeros((1, len(w) + 1, 2)), np.empty(len(w) + 1)
        by_level[0, :-1] = np.stack([slope, curvature], axis=1)
        linear_steps(0, len(w), by_level, penalty, solver.step_size, w, step)
        _follow(field, step[:-1].astype(w.dtype), g, h, delta, workers)
        return
    diagonal = np.maximum(curvature, 0.0) + penalty
    idle = (diagonal <= 0.0) & (w != 0.0)
    if idle.any():
        step = np.where(idle, -w, 0.0).astype(w.dtype)
        w += step
        _follow(field, step, g, h, delta, workers)

    def apply(p: np.ndarray) -> tuple[np.ndarray, tuple[()]]:
        return group.total(sums(h * field.multiply(p.astype(w.dtype), workers))) + penalty * p, ()

    found = conjugate_gradients(apply, -(slope + penalty * w).astype(w.dtype), diagonal)
    if found is not None:
        step = (solver.step_size * found[0]).astype(w.dtype)
        w += step
        _follow(field, step, g, h, delta, workers)


def _follow(field: Field, step: np.ndarray, g: np.ndarray, h: np.ndarray, delta: np.ndarray, workers: Workers) -> None:
    """Gradients and vectors after a step."""
    u = field.multiply(step, workers)
    g += h * u
    delta += u


def _dense_columns(field: Field, w: np.ndarray, penalty: Values) -> Iterator[tuple[SparseRows, Values, np.ndarray]]:
    """The columns of a field that makes them one at a time: each as a matrix of one column, its L2 weight, and its weight."""
    indptr, rows = np.array([0, field.shape[0]]), np.arange(field.shape[0])
    for j, x in enumerate(field.iterate_columns()):
        yield SparseRows(indptr, rows, x), pick(penalty, j), w[j : j + 1]


def step_machine_stage(stage: Stage, w: np.ndarray, penalty: Values, state: np.ndarray, solver: Solver) -> None:
    """:func:`step_machine` for all fields of a stage; ``w`` and ``penalty`` are those of all features."""
    if stage.runs is not None and not solver.workers.group.divided:
        step_machine_runs(stage, w, penalty, state, solver.step_size, tiny(w.dtype), solver.workers)
        return
    for field, at in stage.fields:
        step_machine(field, w[at], slice_of(penalty, at.start, at.stop), state, solver, stage.last)


def step_machine(field: Field, w: np.ndarray, penalty: Values, state: np.ndarray, solver: Solver, last: bool = False) -> None:
    r"""Lower the loss over the field's factors ``w`` of dimension f in a factorization machine.

    ``state`` is that of :mod:`everypair.kernels.machine_state`, (8, rows), and follows the moves; after the ``last`` steps of a
    dimension only the sums of the moves are needed.

    One feature at a time is exact. The joint problem of a field whose features share rows is not quadratic: with
    :math:`u = X \delta`, the step :math:`t \delta` moves :math:`\phi_f` by :math:`t u` and :math:`\phi_q` by
    :math:`t p + t^2 r`, where :math:`p = \phi_f u - X^2 (w \delta)` and :math:`r = (u^2 - X^2 \delta^2) / 2`. So the direction
    comes from conjugate gradients on a simpler problem (:math:`p = \phi_f u` and :math:`r = 0`: products of features with
    themselves are left in, and a row is a quadratic in u alone), and the length from the exact minimum of the loss along it, a
    polynomial of degree four in t. The objective never rises.
    """
    if solver.workers.group.divided:
        raise NotImplementedError("steps of a factorization machine by dimension, with rows that are divided among a group")
    if isinstance(field, OneHotField) and field.by_row:
        step_machine_rows(field, w, penalty, state, solver.step_size, tiny(w.dtype), last, solver.workers)
        return
    bounds = _by_feature(field, solver)
    if bounds is not None or (solver.field_solver == "cd" and field.makes_columns):
        packed = np.ascontiguousarray(state.T)  # features visit rows in any order: the numbers of a row lie together
        settings = NewtonSettings(penalty, solver.step_size, tiny(w.dtype))
        if bounds is not None:
            solver.workers.run(sparse.step_machine, bounds, field.columns.arrays, settings, w, packed)  # type: ignore[attr-defined]
        else:
            for column, l2, weight in _dense_columns(field, w, penalty):
                solver.workers.run(sparse.step_machine, [0, 1], column, settings._replace(penalty=l2), weight, packed)
        state[:] = packed.T
        return
    workers = solver.workers
    if isinstance(field, HistoryField) and by_sequence(field, penalty):
        step_machine_history(field, w, penalty, state, solver.step_size, last, workers)
        return
    _drop_unsupported_factors(field, w, penalty, state, workers)
    g_f, g_q, h_ff, h_fq, h_qq, phi = (state[j] for j in (G_F, G_Q, H_FF, H_FQ, H_QQ, PHI))

    curvature = np.maximum(h_ff + phi * (2 * h_fq + phi * h_qq), 0.0)

    def apply(d: np.ndarray) -> tuple[np.ndarray, tuple[np.ndarray]]:
        u = field.multiply(d, workers)
        return field.multiply_transposed(curvature * u, workers) + penalty * d, (u,)

    diagonal = field.multiply_squared_transposed(curvature, workers) + penalty
    slope = field.multiply_transposed(g_f + phi * g_q, workers)
    gradient = slope - w * field.multiply_squared_transposed(g_q, workers) + penalty * w
    found = conjugate_gradients(apply, -gradient, diagonal)
    if found is None:
        return
    direction, (u,) = found
    p = phi * u - field.multiply_squared(w * direction, workers)
    r = 0.5 * (u * u - field.multiply_squared(direction * direction, workers))
    loss = (
        2 * (dot(g_f, u) + dot(g_q, p)),
        2 * dot(g_q, r) + dot(h_ff * u, u) + 2 * dot(h_fq * u, p) + dot(h_qq * p, p),
        2 * (dot(h_fq * u, r) + dot(h_qq * p, r)),
        dot(h_qq * r, r),
    )
    t = solver.step_size * step_length(loss, penalty, w, direction)
    w += (t * direction).astype(w.dtype)
    _advance(state, (t * u).astype(w.dtype), (t * p + t * t * r).astype(w.dtype), workers)


def _drop_unsupported(
    field: Field, w: np.ndarray, diagonal: np.ndarray, g: np.ndarray, h: np.ndarray, delta: np.ndarray, workers: Workers
) -> None:
    """Set weights to zero that the loss does not depend on: they would keep their random start values."""
    idle = (diagonal <= 0.0) & (w != 0.0)
    if idle.any():
        step = np.where(idle, -w, 0.0).astype(w.dtype)
        w += step
        u = field.multiply(step, workers)
        g += h * u
        delta += u


def _drop_unsupported_factors(field: Field, w: np.ndarray, penalty: Values, state: np.ndarray, workers: Workers) -> None:
    """As :func:`_drop_unsupported` for a factorization machine: features of rows without loss."""
    if np.all(penalty > 0.0):
        return
    support = field.multiply_squared_transposed(state[H_FF] + state[H_QQ], workers)
    idle = (support <= 0.0) & (penalty == 0.0) & (w != 0.0)
    if idle.any():
        step = np.where(idle, -w, 0.0).astype(w.dtype)
        u = field.multiply(step, workers)
        # with step = -w on these features, X^2 (w step + step^2 / 2) = -X^2 step^2 / 2
        v = state[PHI] * u + 0.5 * (u * u + field.multiply_squared(step * step, workers))
        w += step
        _advance(state, u, v.astype(w.dtype), workers)


def _advance(state: np.ndarray, u: np.ndarray, v: np.ndarray, workers: Workers) -> None:
    """``phi_f += u`` and ``phi_q += v`` for all rows."""
    workers.run(move_all, workers.even(len(u)), u, v, state)
