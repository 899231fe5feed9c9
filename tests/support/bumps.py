"""A tower that is not linear in its parameters, for tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from everypair.columns.table import Rows
from everypair.towers import Coordinates, Derivatives, Smooth


class Bumps(Smooth):
    """``phi_f(user, time) = height_f exp(-(time - place_user)^2)``: nonlinear in the place, shared and private parameters."""

    def __init__(self, factors: int, *, name: str | None = None) -> None:
        self.factors = self.n_dims = factors
        self.name = name

    def start(self, rows: Rows, normal: Callable[..., np.ndarray]) -> dict[str, np.ndarray]:
        return {"height": 1.0 + normal((self.factors,)), "place": normal((rows.levels("user").n,))}

    def _bump(self, p: dict[str, np.ndarray], rows: Rows) -> tuple[np.ndarray, np.ndarray]:
        codes = rows.levels("user").codes
        away = rows.values("time") - np.where(codes >= 0, p["place"][codes], 0.0)
        return away, np.exp(-away * away)

    def phi(self, p: dict[str, np.ndarray], rows: Rows) -> np.ndarray:
        return self._bump(p, rows)[1][:, None] * p["height"]

    def coordinates(self, p: dict[str, np.ndarray], rows: Rows) -> Iterator[Coordinates]:
        for f in range(self.factors):
            yield Coordinates("height", f)
        yield Coordinates("place", slice(None), rows.levels("user").codes)

    def derivatives(self, p: dict[str, np.ndarray], rows: Rows, at: Coordinates) -> Derivatives:
        away, bump = self._bump(p, rows)
        if at.name == "height":
            return Derivatives(bump[:, None], start=at.index)
        there = rows.levels("user").codes >= 0
        first = np.where(there, 2 * away * bump, 0.0)[:, None] * p["height"]
        second = np.where(there, (4 * away * away - 2) * bump, 0.0)[:, None] * p["height"]
        return Derivatives(first, second)
