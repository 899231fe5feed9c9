"""Matrix factorization (Section 5.1)."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self

from everypair.models.tower_model import TowerModel, documented
from everypair.solver import Epoch
from everypair.towers import Embedding, Tower


@documented
@dataclass(repr=False, eq=False)
class MF(TowerModel):
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
        start, fixed : mappings of letters to arrays, optional
            Initial values of parameters; parameters to hold, which are then outside L2.
        callback : callable, optional
            ``callback(model, epoch)`` after each epoch; returning a true value stops. One that remembers what it saw, and is to
            go on with a checkpoint, has methods: ``state()`` gives what it knows, such that JSON can hold it, ``arrays()`` (if
            it has any) arrays by name, and ``resume(model, state, arrays)`` takes them back, once, before the epochs that are left.
        checkpoint : path, optional
            A folder, made if need be, for the state of the fit, which is written when an epoch and its callback are done. The same
            call goes on from there, whatever ended the one before, to the same bits as a fit that nothing disturbed; it returns
            at once if that had ended. Other data or settings are refused; ``epochs``, ``tol`` and ``n_threads`` may change.
        every : int
            Write it after so many epochs, and after the last.
        """
        return self._fit(feedback, None, None, start, fixed, callback, checkpoint, every)

    def _sides(self, contexts: Any, items: Any) -> tuple[Tower, Tower]:
        return Embedding(self.factors, name="W"), Embedding(self.factors, name="H")
