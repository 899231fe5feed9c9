"""The fit of models with columns on both sides."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self

from everypair.models.tower_model import TowerModel
from everypair.solver import Epoch


@dataclass(repr=False, eq=False)
class Featured(TowerModel):
    """A model whose contexts and items are described by columns."""

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
        start, fixed : mappings of parameters to arrays, optional
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
        return self._fit(feedback, contexts, items, start, fixed, callback, checkpoint, every)
