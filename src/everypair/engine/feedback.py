"""``Feedback``: the observed (context, item) pairs, the set S of the paper, in compressed rows by context and by item."""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from everypair.columns.keys import NO_LEVEL, Keys, as_keys
from everypair.kernels.order import (
    ascending,
    compress,
    first_duplicate,
    grouped,
    spread,
    stable_order,
    strictly_ascending,
    transpose,
)
from everypair.runtime import validation as check
from everypair.runtime.group import ALONE, Group
from everypair.runtime.numerics import Values

EMPTY = "feedback is empty: at least one observed (context, item) pair is needed."


class CompressedPairs(NamedTuple):
    """Observed pairs in compressed rows of one side; ``order`` is each pair's position in the order by context."""

    indptr: np.ndarray
    indices: np.ndarray
    order: np.ndarray | None


class Feedback:
    r"""Observed pairs ``(context, item, y, alpha)``; every other pair has ``y = 0`` and the model's ``unobserved_weight``.

    Parameters
    ----------
    context, item : 1-d arrays of integers
        Row and column of each observed pair, counted from 0.
    y : number or array
        The observed score.
    alpha : number or array, greater than 0
        The confidence in it. A number costs no memory per pair, for ``y`` too.
    shape : (n_contexts, n_items), optional
        Number of contexts and items; by default, the largest index plus one. Contexts and items without feedback are fine.
    context_weight, item_weight : arrays, optional
        :math:`m_c` and :math:`n_i \ge 0`: an unobserved pair weighs :math:`\alpha_0 m_c n_i` instead of :math:`\alpha_0`.
    duplicates : {"error", "sum"}
        What to do with repeated pairs. "sum" keeps the loss of the repeated events: their terms add up.

    Examples
    --------
    >>> import everypair as ep
    >>> feedback = ep.Feedback([0, 0, 1], [0, 2, 1], shape=(2, 3))
    >>> feedback
    Feedback(2 contexts, 3 items, 3 pairs)
    """

    def __init__(
        self,
        context: Any,
        item: Any,
        y: Any = 1.0,
        alpha: Any = 1.0,
        shape: tuple[int, int] | None = None,
        *,
        context_weight: Any = None,
        item_weight: Any = None,
        duplicates: str = "error",
    ) -> None:
        check.choice("duplicates", duplicates, ("error", "sum"))
        n_contexts, n_items = _shape(shape)
        context = check.indices("context", context, n_contexts)
        item = check.indices("item", item, n_items)
        if len(context) != len(item):
            raise ValueError(
                f"context and item must have the same length, got {len(context)} and {len(item)}: one entry per observed pair."
            )
        if len(context) == 0:
            raise ValueError(EMPTY)
        n_contexts = int(context.max()) + 1 if n_contexts is None else n_contexts
        n_items = int(item.max()) + 1 if n_items is None else n_items
        alpha, b, constant = _terms(alpha, y, len(context))
        weights = _weights((n_contexts, n_items), context_weight, item_weight)
        self._sort((n_contexts, n_items), context, item, alpha, b, constant, weights, duplicates)

    def _sort(
        self,
        shape: tuple[int, int],
        context: np.ndarray,
        item: np.ndarray,
        alpha: Values,
        b: Values,
        constant: float,
        weights: list[np.ndarray | None],
        duplicates: str,
        covered: np.ndarray | None = None,
        counts: tuple[np.ndarray, np.ndarray] | None = None,
    ) -> None:
        """Sort the pairs by (context, item); merge repeated ones.

        ``covered`` is the part of the context's weight m_c that each observed pair covers: all of it unless contexts were merged.
        ``counts`` are the numbers of observed pairs by context and by item before any merging.
        """
        index = _index_type(shape, len(context))
        indptr = compress(context, shape[0])
        counts = counts or (np.diff(indptr), np.bincount(item, minlength=shape[1]))
        if ascending(context, item):
            indices = item.astype(index)
        elif np.ndim(alpha) == 0 and np.ndim(b) == 0 and covered is None:
            indices = np.empty(len(item), index)
            columns, by_item = compress(item, shape[1]), np.empty(len(item), index)
            spread(item, context, columns, by_item)
            transpose(columns, by_item, indptr, indices, None)
            del by_item
        else:
            _, by_item = grouped(item, shape[1], index)
            order = np.empty_like(by_item)
            stable_order(context, indptr, by_item, order)
            indices = item[order].astype(index, copy=False)
            alpha, b = values_at(alpha, order), values_at(b, order)
            covered = None if covered is None else covered[order]
        repeated = first_duplicate(indptr, indices)
        if repeated >= 0:
            if duplicates == "error":
                row, column = int(np.searchsorted(indptr, repeated, side="right")) - 1, indices[repeated]
                first, second = np.flatnonzero((context == row) & (item == column))[:2].tolist()
                raise ValueError(
                    f"the pair (context {row}, item {column}) occurs more than once: at positions {first} "
                    f"and {second}. Drop repeated pairs, or pass duplicates='sum' to add up their terms of the loss."
                )
            first = np.ones(len(indices), bool)
            rows = np.repeat(np.arange(shape[0], dtype=index), np.diff(indptr))
            first[1:] = (indices[1:] != indices[:-1]) | (rows[1:] != rows[:-1])
            starts = np.flatnonzero(first)
            n = len(indices)
            alpha, b = (np.add.reduceat(np.broadcast_to(v, n).astype(np.float64), starts) for v in (alpha, b))
            covered = None if covered is None else np.add.reduceat(covered, starts)
            indices, indptr = indices[starts], compress(rows[starts], shape[0])
        self._transpose(shape, indptr, indices, alpha, b, constant, weights, counts, covered)

    def _transpose(
        self,
        shape: tuple[int, int],
        indptr: np.ndarray,
        indices: np.ndarray,
        alpha: Values,
        b: Values,
        constant: float,
        weights: list[np.ndarray | None],
        counts: tuple[np.ndarray, np.ndarray] | None = None,
        covered: np.ndarray | None = None,
    ) -> None:
        """Store pairs that are sorted by context, and sort them by item as well."""
        columns = compress(indices, shape[1])
        rows, order = np.empty_like(indices), np.empty_like(indices)
        transpose(indptr, indices, columns, rows, order)
        self.shape = shape
        self.alpha, self.b, self.constant = alpha, b, constant
        self.context_weight, self.item_weight = weights
        self.covered = covered
        self.context_keys: Keys = range(shape[0])
        self.item_keys: Keys = range(shape[1])
        self.by_context = CompressedPairs(indptr, indices, None)
        self.by_item = CompressedPairs(columns, rows, order)
        self.context_count, self.item_count = counts or (np.diff(indptr), np.diff(columns))

    @classmethod
    def from_scipy(cls, matrix: Any, alpha: Any = 1.0, *, context_weight: Any = None, item_weight: Any = None) -> Feedback:
        """Feedback from a sparse matrix: the stored values, including stored zeros, are y.

        ``alpha`` is a number, or a sparse matrix that stores the same cells. Weights as for :class:`Feedback`.
        """
        if not sp.issparse(matrix):
            raise TypeError(f"matrix must be a scipy sparse matrix, got {type(matrix).__name__}.")
        y = _compressed_rows("matrix", matrix)
        if sp.issparse(alpha):
            weights = _compressed_rows("alpha", alpha)
            same = weights.shape == y.shape and np.array_equal(weights.indptr, y.indptr)
            if not (same and np.array_equal(weights.indices, y.indices)):
                raise ValueError("alpha must store the same cells as matrix; a stored cell of one is missing in the other.")
            alpha = weights.data
        elif np.ndim(alpha) > 0:
            raise TypeError("alpha must be a number or a sparse matrix that stores the same cells as matrix, got an array.")
        check.finite("matrix", y)
        if y.nnz == 0:
            raise ValueError(EMPTY)
        shape = (check.integer("shape[0]", int(y.shape[0]), low=1), check.integer("shape[1]", int(y.shape[1]), low=1))
        values: Any = float(y.data[0]) if np.all(y.data == y.data[0]) else y.data.astype(np.float64)
        index = _index_type(shape, y.nnz)
        feedback = object.__new__(cls)
        feedback._transpose(
            shape,
            y.indptr.astype(np.int64),
            y.indices.astype(index, copy=True),
            *_terms(alpha, values, y.nnz),
            _weights(shape, context_weight, item_weight),
        )
        return feedback

    def merge_contexts(self, groups: Any, weigh: bool = True) -> Feedback:
        """The same loss with identical contexts merged: context ``c`` becomes context ``groups[c]``.

        A merged context has the total weight of its members; a pair that only some members observed covers only their weight.
        The objective and its parts equal those of the unmerged feedback whenever the merged contexts have equal vectors.
        Without ``weigh``, a merged context has weight one, regardless of its number of members.
        """
        groups = check.indices("groups", groups, None)
        if len(groups) != self.n_contexts:
            raise ValueError(f"groups must have one entry per context ({self.n_contexts}), got {len(groups)}.")
        n = int(groups.max()) + 1
        rows = self.rows
        members, _ = self.weights()
        covered = members[rows] if self.covered is None else self.covered
        merged = object.__new__(Feedback)
        merged._sort(
            (n, self.n_items),
            groups[rows],
            self.by_context.indices,
            self.alpha,
            self.b,
            self.constant,
            [np.bincount(groups, members, n) if weigh else None, self.item_weight],
            "sum",
            covered.astype(np.float64) if weigh else None,
            (np.bincount(groups, self.context_count, n).astype(np.int64), self.item_count),
        )
        merged.item_keys = self.item_keys
        if not isinstance(self.context_keys, range):
            merged.context_keys = np.full(n, NO_LEVEL, np.uint64)
            np.minimum.at(merged.context_keys, groups, self.context_keys)
        return merged

    def keyed(self, contexts: Any = None, items: Any = None) -> Feedback:
        """The same pairs with keys for contexts and items: hashes of their ids, of 64 bits.

        Random start values of a context (item) are functions of its key. By default that is its number, so that they would change
        with the order of contexts. A merged context has the smallest key of its members.
        """
        keyed = copy.copy(self)
        if contexts is not None:
            keyed.context_keys = as_keys("contexts", contexts, self.n_contexts)
        if items is not None:
            keyed.item_keys = as_keys("items", items, self.n_items)
        return keyed

    def by_popularity(self, exponent: float, group: Group = ALONE) -> Feedback:
        r"""A copy with ``n_i`` times :math:`\max(|S_i|, 1)^\text{exponent}`, where :math:`|S_i|` counts the item's observations.

        The weights are rescaled to keep their sum: popular items get a larger share of the total weight of unobserved pairs.
        Observations are those of the whole group.
        """
        if check.number("exponent", exponent, low=0.0) == 0.0:
            return self
        _, n = self.weights()
        count = group.total(self.item_count.astype(np.float64))
        popular = n * (np.maximum(count, 1.0) / max(count.max(), 1)) ** exponent
        total = float(popular.sum())
        reweighted = copy.copy(self)
        reweighted.item_weight = popular * (float(n.sum()) / total) if total > 0 else n
        return reweighted

    @property
    def n_contexts(self) -> int:
        return self.shape[0]

    @property
    def n_items(self) -> int:
        return self.shape[1]

    @property
    def rows(self) -> np.ndarray:
        """The context of each pair, in the order of ``by_context``."""
        indptr, indices, _ = self.by_context
        return np.repeat(np.arange(self.n_contexts, dtype=indices.dtype), np.diff(indptr))

    def covered_weight(self) -> Values:
        """``m_c`` of each observed pair, or the part of it that the pair covers, in the order of ``by_context``."""
        if self.covered is not None:
            return self.covered
        return 1.0 if self.context_weight is None else self.context_weight[self.rows]

    def unobserved(self) -> Values:
        """``m_c n_i`` of each observed pair, in the order of ``by_context``: its weight, over alpha0, if it were not observed."""
        context = self.covered_weight()
        return context if self.item_weight is None else context * self.item_weight[self.by_context.indices]

    def weights(self) -> tuple[np.ndarray, np.ndarray]:
        """``m_c`` of every context and ``n_i`` of every item: ones where none were given."""
        m = np.ones(self.n_contexts) if self.context_weight is None else self.context_weight
        n = np.ones(self.n_items) if self.item_weight is None else self.item_weight
        return m, n

    def total_weight(self, alpha0: float) -> tuple[np.ndarray, np.ndarray]:
        """Weight of each context and of each item in the loss: observed pairs plus ``alpha0 m_c sum n_i`` (and vice versa)."""
        m, n = self.weights()
        return self.context_count + alpha0 * m * n.sum(), self.item_count + alpha0 * n * m.sum()

    def __len__(self) -> int:
        return len(self.by_context.indices)

    def __repr__(self) -> str:
        return f"Feedback({self.n_contexts:,} contexts, {self.n_items:,} items, {len(self):,} pairs)"


