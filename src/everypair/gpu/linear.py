"""Dense products of tables of vectors on a device, a range of rows at a time: Grams and rotations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

CHUNK = 2_048  # rows whose products are summed in float32, before float64: fixed, because rounding depends on it
SEGMENT, MOST = 2**24, 16  # numbers that are made on the way at a time (64 MB), unless that would take more segments


def numbers_at_once(n: int, numbers: float) -> float:
    """How many numbers are made on the way at a time, where each of n rows needs so many."""
    return min(max(SEGMENT, n * numbers / MOST, CHUNK * numbers), n * numbers)


def segments(n: int, numbers: float) -> Iterator[slice]:
    """Ranges of n rows, of which each needs so many numbers on the way."""
    step = max(CHUNK, int(numbers_at_once(n, numbers) / max(numbers, 1e-9)) // CHUNK * CHUNK)
    return (slice(start, min(start + step, n)) for start in range(0, n, step))


def products(xp: Any, one: Any, other: Any, weight: Any = None) -> Any:
    """``sum_r weight_r x_r y_r'`` over the rows x and y of two tables, in float64."""
    n, width = one.shape
    total, columns = xp.zeros((width, other.shape[1]), np.float64), other.shape[1]
    on_the_way = width * columns / CHUNK + width + (0 if weight is None else width + columns)  # with a transposed copy
    for rows in segments(n, on_the_way):
        x, y = one[rows], other[rows]
        if weight is not None:  # by its root: the product of a table with itself is symmetric
            root = xp.sqrt(weight[rows])[:, None]
            x, y = x * root, y * root
        whole = len(x) // CHUNK * CHUNK
        if whole:
            chunks = x[:whole].reshape(-1, CHUNK, width).transpose(0, 2, 1)
            total += xp.matmul(chunks, y[:whole].reshape(-1, CHUNK, columns)).sum(axis=0, dtype=np.float64)
        if whole < len(x):
            total += (x[whole:].T @ y[whole:]).astype(np.float64)
    return total


def gram(xp: Any, table: Any, weight: Any = None) -> Any:
    """``sum_r weight_r t_r t_r'`` in float64."""
    return products(xp, table, table, weight)


def rotate(xp: Any, table: Any, at: slice, Q: Any) -> None:
    """``t Q`` for the numbers ``at`` of each row."""
    turned = Q.astype(np.float32)
    for rows in segments(len(table), 2 * Q.shape[0]):
        table[rows, at] = xp.matmul(table[rows, at], turned)


ON_HOST = 96  # dimensions up to which the host is faster


def eigenvectors(xp: Any, J: Any) -> tuple[Any, Any]:
    """Eigenvalues in ascending order, and eigenvectors as columns."""
    if xp is np or len(J) > ON_HOST:
        return xp.linalg.eigh(J)
    values, Q = np.linalg.eigh(xp.asnumpy(J))
    return xp.asarray(values), xp.asarray(Q)
