"""The fit of models with features on both sides."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self

from everypair.models.separable import Separable
from everypair.solver import Epoch


@dataclass(repr=False, eq=False)
class Featured(Separable):
    """A separable model whose contexts and items are described by features."""

    def fit(
        self,
        feedback: Any,
        contexts: Any = None,
        items: Any = None,
        *,
        start: Mapping[str, Any] | None = None,
        fixed: Mapping[str, Any] | None = None,
        callback: Callable[[Self, Epoch], Any] | None = None,
    ) -> Self:
        """Train from scratch.

        Parameters
        ----------
        feedback : Feedback or scipy sparse matrix
        contexts, items : Features, mapping of fields, or matrix, optional
            A row of features per context (item). None: each is its own feature.
        start, fixed : mappings of letters to arrays, optional
            Initial values of parameters; parameters to hold, which are then outside L2.
        callback : callable, optional
            ``callback(model, epoch)`` after each epoch; returning a true value stops.
        """
        return self._fit(feedback, contexts, items, start, fixed, callback)
