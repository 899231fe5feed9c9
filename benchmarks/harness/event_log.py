"""The event log of benchmarks that need users and items only: published training pairs, or generated events."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq

from everypair.data import Dataset
from everypair.datasets import youtube_like

USERS = ITEMS = 20_000


def load_event_log(folder: Path | None) -> Dataset:
    """The table ``train.parquet`` (columns user and item) of a folder; generated events for None."""
    if folder is None:
        return youtube_like(USERS, ITEMS, seed=0)
    events = pq.read_table(folder / "train.parquet").select(["user", "item"])
    return Dataset(events, chronological=True)  # speed and memory do not depend on the order
