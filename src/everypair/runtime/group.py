"""The processes that share a fit: the one place where sums over rows leave a process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np


class GroupError(RuntimeError):
    """The members of a group cannot go on together: one failed, did not answer in time, or asked for another sum."""


class Group:
    """Members that hold different rows of one fit, and the same of everything else: the shards of a data set.

    A sum over rows that are divided among them is complete only as the :meth:`total` over the group. A decision (to stop, to skip
    a rotation, which step comes next) must be the same for all, or some would wait for sums that others never compute: it is either
    made of totals alone, and so is the same by itself, or goes through :meth:`agreed`.

    This class is a group of one member.
    """

    size = 1
    rank = 0
    finished: Any = None  # the state of a fit that others have done, which a fit takes over instead of running

    def total(self, own: np.ndarray) -> np.ndarray:
        """The sum of an array over the group, added in the same order for every member."""
        return own

    def agreed(self, own: bool) -> bool:
        """Whether any member of the group decided so."""
        return own

    def gather(self, own: bytes) -> list[bytes]:
        """What each member says, in their order."""
        return [own]

    @property
    def divided(self) -> bool:
        """Whether rows are divided among several members."""
        return self.size > 1


ALONE = Group()


class _Joined(threading.local):
    group: Group = ALONE


_joined = _Joined()


def current_group() -> Group:
    """The group for which this thread fits a model."""
    return _joined.group


@contextmanager
def joined(group: Group) -> Iterator[None]:
    """Fits of this thread are those of a member of this group."""
    before, _joined.group = _joined.group, group
    try:
        yield
    finally:
        _joined.group = before
