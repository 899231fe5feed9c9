"""``Concat``: the dimensions of several towers, concatenated, ``phi(c) = (phi1(c), phi2(c), ...)``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from everypair.columns.table import Rows
from everypair.engine.binding import BindContext
from everypair.engine.blocks import Block, joined, shifted
from everypair.engine.contribution import Contribution
from everypair.engine.tower import Capabilities, Tower, check_towers
from everypair.engine.vectors import RangeVectors, Vectors
from everypair.engine.view import PartView, View
from everypair.runtime.parallel import Workers


class Concat(Tower):
    """The concatenated dimensions of several towers: a score is the sum of an inner product for each.

    The dimensions of each part can be rotated, but not across parts.

    Parameters
    ----------
    *towers : Tower
    """

    def __init__(self, *towers: Tower) -> None:
        check_towers("Concat", towers)
        self.n_dims = sum(tower.n_dims for tower in towers)
        self.towers = towers

    @property
    def _parts(self) -> list[tuple[int, Tower]]:
        """The first dimension of each part, and the part."""
        ends = np.cumsum([tower.n_dims for tower in self.towers]).tolist()
        return list(zip([0, *ends[:-1]], self.towers, strict=True))

    def _part_of(self, f: int) -> tuple[int, int]:
        """The number of the part that dimension f belongs to, and the part's first dimension."""
        return max((j, start) for j, (start, _) in enumerate(self._parts) if start <= f)

    def build(self, binding: BindContext) -> None:
        self.bind_parts(binding)

    def evaluate(self, rows: Rows, workers: Workers) -> Vectors:
        return Vectors(dims=np.concatenate([tower.evaluate(rows, workers).dims for tower in self.towers]))

    def dimensions(self, rows: Rows, workers: Workers) -> Callable[[int], np.ndarray]:
        parts = [tower.dimensions(rows, workers) for tower in self.towers]

        def phi(f: int) -> np.ndarray:
            j, start = self._part_of(f)
            return parts[j](f - start)

        return phi

    def contributions(self, rows: Rows, psi: np.ndarray) -> list[Contribution]:
        parts = self._parts
        return [term for start, tower in parts for term in tower.contributions(rows, psi[start : start + tower.n_dims])]

    @property
    def capabilities(self) -> Capabilities:
        parts = [(start, tower.capabilities) for start, tower in self._parts]
        return super().capabilities._replace(
            rotations=tuple((start + a, start + b) for start, part in parts for a, b in part.rotations),
            lazy=all(part.lazy for _, part in parts),
            kept=tuple(start + f for start, part in parts for f in part.kept),
            divided=all(part.divided for _, part in parts),
            replicated=all(part.replicated and not part.kept for _, part in parts),
        )

    def range_vectors(self, first: int, last: int) -> RangeVectors:
        parts = [
            tower.range_vectors(max(first - start, 0), min(last - start, tower.n_dims))
            for start, tower in self._parts
            if start < last and first < start + tower.n_dims
        ]
        return lambda start, stop: np.hstack([part(start, stop) for part in parts])

    def vectors_by_row(self) -> Callable[[np.ndarray], np.ndarray]:
        parts = [tower.vectors_by_row() for tower in self.towers]
        return lambda index: np.hstack([phi(index) for phi in parts])

    @property
    def blocks(self) -> Sequence[Any]:
        return [
            block + start if isinstance(block, int) else (j, block)
            for j, (start, tower) in enumerate(self._parts)
            for block in tower.blocks
        ]

    def step(self, view: View, block: Any) -> None:
        if isinstance(block, int):
            j, start = self._part_of(block)
            block -= start
        else:
            j, block = block
            start, _ = self._parts[j]
        self.towers[j].step(PartView(view, start), block)

    def sweep(self, view: View) -> None:
        for start, tower in self._parts:
            tower.sweep(PartView(view, start))

    def describe_blocks(self) -> list[Block] | None:
        return joined(shifted(tower.describe_blocks(), start) for start, tower in self._parts)

    def rotate(self, at: slice, Q: np.ndarray, workers: Workers) -> None:
        for start, tower in self._parts:
            if start <= at.start and at.stop <= start + tower.n_dims:
                tower.rotate(slice(at.start - start, at.stop - start), Q, workers)

    @property
    def dimension_kinds(self) -> tuple[str, ...]:
        return tuple(kind for tower in self.towers for kind in tower.dimension_kinds)
