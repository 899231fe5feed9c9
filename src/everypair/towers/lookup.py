"""``Lookup``: a tower over the levels of a column, ``phi(c) = phi(level of c)``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np

from everypair.columns.table import Levels, NewLevels, Rows
from everypair.engine.binding import BindContext
from everypair.engine.blocks import LevelBlock
from everypair.engine.contribution import Contribution
from everypair.engine.dimensions import BIAS, CONSTANT
from everypair.engine.tower import Capabilities, Tower, check_towers
from everypair.engine.vectors import RangeVectors, Vectors
from everypair.engine.view import DerivedView, View
from everypair.kernels.machine_state import G_F, G_Q, H_FF, H_FQ, H_QQ, PHI
from everypair.kernels.sparse import gather_levels, gather_states
from everypair.runtime.group import ALONE
from everypair.runtime.numerics import tiny
from everypair.runtime.parallel import Workers


class Lookup(Tower):
    """Rows with the same level have the same vector, computed by a tower over the levels.

    Parameters
    ----------
    column : str
        A column of levels.
    tower : Tower
        The tower over the levels; it reads the columns of the levels (see :class:`everypair.Levels`).

    Examples
    --------
    Users with attributes, each in several contexts:

    >>> import everypair as ep
    >>> from everypair.towers import Embedding, Linear, Lookup
    >>> users = {"age": [0.2, 0.4, 0.9], "country": [0, 1, 0]}
    >>> contexts = {"user": ep.Levels([0, 1, 1, 2], columns=users)}
    >>> model = ep.Separable(context=Lookup("user", Linear(2, "age", "country")), item=Embedding(2))
    >>> model.fit(ep.Feedback([0, 1, 2, 3], [0, 1, 1, 0]), contexts=contexts).phi_.shape
    (4, 2)
    """

    def __init__(self, column: str, tower: Tower) -> None:
        check_towers("Lookup", (tower,))
        self.column, self.towers = column, (tower,)
        self.n_dims = tower.n_dims
        self._unobserved: float | None = None

    @property
    def tower(self) -> Tower:
        return self.towers[0]

    def build(self, binding: BindContext) -> None:
        self.levels = binding.rows.levels(self.column)
        self.towers = (self.tower.bind(binding.levels(self.column, self._unobserved)),)

    def bind_complete(self, binding: BindContext, unobserved: float) -> Lookup:
        """As :meth:`bind`, for contexts that are all combinations of levels; ``unobserved`` is the weight of a level there."""
        lookup = Lookup(self.column, self.tower)
        lookup._unobserved = unobserved
        return cast(Lookup, lookup.bind(binding))

    def evaluate(self, rows: Rows, workers: Workers) -> Vectors:
        levels, inner = self._read(rows)
        return Vectors(rows=levels.spread(self.tower.evaluate(inner, workers).rows))

    def contributions(self, rows: Rows, psi: np.ndarray) -> list[Contribution]:
        """The contributions of the level; names of its columns have the column as a prefix, such as ``"user.age"``."""
        levels, inner = self._read(rows)
        if not inner.has_rows:
            return super().contributions(rows, psi)
        level = levels.codes[0]
        if level < 0:
            return []

        def prefixed(name: str) -> str:
            return f"{self.column}.{name}" if name in inner.columns else self.column

        terms = self.tower.contributions(inner.take(np.array([level])), psi)
        return [term._replace(columns=tuple(map(prefixed, term.columns))) for term in terms]

    def dimensions(self, rows: Rows, workers: Workers) -> Callable[[int], np.ndarray]:
        levels, inner = self._read(rows)
        of_levels = self.tower.dimensions(inner, workers)
        return lambda f: levels.spread(of_levels(f))

    @property
    def capabilities(self) -> Capabilities:
        by_levels = self.settings.block_size == 1 and self.describe_blocks() is not None
        inner = self.tower.capabilities
        plain = not inner.kept
        return super().capabilities._replace(
            rotations=inner.rotations, lazy=inner.lazy, kept=inner.kept, by_levels=by_levels,
            divided=not self.levels.local or (inner.divided and plain), replicated=inner.replicated and plain,
        )  # fmt: skip

    def range_vectors(self, first: int, last: int) -> RangeVectors:
        table = self.levels.padded(self.table()[:, first:last])
        return lambda start, stop: np.take(table, self.levels.codes[start:stop], axis=0)

    def vectors_by_row(self) -> Callable[[np.ndarray], np.ndarray]:
        table = self.levels.padded(self.table())
        return lambda index: table[self.levels.codes[index]]

    def _read(self, rows: Rows) -> tuple[Levels, Rows]:
        """The levels of rows, and the rows of the tower over levels: those of the fit, unless these rows have new levels."""
        levels = rows.levels(self.column)
        return (levels.table, levels.described) if isinstance(levels, NewLevels) else (levels, self.tower.rows)

    @property
    def blocks(self) -> Sequence[Any]:
        return self.tower.blocks

    def step(self, view: View, block: Any) -> None:
        self.tower.step(LevelView(view, self), block)

    def sweep(self, view: View, implicit: np.ndarray | None = None) -> None:
        """Level by level, where the view can: the same steps as dimension by dimension."""
        for block in self.describe_blocks() or ():
            if view.sweep_levels(block, self.settings, implicit):
                return
        self.sweep_by_dimension(view, implicit)

    def sweep_by_dimension(self, view: View, implicit: np.ndarray | None = None) -> None:
        """Sweep the tower over the levels: gradients and curvatures of a level are sums over its rows."""
        self.tower.sweep(LevelView(view, self, implicit))

    def describe_blocks(self) -> list[LevelBlock] | None:
        """One table over the levels of the column; None if the tower over the levels is not a single table."""
        match self.tower.describe_blocks():
            case []:
                return []
            case [LevelBlock(levels=None, partner="other") as block]:
                return [block._replace(levels=self.levels)]
        return None

    def rotate(self, at: slice, Q: np.ndarray, workers: Workers) -> None:
        self.tower.rotate(at, Q, workers)

    # for all combinations of levels: each level once, regardless of the rows

    def table(self) -> np.ndarray:
        """The vectors of the levels."""
        return self.tower.vectors().rows

    def level_gram(self) -> np.ndarray:
        """``sum over levels of u u'``."""
        u = self.table().astype(np.float64)
        return u.T @ u

    # for requests

    @property
    def dimension_kinds(self) -> tuple[str, ...]:
        """Those of its tower; but a constant is zero in rows without a level."""
        return tuple(BIAS if kind == CONSTANT else kind for kind in self.tower.dimension_kinds)

    def row_embedding(self) -> None:
        return None


