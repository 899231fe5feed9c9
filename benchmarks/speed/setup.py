"""Setup of a run: sizes, data, contenders, threads, and the folder through which processes share data."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.speed import contenders, data


class Sizes(NamedTuple):
    """Sizes of all measurements."""

    shape: data.PairCounts  # of generated pairs
    sparse: data.PairCounts  # of generated pairs, few for each user
    factors: tuple[int, ...]
    epochs: int  # of peers; their final objective is the goal
    repeats: int
    patience: float  # seconds after which the runs of a contender are not repeated
    events: tuple[int, int]  # users and items of generated events, without MovieLens
    feature_factors: int
    best_factors: int
    tuned_factors: int
    tensor_factors: tuple[int, int]  # PARAFAC, Tucker
    growth: tuple[int, int, int]  # contexts, items, largest number of pairs
    cost: tuple[int, tuple[int, ...], int]  # conventional CD: events, numbers of items, events of iCD alone
    memory: data.PairCounts
    memory_factors: int
    top_factors: int


FULL = Sizes(
    shape=data.TEN_MILLION,
    sparse=data.SPARSE,
    factors=(64, 128, 256),
    epochs=10,
    repeats=3,
    patience=300.0,
    events=(10_000, 3_000),
    feature_factors=64,
    best_factors=128,
    tuned_factors=256,
    tensor_factors=(64, 16),
    growth=(100_000, 20_000, 8_000_000),
    cost=(2_000, (500, 1_000, 2_000, 4_000), 200_000),
    memory=data.PairCounts(1_000_000, 100_000, 100_000_000),
    memory_factors=64,
    top_factors=128,
)
QUICK = Sizes(
    shape=data.SMALL,
    sparse=data.SMALL_SPARSE,
    factors=(16,),
    epochs=5,
    repeats=2,
    patience=5.0,
    events=(300, 100),
    feature_factors=8,
    best_factors=8,
    tuned_factors=8,
    tensor_factors=(8, 4),
    growth=(2_000, 1_000, 80_000),
    cost=(200, (100, 200), 2_000),
    memory=data.PairCounts(20_000, 2_000, 400_000),
    memory_factors=8,
    top_factors=16,
)


class SpeedSetup:
    """One run: sizes, data, contenders, threads, and a temporary folder for arrays."""

    def __init__(
        self,
        sizes: Sizes,
        data_folder: Path | None,
        threads: int,
        only_data: Sequence[str] = (),
        only_peers: Sequence[str] = (),
    ) -> None:
        self.sizes, self.data_folder, self.threads = sizes, data_folder, threads
        found, self.missing_data = data.sources(data_folder, sizes.shape, sizes.sparse)
        self.sources = _chosen("data set", "--rows", {source.name: source for source in found}, only_data, self.missing_data)
        peers = _chosen("contender", "--peer", contenders.PEERS, only_peers, {})
        self.missing_peers = {name: why for name, peer in peers.items() if (why := contenders.why_unavailable(peer)) is not None}
        self.peers = [name for name in peers if name not in self.missing_peers]
        self._written: dict[str, Path] = {}

    def why_not(self, peer: str) -> str | None:
        """Why a contender does not run, or None."""
        return None if peer in self.peers else self.missing_peers.get(peer, "not chosen")

    def matrix(self, name: str) -> str:
        """The folder of a data set, written when it is first needed."""
        if name not in self._written:
            folder = self.folder / f"pairs{len(self._written)}"
            data.write(self.sources[name].load(), folder)
            self._written[name] = folder
        return str(self._written[name])

    @cached_property
    def folder(self) -> Path:
        """Temporary folder for arrays."""
        self._temporary = tempfile.TemporaryDirectory(prefix="everypair-speed-")
        return Path(self._temporary.name)

    @property
    def events(self) -> dict[str, Any]:
        """Arguments of ``events.load``, as plain data."""
        folder = None if self.data_folder is None else self.data_folder / data.MOVIELENS
        if folder is not None and (folder / "interactions.parquet").exists():
            return {"path": str(folder), "users": 0, "items": 0}
        users, items = self.sizes.events
        return {"path": None, "users": users, "items": items}

    @property
    def events_name(self) -> str:
        events = self.events
        return data.MOVIELENS if events["path"] else f"generated, {events['users']:,} users, {events['items']:,} items"

    def close(self) -> None:
        """Remove the arrays."""
        if "folder" in vars(self):
            self._temporary.cleanup()
            del self.folder
            self._written.clear()

    def __enter__(self) -> SpeedSetup:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _chosen(what: str, option: str, known: dict[str, Any], names: Sequence[str], missing: dict[str, str]) -> dict[str, Any]:
    """The entries of these names, or all. "generated" abbreviates "generated, 40,000 pairs"."""
    if not names:
        return known
    found = {name: value for name, value in known.items() if any(name == n or name.split(",")[0] == n for n in names)}
    for name in names:
        if name in missing:
            raise FileNotFoundError(f"the {what} {name} ({option}) is not available: {missing[name]}.")
        if not any(name in (other, other.split(",")[0]) for other in known):
            raise ValueError(f"there is no {what} {name!r} ({option}); choose from {', '.join(known)}.")
    return found
