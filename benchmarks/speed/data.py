"""Observed pairs to measure on: published sets, and a generated one of any size. Written once, they are read by each process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

TOPICS, FAVOURITES, LOYAL = 40, 3, 0.6  # of users: a few topics each, which most of their draws are from
SPREAD = 1.2  # standard deviation of the logarithm of a user's number of pairs
TAIL = 1.0  # the popularity of items falls with this power of their rank
DRAWS = 2_000_000  # at once


class Shape(NamedTuple):
    """How large a set of pairs is, or is to be."""

    users: int
    items: int
    pairs: int

    @property
    def name(self) -> str:
        """Of a generated set."""
        return f"generated, {self.pairs:,} pairs"


TEN_MILLION = Shape(136_000, 20_000, 10_000_000)
SMALL = Shape(2_000, 800, 40_000)
GOWALLA, MOVIELENS = "lightgcn-gowalla", "movielens-1m"


def generate(shape: Shape, seed: int = 0) -> sp.csr_matrix:
    """Pairs, each once, with long tails on both sides and a structure to be found.

    Users have log-normal numbers of pairs (at most a sixth of the items) and three of forty topics; 60 % of their items are of
    these, the others any, in both cases by popularity. Made some users at a time, so that memory is that of the result.
    """
    random = np.random.default_rng(seed)
    wanted = _degrees(random, shape)
    popularity = 1.0 / (np.arange(shape.items) + shape.items / 2000) ** TAIL
    topic = random.integers(0, TOPICS, shape.items)
    order = random.permutation(shape.items)
    order = order[np.argsort(topic[order], kind="stable")]  # items by topic
    rank = np.empty(shape.items, np.int64)
    rank[random.permutation(shape.items)] = np.arange(shape.items)
    cumulative = np.append(0.0, np.cumsum(popularity[rank[order]]))
    bounds = np.searchsorted(topic[order], np.arange(TOPICS + 1))
    favourites = random.integers(0, TOPICS, (shape.users, FAVOURITES))

    indices, counts = np.empty(int(wanted.sum()), np.int32), np.zeros(shape.users, np.int64)
    drawn = 2 * wanted + 8
    ends = np.append(0, np.cumsum(drawn))
    begin = filled = 0
    while begin < shape.users:
        end = max(begin + 1, int(np.searchsorted(ends, ends[begin] + DRAWS, side="right")) - 1)
        user = np.repeat(np.arange(begin, end), drawn[begin:end])
        kind = favourites[user, random.integers(0, FAVOURITES, len(user))]
        low, high = cumulative[bounds[kind]], cumulative[bounds[kind + 1]]
        loyal = (random.random(len(user)) < LOYAL) & (high > low)
        low, high = np.where(loyal, low, 0.0), np.where(loyal, high, cumulative[-1])
        place = np.searchsorted(cumulative, low + random.random(len(user)) * (high - low), side="right") - 1
        item = order[np.minimum(place, shape.items - 1)]
        shuffle = random.permutation(shape.items)  # so that those left out are any
        keys = np.unique((user - begin) * shape.items + shuffle[item])
        owner = keys // shape.items
        nth = np.arange(len(keys)) - np.searchsorted(owner, np.arange(end - begin))[owner]
        keys = keys[nth < wanted[begin:end][owner]]
        back = np.argsort(shuffle)
        keys = np.sort(keys // shape.items * shape.items + back[keys % shape.items])
        counts[begin:end] = np.bincount(keys // shape.items, minlength=end - begin)
        indices[filled : filled + len(keys)] = keys % shape.items
        begin, filled = end, filled + len(keys)
    indptr = np.append(0, np.cumsum(counts))
    return ones(indptr, indices[:filled], shape.items)


def _degrees(random: np.random.Generator, shape: Shape) -> np.ndarray:
    weight = random.lognormal(0.0, SPREAD, shape.users)
    most = max(1, shape.items // 6)
    wanted = np.ones(shape.users)
    for _ in range(20):  # what the largest cannot have goes to the others
        wanted = np.clip(weight * (shape.pairs / weight.sum()), 1, most)
        weight *= np.clip(shape.pairs / wanted.sum(), 0.5, 2.0) ** (wanted < most)
    return np.round(wanted).astype(np.int64)


def published(folder: Path, table: str) -> sp.csr_matrix:
    """Users and items of a table, numbered from 0 in the order of their ids."""
    import pyarrow.parquet as pq

    pairs = pq.read_table(folder / table, columns=["user", "item"])
    (users, user), (items, item) = (np.unique(pairs[name].to_numpy(), return_inverse=True) for name in ("user", "item"))
    return of_pairs(user, item, (len(users), len(items)))


def of_pairs(user: np.ndarray, item: np.ndarray, shape: tuple[int, int]) -> sp.csr_matrix:
    """A matrix of ones; pairs that repeat are one."""
    matrix = sp.csr_matrix((np.ones(len(user), np.float32), (user, item)), shape=shape)
    matrix.sum_duplicates()
    return ones(matrix.indptr, matrix.indices, shape[1])


class Source(NamedTuple):
    """A set of pairs by its name, and how it comes to be."""

    name: str
    make: Callable[[], sp.csr_matrix]


def sources(data: Path | None, shape: Shape) -> tuple[list[Source], dict[str, str]]:
    """The sets that can be had, and the reasons why others are left out."""
    found, missing = [], {}
    for name, table in ((GOWALLA, "train.parquet"), (MOVIELENS, "interactions.parquet")):
        if data is None:
            missing[name] = "no folder of data was given (--data)"
        elif not (data / name / table).exists():
            missing[name] = f"the folder of data has no {name}/{table}"
        else:
            found.append(Source(name, lambda folder=data / name, table=table: published(folder, table)))
    found.append(Source(shape.name, lambda: generate(shape)))
    return found, missing


def write(matrix: sp.csr_matrix, folder: Path) -> None:
    """As arrays that many processes can read."""
    folder.mkdir(parents=True)
    for name in ("indptr", "indices"):
        np.save(folder / f"{name}.npy", getattr(matrix, name))
    np.save(folder / "shape.npy", np.array(matrix.shape))


def read(folder: Path | str) -> Any:
    """What :func:`write` wrote: a matrix of ones."""
    indptr, indices, shape = (np.load(Path(folder) / f"{name}.npy") for name in ("indptr", "indices", "shape"))
    return ones(indptr, indices, int(shape[1]))


def count(folder: Path | str) -> Shape:
    """The size of what :func:`write` wrote, without reading all of it."""
    users, items = np.load(Path(folder) / "shape.npy").tolist()
    return Shape(users, items, len(np.load(Path(folder) / "indices.npy", mmap_mode="r")))


def ones(indptr: np.ndarray, indices: np.ndarray, n_items: int) -> sp.csr_matrix:
    """A matrix of ones, indices of 32 bits where they suffice: some libraries take no others."""
    small = len(indices) < 2**31
    index = np.int32 if small else np.int64
    arrays = np.ones(len(indices), np.float32), indices.astype(index, copy=False), indptr.astype(index, copy=False)
    return sp.csr_matrix(arrays, shape=(len(indptr) - 1, n_items))