class LevelView(DerivedView):
    """The view of a tower over levels: gradients and curvatures are sums over the rows of a level.

    ``implicit`` is for contexts that are all combinations of levels: a matrix M, the same for all levels, such that the implicit
    part of a level is ``u' M u``.
    """

    def __init__(self, view: View, lookup: Lookup, implicit: np.ndarray | None = None) -> None:
        super().__init__(view, lookup.levels.n)
        self._group = ALONE if lookup.levels.local else view.workers.group  # levels that are not local have rows elsewhere, too
        if self._group.divided:
            self.workers = view.workers.alone()
        self._levels = lookup.levels
        self._implicit = None if implicit is None else (implicit, lookup.tower.vectors(view.workers))

    def slopes(self, f: int) -> tuple[np.ndarray, np.ndarray]:
        g, h = self._gather(*self._view.slopes(f))
        if self._implicit is not None:
            M, u = self._implicit
            self._add(g, h, M[f] @ u.dims, M[f, f])
        return g.astype(self.dtype), h.astype(self.dtype)

    def move(self, f: int, delta: np.ndarray) -> None:
        self._advance(slice(f, f + 1), delta[None, :])
        self._view.move(f, self._spread(delta))

    def slopes_along(self, tangent: np.ndarray, at: int = 0) -> tuple[np.ndarray, np.ndarray]:
        g, h = self._gather(*self._view.slopes_along(self._spread(tangent), at))
        if self._implicit is not None:
            M, u = self._implicit
            t, dims = tangent.astype(np.float64), slice(at, at + tangent.shape[1])
            Mt = t @ M[dims]
            self._add(g, h, np.einsum("cf,fc->c", Mt, u.dims), np.einsum("cf,cf->c", Mt[:, dims], t))
        return g.astype(self.dtype), h.astype(self.dtype)

    def move_along(self, tangent: np.ndarray, delta: np.ndarray, at: int = 0) -> None:
        self._advance(slice(at, at + tangent.shape[1]), tangent.T * delta)
        self._view.move_along(self._spread(tangent), self._spread(delta), at)

    def slopes_pair(self, f: int, q: int, phi: np.ndarray) -> np.ndarray:
        indptr, rows = self._levels.groups
        state = np.zeros((self.n_rows, 8), np.float64)
        row_states = self._view.slopes_pair(f, q, self._spread(phi))
        self.workers.run(gather_states, self.workers.split(indptr), indptr, rows, row_states, state)
        state = self._group.total(state)
        if self._implicit is not None:
            M, u = self._implicit
            self._add(state[:, G_F], state[:, H_FF], M[f] @ u.dims, M[f, f])
            self._add(state[:, G_Q], state[:, H_QQ], M[q] @ u.dims, M[q, q])
            state[:, H_FQ] += M[f, q]
        state[:, PHI] = phi
        return state.astype(self.dtype)

    def move_pair(self, f: int, q: int, delta_f: np.ndarray, delta_q: np.ndarray) -> None:
        self._advance(slice(f, f + 1), delta_f[None, :])
        self._advance(slice(q, q + 1), delta_q[None, :])
        self._view.move_pair(f, q, self._spread(delta_f), self._spread(delta_q))

    def _advance(self, dims: slice, moved: np.ndarray) -> None:
        """Update the vectors of the levels, if the implicit part needs them."""
        if self._implicit is not None:
            _, u = self._implicit
            u.dims[dims] += moved
            u.dims_changed()

    def _spread(self, of_levels: np.ndarray) -> np.ndarray:
        return self._levels.spread(of_levels.astype(self.dtype, copy=False))

    def _gather(self, g: np.ndarray, h: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        indptr, rows = self._levels.groups
        level_g, level_h = np.empty(self.n_rows, np.float64), np.empty(self.n_rows, np.float64)
        self.workers.run(gather_levels, self.workers.split(indptr), indptr, rows, g, h, level_g, level_h)
        both = self._group.total(np.stack([level_g, level_h]))
        return both[0], both[1]

    def _add(self, g: np.ndarray, h: np.ndarray, slope: np.ndarray, curvature: Any) -> None:
        """Add the implicit part; where the curvature is lost in rounding, set gradient and curvature to zero."""
        size = np.abs(h) + curvature
        g += slope
        h += curvature
        lost = h <= tiny(self.dtype) * size
        g[lost] = h[lost] = 0.0
