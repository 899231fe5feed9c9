"""``Contribution``: one summand of a score, attributed to features of the context."""

from __future__ import annotations

from typing import NamedTuple

FEATURES, EVERY_ITEM, ITEM = "features", "every item", "item"


class Contribution(NamedTuple):
    """A summand of ``<phi(c), psi>``.

    Attributes
    ----------
    columns : tuple of str
        Its source: one column, or several that interact. ``"user.age"`` is a column of the levels of ``"user"``.
    feature : int or None
        The feature (or level, or row) of the one column; None: all features of the columns together.
    amount : float
    kind : str
        ``FEATURES``; ``EVERY_ITEM`` for a term that is the same for every item; ``ITEM`` for a term of the item that does not
        depend on the context.
    """

    columns: tuple[str, ...]
    feature: int | None
    amount: float
    kind: str = FEATURES