def as_feedback(feedback: Any) -> Feedback:
    """``feedback`` itself, or the feedback stored in a scipy sparse matrix."""
    if isinstance(feedback, Feedback):
        return feedback
    if sp.issparse(feedback):
        return Feedback.from_scipy(feedback)
    raise TypeError(
        f"feedback must be an everypair.Feedback or a scipy sparse matrix, got {type(feedback).__name__}. "
        f"Build one with everypair.Feedback(context, item)."
    )


def _shape(shape: Any) -> tuple[int, int] | tuple[None, None]:
    if shape is None:
        return None, None
    if not isinstance(shape, tuple | list) or len(shape) != 2:
        raise ValueError(f"shape must be a pair (n_contexts, n_items), got {shape!r}.")
    return check.integer("shape[0]", shape[0], low=1), check.integer("shape[1]", shape[1], low=1)


def _index_type(shape: tuple[int, int], n_pairs: int) -> type:
    return np.int32 if max(*shape, n_pairs) < 2**31 else np.int64


def _compressed_rows(name: str, matrix: Any) -> Any:
    """A sparse matrix in CSR format, sorted and without repeated cells; not copied if it is so already."""
    rows = check.sparse(name, matrix)
    if rows.format == "csr" and strictly_ascending(rows.indptr, rows.indices):
        n_pairs = int(rows.indptr[-1])  # the arrays may be longer
        return sp.csr_array((rows.data[:n_pairs], rows.indices[:n_pairs], rows.indptr), shape=rows.shape)
    rows = rows.astype(np.float64).tocsr(copy=True)
    rows = sp.csr_array((rows.data, rows.indices, rows.indptr), shape=rows.shape)  # without scipy's cached flag that it is sorted
    rows.sum_duplicates()
    return rows


