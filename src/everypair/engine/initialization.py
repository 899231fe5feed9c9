r"""Start values of matrix factorization: an item starts at the sum of random vectors of the contexts that observed it.

A first sweep from random vectors on both sides would do little more than this. With random signs g for the contexts,

.. math:: \psi(i) \propto d_i^{-1/4} \sum_{c \in S_i} b_{ci} d_c^{-1/4} g_c, \qquad \phi(c) = 0,

where d is the sum of :math:`|b|` over a row: one power iteration on the matrix of :math:`b = \alpha y`, balanced such that neither
active contexts nor popular items dominate. The first sweep of the contexts computes their vectors. The signs of a context are a
function of its key.
"""

from __future__ import annotations

import numpy as np

from everypair.engine.feedback import Feedback, values_at
from everypair.engine.start_values import Stream
from everypair.kernels.row_vectors import add_rows
from everypair.kernels.sparse import SparseRows
from everypair.runtime.group import ALONE, Group
from everypair.runtime.numerics import Values
from everypair.runtime.parallel import Workers

BALANCE = -0.25
PANEL = 16  # dimensions whose signs are held at a time: those of all would take as much memory as the parameters


def item_vectors(feedback: Feedback, factors: int, dtype: np.dtype, seed: int, name: str, workers: Workers) -> np.ndarray:
    """Start values of the items, the parameter ``name``: one row per item, of length one on average."""
    (n, m), b = feedback.shape, feedback.b
    indptr, indices, order = feedback.by_item
    of_contexts = _balance(b, feedback.by_context.indptr).astype(dtype)[:, None]
    stream, weight = Stream(seed, "signs", name), values_at(b, order)
    matrix, ranges = SparseRows(indptr, indices, weight), workers.split(indptr)
    out, signs = np.zeros((m, factors), dtype), np.empty((0, 0), dtype)
    for first in range(0, factors, PANEL):
        width = min(PANEL, factors - first)
        if signs.shape[1] != width:
            signs = np.empty((n, width), dtype)
        signs[:] = of_contexts
        stream.multiply_by_signs(signs, feedback.context_keys, first)
        out[:, first : first + width] = _sums(matrix, signs, m, ranges, workers)
    if workers.group.divided:
        out = workers.group.total(out.astype(np.float64)).astype(dtype)
    balance = _balance(weight, indptr, workers.group).astype(dtype)[:, None]
    out *= balance
    normals = Stream(seed, "normal", name)
    for f in np.flatnonzero(~out.any(axis=0)).tolist():  # with few pairs, the signs of a dimension may cancel in every item
        out[:, f] = balance[:, 0] * normals.normals(feedback.item_keys, f, f + 1)[:, 0]
    length = float(np.sqrt(np.einsum("if,if->", out, out, dtype=np.float64) / m))
    return out / dtype.type(length) if length > 0.0 else out


def _sums(matrix: SparseRows, signs: np.ndarray, m: int, ranges: np.ndarray, workers: Workers) -> np.ndarray:
    """The sum of the contexts' signs for each item."""
    out = np.zeros((m, signs.shape[1]), signs.dtype)

    def some(start: int, stop: int) -> None:
        add_rows(start, stop, matrix, signs, out[start:stop])

    workers.run(some, ranges)
    return out


def _balance(b: Values, indptr: np.ndarray, group: Group = ALONE) -> np.ndarray:
    """``d^(-1/4)``; 0 for empty rows."""
    if np.ndim(b) == 0:
        total = abs(float(b)) * np.diff(indptr)  # type: ignore[arg-type]
    else:
        total = np.diff(np.concatenate([[0.0], np.cumsum(np.abs(b), dtype=np.float64)])[indptr])
    total = group.total(np.asarray(total, np.float64))
    return np.where(total > 0.0, np.maximum(total, np.finfo(np.float64).tiny) ** BALANCE, 0.0)
