"""``GpuEngine``: the engine that runs a fit on a GPU."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from everypair.engine.engine import OPPOSITE, Engine
from everypair.engine.feedback import Feedback
from everypair.engine.objective import ObjectiveValue
from everypair.engine.rotation import in_turn, is_singular, spread_order, swept_by_rows
from everypair.engine.tower import Tower, common_rotations
from everypair.gpu import linear
from everypair.gpu.backend import Backend
from everypair.gpu.biases import Biases
from everypair.gpu.features import FeatureSide
from everypair.gpu.levels import LevelField, SideBlocks, side_blocks
from everypair.gpu.pairs import Numbers, Pairs
from everypair.gpu.rows import FreeRows
from everypair.gpu.side import DeviceSide, OtherSide, padded


class GpuEngine(Engine):
    """Parameters, pairs and scores on a device; kernels that sweep a side, a warp for each row.

    The steps are those of the CPU's engine, in the same order; sums are in another order and precision. Parameters come to the
    host when :meth:`bring_back` is called.

    Parameters
    ----------
    feedback, towers, alpha0 :
        As for :class:`~everypair.engine.cpu.CpuEngine`. The towers must be among those that :func:`everypair.gpu.device.refusal`
        allows.
    backend : Backend
    rotate : bool
    """

    def __init__(
        self, feedback: Feedback, towers: Mapping[str, Tower], alpha0: float, backend: Backend, rotate: bool = True
    ) -> None:
        super().__init__(feedback, towers, alpha0, np.dtype(np.float32))
        self._backend, self.device = backend, backend.device
        common = common_rotations([tower.capabilities.rotations for tower in towers.values()])
        self._rotations = [slice(*dims) for dims in common] if rotate else []
        self._pairs = Pairs(backend, feedback, alpha0)
        self._sides = {side: self._side(side, tower) for side, tower in towers.items()}
        self._weights = {"context": self._numbers(feedback.context_weight), "item": self._numbers(feedback.item_weight)}
        self._by_rows = all(swept_by_rows(tower) for tower in towers.values())
        self._grams: dict[str, Any] = {}
        self._diagonal: set[str] = set()  # sides whose Gram is
        self._size = 0.0

    def _side(self, side: str, tower: Tower) -> DeviceSide:
        eta, indptr = tower.settings.step_size, (self.feedback.by_context if side == "context" else self.feedback.by_item).indptr
        if tower.capabilities.free_rows:
            (parameter,) = tower.parameters.values()
            return FreeRows(self._backend, parameter, side, eta)
        n, found = len(indptr) - 1, side_blocks(tower, len(indptr) - 1)
        assert isinstance(found, SideBlocks)
        factors = [LevelField(self._backend, block, n, padded(found.k)) for block in found.factors]
        weights = [LevelField(self._backend, block, n, 0) for block in found.weights]
        biases = None if found.bias is None else Biases(self._backend, weights, n, eta)
        return FeatureSide(self._backend, side, indptr, found.k, eta, factors, biases)

    def _numbers(self, weight: np.ndarray | None) -> Numbers | None:
        return None if weight is None else Numbers(*self._backend.floats(weight))

    def active(self) -> AbstractContextManager[None]:
        return self._backend.active()

    @property
    def finite(self) -> bool:
        feedback, largest = self.feedback, np.finfo(np.float32).max
        m, n = (1.0 if weight is None else weight for weight in (feedback.context_weight, feedback.item_weight))
        found = (feedback.alpha, feedback.b, m, n, self.alpha0 * np.max(m) * np.max(n))
        return all(bool(np.all(np.abs(values) <= largest)) for values in found)

    def take_parameters(self) -> None:
        for side in self._sides.values():
            side.take_parameters()

    def bring_back(self) -> None:
        for side in self._sides.values():
            side.bring_back()

    def place(self, side: str) -> None:
        self._sides[side].place()

    def update_gram(self, side: str) -> None:
        self._grams[side] = self._sides[side].gram(self._weights[side])
        self._diagonal.discard(side)

    def turn(self, side: str, epoch: int = 1) -> None:
        if self._by_rows and not in_turn(epoch):
            return
        xp, other = self._backend.xp, OPPOSITE[side]
        unregularized = any(rows.unregularized for rows in self._sides.values())
        for at in self._rotations:
            values, Q = linear.eigenvectors(xp, self._grams[other][at, at])
            if self._by_rows:
                order = spread_order(len(values))
                values, Q = values[order], xp.ascontiguousarray(Q[:, order])
            if unregularized and is_singular(self._backend.download(values), self.dtype):
                continue
            self._rotate(at, Q)
            norms = self._sides[other].norms(self._weights[other])  # not the eigenvalues: vectors were rotated with rounding errors
            if unregularized and is_singular(self._backend.download(norms[at]), self.dtype):
                self._rotate(at, Q.T)
                continue
            J = self._grams[other].copy()
            J[at] = Q.T @ J[at]
            J[:, at] = J[at].T
            J[at, at] = xp.diag(norms[at])
            self._grams[other] = J
            self._diagonal.add(other)

    def _rotate(self, at: slice, Q: Any) -> None:
        for rows in self._sides.values():
            rows.rotate(at, Q)

    def sweep(self, side: str) -> None:
        other = OPPOSITE[side]
        self._sides[side].sweep(self._pairs, OtherSide(self._sides[other].table, self._grams[other], other in self._diagonal))

    def step(self, side: str, block: int | str) -> None:
        raise NotImplementedError("a GPU sweeps whole sides")

    def rescore(self) -> None:
        self._pairs.rescore(self._sides["context"], self._sides["item"])

    def value(self) -> ObjectiveValue:
        xp, l2 = self._backend.xp, [side.l2() for side in self._sides.values()]
        everything = (self._grams["context"] * self._grams["item"]).sum()
        found = self._backend.download(xp.concatenate([self._pairs.sums(), xp.stack([everything, *l2])]))  # one copy to the host
        a, b, alpha, everything = found[:4].tolist()
        observed = alpha - a  # alpha0 m n s^2 over the observed pairs
        explicit = max(alpha - 2.0 * b + self._pairs.constant, 0.0)
        implicit = max(self.alpha0 * everything - observed, 0.0)
        penalty = float(found[4:].sum())
        self._size = self._pairs.constant + explicit + implicit + max(observed, 0.0) + penalty
        return ObjectiveValue(explicit + implicit + penalty, explicit, implicit, penalty)

    @property
    def size(self) -> float:
        return self._size
