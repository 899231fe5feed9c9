"""Similar items, and similar users: by the angle between the factors of their vectors."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from everypair.ranking.rank import InnerProducts, ItemVectors, Lists, rank
from everypair.runtime.parallel import Workers, thread_count
from everypair.runtime.progress import Progress


class Directions(NamedTuple):
    """Factors scaled to length one, and which rows were trained: the others have no neighbours, and are nobody's."""

    units: ItemVectors
    trained: np.ndarray

    def nearest(
        self, codes: np.ndarray, names: pa.Array, what: str, n: int, n_threads: int | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """The n rows with the largest cosine to each of these rows, without itself; and the cosines."""
        if not self.trained[codes].all():
            unknown = names[int(np.argmin(self.trained[codes]))].as_py()
            raise ValueError(f"nothing was learnt of {what} {unknown!r}: it has no neighbours.")
        own = Lists(np.arange(len(codes)), np.arange(1, len(codes) + 1), codes)
        products = InnerProducts(self.units.psi[codes], self.units)
        with Workers(thread_count(n_threads)) as workers, Progress(len(codes), "ranking", unit="row") as progress:
            return rank(products, n, workers, exclude=own, allowed=self.trained, advance=progress.advance)


def directions(vectors: np.ndarray, factors: np.ndarray, trained: np.ndarray, device: str | None) -> Directions:
    """The directions of vectors, by the dimensions that are ``factors``; those of many rows are compared on this device."""
    vectors = vectors if len(factors) == vectors.shape[1] else vectors[:, factors]
    norms = np.linalg.norm(vectors.astype(np.float64), axis=1)
    units = (vectors / np.where(norms > 0, norms, 1.0)[:, None]).astype(vectors.dtype)
    return Directions(ItemVectors(units, device=device), trained & (norms > 0))
