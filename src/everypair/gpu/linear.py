"""Dense products of tables of vectors on a device, a range of rows at a time: Grams and rotations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

CHUNK = 2_048  # rows whose products are summed in float32, before float64: fixed, because rounding depends on it
SEGMENT = 2**24  # numbers of a table that are worked on at a time: 64 MB


def segments(n: int, width: int) -> Iterator[slice]:
    """Ranges of n rows with this many numbers each."""
    step = max(CHUNK, SEGMENT // max(width, 1) // CHUNK * CHUNK)
    return (slice(start, min(start + step, n)) for start in range(0, n, step))


def gram(xp: Any, table: Any, weight: Any = None) -> Any:
    """``sum_r weight_r t_r t_r'`` in float64."""
    n, width = table.shape
    total = xp.zeros((width, width), np.float64)
    for rows in segments(n, width):
        part = table[rows] if weight is None else table[rows] * xp.sqrt(weight[rows])[:, None]
        whole = len(part) // CHUNK * CHUNK
        if whole:
            chunks = part[:whole].reshape(-1, CHUNK, width)
            total += xp.matmul(chunks.transpose(0, 2, 1), chunks).sum(axis=0, dtype=np.float64)
        if whole < len(part):
            total += (part[whole:].T @ part[whole:]).astype(np.float64)
    return total


def rotate(xp: Any, table: Any, at: slice, Q: Any) -> None:
    """``t Q`` for the numbers ``at`` of each row."""
    turned = Q.astype(np.float32)
    for rows in segments(*table.shape):
        table[rows, at] = xp.matmul(table[rows, at], turned)
