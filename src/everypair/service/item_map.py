"""A map of items: two directions of their vectors, and where someone is in it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import linalg

from everypair.recommend.context_batch import ContextBatch
from everypair.recommend.fitted import FittedState

RIDGE = 0.1  # of the average variance, so that chance does not look like order


class ItemMap(NamedTuple):
    """A projection of directions to a plane.

    Attributes
    ----------
    places : array of shape (n_items, 2)
    met : array of booleans
        Items of which training saw anything: others have no place.
    mean, axes : arrays
        Of directions; those of the map.
    explained : float
        The share of all variance of directions that is along the map.
    """

    places: np.ndarray
    met: np.ndarray
    mean: np.ndarray
    axes: np.ndarray
    explained: float

    @classmethod
    def of(cls, state: FittedState, groups: np.ndarray | None = None) -> ItemMap:
        """A plane through psi, each of length one: near each other is what is recommended together.

        The plane is that of the first two principal components, in which items differ most. With ``groups`` (a number for each
        item, -1 for none) it is that in which groups lie farthest apart, measured by how far the items of a group do (Fisher's).
        """
        units, met = state.item_directions
        directions = units.psi.astype(np.float64)
        there = directions[met]
        mean = there.mean(axis=0) if len(there) else np.zeros(directions.shape[1])
        spread = (there - mean).T @ (there - mean)
        taken = _first_two(np.eye(len(mean)), spread) if groups is None else _apart(there, groups[met], spread)
        axes = np.zeros((len(mean), 2))
        axes[:, : taken.shape[1]] = taken
        total, along = float(np.trace(spread)), float(np.trace(axes.T @ spread @ axes))
        return cls((directions - mean) @ axes, met, mean, axes, along / total if total > 0 else 0.0)

    def place(self, state: FittedState, context: ContextBatch) -> tuple[float, float] | None:
        """The direction of phi of a single context on the map; None where the model knows nothing of it."""
        vectors, known = state.context_vectors(context)
        phi = vectors[0, state.vectors.factor_dimensions].astype(np.float64)
        norm = float(np.linalg.norm(phi))
        if norm == 0.0 or not known[0]:
            return None
        x, y = (phi / norm - self.mean) @ self.axes
        return float(x), float(y)


def _apart(directions: np.ndarray, groups: np.ndarray, spread: np.ndarray) -> np.ndarray:
    """Two orthonormal directions in which the means of groups differ most, relative to what is within groups."""
    within = np.zeros_like(spread)
    for group in np.unique(groups[groups >= 0]):
        own = directions[groups == group]
        within += (own - own.mean(axis=0)).T @ (own - own.mean(axis=0))
    within += (RIDGE * np.trace(spread) / len(spread) or 1.0) * np.eye(len(spread))
    return np.linalg.qr(_first_two(within, spread))[0]


def _first_two(within: np.ndarray, spread: np.ndarray) -> np.ndarray:
    """The two directions of the largest ``v' spread v / v' within v``, with the same signs on every machine."""
    vectors = linalg.eigh(spread, within)[1][:, ::-1][:, :2]
    largest = np.argmax(np.abs(vectors), axis=0)
    return vectors * np.where(vectors[largest, np.arange(vectors.shape[1])] < 0, -1.0, 1.0)
