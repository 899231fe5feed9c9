r"""One side of the loss, the other held: the view of a tower that is all of its side (Lemma 3 of the paper)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np

from everypair.columns.table import Levels
from everypair.engine.binding import StepSettings
from everypair.engine.blocks import CORE, OTHER, Block, LevelBlock
from everypair.engine.feedback import CompressedPairs
from everypair.engine.lazy_vectors import LazyVectors
from everypair.engine.level_sweep import Partner, sweep_levels
from everypair.engine.panel_stages import SideRows
from everypair.engine.panel_sweep import PanelPlan, SideVectors, can_sweep, lacks_l2
from everypair.engine.row_sweep import RowSweep
from everypair.engine.vectors import Vectors
from everypair.engine.view import View
from everypair.kernels import pairs, row_sweep
from everypair.kernels.newton import SweepSettings
from everypair.kernels.pairs import Implicit, ImplicitPair, Observed, RowPairs
from everypair.kernels.permute import take
from everypair.runtime.cached import cached_property
from everypair.runtime.group import ALONE, Group
from everypair.runtime.numerics import NEVER, Values, lost_decrease, tiny
from everypair.runtime.parallel import Workers


class SidePairs:
    """The observed pairs of one side in its order, the same for all sweeps, and arrays that sweeps write to again and again.

    Parameters
    ----------
    compressed : CompressedPairs
        The pairs of the side, row by row.
    alpha, other, b : number or array
        The weights of Lemma 1: b and alpha in the order of the pairs, other by row of the other side; ``a = alpha - weight other``.
    weight : number or array
        ``alpha0 m`` of each row.
    confidence : callable
        Returns the confidences of the pairs, which only few fits need.
    dtype : numpy dtype
    workers : Workers
    listed : bool
        False if the rows of the side are more than those listed: their tower itself accounts for the implicit part.
    group : Group
        The members among whom the pairs of each row are divided, while all have the rows.
    """

    def __init__(
        self,
        compressed: CompressedPairs,
        alpha: Values,
        other: Values,
        b: Values,
        weight: Values,
        confidence: Callable[[], Values],
        dtype: np.dtype,
        workers: Workers,
        listed: bool,
        group: Group = ALONE,
    ) -> None:
        self.indptr, self.indices = compressed.indptr, compressed.indices
        self.alpha, self.other, self.b, self.weight, self._confidence = alpha, other, b, weight, confidence
        self.dtype, self.workers, self.group = dtype, workers, group
        self.share = weight / group.size  # of the implicit part of a row, in sums that the group adds up
        # Explicit curvature alone may well be negative: where a tower adds the implicit part, it also judges the sum.
        self.tiny = tiny(dtype) if listed else NEVER
        self.n_rows = len(self.indptr) - 1
        self.bounds = workers.split(self.indptr)
        one_each = len(self.indices) == self.n_rows and bool(np.all(np.diff(self.indptr) == 1))
        self.by_event = one_each  # row c has the pair c and no other
        self._buffers: dict[str, np.ndarray] = {}
        self._panel_plans: dict[Any, tuple[Any, PanelPlan]] = {}

    @cached_property
    def confidence(self) -> Values:
        return self._confidence()

    @cached_property
    def a(self) -> Values:
        """Of each pair, for sweeps that read it many times; those of rows compute it as they go, and need no memory for it."""
        if np.ndim(self.other) == 0 and self.other == 0.0:
            return self.alpha
        out = np.empty(len(self.indices), self.dtype)
        pairs_of_rows = (self.indptr, self.indices, self.alpha, self.other, self.weight)
        self.workers.run(pairs.explicit_weights, self.bounds, *pairs_of_rows, out)
        return out

    @property
    def finite(self) -> bool:
        """Whether the weights are numbers in the precision of the fit."""
        with np.errstate(over="ignore"):
            largest = np.asarray(np.max(self.other) * np.float64(np.max(self.weight)), self.dtype)
            parts = (np.asarray(x).astype(self.dtype, copy=False) for x in (self.alpha, self.other, self.b, self.weight, largest))
            return all(bool(np.all(np.isfinite(part))) for part in parts)

    @cached_property
    def row_sweep(self) -> RowSweep:
        return RowSweep(self.indptr, self.workers, self.group)

    def panel_plan(self, blocks: Sequence[Block]) -> PanelPlan:
        """How to sweep these blocks in panels: the same object for the same parameters."""
        key = tuple(id(block.parameter) for block in blocks)
        if key not in self._panel_plans:
            rows = SideRows(self.indptr, self.by_event, self.sums, self.group.divided)
            self._panel_plans[key] = blocks, PanelPlan(blocks, rows, self.dtype, self.workers)
        return self._panel_plans[key][1]

    @property
    def sums(self) -> Group:
        """The members among whom sums over the side are divided: over its rows, or over the pairs of each."""
        return self.group if self.group.divided else self.workers.group

    def buffer(self, name: str, shape: tuple[int, ...]) -> np.ndarray:
        if name not in self._buffers:
            self._buffers[name] = np.empty(shape, self.dtype)
        return self._buffers[name]


class Side(View):
    r"""One side of the loss, the other held: a quadratic in each row's vector.

    .. math:: q_c(\phi) = \phi' A_c \phi - 2 b_c' \phi, \qquad
        A_c = \sum_{i \in S_c} a \psi \psi' + \alpha_0 m_c J, \qquad b_c = \sum_{i \in S_c} b \psi

    A value made for one sweep: moves keep the scores and the side's own vectors in step, and nothing else. The item side is the
    same code on the transposed feedback.

    Parameters
    ----------
    pairs : SidePairs
    scores : array
        Of the observed pairs, in the order of the side.
    own, other : Vectors
        Of this side and of the other.
    J : array
        The Gram of the other side.
    alpha0 : float
    """

    own: Vectors

    def __init__(self, pairs: SidePairs, scores: np.ndarray, own: Vectors, other: Vectors, J: np.ndarray, alpha0: float) -> None:
        self.workers, self.dtype, self.n_rows = pairs.workers, pairs.dtype, pairs.n_rows
        self._pairs, self._scores, self.own, self.other, self.J, self._alpha0 = pairs, scores, own, other, J, alpha0
        self._tracked: dict[int, np.ndarray] = {}
        self._psi: np.ndarray | None = None
        self._shown: dict[str, int] = {}  # dimensions of the other side by the buffer they are in
        self.moved: set[int] = set()  # dimensions

    def implicit(self) -> tuple[float, np.ndarray]:
        return self._alpha0, self.J

    def slopes(self, f: int) -> tuple[np.ndarray, np.ndarray]:
        if self._pairs.group.divided:
            return self._slopes_of_group(f)
        g, h = self._buffer("g"), self._buffer("h")
        implicit = Implicit(self._pairs.weight, self._product(f, "product"), self.J[f, f])
        kernel = pairs.slopes_by_event if self._pairs.by_event else pairs.slopes
        self.workers.run(kernel, self._pairs.bounds, self._observed, self._seen(f), implicit, self._pairs.tiny, g, h)
        return g, h

    def _slopes_of_group(self, f: int) -> tuple[np.ndarray, np.ndarray]:
        """Explicit sums of the whole group, and the implicit part once."""
        sums, kernel = np.empty((2, self.n_rows), self.dtype), pairs.slopes_by_event if self._pairs.by_event else pairs.slopes
        self.workers.run(
            kernel, self._pairs.bounds, self._observed, self._seen(f), Implicit(0.0, 0.0, 0.0), NEVER, sums[0], sums[1]
        )
        g, h = self._pairs.group.total(sums.astype(np.float64))
        added = self._pairs.weight * self.J[f, f]
        lost = h + added <= tiny(self.dtype) * (np.abs(h) + added)
        g += self._pairs.weight * self._product(f, "product")
        h += added
        g[lost] = h[lost] = 0.0
        return g.astype(self.dtype), h.astype(self.dtype)

    def slopes_pair(self, f: int, q: int, phi: np.ndarray) -> np.ndarray:
        if self._pairs.group.divided:
            raise NotImplementedError("pairs of slopes of rows whose pairs are divided among a group")
        out, J = self._buffer("pair", (8, self.n_rows)), self.J
        products = self._product(f, "product"), self._product(q, "product_q")
        implicit = ImplicitPair(self._pairs.weight, *products, J[f, f], J[f, q], J[q, q])
        kernel = pairs.slopes_pair_by_event if self._pairs.by_event else pairs.slopes_pair
        psi_f, psi_q = self._seen(f), self._seen(q, "seen_q")
        self.workers.run(kernel, self._pairs.bounds, self._observed, psi_f, psi_q, implicit, self._pairs.tiny, phi, out)
        return out.T

    def slopes_along(self, tangent: np.ndarray, at: int = 0) -> tuple[np.ndarray, np.ndarray]:
        if self._pairs.group.divided:
            raise NotImplementedError("slopes along tangents of rows whose pairs are divided among a group")
        g, h = self._buffer("g"), self._buffer("h")
        psi, dims = self._other_rows(), slice(at, at + tangent.shape[1])
        if psi[:, dims].shape != psi.shape:
            psi = np.ascontiguousarray(psi[:, dims])
        observed = self._observed
        self.workers.run(pairs.slopes_along, self._pairs.bounds, observed, psi, tangent, tiny(self.dtype), self._along(), g, h)
        if np.any(self._pairs.weight):
            J, weight = self.J[dims], np.broadcast_to(self._pairs.weight, self.n_rows)
            phi = self.own.range_vectors(0, self.own.shape[1])

            def implicit(start: int, stop: int) -> None:
                t = tangent[start:stop].astype(np.float64)
                Jt = t @ J
                g[start:stop] += weight[start:stop] * np.einsum("cf,cf->c", Jt, phi(start, stop))
                added = weight[start:stop] * np.einsum("cf,cf->c", Jt[:, dims], t)
                lost = h[start:stop] + added <= self._pairs.tiny * (np.abs(h[start:stop]) + added)
                h[start:stop] = np.where(lost, 0.0, h[start:stop] + added)
                g[start:stop][lost] = 0.0

            self.workers.chunks(self.n_rows, implicit)
        return g, h

    def move(self, f: int, delta: np.ndarray) -> None:
        self.own.advance(f, delta, self.workers)
        self.moved.add(f)
        for q, product in self._tracked.items():
            if np.ndim(product):
                self.workers.run(pairs.add_scaled, self.workers.even(self.n_rows), self.J[q, f], delta, product)
        self._run_move(pairs.move_by_event if self._pairs.by_event else pairs.move, self._seen(f), delta, self._scores)

    def move_pair(self, f: int, q: int, delta_f: np.ndarray, delta_q: np.ndarray) -> None:
        for dimension, delta in ((f, delta_f), (q, delta_q)):
            self.own.advance(dimension, delta, self.workers)
            self.moved.add(dimension)
        for p, product in self._tracked.items():
            if np.ndim(product):
                J, ranges = self.J[p], self.workers.even(self.n_rows)
                self.workers.run(pairs.add_both, ranges, J[f], delta_f, J[q], delta_q, product)
        kernel = pairs.move_pair_by_event if self._pairs.by_event else pairs.move_pair
        self._run_move(kernel, self._seen(f), self._seen(q, "seen_q"), delta_f, delta_q, self._scores)

    def move_along(self, tangent: np.ndarray, delta: np.ndarray, at: int = 0) -> None:
        self.own.advance_along(at, tangent, delta, self.workers)
        self._tracked.clear()
        self.moved.update(range(at, at + tangent.shape[1]))
        self.workers.run(pairs.move_along, self._pairs.bounds, self._pairs.indptr, self._along(), delta, self._scores)

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
        if block.levels is None and block.partner == OTHER:
            self._sweep_rows(W, penalty, settings)
            return True
        if settings.block_size != 1 or not isinstance(block.levels, Levels):
            return False
        if self._pairs.sums.divided and (self._pairs.group.divided or not block.levels.local):
            return False  # a level has rows elsewhere, too
        own = self.own
        if not isinstance(own, LazyVectors):  # vectors that are held would not follow
            return False
        table, codes, core = self._partner_table(block)
        if block.partner == CORE and table is None:
            return False
        own.forget()
        self._tracked.clear()
        partner = Partner(self._observed, self._other_rows(), self.J, self._pairs.weight, table, codes, core)
        share = lost_decrease(self.dtype) if np.any(penalty == 0.0) else 0.0
        lost = 0.0 if share == 0.0 else np.where(penalty == 0.0, share * block.levels.sum(self._sizes()), 0.0)
        sweep = SweepSettings(penalty, settings.step_size, tiny(self.dtype), lost, share)
        return sweep_levels(partner, *block.levels.groups, implicit, sweep, W, self.workers)

    def sweep_panels(self, blocks: Sequence[Block] | None, settings: StepSettings) -> bool:
        if not can_sweep(blocks, settings):
            return False
        assert blocks is not None
        plan, row_sizes = self._pairs.panel_plan(blocks), None
        if self._pairs.sums.agreed(any(lacks_l2(block, self.n_rows) for block in plan.blocks)):
            row_sizes = self._sizes() + self._implicit_sizes()
        self._tracked.clear()
        plan.sweep(self._observed, self._pairs.share, SideVectors(self.own, self.other, self.J), settings, row_sizes)
        return True

    def _implicit_sizes(self) -> np.ndarray:
        """For each row, the size of what the implicit part of gradients is made of."""
        part, norms = self.own.range_vectors(0, self.own.shape[1]), np.sqrt(np.maximum(np.diag(self.J), 0.0))
        chunks = self.workers.chunks(self.n_rows, lambda start, stop: np.square(np.abs(part(start, stop)) @ norms))
        return self._pairs.weight * np.concatenate(chunks)

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
        lost: Values = 0.0
        if np.any(penalty == 0.0):
            implicit = self._pairs.weight * np.square(np.abs(W) @ np.sqrt(np.maximum(np.diag(self.J), 0.0)))
            lost = np.where(penalty == 0.0, lost_decrease(self.dtype) * (self._sizes() + implicit), 0.0)
        sweep = SweepSettings(penalty, settings.step_size, self._pairs.tiny, lost, 0.0)
        if settings.block_size == 1:
            self._pairs.row_sweep(self._row_pairs, self.other, self.J, self._pairs.weight, sweep, W)
        else:
            terms = (self._observed, self.other.rows, self._pairs.weight, self.J, sweep)
            self.workers.run(row_sweep.sweep_blocks, self._pairs.bounds, *terms, settings.block_size, W)
        self.own.become(W)

    def _sizes(self) -> np.ndarray:
        """For each row, the size of what the explicit part of gradients is made of."""
        out = np.empty(self.n_rows)
        self.workers.run(pairs.sizes, self._pairs.bounds, self._row_pairs, self._pairs.weight, self._pairs.confidence, out)
        return self._pairs.group.total(out)

    @property
    def _row_pairs(self) -> RowPairs:
        held = self._pairs
        return RowPairs(held.indptr, held.indices, held.alpha, held.other, held.b, self._scores)

    @property
    def _observed(self) -> Observed:
        return Observed(self._pairs.indptr, self._pairs.indices, self._pairs.a, self._pairs.b, self._scores)

    def _run_move(self, kernel: Any, *args: Any) -> None:
        self.workers.run(kernel, self._pairs.bounds, self._pairs.indices if self._pairs.by_event else self._pairs.indptr, *args)

    def _seen(self, f: int, name: str = "seen") -> np.ndarray:
        """What the rows of the other side have in dimension f: for each of them if rows are events, which look it up as they go;
        else for each pair, kept from the slopes to the move, and longer for a dimension that comes again and again."""
        if self._pairs.by_event:
            return self.other.dim(f)
        out = self._buffer(name, (len(self._pairs.indices),))
        if self._shown.get(name) != f:
            self.workers.run(take, self.workers.even(len(out)), self._pairs.indices, self.other.dim(f), out)
            self._shown[name] = f
        return out

    def _product(self, f: int, name: str) -> Values:
        """``(J phi)_f`` of each row; after the rotation J has few entries off its diagonal, and this is cheap."""
        if np.ndim(self._pairs.weight) == 0 and self._pairs.weight == 0.0:
            return 0.0
        if f in self._tracked:
            return self._tracked[f]
        out = self._buffer(name)
        self.own.combine(self.J[f], out, self.workers)
        return out

    def _along(self) -> np.ndarray:
        return self._buffer("along", (len(self._pairs.indices),))

    def _buffer(self, name: str, shape: tuple[int, ...] | None = None) -> np.ndarray:
        return self._pairs.buffer(name, shape or (self.n_rows,))
