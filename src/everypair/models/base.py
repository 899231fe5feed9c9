"""What all models share: parameters of the constructor, prediction and recommendation."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from typing import Any, Self

import numpy as np
import scipy.sparse as sp

from everypair import validation as check
from everypair.feedback import Feedback
from everypair.kernels.topn import top_n

SCORES_AT_ONCE = 16_000_000  # scores held while recommending


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
        if name.endswith("_") and not name.startswith("_"):
            raise NotFittedError(f"this {type(self).__name__} has no {name!r} yet: call fit first.")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @abstractmethod
    def _shape(self) -> tuple[int, int]:
        """Number of contexts and items of the fit."""

    @abstractmethod
    def _score_pairs(self, context: np.ndarray, item: np.ndarray) -> np.ndarray: ...

    @abstractmethod
    def _score_rows(self, context: np.ndarray) -> np.ndarray:
        """Scores of all items in the given contexts."""

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
            At most the number of items are returned.
        exclude : Feedback or scipy sparse matrix, optional
            Items not to recommend: those it stores in the context's row. Where fewer than n remain, ids are filled up with -1
            and scores with ``-inf``.

        Returns
        -------
        (ids, scores) : arrays of shape (number of contexts, n)
        """
        n_contexts, n_items = self._shape()
        context = check.indices("context", np.atleast_1d(context), n_contexts)
        n = min(check.integer("n", n, low=1), n_items)
        indptr, indices = _excluded(exclude, self._shape())
        ids = np.full((len(context), n), -1, np.int64)
        best: np.ndarray | None = None
        step = max(1, SCORES_AT_ONCE // n_items)
        for start in range(0, max(len(context), 1), step):
            rows = context[start : start + step]
            scores = self._score_rows(rows)
            if best is None:
                best = np.full((len(context), n), -np.inf, scores.dtype)
            if indices is not None:
                for r, c in enumerate(rows):
                    scores[r, indices[indptr[c] : indptr[c + 1]]] = -np.inf
            top_n(0, len(rows), scores, ids[start : start + step], best[start : start + step])
        assert best is not None
        return ids, best


def _excluded(exclude: Any, shape: tuple[int, int]) -> tuple[Any, Any]:
    if exclude is None:
        return None, None
    if isinstance(exclude, Feedback):
        given, rows = exclude.shape, exclude.by_context
    elif sp.issparse(exclude):
        given, rows = exclude.shape, exclude.tocsr()
    else:
        raise TypeError(f"exclude must be a Feedback or a scipy sparse matrix, got {type(exclude).__name__}.")
    if tuple(given) != tuple(shape):
        raise ValueError(f"exclude must have the shape of the fit, {shape}, got {tuple(given)}.")
    return rows.indptr, rows.indices


def _same(value: Any, default: Any) -> bool:
    return value is default or (type(value) is type(default) and bool(np.all(value == default)))
