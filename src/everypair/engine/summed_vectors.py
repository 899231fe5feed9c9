"""What is made of the vectors of rows that are sums of few: Grams, scores and half norms, with one pass over the rows each."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np

from everypair.engine.level_parts import MOST, LevelParts
from everypair.kernels import row_parts
from everypair.kernels.row_parts import RowParts
from everypair.runtime.numerics import Values
from everypair.runtime.parallel import Workers

GRAM_ROWS = 65_536  # rows whose sums are multiplied with a table at a time: fixed, because rounding depends on it


class SummedVectors:
    """Vectors in k dimensions as sums of the parts of their rows; ``beside`` are further dimensions, stored one by one.

    Parameters
    ----------
    parts : LevelParts
    W : array
        A row for each level of all fields.
    workers : Workers
    """

    def __init__(self, parts: LevelParts, W: np.ndarray, workers: Workers) -> None:
        self._parts, self._k, self._workers, self._dtype = parts, W.shape[1], workers, W.dtype
        self._tables = parts.tables(W)
        none = np.zeros(1, np.uint32), 0, np.zeros((1, self._tables[0].shape[1]), W.dtype)
        (codes, table), *others = zip(parts.codes, self._tables, strict=True)
        more = [(codes, 1, table) for codes, table in others] + [none] * (MOST - 1 - len(others))
        self._of_rows = RowParts(codes, table, *more[0], *more[1])

    def add_half_norms(self, out: np.ndarray) -> None:
        """``out += |phi(c)|^2 / 2``."""
        self._workers.run(row_parts.add_half_norms, self._workers.even(len(out)), self._of_rows, out)

    def score(
        self,
        indptr: np.ndarray,
        indices: np.ndarray,
        psi: np.ndarray,
        beside: Sequence[np.ndarray],
        at: Sequence[int],
        scores: np.ndarray,
    ) -> None:
        """Products of rows and their partners: vectors meet the first dimensions of ``psi``, what is beside those ``at``."""
        run, bounds = self._workers.run, self._workers.split(indptr)
        run(row_parts.score, bounds, indptr, indices, psi, self._of_rows, scores)
        for phi_f, f in zip(beside, at, strict=True):
            run(row_parts.add_to_scores, bounds, indptr, indices, np.ascontiguousarray(psi[:, f]), phi_f, scores)

    def gram(self, beside: Sequence[np.ndarray], weight: Values) -> np.ndarray:
        r"""``J``, the dimensions beside after those of the vectors.

        With :math:`T_a` the table of part a, :math:`X_a` its levels by row and M the weights, the vectors' block is
        :math:`\sum_{a, b} T_a' (X_a' M X_b) T_b`: a sum over rows adds up vectors of b by the level of a, and only tables are
        multiplied. For a = b that sum is a number for each level.
        """
        k, numbers, n_rows = self._k, self._stack(beside), len(self._parts.codes[0])
        tables = [table[:, :k].astype(np.float64) for table in self._tables]

        def some(start: int, stop: int) -> np.ndarray:
            total = np.zeros((k + len(beside), k + len(beside)))
            x = numbers[:, start:stop].astype(np.float64)
            total[k:, k:] = 0.5 * (x * weight if np.ndim(weight) == 0 else x * weight[start:stop]) @ x.T  # type: ignore[index]
            order = sorted(range(len(tables)), key=lambda part: np.ptp(self._parts.codes[part][start:stop]))
            for place, a in enumerate(order):  # the part with the fewest levels in these rows first
                codes = self._parts.codes[a]
                low, high = int(codes[start:stop].min()), int(codes[start:stop].max()) + 1
                width = self._tables[a].shape[1] if place + 1 < len(order) else 0
                sums = np.zeros((high - low, width + len(beside)))
                for b in order[place + 1 :]:
                    row_parts.sum_vectors(start, stop, codes, low, self._parts.codes[b], self._tables[b], weight, sums)
                row_parts.sum_numbers(start, stop, codes, low, numbers, weight, sums)
                products = tables[a][low:high].T @ sums
                if width:
                    total[:k, :k] += products[:, :k]
                total[:k, k:] += products[:, width:]
            return total

        total = reduce(np.add, self._workers.chunks(n_rows, some, GRAM_ROWS))
        for table, of_levels in zip(tables, self._parts.weights(weight), strict=True):
            total[:k, :k] += 0.5 * (table * of_levels[:, None]).T @ table
        return self._workers.group.total(total + total.T)

    def _stack(self, beside: Sequence[np.ndarray]) -> np.ndarray:
        return np.array(beside, self._dtype).reshape(len(beside), len(self._parts.codes[0]))
