"""The observed pairs on a device, in the order of contexts and in that of items."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np

from everypair.engine.feedback import Feedback, explicit_weight
from everypair.engine.objective import or_one
from everypair.gpu.backend import Backend
from everypair.gpu.tasks import Tasks, blocks
from everypair.runtime.numerics import Values

THREADS = 128
EVENTS = 4 * 128  # events of a block, as in rows.cu


class Numbers(NamedTuple):
    """A number for each row or pair (step 1), or one for all (step 0), in float32."""

    array: Any
    step: int


class ScoredVectors(Protocol):
    """The vectors of a side: a table of factors, and what is added to the scores of a row."""

    table: Any

    @property
    def bias(self) -> Numbers: ...


class PairsOfSide(NamedTuple):
    """The pairs of a side, row by row: the index of the other side, a and b of Lemma 1, and alpha0 m of each row."""

    tasks: Tasks
    indices: Any
    a: Numbers
    b: Numbers
    weight: Numbers


class Pairs:
    """Observed pairs, their weights and their scores.

    Scores lie in the order of one side; they are computed from scratch in that of contexts. ``by_event``: context c has the pair c
    and no other.
    """

    def __init__(self, backend: Backend, feedback: Feedback, alpha0: float) -> None:
        self._backend, xp = backend, backend.xp
        self.n, self.alpha0, self.constant = len(feedback), alpha0, feedback.constant
        by_context, by_item = feedback.by_context, feedback.by_item
        assert by_item.order is not None
        self._order = backend.ints(by_item.order)
        self.alpha = Numbers(*backend.floats(feedback.alpha))
        b = Numbers(*backend.floats(feedback.b))
        m, n = or_one(feedback.context_weight), or_one(feedback.item_weight)
        indices = backend.ints(by_context.indices)
        a = self._explicit_weights(feedback, indices, n)
        self.sides = {
            "context": PairsOfSide(Tasks(backend, by_context.indptr), indices, a, b, Numbers(*backend.floats(alpha0 * m))),
            "item": PairsOfSide(
                Tasks(backend, by_item.indptr),
                backend.ints(by_item.indices),
                self._by_item(a),
                self._by_item(b),
                Numbers(*backend.floats(alpha0 * n)),
            ),
        }
        self._scores, self._spare, self._side = xp.zeros(self.n, np.float32), xp.empty(self.n, np.float32), "context"
        self.by_event = self.n == feedback.n_contexts and bool(np.all(np.diff(by_context.indptr) == 1))
        n_sums = -(-self.n // EVENTS) if self.by_event else self.sides["context"].tasks.n
        self._sums = xp.zeros((3, n_sums), np.float64)

    def _explicit_weights(self, feedback: Feedback, indices: Any, item_weight: Values) -> Numbers:
        """``a = alpha - alpha0 m n``: one number if it is the same for all pairs."""
        backend, m, alpha0 = self._backend, feedback.covered_weight(), self.alpha0
        if alpha0 == 0.0:
            return self.alpha
        if self.alpha.step == 0 and np.ndim(m) == np.ndim(item_weight) == 0:
            return Numbers(*backend.floats(explicit_weight(feedback.alpha, alpha0, np.float64(m) * item_weight)))
        a = backend.xp.empty(self.n, np.float32)
        beside = *backend.floats(m), *backend.floats(item_weight)
        backend.kernels("rows").explicit_weights(-(-self.n // 256), 256, self.n, indices, *self.alpha, *beside, alpha0, a)
        return Numbers(a, 1)

    def _by_item(self, values: Numbers) -> Numbers:
        return Numbers(self._backend.xp.take(values.array, self._order), 1) if values.step else values

    def scores(self, side: str) -> Any:
        """The scores in the order of this side, as an array that sweeps of the side write to."""
        if side != self._side:
            xp = self._backend.xp
            if side == "item":
                xp.take(self._scores, self._order, out=self._spare)
            else:
                self._spare[self._order] = self._scores
            self._scores, self._spare, self._side = self._spare, self._scores, side
        return self._scores

    def rescore(self, contexts: ScoredVectors, items: ScoredVectors) -> None:
        """Scores from the vectors of both sides, and the sums of the loss."""
        pairs, self._side = self.sides["context"], "context"
        phi, psi = contexts.table, items.table
        vectors = (phi, psi, psi.shape[1], len(psi) - 1, *contexts.bias, *items.bias)
        sums = (*pairs.a, *pairs.b, *self.alpha, self._scores, self._sums)
        kernels, n_tasks = self._backend.kernels("rows"), pairs.tasks.n
        if self.by_event:
            n_blocks = self._sums.shape[1]
            met = (phi, psi, psi.shape[1], *contexts.bias, *items.bias)
            kernels.score_events(n_blocks, THREADS, self.n, n_blocks, pairs.indices, *met, *sums)
        else:
            kernels.score_rows(blocks(n_tasks), THREADS, n_tasks, pairs.tasks.tasks, pairs.indices, *vectors, *sums)

    def sums(self) -> Any:
        """``sum a s^2``, ``sum b s`` and ``sum alpha s^2`` over all pairs, with the scores of the last :meth:`rescore`."""
        return self._sums.sum(axis=1)

    def sizes(self, side: str) -> np.ndarray:
        """``sum (|a s| + |b|)^2 / alpha`` of each row: the size of what the explicit part of gradients is made of."""
        pairs, scores = self.sides[side], self.scores(side)
        alpha = self.alpha if side == "context" else self._by_item(self.alpha)
        sizes = self._backend.xp.empty(pairs.tasks.n, np.float64)
        self._backend.kernels("rows").sizes_of_rows(
            blocks(pairs.tasks.n), THREADS, pairs.tasks.n, pairs.tasks.tasks, scores, *pairs.a, *pairs.b, *alpha, sizes
        )
        return pairs.tasks.sums_of_rows(self._backend.download(sizes))
