r"""Fold-in: the parameters of an id at their exact minimum given all its feedback, everything else held.

The vector of a context is affine in the parameters :math:`\theta` of its user's id, :math:`\phi(c) = p_c + T_c \theta`: for matrix
factorization T is the identity and p is zero, for a factorization machine p comes from the other features, and T has one more
row for the pairwise terms. So the loss over the user's contexts is a quadratic in :math:`\theta`, and its minimum solves

.. math::

    \Bigl(\sum_c T_c' A_c T_c + \Lambda\Bigr)\, \theta = \sum_c T_c' (b_c - A_c p_c), \qquad
    A_c = \sum_{i \in c} a\, \psi_i \psi_i' + \alpha_0 J, \quad b_c = \sum_{i \in c} b\, \psi_i

with a = alpha - alpha0 n_i and b = alpha y of the observed pairs (Lemma 1), and J the Gram of all items, each with its weight n_i.
Items are the same with the sides exchanged.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from everypair.engine.feedback import Feedback, explicit_weight, values_at
from everypair.engine.tower import Tower
from everypair.recommend.level_parameters import LevelSlots
from everypair.runtime.numerics import Values, tiny

TANGENT_ENTRIES = 4_000_000  # of the matrices T in memory at once


@dataclass(frozen=True)
class ObservedRows:
    """The observed pairs of rows of one side.

    Attributes
    ----------
    indptr, indices : arrays
        Row r is paired with rows ``indices[indptr[r]:indptr[r + 1]]`` of the other side.
    alpha, b : number or array
        Of each pair.
    counts : array
        Pairs of each row before repeated ones were added up.
    """

    indptr: np.ndarray
    indices: np.ndarray
    alpha: Values
    b: Values
    counts: np.ndarray

    @classmethod
    def by_context(cls, feedback: Feedback) -> ObservedRows:
        pairs = feedback.by_context
        return cls(pairs.indptr, pairs.indices, feedback.alpha, feedback.b, feedback.context_count)

    @classmethod
    def by_item(cls, feedback: Feedback) -> ObservedRows:
        pairs = feedback.by_item
        alpha, b = (values_at(values, pairs.order) for values in (feedback.alpha, feedback.b))
        return cls(pairs.indptr, pairs.indices, alpha, b, feedback.item_count)

    def take(self, rows: np.ndarray) -> ObservedRows:
        """The pairs of some of the rows."""
        lengths = np.diff(self.indptr)[rows]
        indptr = np.append(0, np.cumsum(lengths))
        at = np.repeat(self.indptr[rows] - indptr[:-1], lengths) + np.arange(indptr[-1])
        alpha, b = (values_at(values, at) for values in (self.alpha, self.b))
        return ObservedRows(indptr, self.indices[at], alpha, b, self.counts[rows])

    def between(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The rows of the other side, alpha and b of the pairs of a range of rows."""
        at = slice(int(self.indptr[start]), int(self.indptr[stop]))
        others = self.indices[at]
        alpha, b = (np.broadcast_to(values_at(values, at), len(others)) for values in (self.alpha, self.b))  # type: ignore[arg-type]
        return others, alpha, b


class WeightedHistory(NamedTuple):
    """A user's history as a fit would count it.

    Attributes
    ----------
    items, alpha : arrays
        Each item once, and its confidence.
    contexts : int
        How many contexts the history would be.
    observed : float
        How many observed pairs, repeated ones included.
    """

    items: np.ndarray
    alpha: np.ndarray
    contexts: int
    observed: float


@dataclass(frozen=True)
class SideLoss:
    """The loss as the rows of one side see it.

    Attributes
    ----------
    others : array
        The vectors of the other side.
    J : array
        Their Gram.
    n_others : float
        Their total weight.
    alpha0 : float
    exponent : float
        L2 grows with the weight of a row to this power.
    weight_of_others, weight_of_rows : arrays, optional
        An unobserved pair weighs alpha0 times the weights of both its rows, which are one where None.
    """

    others: np.ndarray
    J: np.ndarray
    n_others: float
    alpha0: float
    exponent: float
    weight_of_others: np.ndarray | None = None
    weight_of_rows: np.ndarray | None = None

    def l2_scale(self, observed: float, row_weight: float) -> float:
        """The factor of L2 for a level with so many observed pairs, in rows of this total weight."""
        weight = float(observed + self.alpha0 * row_weight * self.n_others)
        try:
            return weight**self.exponent
        except OverflowError as error:
            raise ValueError(f"L2 is too large: the weight {weight:g} of a row to the power of {self.exponent:g}.") from error

    def row_weights(self, rows: slice) -> np.ndarray:
        return np.ones(rows.stop - rows.start) if self.weight_of_rows is None else self.weight_of_rows[rows]

    def explicit_weight(self, alpha: np.ndarray, others: np.ndarray, row_weight: Values = 1.0) -> np.ndarray:
        """``a`` of pairs with these rows of the other side."""
        other_weight = 1.0 if self.weight_of_others is None else self.weight_of_others[others]
        return explicit_weight(alpha, self.alpha0, other_weight * row_weight)

    def equations(self, history: WeightedHistory) -> tuple[np.ndarray, np.ndarray]:
        """The sums of ``A_c`` and of ``b_c`` over the contexts of a user with this history."""
        psi = self.others[history.items].astype(np.float64)
        a = self.explicit_weight(history.alpha, history.items)
        return (psi.T * a) @ psi + history.contexts * self.alpha0 * self.J, psi.T @ history.alpha

    def penalty(self, history: WeightedHistory, strength: float) -> np.ndarray:
        """L2 of each entry of the user's vector."""
        return np.full(len(self.J), strength * self.l2_scale(history.observed, history.contexts))


