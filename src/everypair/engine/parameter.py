"""``Parameter``: an array that a tower learns, with the L2 weights of its entries."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from everypair.runtime.numerics import Values, pairwise_sum


class FieldRows(NamedTuple):
    """Rows of a parameter that belong to one field: their number, and lambda before it is scaled by their weight."""

    field: str | None
    size: int
    strength: float


@dataclass
class Parameter:
    """An array of parameters, and the L2 weight ``lambda_theta`` of its entries (broadcast against them).

    Fixed parameters are not stepped on, not rotated, and not part of L2.
    """

    value: np.ndarray
    penalty: Values = 0.0
    fixed: bool = False
    transposed: bool = False  # stored as (dimensions, features), shown as (features, dimensions)
    parts: list[FieldRows] = field(default_factory=list)
    local: np.ndarray | bool = False  # which rows no other member of a group has: all, none, or those marked

    def l2_apart(self) -> tuple[float, float]:
        """:meth:`l2` of the rows that this member of a group alone has, and of the others."""
        if isinstance(self.local, bool):
            return (self.l2(), 0.0) if self.local else (0.0, self.l2())
        own, others = (self._rows(mask).l2() for mask in (self.local, ~self.local))
        return own, others

    def _rows(self, mask: np.ndarray) -> Parameter:
        """Some of the rows, as a parameter of their own."""
        penalty = self.penalty if np.ndim(self.penalty) == 0 else np.ravel(self.penalty)[mask]
        penalty = penalty if np.ndim(penalty) == 0 or self.value.ndim == 1 else penalty[:, None]  # type: ignore[index]
        return Parameter(np.ascontiguousarray(self.by_row[mask]), penalty, self.fixed)

    def l2(self) -> float:
        if self.fixed:
            return 0.0
        if np.ndim(self.penalty) == 0:
            rows = self.value if self.value.ndim == 2 else self.value.reshape(1, -1)
            return float(self.penalty * np.sum(np.einsum("rf,rf->r", rows, rows), dtype=np.float64))
        values = self.value.reshape(-1)  # parameters are contiguous
        penalty = np.broadcast_to(self.penalty, self.value.shape)
        width = max(1, values.size // max(1, len(self.value)))

        def weighted_squares(start: int, stop: int) -> np.ndarray:
            rows = slice(start // width, -(-stop // width))
            weights = penalty[rows].reshape(-1)[start - rows.start * width : stop - rows.start * width]
            return weights * np.square(values[start:stop], dtype=np.float64)

        return pairwise_sum(weighted_squares, values.size)

    @property
    def by_row(self) -> np.ndarray:
        """A writable view of the values with a row per feature (or row, or level), in the order of ``parts``."""
        return self.value.T if self.transposed else self.value

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape users see."""
        return self.value.shape[::-1] if self.transposed else self.value.shape

    def show(self) -> np.ndarray:
        """A copy, in the shape users see."""
        return np.array(self.value.T if self.transposed else self.value, order="C")

    def load(self, value: Any) -> None:
        value = np.asarray(value, self.value.dtype)
        self.value[...] = value.T if self.transposed else value
