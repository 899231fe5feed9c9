"""Matrix factorization (Section 5.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self, Unpack

from everypair.models.fit_options import FitOptions, fitting
from everypair.models.mixins import DataDefaults
from everypair.models.tower_model import documented
from everypair.towers import Embedding, Tower


@documented
@dataclass(repr=False, eq=False)
class MF(DataDefaults):
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
    def fit(self, feedback: Any, **options: Unpack[FitOptions]) -> Self:
        """Train from scratch, or continue from a checkpoint.

        Parameters
        ----------
        feedback : Feedback or scipy sparse matrix
        """
        return self._fit(feedback, None, None, **options)

    def describe_towers(self, contexts: Any, items: Any) -> tuple[Tower, Tower]:
        return Embedding(self.factors, name="W"), Embedding(self.factors, name="H")
