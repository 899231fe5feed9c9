"""What a sweep of levels works on: the visits of levels to rows and pairs as tasks, the state of events, and the panel."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from everypair.gpu.backend import Backend
from everypair.gpu.levels import LevelField
from everypair.gpu.tasks import Tasks, cut

SUMS = 11 * 32  # numbers of the sums of a piece, as in narrow.cuh


class Panel(NamedTuple):
    """A panel of dimensions from ``first`` on: the other side's Gram in it, and what other dimensions add to ``J phi`` of rows."""

    first: int
    gram: Any
    J_qq: float
    rest: Any
    tiny: float


class EventGroups:
    """The rows of each level where row c has the pair c and no other: levels of few rows whole, others in pieces."""

    def __init__(self, backend: Backend, field: LevelField) -> None:
        self.tasks = Tasks(backend, field.bounds, numbers=SUMS)


class RowGroups:
    """The rows of each level, and their pairs, in pieces.

    Attributes
    ----------
    visits : device array (n, 2)
        Row and pair, level by level.
    of_pairs, of_rows : device arrays
        Tasks; a level's pieces of pairs come before those of its rows.
    levels, bounds, sums : device arrays
        All levels, with the pieces ``bounds[l]`` to ``bounds[l + 1]``, and room for their sums.
    """

    def __init__(self, backend: Backend, field: LevelField, indptr: np.ndarray) -> None:
        rows = field.members_host
        lengths = np.diff(indptr)[rows]
        before = np.concatenate([[0], np.cumsum(lengths)])
        pair = np.arange(before[-1]) + np.repeat(indptr[rows] - before[:-1], lengths)
        pairs, members = cut(before[field.bounds], every=True), cut(field.bounds, every=True)
        pairs.tasks[:, 3] += members.bounds[pairs.owner].astype(np.int32)
        members.tasks[:, 3] += pairs.bounds[members.owner + 1].astype(np.int32)
        self.n_pairs, self.n_rows = len(pairs.tasks), len(members.tasks)
        self.visits = backend.ints(np.stack([np.repeat(rows, lengths), pair], axis=1))
        self.of_pairs, self.of_rows = backend.ints(pairs.tasks), backend.ints(members.tasks)
        self.levels, self.bounds = backend.ints(pairs.long), backend.ints(pairs.bounds + members.bounds)
        self.sums = backend.xp.empty((self.n_pairs + self.n_rows, SUMS), np.float32)


class EventState:
    """Score, :math:`\\phi_q`, t and item of each event side by side, as levels visit events in any order."""

    def __init__(self, xp: Any, scores: Any, phi_q: Any, t: Any, items: Any) -> None:
        n = len(scores)
        self.packed = xp.empty((n, 4), np.float32)
        self.packed[:, 0], self.packed[:, 1], self.packed[:, 2] = scores, phi_q[:n], t[:n]
        self.packed[:, 3] = items.view(np.float32)

    def bring_back(self, scores: Any, phi_q: Any) -> None:
        """Write scores and biases to their own arrays."""
        scores[:] = self.packed[:, 0]
        phi_q[: len(scores)] = self.packed[:, 1]