def _terms(alpha: Any, y: Any, n_pairs: int) -> tuple[Values, Values, float]:
    """``alpha``, ``b = alpha y`` and the constant ``sum alpha y^2`` of the loss."""
    alpha = _values("alpha", alpha, n_pairs, positive=True)
    y = _values("y", y, n_pairs)
    with np.errstate(over="ignore", invalid="ignore"):
        b = np.float64(alpha) * y
        constant = b * y * n_pairs if np.ndim(b) == 0 else float(np.sum(b * y))
    if not np.isfinite(constant):
        raise ValueError("alpha * y * y overflows: y and alpha are too large to square and add up. Rescale them.")
    return alpha, b if np.ndim(b) else float(b), float(constant)


def _weights(shape: tuple[int, int], context_weight: Any, item_weight: Any) -> list[np.ndarray | None]:
    named = zip(("context_weight", "item_weight"), (context_weight, item_weight), shape, strict=True)
    return [
        None if weight is None else check.reals(name, weight, n, nonnegative=True).astype(np.float64) for name, weight, n in named
    ]


def _values(name: str, value: Any, length: int, *, positive: bool = False) -> Values:
    """A checked number, or an array of which each entry is checked."""
    if np.ndim(value) == 0:
        value = check.array(name, value).item() if isinstance(value, np.ndarray) else value
        return check.number(name, value, low=0.0 if positive else -np.inf, open_low=positive)
    return check.reals(name, value, length, positive=positive)


def values_at(values: Values, order: np.ndarray | None) -> Values:
    """Values in another order; a single value for all pairs is returned unchanged."""
    return values if np.ndim(values) == 0 else values[order]  # type: ignore[index]


def explicit_weight(alpha: Values, alpha0: float, unobserved: Values) -> Any:
    """``a = alpha - alpha0 m_c n_i`` of observed pairs (Lemma 1); ``unobserved`` is ``m_c n_i``."""
    return np.float64(alpha) - alpha0 * np.float64(unobserved)
