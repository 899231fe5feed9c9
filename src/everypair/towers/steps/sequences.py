"""Block steps on the weights of a history: those of :mod:`everypair.towers.steps.dispatch`, in a few passes over the sequences."""

from __future__ import annotations

import numpy as np

from everypair.columns.history_field import HistoryField
from everypair.engine.conjugate_gradients import conjugate_gradients, step_length
from everypair.kernels import sequences as kernels
from everypair.runtime.numerics import Values
from everypair.runtime.parallel import Workers


def by_sequence(field: HistoryField, penalty: Values) -> bool:
    """Whether these steps apply: each weight has L2, or no row has its item. Other weights may turn out to have no support."""
    return field.sequences is not None and bool(np.all((penalty > 0.0) | field.unseen))


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
    sequences, sums = field.sequences, field.sums
    assert sequences is not None
    ranges = range(len(sequences.ranges))
    both, one = np.empty((len(ranges) - 1, 2 * len(w))), np.empty((len(ranges) - 1, len(w)))
    field.count_visits(2)
    workers.run(kernels.linear_gradient, ranges, sequences, sums, g, h, both)
    slope, curvature = deinterleave(workers.total(both))

    def apply(d: np.ndarray) -> tuple[np.ndarray, tuple[()]]:
        field.count_visits(2)
        workers.run(kernels.linear_product, ranges, sequences, sums.entries, h, np.asarray(d, np.float64), one)
        return workers.total(one) + penalty * d, ()

    w[field.unseen & (penalty == 0.0)] = 0.0  # the loss does not depend on them
    gradient, diagonal = slope + penalty * w, np.maximum(curvature, 0.0) + penalty
    found = conjugate_gradients(apply, -gradient.astype(w.dtype), diagonal)
    if found is not None:
        step = eta * found[0]
        w += step.astype(w.dtype)
        field.count_visits(1)
        workers.run(kernels.linear_advance, ranges, sequences, sums.entries, step.astype(np.float64), g, h, delta)


def step_machine_history(
    field: HistoryField, w: np.ndarray, penalty: Values, state: np.ndarray, eta: float, last: bool, workers: Workers
) -> None:
    """As :func:`step_linear_history` for a factorization machine: see :func:`everypair.towers.steps.dispatch.step_machine`."""
    sequences, sums = field.sequences, field.sums
    assert sequences is not None
    ranges = range(len(sequences.ranges))
    w[field.unseen & (penalty == 0.0)] = 0.0  # the loss does not depend on them
    both, one = np.empty((len(ranges) - 1, 2 * len(w))), np.empty((len(ranges) - 1, len(w)))
    h = np.zeros(state.shape[1], state.dtype)
    field.count_visits(3)
    workers.run(kernels.machine_gradient, ranges, sequences, sums, state, h, both, one)
    (slope, square), curvature = deinterleave(workers.total(both)), workers.total(one)
    factors = w.astype(np.float64)

    def apply(d: np.ndarray) -> tuple[np.ndarray, tuple[()]]:
        field.count_visits(2)
        workers.run(kernels.linear_product, ranges, sequences, sums.entries, h, np.asarray(d, np.float64), one)
        return workers.total(one) + penalty * d, ()

    gradient, diagonal = slope - factors * square + penalty * factors, np.maximum(curvature, 0.0) + penalty
    found = conjugate_gradients(apply, -gradient.astype(w.dtype), diagonal)
    if found is None:
        return
    d = found[0].astype(np.float64)
    line = kernels.Line(*(np.zeros(state.shape[1], state.dtype) for _ in range(3)))  # rows of no sequence stay where they are
    coefficients = np.empty((len(ranges) - 1, 4))
    field.count_visits(3)
    workers.run(kernels.machine_line, ranges, sequences, sums, state, interleave(d, factors * d), d * d, line, coefficients)
    t = eta * step_length(workers.total(coefficients), penalty, factors, d)
    w += (t * d).astype(w.dtype)
    workers.run(kernels.machine_advance, workers.even(state.shape[1]), t, line, last, state)


def interleave(v: np.ndarray, v2: np.ndarray) -> np.ndarray:
    """The values of each item for entries and for squares, side by side."""
    return np.stack([v, v2], axis=1).ravel()


def deinterleave(sums: np.ndarray) -> np.ndarray:
    """Interleaved sums apart: those for entries, and those for squares."""
    return sums.reshape(-1, 2).T
