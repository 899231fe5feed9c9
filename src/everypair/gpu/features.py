"""``FeatureSide``: a side whose vectors are sums over one-hot fields (MFSI, factorization machines), on a device.

Fields take turns panel by panel: a panel of 16 dimensions, field, level, dimension, as on the CPU.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from everypair.gpu import linear
from everypair.gpu.backend import Backend
from everypair.gpu.biases import EACH, Biases
from everypair.gpu.groups import SUMS, EventGroups, EventState, Panel, RowGroups
from everypair.gpu.levels import NARROW, LevelField
from everypair.gpu.pairs import THREADS, Pairs, PairsOfSide
from everypair.gpu.side import DeviceSide, OtherSide
from everypair.gpu.tasks import blocks
from everypair.runtime.numerics import tiny

AT_ONCE = 4  # fields that a kernel adds up


class FeatureSide(DeviceSide):
    """The levels of all fields, and the rows' vectors, which follow their steps.

    Parameters
    ----------
    backend : Backend
    side : {"context", "item"}
    indptr : array
        The pairs of each row.
    k : int
    eta : float
    factors : list of LevelField
        In the order of their steps.
    biases : Biases or None
        Of factorization machines: the features of a row interact.
    """

    def __init__(
        self, backend: Backend, side: str, indptr: np.ndarray, k: int, eta: float, factors: list[LevelField], biases: Biases | None
    ) -> None:
        super().__init__(backend, side, len(indptr) - 1, k, eta, biases)
        self._factors = factors
        self.by_event = self.n == indptr[-1] and bool(np.all(np.diff(indptr) == 1))
        if self.by_event:
            self._groups: list[Any] = [EventGroups(backend, field) for field in factors]
        else:
            self._groups = [RowGroups(backend, field, indptr) for field in factors]

    def take_parameters(self) -> None:
        for field in self._fields:
            field.take()

    def bring_back(self) -> None:
        for field in self._fields:
            field.bring_back()

    @property
    def _fields(self) -> list[LevelField]:
        return [*self._factors, *([] if self.biases is None else self.biases.weights)]

    def place(self) -> None:
        self._add_levels()
        if self.biases is not None:
            self.biases.place(self._factors, self.table)

    def _add_levels(self) -> None:
        """The factors of rows, sums over their levels."""
        add, n_blocks = self.backend.kernels("biases").add_levels, -(-self.n * self.stride // 4 // EACH)
        for first in range(0, len(self._factors), AT_ONCE):
            some = self._factors[first : first + AT_ONCE]
            filled = [*some, *some[:1] * (AT_ONCE - len(some))]  # those past the last are not read
            fields = (argument for field in filled for argument in (field.codes, *field.values, field.W))
            add(n_blocks, EACH, self.n, self.stride, int(first > 0), self.table, *fields, len(some))

    def rotate(self, at: slice, Q: Any) -> None:
        for field in self._factors:
            linear.rotate(self.backend.xp, field.W, at, Q)
        self._add_levels()

    def l2(self) -> Any:
        xp, rows = self.backend.xp, self.backend.kernels("rows")
        total = xp.zeros((), np.float64) if self.biases is None else self.biases.l2()
        for field in self._factors:
            penalties = xp.empty(field.n, np.float64)
            rows.penalties_of_rows(blocks(field.n), THREADS, field.n, field.W, self.stride, *field.penalty, penalties)
            total = total + penalties.sum()
        return total

    def sweep(self, pairs: Pairs, other: OtherSide) -> None:
        xp, own, scores, pairwise = self.backend.xp, pairs.sides[self.side], pairs.scores(self.side), self.biases is not None
        J_qq, phi_q = 0.0, xp.zeros(self.n + 1, np.float32)
        t = phi_q
        if self.biases is not None:
            phi_q, J_qq = self.biases.of_rows, float(other.J[self.q, self.q])
            t = self.biases.along(self.table, other.J, self.q, self.one)
            self.biases.sweep(own, scores, t, J_qq, self.by_event)
            t = self.biases.along(self.table, other.J, self.q, self.one)
        coupled = pairs.alpha0 > 0.0 and not other.diagonal
        kernels = self.backend.kernels("levels", PAIRWISE=int(pairwise), COUPLED=int(coupled))
        state = EventState(xp, scores, phi_q, t, own.indices) if self.by_event else None
        for first in range(0, self.k, NARROW):
            gram, rest = self._gram(other, first), self._rest(other, first) if coupled else phi_q
            panel = Panel(first, gram, J_qq, rest, tiny(np.float32))
            for field, groups in zip(self._factors, self._groups, strict=True):
                if state is not None:
                    self._sweep_events(kernels, field, groups, own, other, panel, state)
                else:
                    self._sweep_rows(kernels, field, groups, own, other, panel, RowsInSweep(scores, phi_q, t))
        if state is not None:
            state.bring_back(scores, phi_q)

    def _gram(self, other: OtherSide, first: int) -> Any:
        """The other side's Gram in a panel, as kernels take it."""
        xp, J, panel = self.backend.xp, other.J, slice(first, first + NARROW)
        A = xp.diag(xp.diagonal(J)[panel]) if other.diagonal else J[panel, panel]
        beside = [J[panel, self.q], J[panel, self.one]] if self.biases is not None else [xp.zeros(NARROW), xp.zeros(NARROW)]
        return xp.concatenate([A.ravel(), *beside]).astype(np.float32)

    def _rest(self, other: OtherSide, first: int) -> Any:
        """``J phi`` of each row in a panel, without the panel's own share and those of biases."""
        xp, stride = self.backend.xp, self.stride
        columns = other.J[:stride, first : first + NARROW].copy()
        columns[first : first + NARROW] = 0.0
        return xp.matmul(self.table, columns.astype(np.float32))

    def _sweep_events(
        self, kernels: Any, field: LevelField, groups: EventGroups, own: PairsOfSide, other: OtherSide, panel: Panel, state: Any
    ) -> None:
        """Levels of a side of events; ``state`` is an EventState."""
        tasks, n, place = groups.tasks, self.n, (self.stride, panel.first)
        visits = (tasks.n, tasks.tasks, field.members, state.packed, *own.a, *own.b, *own.weight, *field.values)
        met = (other.table, len(other.table) - 1, self.table, n, panel.rest)
        steps = (panel.gram, panel.J_qq, *field.penalty, self.eta, panel.tiny, field.delta, field.along)
        kernels.sweep_event_levels(blocks(tasks.n), THREADS, *visits, *met, field.W, *place, *steps, tasks.moments)
        if tasks.n_long:
            cut = (tasks.long, tasks.bounds, tasks.moments)
            kernels.step_levels(tasks.n_long, SUMS // 2, *cut, field.W, *place, *steps)
        events, moves = (n, state.packed, field.codes, *field.values), (field.W, field.delta, field.along, panel.J_qq)
        kernels.follow_events(blocks(-(-n // 32)), THREADS, *events, other.table, self.table, *place, *moves)

    def _sweep_rows(
        self, kernels: Any, field: LevelField, groups: RowGroups, own: PairsOfSide, other: OtherSide, panel: Panel, rows: Any
    ) -> None:
        """Levels of a side whose rows have any number of pairs; ``rows`` is a RowsInSweep."""
        n, place, values, tasks = self.n, (self.stride, panel.first), field.values, own.tasks
        (scores, *biases), none = rows, len(other.table) - 1
        pairs = (groups.n_pairs, groups.of_pairs, groups.visits, own.indices, scores, *own.a, *own.b, *values)
        kernels.sum_pairs_of_levels(
            blocks(groups.n_pairs), THREADS, *pairs, other.table, none, self.table, n, field.W, *place, groups.sums
        )
        members = (groups.n_rows, groups.of_rows, field.members, *biases, *own.weight, *values, self.table, n, panel.rest)
        kernels.sum_rows_of_levels(blocks(groups.n_rows), THREADS, *members, field.W, *place, panel.J_qq, groups.sums)
        steps = (panel.gram, panel.J_qq, *field.penalty, self.eta, panel.tiny, field.delta, field.along)
        kernels.step_levels(field.n, SUMS // 2, groups.levels, groups.bounds, groups.sums, field.W, *place, *steps)
        met = (other.table, none, self.table, *place, field.W, field.delta)
        kernels.follow_pairs(blocks(tasks.n), THREADS, tasks.n, tasks.tasks, own.indices, scores, field.codes, *values, *met)
        moves = (field.W, field.delta, field.along, panel.J_qq, *biases)
        kernels.follow_rows(-(-n * NARROW // EACH), EACH, n, field.codes, *values, self.table, *place, *moves)


class RowsInSweep(NamedTuple):
    """Scores of pairs, and of rows :math:`\\phi_q` and t."""

    scores: Any
    phi_q: Any
    t: Any
