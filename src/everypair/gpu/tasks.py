"""How the rows of a side are shared out to the warps of a GPU."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from everypair.gpu.backend import Backend

PIECE = 512  # pairs of a row that a warp takes at most, but for rows that would have too many pieces
MOST_PIECES = 256
WARPS = 4  # warps of a block, as in warp.cuh
NUMBERS, ADDERS = 25 * 32, 160  # of the moments of a piece, and threads that add them up, as in moments.cuh


class Cut(NamedTuple):
    """Compressed rows as tasks of warps.

    Attributes
    ----------
    tasks : array (n, 4)
        Row, first pair, number of pairs, and the number of the piece (-1: all of a row). The pieces come first, then the longest
        rows, so that no warp begins a long one at the end.
    long, bounds, owner : arrays
        Rows that are cut; cut row r has the pieces ``bounds[r]`` to ``bounds[r + 1]``; the cut row of each piece.
    """

    tasks: np.ndarray
    long: np.ndarray
    bounds: np.ndarray
    owner: np.ndarray


def cut(indptr: np.ndarray, every: bool = False) -> Cut:
    """Pieces of long rows, of a fixed size, and all other rows whole.

    With ``every``, all rows are cut, those without pairs into one piece. Sums of pieces are added up in their order: results have
    the same bits in every run.
    """
    lengths = np.diff(indptr)
    long = np.arange(len(lengths)) if every else np.flatnonzero(lengths > PIECE)
    piece = np.maximum(PIECE, -(-lengths[long] // MOST_PIECES // 32) * 32)  # adding up pieces takes time, too
    n_pieces = np.maximum(-(-lengths[long] // piece), 1)
    bounds = np.concatenate([[0], np.cumsum(n_pieces)])
    owner = np.repeat(np.arange(len(long)), n_pieces)
    first = indptr[long][owner] + (np.arange(len(owner)) - bounds[owner]) * piece[owner]
    n = np.minimum(piece[owner], indptr[long + 1][owner] - first)
    short = np.empty(0, np.int64) if every else np.flatnonzero(lengths <= PIECE)
    short = short[np.argsort(-lengths[short], kind="stable")]
    tasks = np.empty((len(owner) + len(short), 4), np.int32)
    tasks[: len(owner)] = np.stack([long[owner], first, n, np.arange(len(owner))], axis=1)
    tasks[len(owner) :] = np.stack([short, indptr[short], lengths[short], np.full(len(short), -1)], axis=1)
    return Cut(tasks, long, bounds, owner)


class Tasks:
    """The rows of a side on a device, shared out to warps: see :class:`Cut`.

    Attributes
    ----------
    moments, moves : device arrays
        Room for those of pieces (``numbers`` each), and of rows that are cut.
    """

    def __init__(self, backend: Backend, indptr: np.ndarray, numbers: int = NUMBERS) -> None:
        found = cut(indptr)
        self.n, self.n_long, self.n_pieces, self.n_rows = len(found.tasks), len(found.long), len(found.owner), len(indptr) - 1
        self.tasks, self.long, self.bounds, self.owner = map(backend.ints, found)
        self._row = found.tasks[:, 0]
        self.moments = backend.xp.empty((max(self.n_pieces, 1), numbers), np.float32)
        self.moves = backend.xp.empty((max(self.n_long, 1), 32), np.float32)

    def sums_of_rows(self, sums: np.ndarray) -> np.ndarray:
        """Sums of tasks, added up by row."""
        return np.bincount(self._row, sums, self.n_rows)


def blocks(n: int) -> int:
    """Blocks of WARPS warps, with a warp for each of n tasks."""
    return -(-n // WARPS)
