r"""The loss over every context-item pair, at the cost of the observed ones (Lemmas 1 to 3 of the paper).

.. math::

    L = \sum_{(c,i) \in S} \alpha (s - y)^2 + \alpha_0 \sum_{(c,i) \notin S} m_c n_i s^2 + \sum_\theta \lambda_\theta \theta^2,
    \qquad s(c, i) = \langle \phi(c), \psi(i) \rangle

Lemma 1 turns the sum over unobserved pairs into one over all pairs. With :math:`a = \alpha - \alpha_0 m_c n_i` and
:math:`b = \alpha y` (the paper divides by :math:`\alpha - \alpha_0`; this form needs no division and keeps the constant),

.. math:: L = \sum_S (a s^2 - 2 b s + \alpha y^2) + \alpha_0 \langle J_C, J_I \rangle + L_2

where Lemma 2 gives the sum over all pairs as a product of Grams, :math:`J_C = \sum_c m_c \phi \phi'` and
:math:`J_I = \sum_i n_i \psi \psi'`.

Nothing here knows a model. A tower asks for the derivatives of the loss with respect to its vectors (Lemma 3) through a
:class:`Side`, and reports how far it moved them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from everypair.engine.feedback import Feedback, explicit_weight, values_at
from everypair.engine.row_sweep import score
from everypair.engine.side import Side, SidePairs
from everypair.engine.vectors import Vectors
from everypair.kernels import pairs
from everypair.kernels.permute import put, take
from everypair.runtime.numerics import Values
from everypair.runtime.parallel import Workers

LOSS_BLOCK = 65_536  # pairs per partial sum of the loss: fixed, so that it does not depend on the number of threads


class ObjectiveValue(NamedTuple):
    """The objective and its parts: weighted squares on observed pairs, on unobserved pairs, and of the parameters."""

    objective: float
    explicit: float
    implicit: float
    l2: float


class Objective:
    """Scores of the observed pairs, vectors and Grams of both sides: all that the loss needs to know.

    Parameters
    ----------
    feedback : Feedback
    alpha0 : float
        Weight of an unobserved pair.
    dtype : numpy dtype
        Of scores and pair weights.
    workers : Workers
    listed : bool
        False if the contexts of the feedback are only part of all contexts, so that their tower itself accounts for the
        implicit part (``combinations="all"``).
    """

    def __init__(self, feedback: Feedback, alpha0: float, dtype: np.dtype, workers: Workers, listed: bool = True) -> None:
        self.feedback, self.alpha0, self.dtype, self.workers = feedback, alpha0, dtype, workers
        self._covered = _cast(feedback.covered_weight(), dtype)
        m, n = or_one(feedback.context_weight), or_one(feedback.item_weight)
        self._n = _cast(n, dtype)
        alpha = self._alpha = _cast(feedback.alpha, dtype)
        b = self._b = _cast(feedback.b, dtype)
        self._order = "context"
        self._scores = np.zeros(len(feedback), dtype)
        self._spare: np.ndarray | None = None  # room for the scores in the other order
        permutation = feedback.by_item.order
        of_contexts, of_items = _cast(alpha0 * m if listed else 0.0, dtype), _cast(alpha0 * n, dtype)
        if listed and feedback.covered is None and np.ndim(m) + np.ndim(n) > 0:  # a by context and item: none per pair
            a, beside = alpha, (self._n, _cast(m, dtype))
        else:
            a, beside = _cast(explicit_weight(feedback.alpha, alpha0, feedback.unobserved()), dtype), (0.0, 0.0)
        by_item = values_at(a, permutation), beside[1], values_at(b, permutation), of_items
        self._pairs = {
            "context": SidePairs(feedback.by_context, a, beside[0], b, of_contexts, lambda: alpha, dtype, workers, listed),
            "item": SidePairs(
                feedback.by_item, *by_item, lambda: values_at(alpha, permutation), dtype, workers.alone(), True, workers.group
            ),
        }
        self._constant = float(workers.group.total(np.array([feedback.constant]))[0])
        self.finite = not workers.group.agreed(not all(side.finite for side in self._pairs.values()))
        self.vectors: dict[str, Vectors] = {}
        self.grams: dict[str, np.ndarray] = {}
        self.size = 0.0

    def side(self, name: str) -> Side:
        """The loss as seen from one side, with the scores in its order."""
        other = OPPOSITE[name]
        return Side(self._pairs[name], self.scores(name), self.vectors[name], self.vectors[other], self.grams[other], self.alpha0)

    def scores(self, order: str) -> np.ndarray:
        """Scores of the observed pairs, context by context or item by item."""
        self._bring_scores_to(order)
        return self._scores

    def rescore(self) -> None:
        """Scores of the observed pairs from the vectors."""
        self._order = "context"
        indptr, indices, _ = self.feedback.by_context
        score(indptr, indices, self.vectors["context"], self.vectors["item"], self._scores, self.workers)

    def value(self, l2: float) -> ObjectiveValue:
        """The exact objective, as a dense evaluation over all pairs would give it. Its terms have the size ``self.size``."""
        self._bring_scores_to("context")
        blocks = -(-len(self._scores) // LOSS_BLOCK)
        fit, overlap = np.empty(blocks), np.empty(blocks)
        self.workers.run(
            pairs.loss, range(blocks + 1), LOSS_BLOCK, self._alpha, self._b, self._covered, self.feedback.by_context.indices,
            self._n, self._scores, fit, overlap,
        )  # fmt: skip
        fitted, observed = map(float, self.workers.group.total(np.array([fit.sum(), overlap.sum()])))
        explicit = max(fitted + self._constant, 0.0)  # sums of squares, whatever rounding says
        everything = float(np.sum(self.grams["context"] * self.grams["item"]))
        implicit = max(self.alpha0 * (everything - observed), 0.0)
        self.size = self._constant + explicit + implicit + self.alpha0 * observed + l2
        return ObjectiveValue(explicit + implicit + l2, explicit, implicit, l2)

    def _bring_scores_to(self, order: str) -> None:
        if order != self._order:
            permutation = self.feedback.by_item.order
            assert permutation is not None
            self._spare = np.empty_like(self._scores) if self._spare is None else self._spare
            kernel = take if order == "item" else put
            self.workers.run(kernel, self.workers.even(len(permutation)), permutation, self._scores, self._spare)
            self._scores, self._spare = self._spare, self._scores
            self._order = order


OPPOSITE = {"context": "item", "item": "context"}


def _cast(values: Values, dtype: np.dtype) -> Values:
    """Arrays in the model's precision, numbers as they are."""
    return float(values) if np.ndim(values) == 0 else np.asarray(values).astype(dtype, copy=False)


def or_one(weight: np.ndarray | None) -> Values:
    """Weights of rows, which are one where None."""
    return 1.0 if weight is None else weight
