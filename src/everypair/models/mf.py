"""Matrix factorization (Section 5.1)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self

from everypair import validation as check
from everypair.models.separable import Separable, Setup, Towers, documented, side_std
from everypair.solver import Epoch


@documented
@dataclass(repr=False, eq=False)
class MF(Separable):
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

    def fit(
        self,
        feedback: Any,
        *,
        start: Mapping[str, Any] | None = None,
        fixed: Mapping[str, Any] | None = None,
        callback: Callable[[Self, Epoch], Any] | None = None,
    ) -> Self:
        """Train from scratch.

        Parameters
        ----------
        feedback : Feedback or scipy sparse matrix
        start, fixed : mappings of letters to arrays, optional
            Initial values of parameters; parameters to hold, which are then outside L2.
        callback : callable, optional
            ``callback(model, epoch)`` after each epoch; returning a true value stops.
        """
        return self._fit(feedback, None, None, start, fixed, callback)

    def _towers(self, setup: Setup, contexts: Any, items: Any) -> Towers:
        k = check.integer("factors", self.factors, low=1)
        context = setup.embedding("W", k, side_std(k), setup.context_loss_weight, "context")
        return Towers(context, setup.embedding("H", k, side_std(k), setup.item_loss_weight, "item"))
