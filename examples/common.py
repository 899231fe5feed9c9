"""Shared by the examples: drawing items by preference, and the hit rate at 10."""

from __future__ import annotations

from typing import Any

import numpy as np

import everypair as ep
from everypair.towers import Embedding


def draw(random: np.random.Generator, taste: np.ndarray) -> np.ndarray:
    """Draw one item per row, with probabilities proportional to ``exp(taste)``."""
    return np.argmax(taste + random.gumbel(size=taste.shape), axis=1)


def hit_rate(scores: np.ndarray, item: np.ndarray, n: int = 10) -> float:
    """HR@n: the share of rows whose item is among the n with the highest scores (ties count against it)."""
    score = np.take_along_axis(scores, item[:, None], axis=1)
    return float(np.mean(np.sum(scores >= score, axis=1) <= n))


def rate(model: Any, contexts: dict[str, Any], item: np.ndarray) -> float:
    """HR@10 of a fitted model in new contexts."""
    return hit_rate(model.context_vectors(contexts) @ model.psi_.T, item)


def rate_alone(column: str, feedback: ep.Feedback, seen: Any, unseen: Any, item: np.ndarray, **options: Any) -> float:
    """HR@10 of matrix factorization with one column as the only context."""
    model = ep.Separable(context=Embedding(16, column), item=Embedding(16, name="recommended"), **options)
    return rate(model.fit(feedback, contexts={column: seen[column]}), {column: unseen[column]}, item)


def rate_popularity(feedback: ep.Feedback, item: np.ndarray) -> float:
    """HR@10 of recommending the most popular items."""
    popularity = ep.Popularity().fit(feedback).predict(np.zeros(feedback.n_items, int), np.arange(feedback.n_items))
    return hit_rate(np.tile(popularity, (len(item), 1)), item)


def report(rates: dict[str, float], what: str) -> None:
    print(f"HR@10 on {what}:")
    for name, rate in rates.items():
        print(f"  {name:<32} {rate:.3f}")


def take_rows(columns: dict[str, Any], index: np.ndarray) -> dict[str, Any]:
    """These rows of every column."""
    return {name: column[index] for name, column in columns.items()}
