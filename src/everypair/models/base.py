"""What all models share: parameters of the constructor, prediction and recommendation."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Self

import numpy as np
import scipy.sparse as sp

from everypair import validation as check
from everypair.feedback import Feedback
from everypair.kernels.topn import top_n

SCORES_AT_ONCE = 16_000_000  # scores held while recommending
FEW = 500  # items up to which they are found by insertion rather than by sorting all


class NotFittedError(ValueError, AttributeError):
    """The model has not been fitted yet."""


class Model(ABC):
    """Constructor arguments are stored untouched; ``fit`` starts afresh; fitted attributes end in an underscore."""

    @classmethod
    def _parameter_names(cls) -> list[str]:
        return list(inspect.signature(cls).parameters)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The constructor's arguments."""
        return {name: getattr(self, name) for name in self._parameter_names()}

    def set_params(self, **params: Any) -> Self:
        """Change constructor arguments; takes effect with the next ``fit``."""
        unknown = set(params) - set(self._parameter_names())
        if unknown:
            raise ValueError(
                f"{type(self).__name__} has no parameter {', '.join(sorted(map(repr, unknown)))}; it has "
                f"{', '.join(self._parameter_names())}."
            )
        for name, value in params.items():
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        defaults = inspect.signature(type(self)).parameters
        changed = [f"{n}={v!r}" for n, v in self.get_params().items() if not _same(v, defaults[n].default)]
        return f"{type(self).__name__}({', '.join(changed)})"

    def __getattr__(self, name: str) -> Any:
        fitted = any(key.endswith("_") for key in vars(self))
        if name.endswith("_") and not name.startswith("_") and not fitted:
            raise self._not_fitted()
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @abstractmethod
    def _shape(self) -> tuple[int, int]:
        """Number of contexts and items of the fit."""

    @abstractmethod
    def _score_pairs(self, context: np.ndarray, item: np.ndarray) -> np.ndarray: ...

    @abstractmethod
    def _scorer(self) -> Callable[[np.ndarray], np.ndarray]:
        """A function from contexts to the scores of all items, a row each."""

    def _not_fitted(self) -> NotFittedError:
        return NotFittedError(f"this {type(self).__name__} is not fitted yet: call fit first.")

    def predict(self, context: Any, item: Any) -> np.ndarray:
        """Scores of given pairs: one for each entry of the two arrays of the same length."""
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
            Items not to recommend: those it stores in the context's row.

        Returns
        -------
        (ids, scores) : arrays of shape (number of contexts, n)
            Where there are fewer than n items to recommend, ids are filled up with -1 and scores with ``-inf``.
        """
        n_contexts, n_items = self._shape()
        context = check.indices("context", np.atleast_1d(context), n_contexts)
        n = check.integer("n", n, low=1)
        indptr, indices = _excluded(exclude, (n_contexts, n_items))
        score = self._scorer()
        ids = np.full((len(context), n), -1, np.int64)
        best = np.full((len(context), n), -np.inf, score(context[:0]).dtype)
        step = max(1, SCORES_AT_ONCE // n_items)
        for start in range(0, len(context), step):
            rows = context[start : start + step]
            scores = score(rows)
            if indices is not None:
                for r, c in enumerate(rows):
                    scores[r, indices[indptr[c] : indptr[c + 1]]] = -np.inf
            best_items(scores, ids[start : start + step], best[start : start + step])
        return ids, best


def best_items(scores: np.ndarray, ids: np.ndarray, best: np.ndarray) -> None:
    """Fill ``ids`` and ``best`` with each row's best items; ties go to the smaller item, ``-inf`` is never taken."""
    if ids.shape[1] <= FEW:
        top_n(0, len(scores), scores, ids, best)
        return
    order = np.argsort(-scores, axis=1, kind="stable")[:, : ids.shape[1]]
    values = np.take_along_axis(scores, order, axis=1)
    width = order.shape[1]
    ids[:, :width] = np.where(values > -np.inf, order, -1)
    best[:, :width] = values


def _excluded(exclude: Any, shape: tuple[int, int]) -> tuple[Any, Any]:
    if exclude is None:
        return None, None
    if isinstance(exclude, Feedback):
        given, rows = exclude.shape, exclude.by_context
    elif sp.issparse(exclude):
        given, rows = exclude.shape, check.sparse("exclude", exclude).tocsr()
    else:
        raise TypeError(f"exclude must be a Feedback or a scipy sparse matrix, got {type(exclude).__name__}.")
    if tuple(given) != tuple(shape):
        raise ValueError(f"exclude must have the shape of the fit, {shape}, got {tuple(given)}.")
    return rows.indptr, rows.indices


def _same(value: Any, default: Any) -> bool:
    return value is default or (type(value) is type(default) and bool(np.all(value == default)))
