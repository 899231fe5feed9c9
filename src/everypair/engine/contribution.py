"""A score taken apart: what each feature of a context brings to it."""

from __future__ import annotations

from typing import NamedTuple

FEATURES, EVERY_ITEM, ITEM = "features", "every item", "item"


class Contribution(NamedTuple):
    """A summand of ``<phi(c), psi>``.

    Attributes
    ----------
    columns : tuple of str
        Where it comes from: one column, or several that act together. ``"user.age"`` is a column of the levels of ``"user"``.
    feature : int or None
        Which feature (or level, or row) of the one column; None: all that the columns say of the row.
    amount : float
    kind : str
        ``FEATURES``; ``EVERY_ITEM`` for what would be the same for every item; ``ITEM`` for what is the item's own, whatever the
        context.
    """

    columns: tuple[str, ...]
    feature: int | None
    amount: float
    kind: str = FEATURES
