"""How the rows of a side are shared out to the warps of a GPU."""

from __future__ import annotations

import numpy as np

from everypair.gpu.backend import Backend

PIECE = 512  # pairs of a row that a warp takes at most
WARPS = 4  # warps of a block, as in warp.cuh
NUMBERS, ADDERS = 25 * 32, 160  # of the moments of a piece, and threads that add them up, as in moments.cuh


class Tasks:
    """Rows and the pieces of long rows, the longest first, so that no warp begins a long one at the end.

    Pieces have a fixed size and their sums are added up in their order: results have the same bits in every run.

    Attributes
    ----------
    tasks : device array (n, 4)
        Row, first pair, number of pairs, and the number of the piece (-1: all of a row). The pieces come first.
    long, bounds, owner : device arrays
        Long rows; long row r has the pieces ``bounds[r]`` to ``bounds[r + 1]``; the long row of each piece.
    moments, moves : device arrays
        Room for those of pieces, and of long rows.
    """

    def __init__(self, backend: Backend, indptr: np.ndarray, piece: int = PIECE) -> None:
        lengths = np.diff(indptr)
        long = np.flatnonzero(lengths > piece)
        n_pieces = -(-lengths[long] // piece)
        bounds = np.concatenate([[0], np.cumsum(n_pieces)])
        owner = np.repeat(np.arange(len(long)), n_pieces)
        first = indptr[long][owner] + (np.arange(len(owner)) - bounds[owner]) * piece
        n = np.minimum(piece, indptr[long + 1][owner] - first)
        short = np.flatnonzero(lengths <= piece)
        short = short[np.argsort(-lengths[short], kind="stable")]
        tasks = np.empty((len(owner) + len(short), 4), np.int32)
        tasks[: len(owner)] = np.stack([long[owner], first, n, np.arange(len(owner))], axis=1)
        tasks[len(owner) :] = np.stack([short, indptr[short], lengths[short], np.full(len(short), -1)], axis=1)
        self.n, self.n_long, self.n_pieces, self.n_rows = len(tasks), len(long), len(owner), len(lengths)
        self.tasks, self.long, self.bounds, self.owner = map(backend.ints, (tasks, long, bounds, owner))
        self._row = tasks[:, 0]
        self.moments = backend.xp.empty((max(self.n_pieces, 1), NUMBERS), np.float32)
        self.moves = backend.xp.empty((max(self.n_long, 1), 32), np.float32)

    def sums_of_rows(self, sums: np.ndarray) -> np.ndarray:
        """Sums of tasks, added up by row."""
        return np.bincount(self._row, sums, self.n_rows)


def blocks(n: int) -> int:
    """Blocks of WARPS warps, with a warp for each of n tasks."""
    return -(-n // WARPS)
