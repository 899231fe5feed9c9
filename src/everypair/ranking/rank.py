"""Exact top-n items of many rows, scored in chunks, with excluded items and lists of candidates.

A matrix product rounds differently from the product of one of its rows, so that the order of items with nearly equal scores would
depend on the other rows of a batch. Matrix products therefore only select candidates; the scores of those are computed again,
one inner product at a time in a fixed order: a row's list is the same in every batch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from everypair.gpu.device import for_ranking, ranked_on_cpu
from everypair.gpu.topn import ROWS_AT_ONCE, ExcludedItems, ItemTable, fits, pays
from everypair.kernels.topn import only, top_n, top_n_listed, top_n_products, without
from everypair.ranking.on_gpu import search_on_gpu
from everypair.ranking.pruned import TiledSearch, rows_at_once
from everypair.runtime.blas import one_blas_thread
from everypair.runtime.cached import cached_property
from everypair.runtime.parallel import SERIAL, Workers

SCORES_AT_ONCE = 2_000_000  # most scores that a thread holds
FEW_ROWS = 16  # up to as many rows, the transposed product is faster
FEW = 2  # if fewer than 1 of FEW items is allowed, only those are scored


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
        """Rows and items of all entries."""
        lengths = self.end - self.begin
        within = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        return np.repeat(np.arange(len(lengths)), lengths), self.items[np.repeat(self.begin, lengths) + within]

    def keys(self, n_items: int) -> np.ndarray:
        """``row * n_items + item`` of all entries."""
        row, items = self.entries()
        return row * n_items + items


class TopNSearch(NamedTuple):
    """A function ``search_rows(start, stop, ids, best)`` that writes the best items of a range of rows, the size of ranges, and
    whether one thread does it all."""

    search_rows: Callable[[int, int, np.ndarray, np.ndarray], None]
    step: int
    serial: bool = False


class Scores(ABC):
    """The scores of all items in many rows, computed when needed."""

    n_rows: int
    n_items: int
    width: int  # scores that are computed per row
    dtype: Any

    @abstractmethod
    def of_items(self, items: np.ndarray) -> Scores:
        """The scores of some of the items; item j of the result is ``items[j]``."""

    @abstractmethod
    def block(self, start: int, stop: int) -> np.ndarray:
        """Approximate scores of rows ``start:stop``, newly allocated."""

    @abstractmethod
    def best(self, start: int, stop: int, block: np.ndarray, ids: np.ndarray, best: np.ndarray) -> None:
        """Write the best items above ``-inf`` in a result of :meth:`block`, and their exact scores, to ``ids`` and ``best``."""

    @abstractmethod
    def best_listed(self, start: int, stop: int, lists: Lists, ids: np.ndarray, best: np.ndarray) -> None:
        """The same for the listed items of each row."""

    def search(self, n: int, n_threads: int, exclude: Lists | None, allowed: np.ndarray | None) -> TopNSearch | None:
        """A search for the best n items that does not compute all scores; None where that would be slower."""
        return None


class DenseScores(Scores):
    """Scores given by a function of a range of rows, which returns those of all items."""

    def __init__(self, block: Callable[[int, int], np.ndarray], n_rows: int, n_items: int, width: int | None = None) -> None:
        self._block, self.n_rows, self.n_items, self.width = block, n_rows, n_items, width or n_items
        self.dtype = block(0, 0).dtype

    def of_items(self, items: np.ndarray) -> DenseScores:
        return DenseScores(lambda start, stop: self._block(start, stop)[:, items], self.n_rows, len(items), self.width)

    def block(self, start: int, stop: int) -> np.ndarray:
        return self._block(start, stop)

    def best(self, start: int, stop: int, block: np.ndarray, ids: np.ndarray, best: np.ndarray) -> None:
        top_n(0, len(block), block, ids, best)

    def best_listed(self, start: int, stop: int, lists: Lists, ids: np.ndarray, best: np.ndarray) -> None:
        block = self.block(start, stop)
        only(block, lists)
        self.best(start, stop, block, ids, best)


class ItemVectors:
    """The vectors ``psi`` of all items, and quantities derived from them.

    ``weight``: the weights n_i of unobserved pairs; ``device``: where many rows are ranked, as in the constructor of models.
    """

    def __init__(self, psi: np.ndarray, weight: np.ndarray | None = None, device: str | None = "cpu") -> None:
        self.psi, self._weight, self.device = np.ascontiguousarray(psi), weight, device

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_table"}  # not what is on a device

    @property
    def table(self) -> ItemTable | None:
        """The vectors on the GPU that ``device`` asks for; None if there is none, or too little of its memory is free."""
        gpu = for_ranking(self.device) if self.psi.dtype == np.float32 else None
        if gpu is None or ("_table" not in vars(self) and not fits(gpu, self.psi)):
            return None
        return self._table

    @cached_property
    def _table(self) -> ItemTable:
        gpu = for_ranking(self.device)
        assert gpu is not None
        return ItemTable.of(gpu, self.psi)

    @cached_property
    def gram(self) -> np.ndarray:
        """``J = sum n_i psi psi'``."""
        psi = self.psi.astype(np.float64)
        return psi.T @ (psi if self._weight is None else psi * self._weight[:, None])

    @cached_property
    def largest(self) -> np.ndarray:
        """The largest absolute entry of each dimension."""
        return np.abs(self.psi).max(axis=0, initial=0.0).astype(np.float64)

    @cached_property
    def by_norm(self) -> tuple[np.ndarray, np.ndarray]:
        """Items by falling norm, and their norms."""
        norms = np.sqrt(np.einsum("if,if->i", self.psi, self.psi, dtype=np.float64))
        order = np.argsort(-norms, kind="stable")
        return order, norms[order]


