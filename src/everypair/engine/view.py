"""``View``, the interface between the loss, which knows no model, and the towers, which know no loss."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np

from everypair.engine.binding import StepSettings
from everypair.engine.blocks import SUM, Block, FieldBlock, LevelBlock, shifted
from everypair.engine.vectors import Vectors
from everypair.kernels.machine_state import G_F, G_Q, H_FF, H_FQ, H_QQ, PHI
from everypair.runtime.parallel import Workers


class View(ABC):
    r"""The loss as a quadratic in the vector of each row of a tower, with everything else fixed.

    Moving a row's vector by t changes the loss by exactly :math:`2 \langle g, t \rangle + t' A t`. A view gives half the gradient
    and half the curvature: :meth:`slopes` for one dimension, :meth:`slopes_pair` for two, :meth:`slopes_along` for a direction
    across several, which may differ from row to row. After asking for slopes, a tower calls the ``move`` of the same name before it
    asks for other slopes, so that the view can update everything that depends on the vectors. Callers may overwrite the arrays that
    slopes return; they are valid until the next call.

    The view of a whole side is :class:`everypair.engine.objective.Side`. A combinator derives the views of its parts from its own:
    the same problem, in the part's rows and dimensions.
    """

    workers: Workers
    dtype: np.dtype
    n_rows: int
    own: Vectors | None = None  # the tower's vectors, if the view stores them

    @abstractmethod
    def slopes(self, f: int) -> tuple[np.ndarray, np.ndarray]:
        """Half gradient and half curvature of the loss with respect to ``phi_f`` of each row."""

    @abstractmethod
    def move(self, f: int, delta: np.ndarray) -> None:
        """``phi_f += delta``."""

    @abstractmethod
    def slopes_along(self, tangent: np.ndarray, at: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """Half gradient and half curvature for moving each row's vector along ``tangent[c]``, whose first entry belongs to
        dimension ``at``."""

    @abstractmethod
    def move_along(self, tangent: np.ndarray, delta: np.ndarray, at: int = 0) -> None:
        """``phi(c) += delta_c tangent(c)``, with the tangent of the last :meth:`slopes_along`."""

    def slopes_pair(self, f: int, q: int, phi: np.ndarray) -> np.ndarray:
        """Half gradients and half curvatures for two dimensions, as the state of :mod:`everypair.kernels.machine_state`; ``phi`` is
        the tower's current ``phi_f``."""
        state = np.zeros((self.n_rows, 8), self.dtype)
        g_f, h_ff = (x.copy() for x in self.slopes(f))
        g_q, h_qq = (x.copy() for x in self.slopes(q))
        both = np.zeros((self.n_rows, abs(q - f) + 1), self.dtype)
        both[:, 0] = both[:, -1] = 1.0
        _, h = self.slopes_along(both, min(f, q))
        for column, x in zip((G_F, G_Q, H_FF, H_FQ, H_QQ, PHI), (g_f, g_q, h_ff, (h - h_ff - h_qq) / 2, h_qq, phi), strict=True):
            state[:, column] = x
        return state

    def move_pair(self, f: int, q: int, delta_f: np.ndarray, delta_q: np.ndarray) -> None:
        """``phi_f += delta_f`` and ``phi_q += delta_q``."""
        for dimension, delta in ((f, delta_f), (q, delta_q)):
            self.slopes(dimension)  # views expect a move after the slopes of the same dimension
            self.move(dimension, delta)

    def track(self, f: int) -> None:  # noqa: B027
        """A hint that the slopes of this dimension will be needed repeatedly."""

    def implicit(self) -> tuple[float, np.ndarray]:
        """``alpha0`` and the other side's J, for a tower that represents all combinations of levels: the view then gives the
        explicit part alone, and the tower adds the implicit part. Only the view of a whole side has it."""
        raise NotImplementedError(f"{type(self).__name__} lists all its rows")

    def sweep_levels(self, block: LevelBlock, settings: StepSettings, implicit: np.ndarray | None = None) -> bool:
        """Coordinate descent on all vectors of a described table, level by level; updates the scores.

        ``implicit`` is the matrix M of the implicit part ``u' M u`` if it is the same for all levels, as for all combinations of
        levels. Returns False, without stepping, if the view cannot do this.
        """
        return False

    def sweep_panels(self, blocks: Sequence[Block] | None, settings: StepSettings) -> bool:
        """Coordinate descent on all described blocks of features, sixteen dimensions at a time; updates the scores.

        Returns False, without stepping, if the view cannot do this.
        """
        return False


class DerivedView(View):
    """A view derived from another, by default over the same rows."""

    def __init__(self, view: View, n_rows: int | None = None) -> None:
        self._view = view
        self.workers, self.dtype, self.n_rows = view.workers, view.dtype, view.n_rows if n_rows is None else n_rows

    def track(self, f: int) -> None:
        self._view.track(f)


class PartView(DerivedView):
    """The dimensions of a view from ``start`` on, for a tower that is part of another; ``alone``: no other part moves them."""

    def __init__(self, view: View, start: int = 0, alone: bool = True) -> None:
        super().__init__(view)
        self._start, self._alone = start, alone

    def slopes(self, f: int) -> tuple[np.ndarray, np.ndarray]:
        return self._view.slopes(self._start + f)

    def move(self, f: int, delta: np.ndarray) -> None:
        self._view.move(self._start + f, delta)

    def slopes_along(self, tangent: np.ndarray, at: int = 0) -> tuple[np.ndarray, np.ndarray]:
        return self._view.slopes_along(tangent, self._start + at)

    def move_along(self, tangent: np.ndarray, delta: np.ndarray, at: int = 0) -> None:
        self._view.move_along(tangent, delta, self._start + at)

    def slopes_pair(self, f: int, q: int, phi: np.ndarray) -> np.ndarray:
        return self._view.slopes_pair(self._start + f, self._start + q, phi)

    def move_pair(self, f: int, q: int, delta_f: np.ndarray, delta_q: np.ndarray) -> None:
        self._view.move_pair(self._start + f, self._start + q, delta_f, delta_q)

    def sweep_panels(self, blocks: Sequence[Block] | None, settings: StepSettings) -> bool:
        if not self._alone and any(block.partner == SUM for block in blocks or () if isinstance(block, FieldBlock | LevelBlock)):
            return False  # the vectors of the other parts would count as features of this one
        return self._view.sweep_panels(shifted(blocks, self._start), settings)

    def track(self, f: int) -> None:
        self._view.track(self._start + f)
