r"""Start values of matrix factorization: an item starts at the sum of random vectors of the contexts that observed it.

A first sweep from random vectors on both sides would do little more than this. With random signs g for the contexts,

.. math:: \psi(i) \propto d_i^{-1/4} \sum_{c \in S_i} b_{ci} d_c^{-1/4} g_c, \qquad \phi(c) = 0,

where d is the sum of :math:`|b|` over a row: one power iteration on the matrix of :math:`b = \alpha y`, balanced such that neither
active contexts nor popular items dominate. The first sweep of the contexts computes their vectors.
"""

from __future__ import annotations

import numpy as np

from everypair.engine.feedback import Feedback, values_at
from everypair.kernels.row_vectors import add_rows
from everypair.kernels.sparse import SparseRows
from everypair.runtime.numerics import Values
from everypair.runtime.parallel import Workers

BALANCE = -0.25


def item_vectors(feedback: Feedback, factors: int, dtype: np.dtype, random: np.random.Generator, workers: Workers) -> np.ndarray:
    """Start values of the items: one row per item, of length one on average."""
    (n, m), b = feedback.shape, feedback.b
    indptr, indices, order = feedback.by_item
    bits = np.frombuffer(random.bytes(-(-n * factors // 8)), np.uint8)
    signs = np.unpackbits(bits, count=n * factors).reshape(n, factors).astype(dtype)
    signs *= 2
    signs -= 1
    signs *= _balance(b, feedback.by_context.indptr).astype(dtype)[:, None]
    weight = values_at(b, order)
    out = np.zeros((m, factors), dtype)

    def chunk(start: int, stop: int) -> None:
        add_rows(start, stop, SparseRows(indptr, indices, weight), signs, out[start:stop])

    workers.run(chunk, workers.split(indptr))
    balance = _balance(weight, indptr).astype(dtype)[:, None]
    out *= balance
    zero = ~out.any(axis=0)  # with few pairs, the signs of a dimension may cancel in every item
    out[:, zero] = balance * random.normal(size=(m, np.count_nonzero(zero)))
    length = float(np.sqrt(np.einsum("if,if->", out, out, dtype=np.float64) / m))
    return out / dtype.type(length) if length > 0.0 else out


def _balance(b: Values, indptr: np.ndarray) -> np.ndarray:
    """``d^(-1/4)``; 0 for empty rows."""
    if np.ndim(b) == 0:
        total = abs(float(b)) * np.diff(indptr)  # type: ignore[arg-type]
    else:
        total = np.diff(np.concatenate([[0.0], np.cumsum(np.abs(b), dtype=np.float64)])[indptr])
    return np.where(total > 0.0, np.maximum(total, np.finfo(np.float64).tiny) ** BALANCE, 0.0)
