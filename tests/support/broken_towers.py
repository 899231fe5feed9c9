"""Towers that are wrong in one way each."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from everypair.columns.table import Rows
from everypair.engine.vectors import Vectors
from everypair.engine.view import View
from everypair.runtime.parallel import Workers
from everypair.towers import BindContext, Coordinates, Derivatives, Embedding

from bumps import Bumps


class WrongFirst(Bumps):
    def derivatives(self, p: Any, rows: Rows, at: Coordinates) -> Derivatives:
        d = super().derivatives(p, rows, at)
        return d._replace(first=1.1 * d.first) if at.name == "place" else d


class WrongSecond(Bumps):
    def derivatives(self, p: Any, rows: Rows, at: Coordinates) -> Derivatives:
        d = super().derivatives(p, rows, at)
        return d if d.second is None else d._replace(second=-d.second)


class SaysLinear(Bumps):
    def derivatives(self, p: Any, rows: Rows, at: Coordinates) -> Derivatives:
        return super().derivatives(p, rows, at)._replace(second=None)


class WrongWidth(Bumps):
    def derivatives(self, p: Any, rows: Rows, at: Coordinates) -> Derivatives:
        return super().derivatives(p, rows, at)._replace(start=self.factors)


class Forgets(Bumps):
    def coordinates(self, p: Any, rows: Rows) -> Iterator[Coordinates]:
        yield from list(super().coordinates(p, rows))[1:]


class WrongName(Bumps):
    def coordinates(self, p: Any, rows: Rows) -> Iterator[Coordinates]:
        yield Coordinates("hight", 0)


class NoEntry(Bumps):
    def coordinates(self, p: Any, rows: Rows) -> Iterator[Coordinates]:
        for at in super().coordinates(p, rows):
            yield at._replace(entry=None)


class WrongEntry(Bumps):
    def coordinates(self, p: Any, rows: Rows) -> Iterator[Coordinates]:
        for at in super().coordinates(p, rows):
            yield at if at.entry is None else at._replace(entry=np.where(at.entry == 1, 0, at.entry))


class ShortEntry(Bumps):
    def coordinates(self, p: Any, rows: Rows) -> Iterator[Coordinates]:
        for at in super().coordinates(p, rows):
            yield at if at.entry is None else at._replace(entry=at.entry[1:])


class WrongShape(Bumps):
    def phi(self, p: Any, rows: Rows) -> np.ndarray:
        return super().phi(p, rows)[:, 1:]


class Nan(Bumps):
    def phi(self, p: Any, rows: Rows) -> np.ndarray:
        phi = super().phi(p, rows)
        phi[1, 0] = np.nan
        return phi


class ByPosition(Bumps):
    """Depends on where a row stands among the others."""

    def phi(self, p: Any, rows: Rows) -> np.ndarray:
        return super().phi(p, rows) * np.linspace(1.0, 2.0, rows.n)[:, None]


class Unlike(Bumps):
    """Draws numbers of its own."""

    def start(self, rows: Rows, normal: Callable[..., np.ndarray]) -> dict[str, np.ndarray]:
        return {name: value + np.random.default_rng().random() for name, value in super().start(rows, normal).items()}


class KeepsState(Bumps):
    """Learns something that is not among its parameters."""

    def build(self, binding: BindContext) -> None:
        super().build(binding)
        self._offset = np.random.default_rng(int(abs(self.parameter_values["height"][0]) * 1e6)).random()

    def phi(self, p: Any, rows: Rows) -> np.ndarray:
        return super().phi(p, rows) + getattr(self, "_offset", 0.0)


class ChangesItself(Bumps):
    def bind(self, binding: BindContext) -> Any:
        self.seen = True
        return super().bind(binding)


class Nameless(Bumps):
    """Wrong, with an argument that it does not keep: the failure must come through all the same."""

    def __init__(self, width: int) -> None:
        self.factors = self.n_dims = width

    def derivatives(self, p: Any, rows: Rows, at: Coordinates) -> Derivatives:
        d = super().derivatives(p, rows, at)
        return d._replace(first=2 * d.first)


class TinyColumn(Bumps):
    """Wrong where the numbers of a column are tiny, and right otherwise: three times the truth is not close to it."""

    def phi(self, p: Any, rows: Rows) -> np.ndarray:
        return 1.0 + 1e-7 * super().phi(p, rows)

    def derivatives(self, p: Any, rows: Rows, at: Coordinates) -> Derivatives:
        d = super().derivatives(p, rows, at)
        return Derivatives(3e-7 * d.first, None if d.second is None else 1e-7 * d.second, d.start)


class SmallBend(Bumps):
    """A second derivative of the wrong sign, small beside the vectors."""

    def phi(self, p: Any, rows: Rows) -> np.ndarray:
        return 1.0 + 1e-5 * super().phi(p, rows)

    def derivatives(self, p: Any, rows: Rows, at: Coordinates) -> Derivatives:
        d = super().derivatives(p, rows, at)
        return Derivatives(1e-5 * d.first, None if d.second is None else -1e-5 * d.second, d.start)


class ArgumentLikeAMethod(Bumps):
    """Wrong, with an argument that has the name of a method."""

    def __init__(self, factors: int, start: float = 1.0) -> None:
        super().__init__(factors)

    def derivatives(self, p: Any, rows: Rows, at: Coordinates) -> Derivatives:
        d = super().derivatives(p, rows, at)
        return d._replace(first=2 * d.first)


class VanishesAtTheStart(Bumps):
    """An error that is not there where a parameter is as it starts."""

    def start(self, rows: Rows, normal: Callable[..., np.ndarray]) -> dict[str, np.ndarray]:
        return {**super().start(rows, normal), "place": np.zeros(rows.levels("user").n)}

    def derivatives(self, p: Any, rows: Rows, at: Coordinates) -> Derivatives:
        d = super().derivatives(p, rows, at)
        if at.name == "height":
            return d
        return d._replace(first=d.first * (1.0 + rows.levels("user").spread(p["place"]))[:, None])


class Single(Bumps):
    """Computes in less precision than the parameters have."""

    def phi(self, p: Any, rows: Rows) -> np.ndarray:
        return super().phi(p, rows).astype(np.float32)


class Plain(Embedding):
    """An embedding whose sweep is its steps."""

    def bind(self, binding: BindContext) -> Any:
        bound = copy.copy(self)
        bound.rows, bound.settings, bound.parameters = binding.rows, binding.settings, {}
        bound.build(binding)
        return bound

    def sweep(self, view: View) -> None:
        for block in self.blocks:
            self.step(view, block)


class Uphill(Plain):
    def step(self, view: View, block: int) -> None:
        g, h = view.slopes(block)
        delta = 0.1 * g / (h + 1.0)
        view.move(block, delta)
        self._W.value[:, block] += delta


class TellsNothing(Plain):
    def step(self, view: View, block: int) -> None:
        g, h = view.slopes(block)
        self._W.value[:, block] -= 0.1 * (g + self._penalty * self._W.value[:, block]) / (h + self._penalty)


class Lazy(Plain):
    def step(self, view: View, block: int) -> None:
        if block:
            super().step(view, block)


class IgnoresHolding(Plain):
    @property
    def blocks(self) -> range:
        return range(self.n_dims)


class WrongGram(Plain):
    def gram(self, vectors: Vectors, weight: Any, workers: Workers) -> np.ndarray:
        return vectors.gram(1.0, workers)


class WrongNorms(Plain):
    def norms(self, vectors: Vectors, weight: Any, workers: Workers) -> np.ndarray:
        return vectors.norms(1.0, workers)


class TurnsBack(Plain):
    def rotate(self, at: slice, Q: np.ndarray, workers: Workers) -> None:
        super().rotate(at, Q.T, workers)


class ByThreads(Plain):
    def step(self, view: View, block: int) -> None:
        super().step(view, block)
        if view.workers.n_threads == 3 and block == 0:
            view.slopes(0)
            view.move(0, np.full(view.n_rows, 1e-12))
            self._W.value[:, 0] += 1e-12


class WrongVectorsByRow(Plain):
    def vectors_by_row(self) -> Any:
        return lambda index: self._W.value[: len(index)]


class WrongDimensions(Plain):
    def dimensions(self, rows: Rows, workers: Workers) -> Any:
        return lambda f: self._W.value[:, 0]


class WrongContributions(Plain):
    def contributions(self, rows: Rows, psi: np.ndarray) -> Any:
        return [part._replace(amount=2.0 * part.amount) for part in super().contributions(rows, psi)]
