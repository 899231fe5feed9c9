"""Matrix factorization (Section 5.1)."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self

from everypair.engine.solver import Epoch
from everypair.models.tower_model import documented, fitting
from everypair.models.weights_mixin import Weighed
from everypair.towers import Embedding, Tower


@documented
@dataclass(repr=False, eq=False)
class MF(Weighed):
    """Matrix factorization: ``s(c, i) = <w_c, h_i>``; parameters W (contexts), H (items).

    Examples
    --------
    >>> import everypair as ep
    >>> feedback = ep.Feedback([0, 0, 1, 1, 2], [0, 1, 0, 1, 2])
    >>> model = ep.MF(factors=2, epochs=8).fit(feedback)
    >>> ids, scores = model.recommend([0, 2], n=1)
    >>> ids.shape
    (2, 1)
    """

    factors: int = 64

    @fitting
    def fit(
        self,
        feedback: Any,
        *,
        start: Mapping[str, Any] | None = None,
        fixed: Mapping[str, Any] | None = None,
        callback: Callable[[Self, Epoch], Any] | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        every: int = 1,
    ) -> Self:
        """Train from scratch, or from a checkpoint on.

        Parameters
        ----------
        feedback : Feedback or scipy sparse matrix
        """
        return self._fit(feedback, None, None, start, fixed, callback, checkpoint, every)

    def describe_towers(self, contexts: Any, items: Any) -> tuple[Tower, Tower]:
        return Embedding(self.factors, name="W"), Embedding(self.factors, name="H")
