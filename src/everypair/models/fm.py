"""Factorization machines (Section 5.2.2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from everypair.models.mixins import DataDefaults, FeatureModel
from everypair.models.tower_model import documented
from everypair.towers import Machine, Tower


@documented
@dataclass(repr=False, eq=False)
class FM(DataDefaults, FeatureModel):
    """Factorization machine over the features of context and item together; K = factors + 2.

    ``s = b + sum_l x_l w_l + sum_{l < l'} <w_l, w_l'> x_l x_l'`` with x the features of the context followed by those of the item.
    Parameters: b; w, W for context features; h, H for item features (w, h are the linear weights). A side without features has one
    feature per context (item).

    Examples
    --------
    >>> import scipy.sparse as sp, everypair as ep
    >>> feedback = ep.Feedback([0, 0, 1, 1, 2], [0, 1, 0, 1, 2])
    >>> country = sp.csr_array([[1, 0], [1, 0], [0, 1]])
    >>> model = ep.FM(factors=2, epochs=8).fit(feedback, contexts={"user": sp.eye_array(3), "country": country})
    >>> model.phi_.shape
    (3, 4)
    """

    factors: int = 64

    def describe_towers(self, contexts: Any, items: Any) -> tuple[Tower, Tower]:
        return Machine(self.factors, names=("b", "w", "W")), Machine(self.factors, names=("h", "H"))
