r"""New feedback for an id without a fit: its own parameters at their exact minimum, everything else held.

The vector of a context is affine in the parameters :math:`\theta` of its user's id, :math:`\phi(c) = p_c + T_c \theta`: for matrix
factorization T is the identity and p is zero, for a factorization machine p is what the other features say, and T has one more
row for the pairwise terms. So the loss over the user's contexts is a quadratic in :math:`\theta`, and its minimum solves

.. math::

    \Bigl(\sum_c T_c' A_c T_c + \Lambda\Bigr)\, \theta = \sum_c T_c' (b_c - A_c p_c), \qquad
    A_c = \sum_{i \in c} a\, \psi_i \psi_i' + \alpha_0 J, \quad b_c = \sum_{i \in c} b\, \psi_i

with a = alpha - alpha0 n_i and b = alpha y of the observed pairs (Lemma 1), and J the Gram of all items, each with its weight n_i.
Items are the same with the sides exchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from everypair.engine.feedback import Feedback
from everypair.engine.parameter import Parameter
from everypair.engine.tower import Tower
from everypair.runtime.numerics import Values
from everypair.towers.embedding import Embedding
from everypair.towers.linear import Linear

AT_ONCE = 4_000_000  # entries of the matrices T that are held


@dataclass(frozen=True)
class Pairs:
    """The observed pairs of rows: those of row r are ``indptr[r]`` to ``indptr[r + 1]``, with the other side's row of each."""

    indptr: np.ndarray
    indices: np.ndarray
    alpha: Values
    b: Values
    counts: np.ndarray  # of each row, before repeated pairs were added up

    @classmethod
    def by_context(cls, feedback: Feedback) -> Pairs:
        pairs = feedback.by_context
        return cls(pairs.indptr, pairs.indices, feedback.alpha, feedback.b, feedback.context_count)

    @classmethod
    def by_item(cls, feedback: Feedback) -> Pairs:
        pairs = feedback.by_item
        alpha, b = (v if np.ndim(v) == 0 else v[pairs.order] for v in (feedback.alpha, feedback.b))  # type: ignore[index]
        return cls(pairs.indptr, pairs.indices, alpha, b, feedback.item_count)

    def of(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The others, alpha and b of a range of rows."""
        at = slice(int(self.indptr[start]), int(self.indptr[stop]))
        others = self.indices[at]
        return others, *(np.broadcast_to(v if np.ndim(v) == 0 else v[at], len(others)) for v in (self.alpha, self.b))  # type: ignore


class Past(NamedTuple):
    """What someone has seen, as a fit would count it: items and their confidence, in how many contexts, as how many pairs."""

    items: np.ndarray
    alpha: np.ndarray
    contexts: int
    observed: float


@dataclass(frozen=True)
class Loss:
    """What the loss of one side needs of the other: its vectors, their Gram and weight, and alpha0; and the L2 exponent.

    An unobserved pair weighs alpha0 times the weights of both its rows, which are one where None.
    """

    others: np.ndarray
    J: np.ndarray
    n_others: float
    alpha0: float
    exponent: float
    weight_of_others: np.ndarray | None = None
    weight_of_rows: np.ndarray | None = None

    def weight(self, observed: float, rows: float) -> float:
        """Of so many pairs in rows that weigh so much, to the power that scales L2."""
        return float((observed + self.alpha0 * rows * self.n_others) ** self.exponent)

    def of_rows(self, rows: slice) -> np.ndarray:
        """What each of these rows weighs."""
        return np.ones(rows.stop - rows.start) if self.weight_of_rows is None else self.weight_of_rows[rows]

    def unobserved(self, others: np.ndarray) -> Values:
        """The weight of an unobserved pair with each of these rows of the other side."""
        return self.alpha0 if self.weight_of_others is None else self.alpha0 * self.weight_of_others[others]

    def equations(self, past: Past) -> tuple[np.ndarray, np.ndarray]:
        """The sums of ``A_c`` and of ``b_c`` over the contexts of someone who has these items."""
        psi, a = self.others[past.items].astype(np.float64), past.alpha - self.unobserved(past.items)
        return (psi.T * a) @ psi + past.contexts * self.alpha0 * self.J, psi.T @ past.alpha

    def penalty(self, past: Past, strength: float) -> np.ndarray:
        """The L2 weight of each entry of a row of its own."""
        return np.full(len(self.J), strength * self.weight(past.observed, past.contexts))


class Slots:
    """Where the parameters of a column's levels are in a tower."""

    def __init__(self, tower: Tower, column: str) -> None:
        self._slots: list[tuple[Parameter, int]] = []
        strengths: list[np.ndarray] = []
        for parameter in tower.parameters.values():
            offset = 0
            for part in parameter.parts:
                if part.field == column:
                    self._slots.append((parameter, offset))
                    strengths.append(np.full(parameter.by_row[offset].size, part.strength))
                offset += part.size
        self.strength = np.concatenate([np.empty(0), *strengths])

    def write(self, levels: slice, theta: np.ndarray) -> None:
        """Give levels these parameters, a row for each or one for all."""
        at = 0
        for parameter, offset in self._slots:
            rows = parameter.by_row[offset + levels.start : offset + levels.stop]
            size = rows[0].size
            rows[...] = theta[..., at : at + size].reshape(-1, *rows.shape[1:])
            at += size


def fold_in(
    tower: Tower, column: str, vectors: Callable[[int, int], np.ndarray], owners: np.ndarray, pairs: Pairs, loss: Loss
) -> None:
    """Put the parameters of all levels of a column at their minimum.

    Parameters
    ----------
    tower : Tower
        With parameters of its own for the column's levels, which are written to.
    column : str
    vectors : callable
        From a range of rows to their vectors, by the tower as it is at that time.
    owners : array of integers
        Where the rows of each level begin: those of level u are ``owners[u]`` to ``owners[u + 1]``.
    pairs : Pairs
    loss : Loss
    """
    slots = Slots(tower, column)
    d, plain = len(slots.strength), isinstance(tower, Embedding | Linear)  # such a tower moves as its parameters do
    if not d:
        return
    room = max(1, AT_ONCE // (d * (d if plain else tower.n_dims)))  # rows at once
    n, start = len(owners) - 1, 0
    while start < n:
        stop = max(start + 1, int(np.searchsorted(owners, owners[start] + room, side="right")) - 1)
        levels = slice(start, stop)
        A, rhs = np.zeros((stop - start, d, d)), np.zeros((stop - start, d))
        for first in range(int(owners[start]), int(owners[stop]), room):  # more than once for a level with very many rows
            last = min(first + room, int(owners[stop]))
            slots.write(levels, np.zeros(d))
            p = vectors(first, last).astype(np.float64)
            T = None if plain else _tangents(slots, levels, lambda first=first, last=last: vectors(first, last), p)
            for u in range(start, stop):
                own = slice(max(int(owners[u]), first), min(int(owners[u + 1]), last))
                if own.stop > own.start:
                    part = slice(own.start - first, own.stop - first)
                    more = _equations(p[part], None if T is None else T[part], pairs, own, loss)
                    A[u - start] += more[0]
                    rhs[u - start] += more[1]
        for u in range(start, stop):
            rows = slice(int(owners[u]), int(owners[u + 1]))
            weight = loss.weight(float(pairs.counts[rows].sum()), float(loss.of_rows(rows).sum()))
            slots.write(slice(u, u + 1), minimum(A[u - start], rhs[u - start], slots.strength * weight))
        start = stop


def _tangents(slots: Slots, levels: slice, vectors: Callable[[], np.ndarray], p: np.ndarray) -> np.ndarray:
    """T of each row (rows x K x d), a parameter of all levels at a time."""
    d = len(slots.strength)
    T = np.empty((*p.shape, d))
    for e, direction in enumerate(np.eye(d)):
        slots.write(levels, direction)
        T[:, :, e] = vectors() - p
    somewhere = np.random.default_rng(0).normal(size=d)
    slots.write(levels, somewhere)
    there, expected = vectors(), p + T @ somewhere
    if not np.allclose(there, expected, rtol=1e-3, atol=1e-3 * np.abs(expected).max(initial=0.0)):
        raise ValueError(
            "the vectors of this model are not linear in the parameters of an id, so that new events cannot be folded into them. "
            "Fit it again."
        )
    return T


def _equations(p: np.ndarray, T: np.ndarray | None, pairs: Pairs, rows: slice, loss: Loss) -> tuple[np.ndarray, np.ndarray]:
    """What these rows add to both sides of the equations of their level."""
    n_rows, weight = len(p), loss.of_rows(rows)
    items, alpha, b = pairs.of(rows.start, rows.stop)
    row = np.repeat(np.arange(n_rows), np.diff(pairs.indptr[rows.start : rows.stop + 1]))
    psi, a = loss.others[items].astype(np.float64), alpha - loss.unobserved(items) * weight[row]
    along = b - a * np.einsum("nk,nk->n", psi, p[row])  # what is left to explain
    Jp = loss.alpha0 * weight[:, None] * p @ loss.J
    if T is None:
        S, A, rhs = psi, weight.sum() * loss.alpha0 * loss.J, -Jp.sum(axis=0)
    else:
        S = psi @ T[0] if n_rows == 1 else np.einsum("nk,nkd->nd", psi, T[row])
        JT = np.einsum("kl,cld->ckd", loss.alpha0 * loss.J, weight[:, None, None] * T, optimize=True)
        A, rhs = np.einsum("ckd,cke->de", T, JT, optimize=True), -np.einsum("ckd,ck->d", T, Jp)
    return A + (S.T * a) @ S, rhs + S.T @ along


def minimum(A: np.ndarray, rhs: np.ndarray, penalty: np.ndarray) -> np.ndarray:
    """``(A + diag(penalty))^-1 rhs``; of many minima, where there are, the one nearest to zero."""
    A = A + np.diag(penalty)
    try:
        return cho_solve(cho_factor(A), rhs)
    except LinAlgError:
        values, Q = np.linalg.eigh(A)
        there = values > len(A) * np.finfo(float).eps * values.max(initial=0.0)
        return Q[:, there] @ ((Q[:, there].T @ rhs) / values[there])


def moved(parameter: Parameter, levels: Mapping[str, np.ndarray]) -> np.ndarray:
    """A copy whose columns have other levels: for each of them, which level it was, -1 for a new one, which is zero."""
    if not any(part.field in levels for part in parameter.parts):  # the core of a tensor has no rows
        return np.array(parameter.value)
    blocks, offset = [], 0
    for part in parameter.parts:
        block = parameter.by_row[offset : offset + part.size]
        offset += part.size
        index = levels.get(str(part.field))
        if index is not None:
            block = np.where((index >= 0).reshape(-1, *[1] * (block.ndim - 1)), block[np.maximum(index, 0)], 0).astype(block.dtype)
        blocks.append(block)
    result = np.concatenate(blocks)
    return np.array(result.T if parameter.transposed else result, order="C")
