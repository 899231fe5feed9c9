"""A two-dimensional map of items: a projection of their vectors to a plane, on which users can be placed too."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import linalg

from everypair.recommend.context_batch import ContextBatch
from everypair.recommend.fitted import FittedState

RIDGE = 0.1  # of the average variance, so that groups are not separated by chance


class ItemMap(NamedTuple):
    """A projection of item directions (item vectors scaled to length one) to a plane.

    Attributes
    ----------
    positions : array of shape (n_items, 2)
    trained : array of booleans
        Items that occur in training: the positions of others mean nothing.
    mean : array of shape (n_factors,)
        The mean direction.
    axes : array of shape (n_factors, 2)
        The axes of the plane.
    explained : float
        The share of the variance of directions along the axes.
    """

    positions: np.ndarray
    trained: np.ndarray
    mean: np.ndarray
    axes: np.ndarray
    explained: float

    @classmethod
    def of(cls, state: FittedState, groups: np.ndarray | None = None) -> ItemMap:
        """The map of a model's items. Items that are recommended together lie near each other.

        The axes are the first two principal components of the directions. With ``groups`` (the number of each item's group, -1 for
        none) they are Fisher's discriminant directions: the largest spread between groups relative to that within groups.
        """
        units, trained = state.item_directions
        directions = units.psi.astype(np.float64)
        sample = directions[trained]
        mean = sample.mean(axis=0) if len(sample) else np.zeros(directions.shape[1])
        scatter = (sample - mean).T @ (sample - mean)
        found = _leading_two(np.eye(len(mean)), scatter) if groups is None else _discriminant(sample, groups[trained], scatter)
        axes = np.zeros((len(mean), 2))
        axes[:, : found.shape[1]] = found
        total, along = float(np.trace(scatter)), float(np.trace(axes.T @ scatter @ axes))
        return cls((directions - mean) @ axes, trained, mean, axes, along / total if total > 0 else 0.0)

    def place(self, state: FittedState, context: ContextBatch) -> tuple[float, float] | None:
        """The position of the direction of phi, for a batch of one context; None if the model knows nothing of it."""
        vectors, known = state.context_vectors(context)
        phi = vectors[0, state.vectors.factor_dimensions].astype(np.float64)
        norm = float(np.linalg.norm(phi))
        if norm == 0.0 or not known[0]:
            return None
        x, y = (phi / norm - self.mean) @ self.axes
        return float(x), float(y)


def _discriminant(directions: np.ndarray, groups: np.ndarray, scatter: np.ndarray) -> np.ndarray:
    """Fisher's first two discriminant directions, orthonormal."""
    within = np.zeros_like(scatter)
    for group in np.unique(groups[groups >= 0]):
        members = directions[groups == group]
        within += (members - members.mean(axis=0)).T @ (members - members.mean(axis=0))
    within += (RIDGE * np.trace(scatter) / len(scatter) or 1.0) * np.eye(len(scatter))
    return np.linalg.qr(_leading_two(within, scatter))[0]


def _leading_two(within: np.ndarray, scatter: np.ndarray) -> np.ndarray:
    """The two directions of the largest ``v' scatter v / v' within v``, with the same signs on every machine."""
    vectors = linalg.eigh(scatter, within)[1][:, ::-1][:, :2]
    largest = np.argmax(np.abs(vectors), axis=0)
    return vectors * np.where(vectors[largest, np.arange(vectors.shape[1])] < 0, -1.0, 1.0)
