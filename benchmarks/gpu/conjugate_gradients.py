"""The peer: alternating least squares by conjugate gradients on a GPU, on the same loss."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from everypair.engine.feedback import Feedback
from everypair.gpu.linear import gram

STEPS = 3  # of conjugate gradients for a row, as libraries have it
BLOCKS = 132 * 256


class ConjugateGradients:
    """``penalties`` are L2 by row of each side; ``start`` the vectors that it begins with."""

    def __init__(self, xp: Any, feedback: Feedback, alpha0: float, start: list[np.ndarray], penalties: list[np.ndarray]) -> None:
        self._xp, self._alpha0, self._k = xp, alpha0, start[0].shape[1]
        self._rows = [
            (xp.asarray(side.indptr.astype(np.int32)), xp.asarray(side.indices)) for side in (feedback.by_context, feedback.by_item)
        ]
        self._penalties = [xp.asarray(np.ravel(penalty), np.float32) for penalty in penalties]
        self.vectors = [xp.asarray(values) for values in start]
        code = Path(__file__).with_suffix(".cu").read_text(encoding="utf-8")
        self._solve = xp.RawModule(code=f"#define K {self._k}\n{code}").get_function("solve_rows")

    def epoch(self) -> None:
        """Both sides once."""
        for side, (indptr, indices) in enumerate(self._rows):
            own, other = self.vectors[side], self.vectors[1 - side]
            J = gram(self._xp, other).astype(np.float32)
            loss = np.float32(1.0 - self._alpha0), np.float32(1.0), other, J, np.float32(self._alpha0), self._penalties[side]
            arguments = (np.int32(len(own)), indptr, indices, *loss, own, np.int32(STEPS))
            self._solve((min(len(own), BLOCKS),), (self._k,), arguments)
        self._xp.cuda.Device().synchronize()
