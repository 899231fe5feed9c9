r"""Metrics of a ranked list against the set of relevant items.

A list holds the k best items, best first; :math:`h_j` is 1 if the item at rank j is relevant, R the number of relevant items. The
value of a metric is its mean over all lists (coverage apart). Lists rank all items that are not left out, exactly; equal
scores are ranked in the order of items, as a user would see them.

To add a metric, write its formula here and name it in ``METRICS``, or in ``LIST_METRICS`` if it takes more than hits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

Hits = np.ndarray  # (lists, at most k) of booleans
Metric = Callable[[Hits, np.ndarray, int], np.ndarray]
ListMetric = Callable[["RankedQueries"], "np.ndarray | float"]


def recall(hits: Hits, relevant: np.ndarray, k: int) -> np.ndarray:
    r""":math:`\frac{1}{R} \sum_{j \le k} h_j`: the share of the relevant items that is found."""
    return hits.sum(axis=1) / relevant


def precision(hits: Hits, relevant: np.ndarray, k: int) -> np.ndarray:
    r""":math:`\frac{1}{k} \sum_{j \le k} h_j`: the share of the list that is relevant. Short lists are divided by k, too."""
    return hits.sum(axis=1) / k


def f1(hits: Hits, relevant: np.ndarray, k: int) -> np.ndarray:
    r""":math:`\frac{2 \sum_j h_j}{k + R}`: the harmonic mean of precision and recall."""
    return 2 * hits.sum(axis=1) / (k + relevant)


def hit_rate(hits: Hits, relevant: np.ndarray, k: int) -> np.ndarray:
    r""":math:`\max_{j \le k} h_j`: whether any relevant item is found."""
    return np.asarray(hits.any(axis=1), np.float64)


def ndcg(hits: Hits, relevant: np.ndarray, k: int) -> np.ndarray:
    r""":math:`\sum_{j \le k} \frac{h_j}{\log_2(j + 1)} \Big/ \sum_{j \le \min(k, R)} \frac{1}{\log_2(j + 1)}`: 1 at best."""
    gain = 1 / np.log2(np.arange(2, max(hits.shape[1], min(k, int(relevant.max()))) + 2))
    return hits @ gain[: hits.shape[1]] / np.cumsum(gain)[np.minimum(relevant, k) - 1]


def mrr(hits: Hits, relevant: np.ndarray, k: int) -> np.ndarray:
    r""":math:`1 / \min \{j \le k : h_j = 1\}`: one over the rank of the first relevant item; 0 if there is none."""
    return np.where(hits.any(axis=1), 1 / (1 + np.argmax(hits, axis=1)), 0.0)


def average_precision(hits: Hits, relevant: np.ndarray, k: int) -> np.ndarray:
    r""":math:`\frac{1}{\min(k, R)} \sum_{j \le k} h_j \frac{1}{j} \sum_{l \le j} h_l`: precision at the ranks of relevant items."""
    at_rank = np.cumsum(hits, axis=1) / np.arange(1, hits.shape[1] + 1)
    return (at_rank * hits).sum(axis=1) / np.minimum(relevant, k)


class RankedQueries(NamedTuple):
    """The ranked lists of all queries.

    Attributes
    ----------
    items : array of shape (queries, at most k)
        Codes, best first; -1 where a list is shorter.
    hits : array of booleans
        Whether each listed item is relevant.
    relevant : array
        The number of relevant items of each query.
    popularity : array
        How often each item was chosen in training.
    k : int
    """

    items: np.ndarray
    hits: Hits
    relevant: np.ndarray
    popularity: np.ndarray
    k: int

    @classmethod
    def of(cls, items: np.ndarray, bounds: np.ndarray, relevant: np.ndarray, popularity: np.ndarray) -> RankedQueries:
        """The relevant items of query q are ``relevant[bounds[q]:bounds[q + 1]]``."""
        hits = hits_of(items, bounds, relevant, len(popularity))
        return cls(items, hits, np.diff(bounds), popularity, items.shape[1])

    def at(self, k: int) -> RankedQueries:
        """The first k items of each list."""
        return self._replace(items=self.items[:, :k], hits=self.hits[:, :k], k=k)


def coverage(ids: np.ndarray, n_items: int) -> float:
    r"""The share of all items that is in any of the lists: how much of the catalogue is ever shown."""
    return len(np.unique(ids[ids >= 0])) / n_items


METRICS: dict[str, Metric] = {
    "recall": recall,
    "precision": precision,
    "f1": f1,
    "hit_rate": hit_rate,
    "ndcg": ndcg,
    "mrr": mrr,
    "map": average_precision,
}  # functions of hits: a value per query
LIST_METRICS: dict[str, ListMetric] = {
    "coverage": lambda ranked: coverage(ranked.items, len(ranked.popularity)),
}  # functions of the lists themselves: a value per query (an array), or one for all queries


def value(name: str, ranked: RankedQueries) -> np.ndarray | float:
    """A metric of ranked lists: a value per query, or one for all of them."""
    if name in LIST_METRICS:
        return LIST_METRICS[name](ranked)
    return METRICS[name](ranked.hits, ranked.relevant, ranked.k)


def parse(spec: str) -> tuple[str, int]:
    """``"ndcg@10"`` as a name and a length."""
    name, at, k = spec.partition("@") if isinstance(spec, str) else ("", "", "")
    if name not in {*METRICS, *LIST_METRICS} or not at or not k.isdecimal() or int(k) < 1:
        names = f"{', '.join(METRICS)} or {' or '.join(LIST_METRICS)}"
        raise ValueError(f"a metric must be one of {names}, with a length, such as 'ndcg@10', got {spec!r}.")
    return name, int(k)


def hits_of(ids: np.ndarray, bounds: np.ndarray, relevant: np.ndarray, n_items: int) -> Hits:
    """Whether each listed item is relevant; the relevant items of list q are ``relevant[bounds[q]:bounds[q + 1]]``."""
    rows = np.repeat(np.arange(len(ids)), np.diff(bounds))
    keys = np.sort(rows * n_items + relevant)
    listed = np.arange(len(ids))[:, None] * n_items + ids
    at = np.searchsorted(keys, listed)
    return (ids >= 0) & (np.append(keys, -1)[at] == listed)
