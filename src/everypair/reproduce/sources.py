"""The data of the experiments, and which attributes of users they have."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from everypair.data import Dataset
from everypair.datasets import movielens, parquet, youtube_like
from everypair.reproduce.run import Scale

ATTRIBUTES = {"youtube-like": ("age", "gender", "country", "device"), "movielens-1m": ("gender", "age", "occupation")}


def load(name: str, path: Path | None, scale: Scale) -> tuple[Dataset, tuple[str, ...]]:
    """The data of that name: generated, or read from a folder."""
    if name == "youtube-like":
        if path is not None:
            raise ValueError("--path is for real data; youtube-like data are generated.")
        return youtube_like(scale.users, scale.items, scale.seed, titles=True), ATTRIBUTES[name]
    if path is None:
        raise ValueError(f"{name} is read from a folder: give --path.")
    dataset = (parquet if (path / "interactions.parquet").exists() else movielens)(path)
    return _at_most(dataset, scale.events, scale.seed), ATTRIBUTES[name]


def _at_most(dataset: Dataset, events: int, seed: int) -> Dataset:
    """The events of randomly drawn users, as many as fit."""
    if len(dataset) <= events:
        return dataset
    order = np.random.default_rng(seed).permutation(dataset.n_users)
    users = order[np.cumsum(np.diff(dataset.bounds)[order]) <= events]
    part = dataset.subset(np.isin(dataset.user, users))
    part.notes = [*dataset.notes, f"a sample: the events of {len(users):,} users drawn at random."]
    return part
