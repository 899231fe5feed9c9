"""The parameters of a column's levels in a tower: where they are, with other levels, and apart from all others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from everypair.columns.table import Levels, take_rows
from everypair.engine.engine import SIDES
from everypair.engine.parameter import Parameter
from everypair.engine.tower import Tower
from everypair.models.tower_model import TowerModel


class LevelSlots:
    """The places of the parameters of a column's levels in a tower.

    Attributes
    ----------
    slots : list of (Parameter, int)
        A parameter, and its row that belongs to the first level.
    strength : array
        The L2 strength of each entry of a level's parameters, one slot after the other.
    """

    def __init__(self, tower: Tower, column: str) -> None:
        self.slots: list[tuple[Parameter, int]] = []
        strengths: list[np.ndarray] = []
        for parameter in tower.parameters.values():
            offset = 0
            for part in parameter.parts:
                if part.field == column:
                    self.slots.append((parameter, offset))
                    strengths.append(np.full(parameter.by_row[offset].size, part.strength))
                offset += part.size
        self.strength = np.concatenate([np.empty(0), *strengths])

    def read(self, level: int) -> np.ndarray:
        """The parameters of a level."""
        return np.concatenate([parameter.by_row[offset + level].ravel() for parameter, offset in self.slots])

    def write(self, levels: slice, theta: np.ndarray) -> None:
        """Set the parameters of levels: a row of ``theta`` for each, or one for all."""
        at = 0
        for parameter, offset in self.slots:
            rows = parameter.by_row[offset + levels.start : offset + levels.stop]
            size = rows[0].size
            rows[...] = theta[..., at : at + size].reshape(-1, *rows.shape[1:])
            at += size


def reindexed(parameter: Parameter, levels: Mapping[str, np.ndarray]) -> np.ndarray:
    """A copy of a parameter with other levels in some columns.

    ``levels`` has, by column, the previous number of each level, -1 for a new one, whose parameters are zero.
    """
    if not any(part.field in levels for part in parameter.parts):  # the core of a tensor has no rows
        return np.array(parameter.value)
    blocks, offset = [], 0
    for part in parameter.parts:
        block = parameter.by_row[offset : offset + part.size]
        offset += part.size
        index = levels.get(str(part.field))
        if index is not None:
            block = np.where((index >= 0).reshape(-1, *[1] * (block.ndim - 1)), block[np.maximum(index, 0)], 0).astype(block.dtype)
        blocks.append(block)
    result = np.concatenate(blocks)
    return np.array(result.T if parameter.transposed else result, order="C")


def restricted_tower(model: TowerModel, side: str, column: str, levels: np.ndarray) -> Tower:
    """A copy of a model's tower that has only these levels of a column."""
    nothing = np.empty(0, np.int64)
    columns: dict[str, Any] = {
        s: {name: take_rows(values, nothing) for name, values in tower.rows.columns.items()}
        for s, tower in model.state.towers.items()
    }
    if column in columns[side]:
        columns[side][column] = Levels(nothing, len(levels))
    shape: dict[str, int] = dict(zip(SIDES, model.state.shape, strict=True))
    if column == side:  # its rows are the levels
        shape[side] = len(levels)
    parameters = {
        name: reindexed(p, {column: levels}) if s == side else p.value
        for s, tower in model.state.towers.items()
        for name, p in tower.parameters.items()
    }
    given = {s: of_side or None for s, of_side in columns.items()}
    return model.rebuild_towers((shape["context"], shape["item"]), given, parameters, model.unobserved_weight_)[side]


def write_back(tower: Tower, restricted: Tower, column: str, levels: np.ndarray) -> None:
    """Copy the parameters of these levels from a :func:`restricted_tower` to the tower itself."""
    for name, parameter in tower.parameters.items():
        own, new = parameter.by_row, restricted.parameters[name].by_row
        offset = start = 0
        for part, of_new in zip(parameter.parts, restricted.parameters[name].parts, strict=True):
            if part.field == column:
                own[offset + levels] = new[start : start + of_new.size]
            offset, start = offset + part.size, start + of_new.size
