"""The best items of many rows: scored in chunks, what is not to be recommended left out, exact.

A matrix product rounds differently from the product of one of its rows, so that the order of items with nearly equal scores
would depend on who else is asked for. What a matrix product shows to be among the best is therefore computed anew, one
inner product at a time in one order: a row's list is the same in every batch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from everypair.kernels.topn import only, top_n, top_n_listed, top_n_products, without
from everypair.ranking.pruned import Tiles, rows_at_once
from everypair.runtime.parallel import Workers, one_blas_thread
from everypair.runtime.progress import Progress

SCORES_AT_ONCE = 2_000_000  # that a thread holds
FEW_ROWS = 16  # up to which a product is faster the other way round
FEW = 2  # where less than one in so many items is allowed, the others are not scored


class Lists(NamedTuple):
    """A list of items for each row: ``items[begin:end]``."""

    begin: np.ndarray
    end: np.ndarray
    items: np.ndarray

    @classmethod
    def of(cls, lists: list[np.ndarray]) -> Lists:
        bounds = np.append(0, np.cumsum([len(items) for items in lists])).astype(np.int64)
        return cls(bounds[:-1], bounds[1:], np.concatenate([np.empty(0, np.int64), *lists]).astype(np.int64))

    def take(self, rows: np.ndarray) -> Lists:
        return Lists(self.begin[rows], self.end[rows], self.items)

    def rows(self, start: int, stop: int) -> Lists:
        return Lists(self.begin[start:stop], self.end[start:stop], self.items)

    def entries(self) -> tuple[np.ndarray, np.ndarray]:
        """Row and item of all entries."""
        lengths = self.end - self.begin
        within = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        return np.repeat(np.arange(len(lengths)), lengths), self.items[np.repeat(self.begin, lengths) + within]

    def keys(self, n_items: int) -> np.ndarray:
        """``row * n_items + item`` of all entries."""
        row, items = self.entries()
        return row * n_items + items


class Search(NamedTuple):
    """The best items of a range of rows, ``some(start, stop, ids, best)``; and how many rows to search for together."""

    some: Callable[[int, int, np.ndarray, np.ndarray], None]
    step: int


class Scores(ABC):
    """The scores of all items in each of many rows."""

    n_rows: int
    n_items: int
    width: int  # how many scores are computed in each row
    dtype: Any

    @abstractmethod
    def of_items(self, items: np.ndarray) -> Scores:
        """Those of some of the items, which are numbered anew."""

    @abstractmethod
    def block(self, start: int, stop: int) -> np.ndarray:
        """Those of a range of rows, about: an array of one's own, to be written to."""

    @abstractmethod
    def best(self, start: int, stop: int, block: np.ndarray, ids: np.ndarray, best: np.ndarray) -> None:
        """The best of what :meth:`block` gave and is still above ``-inf``."""

    @abstractmethod
    def best_listed(self, start: int, stop: int, lists: Lists, ids: np.ndarray, best: np.ndarray) -> None:
        """The best of the items listed for each row of a range."""

    def search(self, n: int, n_threads: int, exclude: Lists | None, allowed: np.ndarray | None) -> Search | None:
        """A way to the best n of all items that does not compute all scores first, where there is one that pays."""
        return None


class Plain(Scores):
    """Scores as a function of a range of rows gives them."""

    def __init__(self, block: Callable[[int, int], np.ndarray], n_rows: int, n_items: int, width: int | None = None) -> None:
        self._block, self.n_rows, self.n_items, self.width = block, n_rows, n_items, width or n_items
        self.dtype = block(0, 0).dtype

    def of_items(self, items: np.ndarray) -> Plain:
        return Plain(lambda start, stop: self._block(start, stop)[:, items], self.n_rows, len(items), self.width)

    def block(self, start: int, stop: int) -> np.ndarray:
        return self._block(start, stop)

    def best(self, start: int, stop: int, block: np.ndarray, ids: np.ndarray, best: np.ndarray) -> None:
        top_n(0, len(block), block, ids, best)

    def best_listed(self, start: int, stop: int, lists: Lists, ids: np.ndarray, best: np.ndarray) -> None:
        block = self.block(start, stop)
        only(block, lists)
        self.best(start, stop, block, ids, best)


class ItemVectors:
    """``psi`` of all items, and how large they are in each dimension; ``weight``: what an unobserved pair of each weighs."""

    def __init__(self, psi: np.ndarray, weight: np.ndarray | None = None) -> None:
        self.psi, self._weight = np.ascontiguousarray(psi), weight

    @cached_property
    def gram(self) -> np.ndarray:
        """``J = sum n_i psi psi'``."""
        psi = self.psi.astype(np.float64)
        return psi.T @ (psi if self._weight is None else psi * self._weight[:, None])

    @cached_property
    def largest(self) -> np.ndarray:
        return np.abs(self.psi).max(axis=0, initial=0.0).astype(np.float64)

    @cached_property
    def by_norm(self) -> tuple[np.ndarray, np.ndarray]:
        """The items by falling norm, and their norms."""
        norms = np.sqrt(np.einsum("if,if->i", self.psi, self.psi, dtype=np.float64))
        order = np.argsort(-norms, kind="stable")
        return order, norms[order]


