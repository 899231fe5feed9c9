"""The baselines of the paper's experiments (Section 6): Popularity and Coview."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import scipy.sparse as sp

from everypair.engine.feedback import Feedback, as_feedback
from everypair.models.base import Model
from everypair.ranking.rank import DenseScores, Scores
from everypair.runtime import validation as check

MOST_LEVELS = 100  # of CoView per context and item: larger numbers are likely raw ids, and memory grows with the largest


class Popularity(Model):
    """The same items for everyone: an item's score is the sum of ``alpha y`` over its observed pairs.

    Examples
    --------
    >>> import everypair as ep
    >>> model = ep.Popularity().fit(ep.Feedback([0, 1, 1], [1, 1, 0]))
    >>> model.recommend(0, n=2)[0].tolist()
    [[1, 0]]
    """

    def fit(self, feedback: Any) -> Self:
        feedback = as_feedback(feedback)
        self.popularity_ = _popularity(feedback)
        self.n_contexts_ = feedback.n_contexts
        return self

    @property
    def is_fitted(self) -> bool:
        return "popularity_" in vars(self)

    def adopt(self, other: Self) -> None:
        self.popularity_, self.n_contexts_ = other.popularity_, other.n_contexts_

    def _shape(self) -> tuple[int, int]:
        return self.n_contexts_, len(self.popularity_)

    def _score_pairs(self, context: np.ndarray, item: np.ndarray) -> np.ndarray:
        return self.popularity_[item]

    def _scores(self, context: np.ndarray) -> Scores:
        return DenseScores(lambda start, stop: np.tile(self.popularity_, (stop - start, 1)), len(context), len(self.popularity_))

    def restore(self, popularity: np.ndarray, n_contexts: int) -> None:
        """Take over the counts of an earlier fit."""
        self.popularity_, self.n_contexts_ = popularity, n_contexts


class CoView(Model):
    """The most frequent next item after the previous one; ties, and contexts without counts, are ranked by popularity.

    A pair's score is the sum of ``alpha y`` over the observations of the item after the same previous item, plus the item's
    share of all observations, scaled to less than the smallest difference of two such sums. Any column of levels can replace the
    previous item: a film for its most frequent tags, a shop for its best-selling products.

    Examples
    --------
    >>> import everypair as ep
    >>> feedback = ep.Feedback([0, 1, 2, 3], [1, 1, 2, 2])
    >>> model = ep.CoView().fit(feedback, contexts=[0, 0, 0, 1])
    >>> model.recommend([0, 3], n=1)[0].tolist()
    [[1], [2]]
    """

    def fit(self, feedback: Any, contexts: Any = None) -> Self:
        """Count the items after each previous item.

        Parameters
        ----------
        feedback : Feedback or scipy sparse matrix
        contexts : array of integers, optional
            The previous item (or level) of each context, counted from 0; -1 for none. None: the context is the previous item.
        """
        feedback = as_feedback(feedback)
        previous = np.arange(feedback.n_contexts) if contexts is None else _previous(contexts, *feedback.shape)
        rows = previous[feedback.rows] + 1  # row 0: no previous item
        b = np.broadcast_to(feedback.b, len(feedback))
        shape = (int(previous.max()) + 2, feedback.n_items)
        counts = sp.csr_array((b, (rows, feedback.by_context.indices)), shape=shape, dtype=np.float64)
        counts.data[: counts.indptr[1]] = 0.0  # without a previous item, popularity alone
        popularity = _popularity(feedback)
        total = np.abs(popularity).sum()
        steps = np.diff(np.unique(np.append(counts.data, 0.0)))
        steps = steps[steps > 1e-9 * np.abs(counts.data).max(initial=0.0)]  # smaller ones are rounding
        self.share_ = popularity / total * (0.5 * steps.min() if len(steps) else 1.0) if total > 0 else popularity
        self.counts_: Any = counts
        self.previous_ = previous
        return self

    @property
    def is_fitted(self) -> bool:
        return "counts_" in vars(self)

    def adopt(self, other: Self) -> None:
        self.share_, self.counts_, self.previous_ = other.share_, other.counts_, other.previous_

    def _shape(self) -> tuple[int, int]:
        return len(self.previous_), self.counts_.shape[1]

    def _score_pairs(self, context: np.ndarray, item: np.ndarray) -> np.ndarray:
        rows = self.previous_[context] + 1
        counts = self.counts_[rows, item]
        return np.asarray(counts.todense() if sp.issparse(counts) else counts).ravel() + self.share_[item]

    def _scores(self, context: np.ndarray) -> Scores:
        previous = self.previous_[context]
        return DenseScores(lambda start, stop: self.scores_after(previous[start:stop]), len(previous), self.counts_.shape[1])

    def scores_after(self, previous: np.ndarray) -> np.ndarray:
        """The scores of all items after each of these previous items (-1 for none)."""
        return self.counts_[self._rows(previous)].toarray() + self.share_

    def has_counts(self, previous: np.ndarray) -> np.ndarray:
        """Whether anything followed each of these previous items: elsewhere popularity alone decides."""
        rows = self._rows(previous)
        return (rows > 0) & (np.diff(self.counts_.indptr)[rows] > 0)

    def _rows(self, previous: np.ndarray) -> np.ndarray:
        """The row of counts of each previous item; the first is that of none, which unknown ones get, too."""
        return np.where(previous < self.counts_.shape[0] - 1, previous, -1) + 1

    def restore(self, counts: Any, share: np.ndarray, previous: np.ndarray) -> None:
        """Take over the counts of an earlier fit."""
        self.counts_, self.share_, self.previous_ = counts, share, previous


def _popularity(feedback: Feedback) -> np.ndarray:
    b = np.broadcast_to(feedback.b, len(feedback))
    return np.bincount(feedback.by_context.indices, b, feedback.n_items)


def _previous(contexts: Any, n_contexts: int, n_items: int) -> np.ndarray:
    array = check.array("contexts", contexts)
    if array.ndim != 1 or len(array) != n_contexts:
        raise ValueError(
            f"contexts must give one previous item (or other level) per context ({n_contexts}), got shape {array.shape}."
        )
    if array.dtype.kind not in "iu":
        raise TypeError(f"contexts must hold integers, got dtype {array.dtype}.")
    most = MOST_LEVELS * (n_contexts + n_items)
    check.refuse("contexts", (array < -1) | (array >= most), array, f"be a level counted from 0 (below {most:,}), or -1 for none")
    return array.astype(np.int64)
