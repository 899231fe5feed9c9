r"""Declarative descriptions of the blocks of a tower's parameters: what an engine needs to know to sweep them itself.

Given everything else, the score of an observed pair (c, i) is linear in the vector of the level that row c has,

.. math:: s(c, i) = \text{const} + \langle w_l, z \rangle, \qquad l = \text{codes}[c],

so that a table of such vectors is swept as the rows of matrix factorization are, over the pairs grouped by level. What differs
between models is the *partner* z that a level meets:

=========== ============================== ====================================================
partner     z                              model
=========== ============================== ====================================================
"other"     :math:`\psi_i`                 MF, MFSI, a sum of towers
"sum"       :math:`\psi_i + \psi_{iq} D_c` FM: also D_c, the sum over the row's other features
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

Table = tuple[np.ndarray, np.ndarray]  # vectors, and which of them each row has


class LevelBlock(NamedTuple):
    """A table of free vectors, one for each level of a column, or for each row.

    Attributes
    ----------
    parameter : Parameter
        Its rows are the vectors (``parameter.by_row``), from ``start`` on.
    levels : Levels, OneHotField or None
        ``levels.codes`` is the level of each row of the side; None: every row has a vector of its own.
    partner : {"other", "sum", "product", "core"}
    modes : tuple of callables
        For "product" and "core": each gives the vectors of another mode as they are now.
    core : callable, optional
        Gives the core as it is now, its axes (other mode, own dimensions, dimensions of phi).
    start : int
    dimension : int
        The dimension of phi that the first entry of a vector belongs to.
    bias : int, optional
        A dimension of phi that a step moves as well: that of the pairwise terms of a factorization machine.
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
    """The weights of a field of features that are not levels: several may be in a row, with values.

    Attributes
    ----------
    parameter : Parameter
        Its rows are the weights of the features, from ``start`` on.
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
    """The core of a Tucker tower: weights of the features ``kron(u, v, ...)``, a slice for each dimension of phi."""

    parameter: Parameter
    modes: tuple[Callable[[Workers], Table], ...]
    dimension: int = 0


Block = LevelBlock | FieldBlock | CoreBlock


def joined(parts: Iterable[Sequence[Block] | None]) -> list[Block] | None:
    """The blocks of several towers; None if one of them cannot describe its own."""
    found: list[Block] = []
    for blocks in parts:
        if blocks is None:
            return None
        found += blocks
    return found


def shifted(blocks: Sequence[Block] | None, dimensions: int) -> list[Block] | None:
    """The same blocks of a tower whose dimensions follow those of others."""
    if blocks is None:
        return None
    return [_shifted(block, dimensions) for block in blocks]


def _shifted(block: Block, dimensions: int) -> Block:
    if not isinstance(block, CoreBlock) and block.bias is not None:
        block = block._replace(bias=block.bias + dimensions)
    return block._replace(dimension=block.dimension + dimensions)