class Products(Scores):
    """Inner products of vectors: ``phi`` of rows, ``psi`` of items."""

    def __init__(self, phi: np.ndarray, items: ItemVectors | np.ndarray) -> None:
        self.items = items if isinstance(items, ItemVectors) else ItemVectors(items)
        self.phi, self.psi = np.ascontiguousarray(phi), self.items.psi
        self.n_rows, self.n_items, self.dtype = len(phi), len(self.psi), np.result_type(phi, self.psi)
        self.width = self.n_items

    def take(self, rows: np.ndarray) -> Products:
        """Those of some of the rows."""
        return Products(self.phi[rows], self.items)

    def of_items(self, items: np.ndarray) -> Products:
        return Products(self.phi, self.psi[items])

    def block(self, start: int, stop: int) -> np.ndarray:
        phi = self.phi[start:stop]
        if len(phi) > FEW_ROWS:
            return phi @ self.psi.T
        return np.ascontiguousarray((self.psi @ phi.T).T)  # libraries are made for tall matrices

    def best(self, start: int, stop: int, block: np.ndarray, ids: np.ndarray, best: np.ndarray) -> None:
        top_n_products(0, len(block), block, self._slack(start, stop), self.phi[start:stop], self.psi, ids, best)

    def _slack(self, start: int, stop: int) -> np.ndarray:
        """A sum of K products is off by less than K eps times the sum of their sizes, in whatever order it is taken."""
        phi = self.phi[start:stop]
        return 4 * (phi.shape[1] + 2) * np.finfo(self.dtype).eps * (np.abs(phi) @ self.items.largest)

    def best_listed(self, start: int, stop: int, lists: Lists, ids: np.ndarray, best: np.ndarray) -> None:
        top_n_listed(0, stop - start, lists, self.phi[start:stop], self.psi, ids, best)

    def search(self, n: int, n_threads: int, exclude: Lists | None, allowed: np.ndarray | None) -> Search | None:
        step = rows_at_once(self.n_rows, self.n_items, n, n_threads)
        if not step or self.phi.dtype != self.psi.dtype:
            return None
        order, norms = self.items.by_norm
        if allowed is not None:
            order, norms = order[allowed[order]], norms[allowed[order]]
        tiles = Tiles(self.phi, self.psi, order, norms, n)

        def some(start: int, stop: int, ids: np.ndarray, best: np.ndarray) -> None:
            own = None if exclude is None else exclude.rows(start, stop)
            tiles.best(start, stop, self._slack(start, stop), own, ids, best)

        return Search(some, step)


def rank(
    scores: Scores,
    n: int,
    workers: Workers,
    exclude: Lists | None = None,
    candidates: Lists | None = None,
    allowed: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """The n items with the highest scores in each row, best first; ties go to the smaller item.

    Parameters
    ----------
    scores : Scores
    exclude, candidates : Lists, optional
        Items of each row not to be ranked; the only ones to be ranked.
    allowed : array of booleans, optional
        Which items may be ranked in any row.

    Returns
    -------
    (ids, scores) : arrays of shape (n_rows, n)
        Filled up with -1 and ``-inf`` where there are fewer than n items.
    """
    n_rows, n_items = scores.n_rows, scores.n_items
    denied = np.empty(0, np.int64) if allowed is None else np.flatnonzero(~allowed)
    if allowed is not None and candidates is None and (n_items - len(denied)) * FEW < n_items:
        return _rank_among(np.flatnonzero(allowed), scores, n, workers, exclude)
    ids = np.full((n_rows, n), -1, np.int64)
    best = np.full((n_rows, n), -np.inf, scores.dtype)

    def listed(start: int, stop: int) -> None:
        assert candidates is not None
        keys = np.unique(candidates.rows(start, stop).keys(n_items))
        if len(denied):
            assert allowed is not None
            keys = keys[allowed[keys % n_items]]
        if exclude is not None:
            keys = np.setdiff1d(keys, exclude.rows(start, stop).keys(n_items), assume_unique=False)
        bounds = np.searchsorted(keys, np.arange(stop - start + 1) * n_items)
        scores.best_listed(start, stop, Lists(bounds[:-1], bounds[1:], keys % n_items), ids[start:stop], best[start:stop])

    def all_items(start: int, stop: int) -> None:
        block = scores.block(start, stop)
        block[:, denied] = -np.inf
        if exclude is not None:
            without(block, exclude.rows(start, stop))
        scores.best(start, stop, block, ids[start:stop], best[start:stop])

    def searched(start: int, stop: int) -> None:
        assert search is not None
        search.some(start, stop, ids[start:stop], best[start:stop])

    search = scores.search(n, workers.n_threads, exclude, allowed) if candidates is None else None
    one = searched if search is not None else all_items if candidates is None else listed
    step = search.step if search is not None else max(1, SCORES_AT_ONCE // max(scores.width, 1))

    def some(first: int, last: int) -> None:
        for start in range(first * step, min(last * step, n_rows), step):
            stop = min(start + step, n_rows)
            one(start, stop)
            progress.advance(stop - start)

    with one_blas_thread(), Progress(n_rows, "ranking", unit="row") as progress:
        workers.run(some, range(-(-n_rows // step) + 1))
    return ids, best


def _rank_among(
    items: np.ndarray, scores: Scores, n: int, workers: Workers, exclude: Lists | None
) -> tuple[np.ndarray, np.ndarray]:
    """The same where only these items count, in order."""
    if exclude is not None:
        place = np.full(scores.n_items, -1)
        place[items] = np.arange(len(items))
        exclude = exclude._replace(items=place[exclude.items])
    ids, best = rank(scores.of_items(items), n, workers, exclude)
    return np.where(ids >= 0, np.append(items, -1)[ids], -1), best
