"""The data of the experiments, and which attributes of users they have."""

from __future__ import annotations

from pathlib import Path

from everypair.data import Dataset
from everypair.datasets import movielens, parquet, youtube_like
from everypair.experiments.reproduce import Scale

ATTRIBUTES = {"youtube-like": ("age", "gender", "country", "device"), "movielens-1m": ("gender", "age", "occupation")}


def load(name: str, path: Path | None, scale: Scale) -> tuple[Dataset, tuple[str, ...]]:
    """The data of that name: generated, or read from a folder."""
    if name == "youtube-like":
        if path is not None:
            raise ValueError("--path is for real data; youtube-like data are generated.")
        return youtube_like(scale.users, scale.items, scale.seed), ATTRIBUTES[name]
    if path is None:
        raise ValueError(f"{name} is read from a folder: give --path.")
    read = parquet if (path / "interactions.parquet").exists() else movielens
    return read(path), ATTRIBUTES[name]
