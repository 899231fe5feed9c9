"""What the order of rows says, where no timestamps order the events.

Exports are often sorted by an id. A split or a recipe that takes such an order for that of time gives plausible figures of the
wrong protocol, so it must be noticed.
"""

from __future__ import annotations

import numpy as np

from everypair.runtime.warn import warn_caller
from everypair.runtime.wording import call

UNSORTED = "unsorted"
BY_ITEM, BY_USER, BY_ITEM_WITHIN_USERS = "sorted by item", "sorted by user", "sorted by item within each user"
KINDS = (UNSORTED, BY_ITEM, BY_USER, BY_ITEM_WITHIN_USERS)
EVIDENCE = 20  # adjacent rows: in a random order so many agree once in a million tables
NEARLY_ALL = 0.9
ALMOST_WITHOUT_EXCEPTION = 0.99  # in time, too, items of a user may mostly rise: new items get new numbers


class RowOrderWarning(UserWarning):
    """The order of rows was taken for the order of time, but rows are sorted by an id."""


def row_order(rows: tuple[np.ndarray, np.ndarray], by_user: tuple[np.ndarray, np.ndarray]) -> str:
    """How the rows of a table are sorted.

    Parameters
    ----------
    rows, by_user : pairs of arrays
        The codes of user and item, in the order of rows, and with each user's rows together.
    """
    user, item = rows
    if _grouped(item):
        return BY_ITEM
    if _sorted_within(*by_user):
        return BY_ITEM_WITHIN_USERS
    return BY_USER if _grouped(user) else UNSORTED


def worse(one: str | None, other: str | None) -> str | None:
    """The order of two tables together: that of the one which is more in doubt."""
    return other if one in (None, UNSORTED) and other is not None else one


def _grouped(codes: np.ndarray) -> bool:
    """Whether nearly all rows of a code stand together; not all, as a table may be several exports, one after the other."""
    present = np.count_nonzero(np.bincount(codes))
    together, possible = np.count_nonzero(codes[1:] == codes[:-1]), len(codes) - present
    return bool(present > 1 and possible >= EVIDENCE and together >= NEARLY_ALL * possible)


def _sorted_within(user: np.ndarray, item: np.ndarray) -> bool:
    """Whether the items of nearly all users rise, or those of nearly all fall."""
    rises = np.diff(item)[user[1:] == user[:-1]]
    steps = np.count_nonzero(rises)
    up = np.count_nonzero(rises > 0)
    return bool(steps >= EVIDENCE and max(up, steps - up) >= ALMOST_WITHOUT_EXCEPTION * steps)


def warn_if_sorted(order: str | None, what: str) -> None:
    """Warn that ``what`` takes the order of rows for that of time, where rows are sorted by an id."""
    if order is None or order == UNSORTED:
        return
    warn_caller(
        f"there are no timestamps, so {what}; but rows are {order}, which is hardly the order of time: figures would be those of "
        f"another protocol. Give {call('Dataset', 'timestamp')}; or {call('Dataset', 'chronological', True)} if each user's rows "
        f"are in the order of time.",
        RowOrderWarning,
    )
