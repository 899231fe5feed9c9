"""Block steps on the weights of a history: those of :mod:`everypair.towers.steps.dispatch`, in a few passes over the sequences."""

from __future__ import annotations

import numpy as np

from everypair.columns.history_field import HistoryField
from everypair.kernels import sequences as kernels
from everypair.runtime.numerics import Values
from everypair.runtime.parallel import Workers
from everypair.towers.steps.conjugate_gradients import conjugate_gradients, dot, lowest


def by_sequence(field: HistoryField, penalty: Values) -> bool:
    """Whether these steps will do: each weight has L2, or no row has its item. Other weights may turn out to have no support."""
    return field.pasts is not None and bool(np.all((penalty > 0.0) | field.nobodys))


def step_linear_history(
    field: HistoryField,
    w: np.ndarray,
    penalty: Values,
    g: np.ndarray,
    h: np.ndarray,
    delta: np.ndarray,
    eta: float,
    workers: Workers,
) -> None:
    """Lower the loss over the weights ``w`` of one dimension, ``phi_f = X w + ...``."""
    pasts, x, x2 = field.pasts, field.entries_add, field.squares_add
    assert pasts is not None
    ranges = range(len(pasts.ranges))
    sums, one = np.empty((len(ranges) - 1, 2 * len(w))), np.empty((len(ranges) - 1, len(w)))
    field.visited(2)
    workers.run(kernels.linear_gradient, ranges, pasts, x, x2, g, h, sums)
    slope, curvature = apart(sums)

    def apply(d: np.ndarray) -> tuple[np.ndarray, tuple[()]]:
        field.visited(2)
        workers.run(kernels.linear_product, ranges, pasts, x, h, np.asarray(d, np.float64), one)
        return one.sum(axis=0) + penalty * d, ()

    w[field.nobodys & (penalty == 0.0)] = 0.0  # nothing depends on them
    gradient, diagonal = slope + penalty * w, np.maximum(curvature, 0.0) + penalty
    found = conjugate_gradients(apply, -gradient.astype(w.dtype), diagonal)
    if found is not None:
        step = eta * found[0]
        w += step.astype(w.dtype)
        field.visited(1)
        workers.run(kernels.linear_advance, ranges, pasts, x, step.astype(np.float64), g, h, delta)


def step_machine_history(
    field: HistoryField, w: np.ndarray, penalty: Values, state: np.ndarray, eta: float, last: bool, workers: Workers
) -> None:
    """As :func:`step_linear_history` for a factorization machine: see :func:`everypair.towers.steps.dispatch.step_machine`."""
    pasts, x, x2 = field.pasts, field.entries_add, field.squares_add
    assert pasts is not None
    ranges = range(len(pasts.ranges))
    w[field.nobodys & (penalty == 0.0)] = 0.0  # nothing depends on them
    sums, one = np.empty((len(ranges) - 1, 2 * len(w))), np.empty((len(ranges) - 1, len(w)))
    h = np.zeros(state.shape[1], state.dtype)
    field.visited(3)
    workers.run(kernels.machine_gradient, ranges, pasts, x, x2, state, h, sums, one)
    (slope, square), curvature = apart(sums), one.sum(axis=0)
    factors = w.astype(np.float64)

    def apply(d: np.ndarray) -> tuple[np.ndarray, tuple[()]]:
        field.visited(2)
        workers.run(kernels.linear_product, ranges, pasts, x, h, np.asarray(d, np.float64), one)
        return one.sum(axis=0) + penalty * d, ()

    gradient, diagonal = slope - factors * square + penalty * factors, np.maximum(curvature, 0.0) + penalty
    found = conjugate_gradients(apply, -gradient.astype(w.dtype), diagonal)
    if found is None:
        return
    d = found[0].astype(np.float64)
    u, p, r = (np.zeros(state.shape[1], state.dtype) for _ in range(3))  # rows of no sequence stay where they are
    coefficients = np.empty((len(ranges) - 1, 4))
    field.visited(3)
    workers.run(kernels.machine_line, ranges, pasts, x, x2, state, together(d, factors * d), d * d, u, p, r, coefficients)
    l2 = (2 * dot(penalty * factors, d), dot(penalty * d, d), 0.0, 0.0)
    t = eta * lowest(*(coefficients.sum(axis=0) + l2))
    w += (t * d).astype(w.dtype)
    workers.run(kernels.machine_advance, workers.even(len(u)), t, u, p, r, last, state)


def together(v: np.ndarray, v2: np.ndarray) -> np.ndarray:
    """What each item has for entries and for squares, side by side."""
    return np.stack([v, v2], axis=1).ravel()


def apart(sums: np.ndarray) -> np.ndarray:
    """Sums of ranges that were kept side by side, added up: those for entries, and those for squares."""
    return sums.sum(axis=0).reshape(-1, 2).T
