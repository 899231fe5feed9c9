"""Logs of events for the sections on contexts: MovieLens-1M where it is there, or generated ones."""

from __future__ import annotations

from pathlib import Path

import scipy.sparse as sp

from benchmarks.speed.data import of_pairs
from everypair.data import Dataset
from everypair.datasets import parquet, youtube_like
from everypair.reproduce.sources import ATTRIBUTES


def load(path: str | None, users: int, items: int) -> tuple[Dataset, tuple[str, ...]]:
    """The events, and the attributes of users (A)."""
    if path is not None:
        return parquet(Path(path)), ATTRIBUTES["movielens-1m"]
    return youtube_like(users, items, seed=0), ATTRIBUTES["youtube-like"]


def pairs(dataset: Dataset) -> sp.csr_matrix:
    """Users and their items, as a matrix of ones."""
    return of_pairs(dataset.user, dataset.item, (dataset.n_users, dataset.n_items))
