"""The data of the experiments, and the attributes of users that they have."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from everypair.data import Dataset
from everypair.datasets import movielens, parquet, youtube_like
from everypair.reproduce.run import Scale

ATTRIBUTES = {"youtube-like": ("age", "gender", "country", "device"), "movielens-1m": ("gender", "age", "occupation")}


def load(name: str, path: Path | None, scale: Scale) -> tuple[Dataset, tuple[str, ...]]:
    """Generate data, or read them from the folder ``path``."""
    if name == "youtube-like":
        if path is not None:
            raise ValueError("path must be None for youtube-like data, which are generated.")
        return youtube_like(scale.users, scale.items, scale.seed, titles=True), ATTRIBUTES[name]
    if path is None:
        raise ValueError(f"path must be the folder of {name}, got None.")
    dataset = (parquet if (path / "interactions.parquet").exists() else movielens)(path)
    return _at_most(dataset, scale.events, scale.seed), ATTRIBUTES[name]


def _at_most(dataset: Dataset, events: int, seed: int) -> Dataset:
    """The events of randomly drawn users, at most ``events`` of them."""
    if len(dataset) <= events:
        return dataset
    order = np.random.default_rng(seed).permutation(dataset.n_users)
    users = order[np.cumsum(np.diff(dataset.bounds)[order]) <= events]
    part = dataset.subset(np.isin(dataset.user, users))
    part.notes = [*dataset.notes, f"a sample: the events of {len(users):,} users drawn at random."]
    return part
