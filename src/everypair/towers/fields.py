"""Steps on the weights of one field for one dimension: exact by feature, or the whole field as a block.

In a one-hot field no two features meet in a row, so each feature's exact step is independent of its neighbours. Where they
meet (a history), one feature at a time is serial; the block solve takes a few steps of conjugate gradients on the whole
field instead, which lowers the same objective and runs in parallel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from everypair.features import Field, OnesField, SparseField
from everypair.feedback import Values
from everypair.kernels import columns
from everypair.kernels.pairs import G_F, G_Q, H_FF, H_FQ, H_QQ, PHI
from everypair.parallel import Workers
from everypair.rounding import tiny

CG_STEPS = 3

Apply = Callable[[np.ndarray], tuple[np.ndarray, tuple[np.ndarray, ...]]]


class Solver(NamedTuple):
    """How to step: the step size eta, "block" or "cd" for fields that overlap, and the threads."""

    step_size: float
    field_solver: str
    workers: Workers


def _by_feature(field: Field, solver: Solver) -> np.ndarray | None:
    """Bounds of ranges of features to sweep one at a time, or None for the block solve."""
    if not isinstance(field, SparseField | OnesField):
        return None
    if field.one_hot:
        return field.columns.ranges(solver.workers)
    if solver.field_solver == "cd" or field.shape[1] == 1:
        return np.array([0, field.shape[1]])
    return None


def step_linear(
    field: Field, w: np.ndarray, penalty: Values, g: np.ndarray, h: np.ndarray, delta: np.ndarray, solver: Solver
) -> None:
    """Minimise over the field's weights ``w`` of one dimension, ``phi_f = X w + ...``.

    ``g`` and ``h`` are the derivatives with respect to ``phi_f``; ``g`` follows the move, ``delta`` collects it.
    """
    bounds = _by_feature(field, solver)
    if bounds is not None:
        matrix = field.columns.arrays  # type: ignore[attr-defined]
        solver.workers.run(columns.step_linear, bounds, *matrix, penalty, solver.step_size, w, g, h, delta)
        return
    if solver.field_solver == "cd" and field.makes_columns:
        for matrix, l2, weight in _dense_columns(field, w, penalty):
            solver.workers.run(columns.step_linear, [0, 1], *matrix, l2, solver.step_size, weight, g, h, delta)
        return
    workers = solver.workers
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


def _dense_columns(field: Field, w: np.ndarray, penalty: Values) -> Iterator[tuple[Any, Values, np.ndarray]]:
    """For a field that makes its columns as they are needed: each as a matrix of one column, its L2 weight, and its weight."""
    indptr, rows = np.array([0, field.shape[0]]), np.arange(field.shape[0])
    for j, x in enumerate(field.iterate_columns()):
        yield (indptr, rows, x), penalty if np.ndim(penalty) == 0 else penalty[j], w[j : j + 1]  # type: ignore[index]


def step_machine(field: Field, w: np.ndarray, penalty: Values, state: np.ndarray, solver: Solver) -> None:
    r"""Lower the loss over the field's factors ``w`` of dimension f in a factorization machine.

    ``state`` is that of :meth:`~everypair.view.View.slopes_pair`, and follows the moves.

    One feature at a time is exact. The joint problem of an overlapping field is not quadratic: with :math:`u = X \delta`, the
    step :math:`t \delta` moves :math:`\phi_f` by :math:`t u` and :math:`\phi_q` by :math:`t p + t^2 r`, where
    :math:`p = \phi_f u - X^2 (w \delta)` and :math:`r = (u^2 - X^2 \delta^2) / 2`. So: a direction from conjugate gradients
    on the linearised problem (:math:`r = 0`), and along it the exact minimum of the loss, a polynomial of degree four in t.
    The objective never rises.
    """
    bounds = _by_feature(field, solver)
    if bounds is not None:
        matrix = field.columns.arrays  # type: ignore[attr-defined]
        solver.workers.run(columns.step_machine, bounds, *matrix, penalty, solver.step_size, tiny(w.dtype), w, state)
        return
    if solver.field_solver == "cd" and field.makes_columns:
        for matrix, l2, weight in _dense_columns(field, w, penalty):
            solver.workers.run(columns.step_machine, [0, 1], *matrix, l2, solver.step_size, tiny(w.dtype), weight, state)
        return
    workers = solver.workers
    _drop_unsupported_factors(field, w, penalty, state, workers)
    g_f, g_q, h_ff, h_fq, h_qq, phi = (state[:, j].copy() for j in (G_F, G_Q, H_FF, H_FQ, H_QQ, PHI))

    def adjoint(z_f: np.ndarray, z_q: np.ndarray) -> np.ndarray:
        return field.multiply_transposed(z_f + phi * z_q, workers) - w * field.multiply_squared_transposed(z_q, workers)

    def apply(d: np.ndarray) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray]]:
        u = field.multiply(d, workers)
        p = phi * u - field.multiply_squared(w * d, workers)
        return adjoint(h_ff * u + h_fq * p, h_fq * u + h_qq * p) + penalty * d, (u, p)

    curvature = h_ff + 2 * phi * h_fq + phi * phi * h_qq
    diagonal = field.multiply_squared_transposed(np.maximum(curvature, 0.0), workers) + penalty
    gradient = adjoint(g_f, g_q) + penalty * w
    found = conjugate_gradients(apply, -gradient, diagonal)
    if found is None:
        return
    direction, (u, p) = found
    r = 0.5 * (u * u - field.multiply_squared(direction * direction, workers))
    t = solver.step_size * lowest(
        2 * (_dot(g_f, u) + _dot(g_q, p) + _dot(penalty * w, direction)),
        2 * _dot(g_q, r) + _dot(h_ff * u, u) + 2 * _dot(h_fq * u, p) + _dot(h_qq * p, p) + _dot(penalty * direction, direction),
        2 * (_dot(h_fq * u, r) + _dot(h_qq * p, r)),
        _dot(h_qq * r, r),
    )
    w += (t * direction).astype(w.dtype)
    columns.advance_machine(0, len(state), (t * u).astype(w.dtype), (t * p + t * t * r).astype(w.dtype), state)


def conjugate_gradients(apply: Apply, rhs: np.ndarray, diagonal: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]] | None:
    """A few preconditioned steps on ``A x = rhs`` from zero, each of which lowers ``x' A x - 2 rhs' x``.

    ``apply(p)`` gives ``A p`` and images of ``p`` (such as ``X p``); returned are x and its images, or None at a stationary
    point.
    """
    inverse = np.divide(1.0, diagonal, out=np.zeros_like(diagonal), where=diagonal > 0)
    x: np.ndarray | None = None
    images: list[np.ndarray] = []
    residual = rhs
    z = inverse * residual
    rz = _dot(residual, z)
    solved = rz * tiny(rhs.dtype) ** 2
    p = z
    for _ in range(CG_STEPS):
        if not rz > solved:
            break
        Ap, moved = apply(p)
        curvature = _dot(p, Ap)
        if not curvature > tiny(rhs.dtype) * _dot(diagonal * p, p):  # flat: what looks like a slope is rounding
            break
        length = rz / curvature
        if x is None:
            x, images = length * p, [length * m for m in moved]
        else:
            x = x + length * p
            images = [image + length * m for image, m in zip(images, moved, strict=True)]
        residual = residual - length * Ap
        z = inverse * residual
        before, rz = rz, _dot(residual, z)
        p = z + (rz / before) * p
    if x is None:
        return None
    return x.astype(rhs.dtype), [image.astype(rhs.dtype) for image in images]


def lowest(c1: float, c2: float, c3: float, c4: float) -> float:
    """The t in [0, 2] where ``c1 t + c2 t^2 + c3 t^3 + c4 t^4`` is lowest.

    Without the cubic and quartic terms it would be 1. The bound keeps out minima that are made of rounding errors, far away.
    """
    roots = np.roots([4 * c4, 3 * c3, 2 * c2, c1]) if np.all(np.isfinite([c1, c2, c3, c4])) else np.empty(0)
    real = np.real(roots[np.abs(np.imag(roots)) <= 1e-6 * np.abs(roots)])
    candidates = np.append(np.clip(real, 0.0, 2.0), [0.0, 2.0])
    values = candidates * (c1 + candidates * (c2 + candidates * (c3 + candidates * c4)))
    return float(candidates[np.argmin(values)])


def _drop_unsupported(
    field: Field, w: np.ndarray, diagonal: np.ndarray, g: np.ndarray, h: np.ndarray, delta: np.ndarray, workers: Workers
) -> None:
    """Weights that the loss does not depend on are zero, not what they happened to start as."""
    idle = (diagonal <= 0.0) & (w != 0.0)
    if idle.any():
        step = np.where(idle, -w, 0.0).astype(w.dtype)
        w += step
        u = field.multiply(step, workers)
        g += h * u
        delta += u


def _drop_unsupported_factors(field: Field, w: np.ndarray, penalty: Values, state: np.ndarray, workers: Workers) -> None:
    """As :func:`_drop_unsupported` for a factorization machine: features all of whose rows carry no loss."""
    if np.all(penalty > 0.0):
        return
    support = field.multiply_squared_transposed(state[:, H_FF] + state[:, H_QQ], workers)
    idle = (support <= 0.0) & (penalty == 0.0) & (w != 0.0)
    if idle.any():
        step = np.where(idle, -w, 0.0).astype(w.dtype)
        u = field.multiply(step, workers)
        # with step = -w on these features, X^2 (w step + step^2 / 2) = -X^2 step^2 / 2
        v = state[:, PHI] * u + 0.5 * (u * u + field.multiply_squared(step * step, workers))
        w += step
        columns.advance_machine(0, len(state), u, v.astype(w.dtype), state)


def _dot(x: np.ndarray, y: np.ndarray) -> float:
    return float(np.dot(np.asarray(x, np.float64), np.asarray(y, np.float64)))
