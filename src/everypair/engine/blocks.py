r"""Descriptions, as data, of the blocks of a tower's parameters: with these an engine can sweep them without the tower.

With everything else fixed, the score of an observed pair (c, i) is linear in the vector of the level of row c,

.. math:: s(c, i) = \text{const} + \langle w_l, z \rangle, \qquad l = \text{codes}[c],

so a table of such vectors is swept like the rows of matrix factorization, over the pairs grouped by level. Models differ in the
*partner* z that a level's vector is multiplied with:

=========== ============================== ====================================================
partner     z                              model
=========== ============================== ====================================================
"other"     :math:`\psi_i`                 MF, MFSI, a sum of towers
"sum"       :math:`\psi_i + \psi_{iq} D_c` FM: D_c is the sum over the row's other features
"product"   :math:`v * \psi_i` elementwise PARAFAC: v of the other modes
"core"      :math:`(B \times v)\, \psi_i`  Tucker: the core, contracted with v
=========== ============================== ====================================================
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from everypair.columns.fields import Field, OneHotField
from everypair.columns.table import Levels
from everypair.engine.parameter import Parameter
from everypair.runtime.parallel import Workers

OTHER, SUM, PRODUCT, CORE = "other", "sum", "product", "core"

Table = tuple[np.ndarray, np.ndarray]  # vectors, and the number of each row's vector


class LevelBlock(NamedTuple):
    """A table of free vectors, one for each level of a column, or for each row.

    Attributes
    ----------
    parameter : Parameter
        The vectors are its rows (of ``parameter.by_row``) from ``start`` on.
    levels : Levels, OneHotField or None
        ``levels.codes`` is the level of each row of the side; None: one vector per row.
    partner : {"other", "sum", "product", "core"}
    modes : tuple of callables
        For "product" and "core": each returns the current vectors of another mode.
    core : callable, optional
        Returns the current core, with axes (other modes, dimensions of this mode, dimensions of phi).
    start : int
    dimension : int
        The dimension of phi of the first entry of a vector.
    bias : int, optional
        For "sum": the dimension of phi that holds the pairwise terms of a factorization machine, which a step moves too.
    """

    parameter: Parameter
    levels: Levels | OneHotField | None = None
    partner: str = OTHER
    modes: tuple[Callable[[Workers], Table], ...] = ()
    core: Callable[[], np.ndarray] | None = None
    start: int = 0
    dimension: int = 0
    bias: int | None = None


class FieldBlock(NamedTuple):
    """The weights of a field of features that is not one-hot: a row may have several features, with values.

    Attributes
    ----------
    parameter : Parameter
        The weights of the features are its rows from ``start`` on.
    field : Field
    partner : {"other", "sum"}
    start, dimension, bias : int
        As for :class:`LevelBlock`.
    """

    parameter: Parameter
    field: Field
    partner: str = OTHER
    start: int = 0
    dimension: int = 0
    bias: int | None = None


class CoreBlock(NamedTuple):
    """The core of a Tucker tower: the weights of the features ``kron(u, v, ...)``, one slice per dimension of phi."""

    parameter: Parameter
    modes: tuple[Callable[[Workers], Table], ...]
    dimension: int = 0


Block = LevelBlock | FieldBlock | CoreBlock


def joined(by_tower: Iterable[Sequence[Block] | None]) -> list[Block] | None:
    """The blocks of several towers in one list; None if a tower cannot describe its blocks."""
    joint: list[Block] = []
    for blocks in by_tower:
        if blocks is None:
            return None
        joint += blocks
    return joint


def shifted(blocks: Sequence[Block] | None, dimensions: int) -> list[Block] | None:
    """The blocks of a tower whose first dimension is dimension ``dimensions`` of phi."""
    if blocks is None:
        return None
    return [_shifted(block, dimensions) for block in blocks]


def _shifted(block: Block, dimensions: int) -> Block:
    if not isinstance(block, CoreBlock) and block.bias is not None:
        block = block._replace(bias=block.bias + dimensions)
    return block._replace(dimension=block.dimension + dimensions)
