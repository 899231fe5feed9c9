"""The processes that share a fit: the one place where sums over rows leave a process."""

from __future__ import annotations

import numpy as np


class Group:
    """Processes that hold different rows of one fit, and the same of everything else.

    A sum over rows that are divided among them is complete only as the :meth:`total` over the group. A decision (to stop, to skip
    a rotation, which step comes next) must be the same for all, or some would wait for sums that others never compute: it is either
    made of totals alone, and so is the same by itself, or goes through :meth:`agreed`.

    This class is a group of one process.
    """

    size = 1

    def total(self, own: np.ndarray) -> np.ndarray:
        """The sum of an array over the group, added in the same order by every process."""
        return own

    def agreed(self, own: bool) -> bool:
        """Whether any process of the group decided so."""
        return own


ALONE = Group()
