"""Base classes of several models: with columns on both sides, and with default weights that depend on the data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Self, Unpack

from everypair.models.fit_options import FitOptions, fitting
from everypair.models.tower_model import AUTO, TowerModel

PAPER: dict[str, Any] = {  # all unobserved pairs weigh the same, plain L2
    "regularization_exponent": 0.0,
    "popularity_exponent": 0.0,
}


@dataclass(repr=False, eq=False)
class FeatureModel(TowerModel):
    """A model whose contexts and items are described by columns."""

    @fitting
    def fit(self, feedback: Any, contexts: Any = None, items: Any = None, **options: Unpack[FitOptions]) -> Self:
        """Train from scratch, or continue from a checkpoint.

        Parameters
        ----------
        feedback : Feedback or scipy sparse matrix
        contexts, items : mapping of columns, data frame, Arrow table, Features, or matrix, optional
            A table with a row for each context (item). A column is a matrix of features (scipy sparse, numpy or a linear operator),
            an array of integers (levels, or :class:`everypair.Levels`) or an array of numbers. A single matrix is one column,
            "features". None: contexts (items) have no features other than their number.
        """
        return self._fit(feedback, contexts, items, **options)


@dataclass(repr=False, eq=False)
class DataDefaults(TowerModel):
    """A model whose default weights scale with the data: the total weight of unobserved pairs is proportional to the number of
    observed ones, popular items have a larger share of it, and L2 is proportional to the weight of a row.

    A fixed weight suits few data sets, since the share of pairs that are observed differs by orders of magnitude; these
    proportions suit many (docs/log.md).
    """

    unobserved_weight: float | str = field(default=AUTO, kw_only=True)
    regularization: Any = field(default=0.005, kw_only=True)
    regularization_exponent: float = field(default=1.0, kw_only=True)
    popularity_exponent: float = field(default=0.3, kw_only=True)