def fold_in(
    tower: Tower, column: str, vectors: Callable[[int, int], np.ndarray], owners: np.ndarray, pairs: ObservedRows, loss: SideLoss
) -> None:
    """Put the parameters of all levels of a column at their minimum.

    Parameters
    ----------
    tower : Tower
        Its parameters of the column's levels are written to.
    column : str
    vectors : callable
        From a range of rows to their vectors, with the parameters the tower has at that time.
    owners : array of integers
        The rows of level u are ``owners[u]`` to ``owners[u + 1]``.
    pairs : ObservedRows
    loss : SideLoss
    """
    slots = LevelSlots(tower, column)
    d, identity = len(slots.strength), tower.moves_as_parameters
    if not d:
        return
    room = max(1, TANGENT_ENTRIES // (d * (d if identity else tower.n_dims)))  # rows at once
    n, start = len(owners) - 1, 0
    while start < n:
        stop = max(start + 1, int(np.searchsorted(owners, owners[start] + room, side="right")) - 1)
        levels = slice(start, stop)
        A, rhs = np.zeros((stop - start, d, d)), np.zeros((stop - start, d))
        for first in range(int(owners[start]), int(owners[stop]), room):  # more than once for a level with very many rows
            last = min(first + room, int(owners[stop]))
            slots.write(levels, np.zeros(d))
            p = vectors(first, last).astype(np.float64)
            T = None if identity else _tangents(slots, levels, lambda first=first, last=last: vectors(first, last), p)
            for u in range(start, stop):
                own = slice(max(int(owners[u]), first), min(int(owners[u + 1]), last))
                if own.stop > own.start:
                    part = slice(own.start - first, own.stop - first)
                    more = _equations(p[part], None if T is None else T[part], pairs, own, loss)
                    A[u - start] += more[0]
                    rhs[u - start] += more[1]
        for u in range(start, stop):
            rows = slice(int(owners[u]), int(owners[u + 1]))
            scale = loss.l2_scale(float(pairs.counts[rows].sum()), float(loss.row_weights(rows).sum()))
            slots.write(slice(u, u + 1), minimum(A[u - start], rhs[u - start], slots.strength * scale))
        start = stop


def _tangents(slots: LevelSlots, levels: slice, vectors: Callable[[], np.ndarray], p: np.ndarray) -> np.ndarray:
    """T of each row (rows x K x d), one parameter of all levels at a time."""
    d = len(slots.strength)
    T = np.empty((*p.shape, d))
    for e, direction in enumerate(np.eye(d)):
        slots.write(levels, direction)
        T[:, :, e] = vectors() - p
    theta = np.random.default_rng(0).normal(size=d)
    slots.write(levels, theta)
    found, expected = vectors(), p + T @ theta
    if not np.allclose(found, expected, rtol=1e-3, atol=1e-3 * np.abs(expected).max(initial=0.0)):
        raise ValueError(
            "the vectors of this model are not linear in the parameters of an id, so that new events cannot be folded into them. "
            "Fit it again."
        )
    return T


def _equations(
    p: np.ndarray, T: np.ndarray | None, pairs: ObservedRows, rows: slice, loss: SideLoss
) -> tuple[np.ndarray, np.ndarray]:
    """The share of these rows in the matrix and the right side of their level's equations; T None is the identity."""
    n_rows, weight = len(p), loss.row_weights(rows)
    others, alpha, b = pairs.between(rows.start, rows.stop)
    row = np.repeat(np.arange(n_rows), np.diff(pairs.indptr[rows.start : rows.stop + 1]))
    psi, a = loss.others[others].astype(np.float64), loss.explicit_weight(alpha, others, weight[row])
    residual = b - a * np.einsum("nk,nk->n", psi, p[row])
    Jp = loss.alpha0 * weight[:, None] * p @ loss.J
    if T is None:
        S, A, rhs = psi, weight.sum() * loss.alpha0 * loss.J, -Jp.sum(axis=0)
    else:
        S = psi @ T[0] if n_rows == 1 else np.einsum("nk,nkd->nd", psi, T[row])
        JT = np.einsum("kl,cld->ckd", loss.alpha0 * loss.J, weight[:, None, None] * T, optimize=True)
        A, rhs = np.einsum("ckd,cke->de", T, JT, optimize=True), -np.einsum("ckd,ck->d", T, Jp)
    return A + (S.T * a) @ S, rhs + S.T @ residual


def minimum(A: np.ndarray, rhs: np.ndarray, penalty: np.ndarray) -> np.ndarray:
    """``(A + diag(penalty))^-1 rhs``; where the minimum is not unique, the one nearest to zero."""
    A = A + np.diag(penalty)
    with suppress(LinAlgError):
        factor = cho_factor(A)
        pivots = np.square(np.diag(factor[0]))
        if np.all(penalty > 0.0) or np.all(pivots > np.sqrt(np.finfo(float).eps) * np.diag(A)):  # else pivots may be rounding
            return cho_solve(factor, rhs)
    values, Q = np.linalg.eigh(A)
    there = values > tiny(float) * values.max(initial=0.0)
    return Q[:, there] @ ((Q[:, there].T @ rhs) / values[there])
