"""What the examples share: items drawn by taste, and how often the right item is among the best ten."""

from __future__ import annotations

from typing import Any

import numpy as np


def draw(random: np.random.Generator, taste: np.ndarray) -> np.ndarray:
    """One item per row, with probabilities proportional to ``exp(taste)``."""
    return np.argmax(taste + random.gumbel(size=taste.shape), axis=1)


def hit_rate(scores: np.ndarray, item: np.ndarray, n: int = 10) -> float:
    """HR@n: the share of rows whose item is among the n with the highest scores (ties count against it)."""
    own = np.take_along_axis(scores, item[:, None], axis=1)
    return float(np.mean(np.sum(scores >= own, axis=1) <= n))


def report(rates: dict[str, float], what: str) -> None:
    print(f"HR@10 on {what}:")
    for name, rate in rates.items():
        print(f"  {name:<32} {rate:.3f}")


def some(columns: dict[str, Any], index: np.ndarray) -> dict[str, Any]:
    """Some of the rows of every column."""
    return {name: column[index] for name, column in columns.items()}
