"""Items like an item, users like a user: by the angle between their vectors."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from everypair.ranking.rank import ItemVectors, Lists, Products, rank
from everypair.recommend.adapters import VectorAdapter
from everypair.runtime.parallel import Workers, thread_count
from everypair.runtime.progress import Progress
from everypair.towers import Machine


class Directions(NamedTuple):
    """Vectors of length one; and the rows of which training saw anything: others are neither found, nor do they have neighbours."""

    units: ItemVectors
    met: np.ndarray

    def nearest(
        self, asked: np.ndarray, names: pa.Array, what: str, n: int, n_threads: int | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """The n rows with the largest cosine to each row asked for, without itself, and those cosines."""
        if not self.met[asked].all():
            stranger = names[int(np.argmin(self.met[asked]))].as_py()
            raise ValueError(f"nothing was learnt of {what} {stranger!r}: it has no neighbours.")
        own = Lists(np.arange(len(asked)), np.arange(1, len(asked) + 1), asked)
        products = Products(self.units.psi[asked], self.units)
        with Workers(thread_count(n_threads)) as workers, Progress(len(asked), "ranking", unit="row") as progress:
            return rank(products, n, workers, exclude=own, allowed=self.met, advance=progress.advance)


def directions(reader: VectorAdapter, side: str, vectors: np.ndarray, met: np.ndarray) -> Directions:
    """Where vectors of a side point; ``met`` are the rows of which training saw anything."""
    vectors = factors(reader, side, vectors)
    norms = np.linalg.norm(vectors.astype(np.float64), axis=1)
    units = (vectors / np.where(norms > 0, norms, 1.0)[:, None]).astype(vectors.dtype)
    return Directions(ItemVectors(units), met & (norms > 0))


def factors(reader: VectorAdapter, side: str, vectors: np.ndarray) -> np.ndarray:
    """The part of vectors in which two things can be alike: a factorization machine's biases say how much, not what."""
    tower = reader.towers[side]
    return vectors[:, : tower.factors] if isinstance(tower, Machine) else vectors