class InnerProducts(Scores):
    """Scores that are inner products of vectors ``phi`` of rows and ``psi`` of items."""

    def __init__(self, phi: np.ndarray, items: ItemVectors | np.ndarray) -> None:
        self.items = items if isinstance(items, ItemVectors) else ItemVectors(items)
        self.phi, self.psi = np.ascontiguousarray(phi), self.items.psi
        self.n_rows, self.n_items, self.dtype = len(phi), len(self.psi), np.result_type(phi, self.psi)
        self.width = self.n_items

    def take(self, rows: np.ndarray) -> InnerProducts:
        """The scores of some of the rows."""
        return InnerProducts(self.phi[rows], self.items)

    def of_items(self, items: np.ndarray) -> InnerProducts:
        return InnerProducts(self.phi, ItemVectors(self.psi[items], device=self.items.device))

    def block(self, start: int, stop: int) -> np.ndarray:
        phi = self.phi[start:stop]
        if len(phi) > FEW_ROWS:
            return phi @ self.psi.T
        return np.ascontiguousarray((self.psi @ phi.T).T)  # BLAS is faster for tall matrices

    def best(self, start: int, stop: int, block: np.ndarray, ids: np.ndarray, best: np.ndarray) -> None:
        top_n_products(0, len(block), block, self._slack(start, stop), self.phi[start:stop], self.psi, ids, best)

    def _slack(self, start: int, stop: int) -> np.ndarray:
        """Bounds on rounding errors: a sum of K products is off by less than K eps times the sum of their sizes, in any order."""
        phi = self.phi[start:stop]
        return 4 * (phi.shape[1] + 2) * np.finfo(self.dtype).eps * (np.abs(phi) @ self.items.largest)

    def best_listed(self, start: int, stop: int, lists: Lists, ids: np.ndarray, best: np.ndarray) -> None:
        top_n_listed(0, stop - start, lists, self.phi[start:stop], self.psi, ids, best)

    def search(self, n: int, n_threads: int, exclude: Lists | None, allowed: np.ndarray | None) -> TopNSearch | None:
        if pays(self.n_rows, self.n_items, n) and self.phi.dtype == np.float32 and self.items.table is not None:

            def left_over(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
                with ranked_on_cpu():
                    return rank(self.take(rows), n, SERIAL, None if exclude is None else exclude.take(rows), allowed=allowed)

            own = None if exclude is None else lambda start, stop: ExcludedItems(*exclude.rows(start, stop))
            return TopNSearch(search_on_gpu(self.phi, self.items.table, n, own, allowed, left_over), ROWS_AT_ONCE, serial=True)
        return self._cpu_search(n, n_threads, exclude, allowed)

    def _cpu_search(self, n: int, n_threads: int, exclude: Lists | None, allowed: np.ndarray | None) -> TopNSearch | None:
        step = rows_at_once(self.n_rows, self.n_items, n, n_threads)
        if not step or self.phi.dtype != self.psi.dtype:
            return None
        order, norms = self.items.by_norm
        if allowed is not None:
            order, norms = order[allowed[order]], norms[allowed[order]]
        tiles = TiledSearch(self.phi, self.psi, order, norms, n)

        def search_rows(start: int, stop: int, ids: np.ndarray, best: np.ndarray) -> None:
            own = None if exclude is None else exclude.rows(start, stop)
            tiles.best(start, stop, self._slack(start, stop), own, ids, best)

        return TopNSearch(search_rows, step)


def rank(
    scores: Scores,
    n: int,
    workers: Workers,
    exclude: Lists | None = None,
    candidates: Lists | None = None,
    allowed: np.ndarray | None = None,
    advance: Callable[[int], Any] | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """The n items with the highest scores in each row, best first; ties go to the smaller item.

    Parameters
    ----------
    scores : Scores
    exclude, candidates : Lists, optional
        Items of each row that are not ranked; the only items of each row that are.
    allowed : array of booleans, optional
        Whether each item may be ranked in any row.
    advance : callable, optional
        Called with the number of rows after each chunk, from any thread.

    Returns
    -------
    (ids, scores) : arrays of shape (n_rows, n)
        Padded with -1 and ``-inf`` where there are fewer than n items.
    """
    n_rows, n_items = scores.n_rows, scores.n_items
    denied = np.empty(0, np.int64) if allowed is None else np.flatnonzero(~allowed)
    if allowed is not None and candidates is None and (n_items - len(denied)) * FEW < n_items:
        return _rank_among(np.flatnonzero(allowed), scores, n, workers, exclude, advance)
    ids = np.full((n_rows, n), -1, np.int64)
    best = np.full((n_rows, n), -np.inf, scores.dtype)

    def rank_candidates(start: int, stop: int) -> None:
        assert candidates is not None
        keys = np.unique(candidates.rows(start, stop).keys(n_items))
        if len(denied):
            assert allowed is not None
            keys = keys[allowed[keys % n_items]]
        if exclude is not None:
            keys = np.setdiff1d(keys, exclude.rows(start, stop).keys(n_items), assume_unique=False)
        bounds = np.searchsorted(keys, np.arange(stop - start + 1) * n_items)
        scores.best_listed(start, stop, Lists(bounds[:-1], bounds[1:], keys % n_items), ids[start:stop], best[start:stop])

    def rank_all(start: int, stop: int) -> None:
        block = scores.block(start, stop)
        block[:, denied] = -np.inf
        if exclude is not None:
            without(block, exclude.rows(start, stop))
        scores.best(start, stop, block, ids[start:stop], best[start:stop])

    def search_pruned(start: int, stop: int) -> None:
        assert search is not None
        search.search_rows(start, stop, ids[start:stop], best[start:stop])

    search = scores.search(n, workers.n_threads, exclude, allowed) if candidates is None else None
    rank_chunk = search_pruned if search is not None else rank_all if candidates is None else rank_candidates
    step = search.step if search is not None else max(1, SCORES_AT_ONCE // max(scores.width, 1))

    def rank_chunks(first: int, last: int) -> None:
        for start in range(first * step, min(last * step, n_rows), step):
            stop = min(start + step, n_rows)
            rank_chunk(start, stop)
            if advance is not None:
                advance(stop - start)

    with one_blas_thread():
        (SERIAL if search is not None and search.serial else workers).run(rank_chunks, range(-(-n_rows // step) + 1))
    return ids, best


def _rank_among(
    items: np.ndarray,
    scores: Scores,
    n: int,
    workers: Workers,
    exclude: Lists | None,
    advance: Callable[[int], Any] | None,
) -> tuple[np.ndarray, np.ndarray]:
    """:func:`rank` among these items alone, given in order."""
    if exclude is not None:
        place = np.full(scores.n_items, -1)
        place[items] = np.arange(len(items))
        exclude = exclude._replace(items=place[exclude.items])
    ids, best = rank(scores.of_items(items), n, workers, exclude, advance=advance)
    return np.where(ids >= 0, np.append(items, -1)[ids], -1), best
