"""``Separable``: any k-separable model (Definition 1 of the paper), given by two towers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from everypair.models.mixins import FeatureModel
from everypair.models.tower_model import documented
from everypair.towers import Tower


@documented
@dataclass(repr=False, eq=False)
class Separable(FeatureModel):
    """The inner product of two towers, ``s(c, i) = <phi(c), psi(i)>``: see :mod:`everypair.towers`.

    ``context`` and ``item`` are the towers of the two sides; they must have the same number of dimensions, and share no parameters.
    Parameters are named after their columns, or by the ``name`` of their tower. ``fit`` takes the columns that the towers read.

    Examples
    --------
    The user and the previous item, each with its own item vectors (FPMC):

    >>> import everypair as ep
    >>> from everypair.towers import Concat, Embedding
    >>> model = ep.Separable(context=Concat(Embedding(2, "user"), Embedding(2, "previous")), item=Embedding(4))
    >>> feedback = ep.Feedback([0, 1, 2, 3], [0, 1, 0, 1])
    >>> model.fit(feedback, contexts={"user": [0, 0, 1, 1], "previous": [1, 0, 1, 0]}).phi_.shape
    (4, 4)
    >>> sorted(model.parameters_)
    ['item', 'previous', 'user']
    """

    context: Tower
    item: Tower

    def describe_towers(self, contexts: Any, items: Any) -> tuple[Tower, Tower]:
        return self.context, self.item
