"""Matrix factorization with side information (Section 5.2.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from everypair.models.mixins import DataDefaults, FeatureModel
from everypair.models.tower_model import documented
from everypair.towers import Embedding, Linear, Tower


@documented
@dataclass(repr=False, eq=False)
class MFSI(DataDefaults, FeatureModel):
    """MF with side information: ``s(c, i) = <x_c W, z_i H>``; parameters W, H with a row per feature.

    A side without features has a row per context (item), as in MF.

    Examples
    --------
    >>> import scipy.sparse as sp, everypair as ep
    >>> feedback = ep.Feedback([0, 0, 1, 1, 2], [0, 1, 0, 1, 2])
    >>> country = sp.csr_array([[1, 0], [1, 0], [0, 1]])
    >>> model = ep.MFSI(factors=2, epochs=8).fit(feedback, contexts={"user": sp.eye_array(3), "country": country})
    >>> model.parameters_["W"].shape
    (5, 2)
    """

    factors: int = 64

    def describe_towers(self, contexts: Any, items: Any) -> tuple[Tower, Tower]:
        return self._side_of(contexts, "W"), self._side_of(items, "H")

    def _side_of(self, columns: Any, name: str) -> Tower:
        return Embedding(self.factors, name=name) if columns is None else Linear(self.factors, name=name)
