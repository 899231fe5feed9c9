"""Default settings for implicit feedback of any size."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from everypair.models.tower_model import AUTO, TowerModel

PAPER: dict[str, Any] = {
    "regularization_exponent": 0.0,
    "popularity_exponent": 0.0,
}  # all unobserved pairs weigh the same, plain L2


@dataclass(repr=False, eq=False)
class Weighed(TowerModel):
    """A model whose defaults depend on the data: unobserved pairs in proportion to observed ones and to how popular an item is, and
    L2 to what a row weighs.

    A fixed weight is right for few data sets, since the share of pairs that are observed differs by orders of magnitude; these
    proportions are nearly right for many (docs/log.md).
    """

    unobserved_weight: float | str = field(default=AUTO, kw_only=True)
    regularization: Any = field(default=0.005, kw_only=True)
    regularization_exponent: float = field(default=1.0, kw_only=True)
    popularity_exponent: float = field(default=0.3, kw_only=True)
