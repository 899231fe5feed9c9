"""The fit of models with columns on both sides."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self

from everypair.engine.solver import Epoch
from everypair.models.tower_model import TowerModel, fitting


@dataclass(repr=False, eq=False)
class Featured(TowerModel):
    """A model whose contexts and items are described by columns."""

    @fitting
    def fit(
        self,
        feedback: Any,
        contexts: Any = None,
        items: Any = None,
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
        contexts, items : mapping of columns, data frame, Arrow table, Features, or matrix, optional
            What describes each context (item), a row each. A column is a matrix of features (scipy sparse, numpy or a linear
            operator), an array of integers (levels, or :class:`everypair.Levels`) or an array of numbers. A matrix on its own is
            one column, "features". None: each is itself alone.
        """
        return self._fit(feedback, contexts, items, start, fixed, callback, checkpoint, every)
