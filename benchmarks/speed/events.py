"""Event logs for the sections on features and tensors: MovieLens-1M if available, otherwise generated."""

from __future__ import annotations

from pathlib import Path

import scipy.sparse as sp

from benchmarks.speed.data import from_pairs
from everypair.data import Dataset
from everypair.datasets import parquet, youtube_like
from everypair.reproduce.sources import ATTRIBUTES


def load(path: str | None, users: int, items: int) -> tuple[Dataset, tuple[str, ...]]:
    """The events, and the names of the user attributes (A)."""
    if path is not None:
        return parquet(Path(path)), ATTRIBUTES["movielens-1m"]
    return youtube_like(users, items, seed=0), ATTRIBUTES["youtube-like"]


def user_item_matrix(dataset: Dataset) -> sp.csr_matrix:
    """Observed pairs of users and items, as a matrix of ones."""
    return from_pairs(dataset.user, dataset.item, (dataset.n_users, dataset.n_items))
