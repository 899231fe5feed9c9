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

import weakref
from functools import reduce
from typing import Any, NamedTuple, cast

import numpy as np

from everypair.columns.table import Levels
from everypair.engine.binding import StepSettings
from everypair.engine.blocks import CORE, LevelBlock
from everypair.engine.blocks import OTHER as WITH_OTHER
from everypair.engine.feedback import Feedback, values_at
from everypair.engine.lazy_vectors import LazyVectors
from everypair.engine.level_sweep import Partner, sweep_levels
from everypair.engine.row_sweep import RowSweep, score
from everypair.engine.vectors import Vectors
from everypair.engine.view import View
from everypair.kernels import pairs, row_sweep
from everypair.kernels.newton import NewtonSettings
from everypair.kernels.pairs import Implicit, ImplicitPair, Observed
from everypair.kernels.permute import put, take
from everypair.runtime.numerics import NEVER, Values, tiny
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
        covered = np.float64(feedback.unobserved())
        self._covered = _cast(covered, dtype)
        self._alpha = _cast(feedback.alpha, dtype)
        a = _cast(np.float64(feedback.alpha) - alpha0 * covered, dtype)
        b = self._b = _cast(feedback.b, dtype)
        self._order = "context"
        self._scores = np.zeros(len(feedback), dtype)
        self._spare: np.ndarray | None = None  # room for the scores in the other order
        permutation = feedback.by_item.order
        self._sides = {
            "context": Side(self, "context", a, b, feedback.context_weight, listed),
            "item": Side(self, "item", values_at(a, permutation), values_at(b, permutation), feedback.item_weight, True),
        }
        self.finite = all(_finite(x, dtype) for side in self._sides.values() for x in (side._a, side._b, side._weight))
        self.vectors: dict[str, Vectors] = {}
        self.grams: dict[str, np.ndarray] = {}

    def side(self, name: str) -> Side:
        """The loss as seen from one side, with the scores in its order."""
        return self._sides[name].open(self.scores(name))

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
        """The exact objective, as a dense evaluation over all pairs would give it."""
        self._bring_scores_to("context")
        blocks = -(-len(self._scores) // LOSS_BLOCK)
        fit, overlap = np.empty(blocks), np.empty(blocks)
        self.workers.run(
            pairs.loss, range(blocks + 1), LOSS_BLOCK, self._alpha, self._b, self._covered,
            self._scores, fit, overlap,
        )  # fmt: skip
        explicit = max(float(fit.sum()) + self.feedback.constant, 0.0)  # sums of squares, whatever rounding says
        everything = float(np.sum(self.grams["context"] * self.grams["item"]))
        implicit = max(self.alpha0 * (everything - float(overlap.sum())), 0.0)
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


class Side(View):
    r"""One side of the loss, the other held: a quadratic in each row's vector.

    .. math:: q_c(\phi) = \phi' A_c \phi - 2 b_c' \phi, \qquad
        A_c = \sum_{i \in S_c} a \psi \psi' + \alpha_0 m_c J, \qquad b_c = \sum_{i \in S_c} b \psi

    Moves keep vectors and scores in step. The item side is the same code on the transposed feedback.
    """

    def __init__(self, objective: Objective, name: str, a: Values, b: Values, weight: Values | None, listed: bool) -> None:
        self.name, self.workers, self.dtype = name, objective.workers, objective.dtype
        self._objective = cast(
            Objective, weakref.proxy(objective)
        )  # it holds its sides: a cycle would keep all arrays until collected
        view = objective.feedback.by_context if name == "context" else objective.feedback.by_item
        self._indptr, self._indices, self.n_rows = view.indptr, view.indices, len(view.indptr) - 1
        self._a, self._b = a, b
        m = 0.0 if not listed else 1.0 if weight is None else weight
        self._weight = _cast(objective.alpha0 * m, objective.dtype)
        # Explicit curvature alone may well be negative: where a tower adds the implicit part, it also judges the sum.
        self._tiny = tiny(objective.dtype) if listed else NEVER
        self._bounds = self.workers.split(view.indptr)
        self._by_event = len(view.indices) == self.n_rows and bool(
            np.all(np.diff(view.indptr) == 1)
        )  # row c has the pair c and no other
        self._buffers: dict[str, np.ndarray] = {}
        self._scores = np.empty(0)
        self._tracked: dict[int, np.ndarray] = {}
        self._sweep: RowSweep | None = None

    def open(self, scores: np.ndarray) -> Side:
        self._scores = scores
        self._tracked = {}
        self._psi: np.ndarray | None = None
        self._shown: dict[str, int] = {}  # dimensions of the other side by the buffer they are in
        self.moved: set[int] = set()  # dimensions
        return self

    @property
    def own(self) -> Vectors:  # type: ignore[override]
        return self._objective.vectors[self.name]

    @property
    def other(self) -> Vectors:
        return self._objective.vectors[OTHER[self.name]]

    @property
    def gram(self) -> np.ndarray:
        """J of the other side."""
        return self._objective.grams[OTHER[self.name]]

    def implicit(self) -> tuple[float, np.ndarray]:
        return self._objective.alpha0, self.gram

    def slopes(self, f: int) -> tuple[np.ndarray, np.ndarray]:
        g, h = self._buffer("g"), self._buffer("h")
        implicit = Implicit(self._weight, self._product(f, "product"), self.gram[f, f])
        kernel = pairs.slopes_by_event if self._by_event else pairs.slopes
        self.workers.run(kernel, self._bounds, self._observed, self._seen(f), implicit, self._tiny, g, h)
        return g, h

    def slopes_pair(self, f: int, q: int, phi: np.ndarray) -> np.ndarray:
        out, J = self._buffer("pair", (8, self.n_rows)), self.gram
        products = self._product(f, "product"), self._product(q, "product_q")
        implicit = ImplicitPair(self._weight, *products, J[f, f], J[f, q], J[q, q])
        kernel = pairs.slopes_pair_by_event if self._by_event else pairs.slopes_pair
        psi_f, psi_q = self._seen(f), self._seen(q, "seen_q")
        self.workers.run(kernel, self._bounds, self._observed, psi_f, psi_q, implicit, self._tiny, phi, out)
        return out.T

    def slopes_along(self, tangent: np.ndarray, at: int = 0) -> tuple[np.ndarray, np.ndarray]:
        g, h = self._buffer("g"), self._buffer("h")
        psi, dims = self._other_rows(), slice(at, at + tangent.shape[1])
        if psi[:, dims].shape != psi.shape:
            psi = np.ascontiguousarray(psi[:, dims])
        observed = self._observed
        self.workers.run(pairs.slopes_along, self._bounds, observed, psi, tangent, tiny(self.dtype), self._along(), g, h)
        if np.any(self._weight):
            J, weight = self.gram[dims], np.broadcast_to(self._weight, self.n_rows)
            phi = self.own.range_vectors(0, self.own.shape[1])

            def implicit(start: int, stop: int) -> None:
                t = tangent[start:stop].astype(np.float64)
                Jt = t @ J
                g[start:stop] += weight[start:stop] * np.einsum("cf,cf->c", Jt, phi(start, stop))
                added = weight[start:stop] * np.einsum("cf,cf->c", Jt[:, dims], t)
                lost = h[start:stop] + added <= self._tiny * (np.abs(h[start:stop]) + added)
                h[start:stop] = np.where(lost, 0.0, h[start:stop] + added)
                g[start:stop][lost] = 0.0

            self.workers.chunks(self.n_rows, implicit)
        return g, h

    def move(self, f: int, delta: np.ndarray) -> None:
        self.own.advance(f, delta, self.workers)
        self.moved.add(f)
        for q, product in self._tracked.items():
            if np.ndim(product):
                self.workers.run(pairs.add_scaled, self.workers.even(self.n_rows), self.gram[q, f], delta, product)
        self._run_move(pairs.move_by_event if self._by_event else pairs.move, self._seen(f), delta, self._scores)

    def move_pair(self, f: int, q: int, delta_f: np.ndarray, delta_q: np.ndarray) -> None:
        for dimension, delta in ((f, delta_f), (q, delta_q)):
            self.own.advance(dimension, delta, self.workers)
            self.moved.add(dimension)
        for p, product in self._tracked.items():
            if np.ndim(product):
                J, ranges = self.gram[p], self.workers.even(self.n_rows)
                self.workers.run(pairs.add_both, ranges, J[f], delta_f, J[q], delta_q, product)
        kernel = pairs.move_pair_by_event if self._by_event else pairs.move_pair
        self._run_move(kernel, self._seen(f), self._seen(q, "seen_q"), delta_f, delta_q, self._scores)

    def move_along(self, tangent: np.ndarray, delta: np.ndarray, at: int = 0) -> None:
        self.own.advance_along(at, tangent, delta, self.workers)
        self._tracked.clear()
        self.moved.update(range(at, at + tangent.shape[1]))
        self.workers.run(pairs.move_along, self._bounds, self._indptr, self._along(), delta, self._scores)

    def _other_rows(self) -> np.ndarray:
        """All vectors of the other side, which do not change while this one is swept."""
        self._psi = self.other.rows if self._psi is None else self._psi
        return self._psi

    def track(self, f: int) -> None:
        """Keep ``(J phi)_f`` up to date from now on, for a dimension that is asked for again and again."""
        self._tracked[f] = self._product(f, f"tracked {f}")  # type: ignore[assignment]

    def sweep_levels(self, block: LevelBlock, settings: StepSettings, implicit: np.ndarray | None = None) -> bool:
        W, penalty = block.parameter.value, block.parameter.penalty
        penalty = float(penalty) if np.ndim(penalty) == 0 else np.ravel(penalty)
        if block.levels is None and block.partner == WITH_OTHER:
            self._sweep_rows(W, penalty, settings)
            return True
        if settings.block_size != 1 or not isinstance(block.levels, Levels):
            return False
        own = self.own
        if not isinstance(own, LazyVectors):  # vectors that are held would not follow
            return False
        table, codes, core = self._partner_table(block)
        if block.partner == CORE and table is None:
            return False
        own.forget()
        self._tracked.clear()
        partner = Partner(self._observed, self._other_rows(), self.gram, self._weight, table, codes, core)
        return sweep_levels(partner, *block.levels.groups, implicit, penalty, settings.step_size, W, self.workers)

    def _partner_table(self, block: LevelBlock) -> tuple[np.ndarray | None, np.ndarray | None, np.ndarray | None]:
        """The vectors of the other modes, which of them each row has, and the core; a core of more modes is not contracted here."""
        tables = [mode(self.workers) for mode in block.modes]
        if not tables or (block.core is not None and len(tables) > 1):
            return None, None, None
        if len(tables) == 1:
            return *tables[0], None if block.core is None else block.core()
        return reduce(np.multiply, (table[codes] for table, codes in tables)), np.arange(self.n_rows), None

    def _sweep_rows(self, W: np.ndarray, penalty: Values, settings: StepSettings) -> None:
        """Coordinate descent on ``phi(c) = W[c]``, rows on their own."""
        eta, block_size = settings.step_size, settings.block_size
        if block_size == 1:
            self._sweep = self._sweep or RowSweep(self._indptr, self.workers)
            self._sweep(self._observed, self.other, self.gram, self._weight, penalty, eta, self._tiny, W)
        else:
            terms = (self._observed, self.other.rows, self._weight, self.gram, NewtonSettings(penalty, eta, self._tiny))
            self.workers.run(row_sweep.sweep_blocks, self._bounds, *terms, block_size, W)
        self.own.become(W)

    @property
    def _observed(self) -> Observed:
        return Observed(self._indptr, self._indices, self._a, self._b, self._scores)

    def _run_move(self, kernel: Any, *args: Any) -> None:
        self.workers.run(kernel, self._bounds, self._indices if self._by_event else self._indptr, *args)

    def _seen(self, f: int, name: str = "seen") -> np.ndarray:
        """What the rows of the other side have in dimension f: for each of them if rows are events, which look it up as they go;
        else for each pair, kept from the slopes to the move, and longer for a dimension that comes again and again."""
        if self._by_event:
            return self.other.dim(f)
        out = self._buffer(name, (len(self._indices),))
        if self._shown.get(name) != f:
            self.workers.run(take, self.workers.even(len(out)), self._indices, self.other.dim(f), out)
            self._shown[name] = f
        return out

    def _product(self, f: int, name: str) -> Values:
        """``(J phi)_f`` of each row; after the rotation J has few entries off its diagonal, and this is cheap."""
        if np.ndim(self._weight) == 0 and self._weight == 0.0:
            return 0.0
        if f in self._tracked:
            return self._tracked[f]
        out = self._buffer(name)
        self.own.combine(self.gram[f], out, self.workers)
        return out

    def _along(self) -> np.ndarray:
        return self._buffer("along", (len(self._indices),))

    def _buffer(self, name: str, shape: tuple[int, ...] | None = None) -> np.ndarray:
        if name not in self._buffers:
            self._buffers[name] = np.empty(shape or self.n_rows, self.dtype)
        return self._buffers[name]


OTHER = {"context": "item", "item": "context"}


def _cast(values: Values, dtype: np.dtype) -> Values:
    """Arrays in the model's precision, numbers as they are."""
    return float(values) if np.ndim(values) == 0 else np.asarray(values).astype(dtype, copy=False)


def _finite(values: Values, dtype: np.dtype) -> bool:
    """Whether they are numbers in this precision."""
    with np.errstate(over="ignore"):
        return bool(np.all(np.isfinite(np.asarray(values).astype(dtype, copy=False))))
