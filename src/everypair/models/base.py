"""``Model``, the base class of all models: constructor arguments, prediction and recommendation."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from typing import Any, Self

import numpy as np
import scipy.sparse as sp

from everypair.engine.feedback import Feedback
from everypair.models.estimator import Estimator
from everypair.ranking.rank import Lists, Scores, rank
from everypair.runtime import validation as check
from everypair.runtime.parallel import Workers, thread_count
from everypair.runtime.progress import Progress


class NotFittedError(ValueError, AttributeError):
    """The model has not been fitted yet."""


class Model(Estimator, ABC):
    """Constructor arguments are stored unchanged; ``fit`` discards earlier fits; fitted attributes end in an underscore."""

    def __repr__(self) -> str:
        return self.constructor + self.remark

    @property
    def constructor(self) -> str:
        """The call of the constructor that makes this model, unfitted."""
        defaults = inspect.signature(type(self)).parameters
        changed = [f"{n}={v!r}" for n, v in self.get_params().items() if not _same(v, defaults[n].default)]
        return f"{type(self).__name__}({', '.join(changed)})"

    @property
    def cut_short(self) -> str | None:
        """How the fit was cut short; None if it was not, or there is none."""
        return None

    @property
    def remark(self) -> str:
        """A comment for the end of a ``repr`` if the fit was cut short, else nothing."""
        return "" if self.cut_short is None else f"  # {self.cut_short}"

    def __getattr__(self, name: str) -> Any:
        fitted_attribute = name == "state" or (name.endswith("_") and not name.startswith("_"))
        if fitted_attribute and not self.is_fitted:
            raise self._not_fitted()
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @property
    @abstractmethod
    def is_fitted(self) -> bool:
        """Whether the model has been fitted."""

    def __sklearn_is_fitted__(self) -> bool:
        return self.is_fitted

    @abstractmethod
    def adopt(self, other: Self) -> None:
        """Take over the fit of another model of this class; the constructor's arguments do not change."""

    @abstractmethod
    def _shape(self) -> tuple[int, int]:
        """Number of contexts and items of the fit."""

    @abstractmethod
    def _score_pairs(self, context: np.ndarray, item: np.ndarray) -> np.ndarray: ...

    @abstractmethod
    def _scores(self, context: np.ndarray) -> Scores:
        """The scores of all items in these contexts."""

    def _not_fitted(self) -> NotFittedError:
        return NotFittedError(f"this {type(self).__name__} is not fitted yet: call fit first.")

    def predict(self, context: Any, item: Any) -> np.ndarray:
        """Scores of pairs: one for each entry of two arrays of the same length."""
        n_contexts, n_items = self._shape()
        context = check.indices("context", np.atleast_1d(context), n_contexts)
        item = check.indices("item", np.atleast_1d(item), n_items)
        if len(context) != len(item):
            raise ValueError(f"context and item must have the same length, got {len(context)} and {len(item)}.")
        return self._score_pairs(context, item)

    def recommend(self, context: Any, n: int = 10, exclude: Any = None) -> tuple[np.ndarray, np.ndarray]:
        """The n items with the highest scores in each context, best first; ties go to the smaller item.

        Parameters
        ----------
        context : integer or array of integers
        n : int
        exclude : Feedback or scipy sparse matrix, optional
            Items stored in the row of a context are not recommended there.

        Returns
        -------
        (ids, scores) : arrays of shape (number of contexts, n)
            If there are fewer than n items to recommend, the remaining ids are -1 and scores ``-inf``.
        """
        n_contexts, n_items = self._shape()
        context = check.indices("context", np.atleast_1d(context), n_contexts)
        n = check.integer("n", n, low=1)
        excluded = _excluded(exclude, context, (n_contexts, n_items))
        n_threads = thread_count(getattr(self, "n_threads", None))
        with Workers(n_threads) as workers, Progress(len(context), "ranking", unit="row") as progress:
            return rank(self._scores(context), n, workers, excluded, advance=progress.advance)


def _excluded(exclude: Any, context: np.ndarray, shape: tuple[int, int]) -> Lists | None:
    if exclude is None:
        return None
    if isinstance(exclude, Feedback):
        rows = exclude.by_context
    elif sp.issparse(exclude):
        rows = check.sparse("exclude", exclude).tocsr()
    else:
        raise TypeError(f"exclude must be a Feedback or a scipy sparse matrix, got {type(exclude).__name__}.")
    if tuple(exclude.shape) != tuple(shape):
        raise ValueError(f"exclude must have the shape of the fit, {shape}, got {tuple(exclude.shape)}.")
    return Lists(rows.indptr[context], rows.indptr[context + 1], rows.indices)


def _same(value: Any, default: Any) -> bool:
    return value is default or (type(value) is type(default) and bool(np.all(value == default)))
