"""A custom tower with its own steps: one number per context or item. See docs/your-own-model.md."""

from __future__ import annotations

# [offset]
from collections.abc import Sequence

import numpy as np

from everypair.towers import BindContext, Rows, Tower, Vectors, View, Workers


class Offset(Tower):
    """phi(c) = w_c."""

    n_dims = 1

    def build(self, binding: BindContext) -> None:
        value = np.zeros(binding.rows.n, binding.dtype)
        self._w = binding.parameter("offset", value, binding.weight)  # the weight of each entry in the loss, for the L2 exponent
        self.parameters = {"offset": self._w}

    def evaluate(self, rows: Rows, workers: Workers) -> Vectors:
        return Vectors(dims=rows.pick(self._w.value)[None, :])  # dimensions x rows

    @property
    def blocks(self) -> Sequence[int]:
        return [] if self._w.fixed else [0]

    def step(self, view: View, block: int) -> None:
        w, l2 = self._w.value, self._w.penalty
        g, h = view.slopes(block)
        delta = (-(g + l2 * w) / np.maximum(h + l2, 1e-12)).astype(w.dtype)
        w += delta
        view.move(block, delta)


# [offset]
