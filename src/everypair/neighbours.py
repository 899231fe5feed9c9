"""Items like an item, users like a user: by the angle between their vectors."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from everypair.parallel import Workers, thread_count
from everypair.ranking import Lists, Products, rank
from everypair.readers import VectorReader
from everypair.towers import Machine


def factors(reader: VectorReader, side: str, vectors: np.ndarray) -> np.ndarray:
    """The part of vectors in which two things can be alike: a factorization machine's biases say how much, not what."""
    tower = reader.towers[side]
    return vectors[:, : tower.factors] if isinstance(tower, Machine) else vectors


def nearest(
    vectors: np.ndarray, met: np.ndarray, asked: np.ndarray, names: pa.Array, what: str, n: int, n_threads: int | None
) -> tuple[np.ndarray, np.ndarray]:
    """The n rows with the largest cosine to each row asked for, without itself, and those cosines.

    ``met`` are the rows of which training saw anything: others are neither found, nor do they have neighbours.
    """
    norms = np.linalg.norm(vectors.astype(np.float64), axis=1)
    met = met & (norms > 0)
    if not met[asked].all():
        raise ValueError(f"nothing was learnt of {what} {names[int(np.argmin(met[asked]))].as_py()!r}: it has no neighbours.")
    units = (vectors / np.where(norms > 0, norms, 1.0)[:, None]).astype(vectors.dtype)
    own = Lists(np.arange(len(asked)), np.arange(1, len(asked) + 1), asked)
    with Workers(thread_count(n_threads)) as workers:
        return rank(Products(units[asked], units), n, workers, exclude=own, allowed=met)
