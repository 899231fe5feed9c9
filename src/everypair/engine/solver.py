"""``ICD``, the solver (Algorithm 1 of the paper): epochs of alternating sweeps of both sides, and when to stop."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Generic, NamedTuple, TypeVar

import numpy as np
from numba.core import event

from everypair.engine.divergence import has_risen, not_finite, risen
from everypair.engine.engine import SIDES, Engine
from everypair.engine.objective import ObjectiveValue
from everypair.engine.tower import Tower

E = TypeVar("E", bound=Engine)


class Epoch(NamedTuple):
    """The objective and its parts after an epoch, and the epoch's duration in seconds without compilation."""

    epoch: int
    objective: float
    explicit: float
    implicit: float
    l2: float
    seconds: float


class RunObserver:
    """Base class of observers, which are notified during a run and can end it."""

    def reads_parameters(self, epoch: int) -> bool:
        """Whether the towers' parameters are read after the epoch of this number, if it is not the last."""
        return False

    def interrupted(self) -> bool:
        """Called after each sweep: whether to end the run now, in the middle of an epoch."""
        return False

    def epoch_ended(self, epoch: Epoch) -> bool:
        """Called after each epoch: whether to end the run."""
        return False

    def epoch_complete(self, reason: str) -> None:
        """Called after each epoch that was not interrupted, with the reason for stopping, or "running"."""


class ICD(Generic[E]):
    """Implicit coordinate descent on two towers; an engine does the computing.

    Parameters
    ----------
    engine : Engine
    order : {"side", "dimension"}
        All of one side, then all of the other (Algorithm 1), or both sides for each dimension (Algorithms 2 and 3).
    """

    def __init__(self, engine: E, order: str = "side") -> None:
        self.engine, self.order = engine, order
        if not engine.finite:
            raise not_finite(np.inf, engine)
        self.begin()

    @property
    def towers(self) -> dict[str, Tower]:
        return self.engine.towers

    def begin(self) -> None:
        """Compute vectors, Grams and scores from the parameters."""
        self.engine.take_parameters()
        for side in SIDES:
            self.engine.place(side)
            self.engine.update_gram(side)
        self.engine.rescore()

    def _begin_again(self) -> None:
        """As :meth:`begin`, after an epoch: the next epoch depends on the parameters alone, and rounding errors do not accumulate.

        Vectors that are the parameter array itself, and their Grams, are up to date. The Gram of the contexts is out of date (the
        vectors were rotated after it was computed), but an epoch recomputes it before using it.
        """
        for side in SIDES:
            if self.order == "dimension" or not self.towers[side].capabilities.free_rows:
                self.engine.place(side)
                if self.order == "dimension" or side == "item":
                    self.engine.update_gram(side)
        self.engine.rescore()

    def sweeps(self, epoch: int = 1) -> Iterator[str]:
        """The epoch of this number (Algorithm 1, lines 4 to 12); yields the side after each sweep."""
        if self.order == "dimension":
            yield from self._sweeps_by_dimension()
            return
        for side in SIDES:
            self.engine.turn(side, epoch)
            self.engine.sweep(side)
            self.engine.update_gram(side)
            yield side

    def _sweeps_by_dimension(self) -> Iterator[str]:
        """The loop of Algorithms 2 and 3: for each dimension, first the contexts', then the items' parameters."""
        blocks = {side: list(self.towers[side].blocks) for side in SIDES}
        linear_first = sorted({*blocks["context"], *blocks["item"]}, key=lambda block: (isinstance(block, int), block))
        for block in linear_first:
            for side in SIDES:
                if block in blocks[side]:
                    self.engine.step(side, block)
                    yield side

    def value(self) -> ObjectiveValue:
        return self.engine.value()

    def load(self, values: Mapping[str, np.ndarray]) -> None:
        """Continue from these parameters, in the shape of ``Parameter.value``."""
        parameters = self.engine.parameters
        expected = {name: (p.value.shape, p.value.dtype.name) for name, p in parameters.items()}
        actual = {name: (value.shape, value.dtype.name) for name, value in values.items()}
        if expected != actual:
            raise ValueError(f"the parameters must be those of the model's towers, {expected}, got {actual}.")
        for name, value in values.items():
            parameters[name].value[...] = value
        self.begin()

    def run(self, epochs: int, tol: float, observer: RunObserver | None = None, history: Sequence[Epoch] = ()) -> str:
        """Run epochs; returns the reason for stopping.

        That is "epochs" (all were run), "tol" (an epoch lowered the objective by less than ``tol`` times its value), "callback"
        (``epoch_ended`` returned true), or "interrupt" (``interrupted`` returned true; the run ended after that sweep). "interrupt"
        takes precedence over the other reasons. ``history`` holds the epochs before this run. Raises
        :class:`~everypair.engine.divergence.DivergedError` if the objective is not finite, or rises.
        """
        try:
            return self._run(epochs, tol, observer or RunObserver(), history)
        except BaseException:
            self.engine.bring_back()  # what there is, for callers that keep it
            raise

    def _run(self, epochs: int, tol: float, observer: RunObserver, history: Sequence[Epoch]) -> str:
        previous = history[-1].objective if history else self.finite_value().objective
        lowest = min((epoch.objective for epoch in history), default=previous)
        with compile_timer() as compiled:
            for number in range(len(history) + 1, epochs + 1):
                began, compiled_before = time.perf_counter(), compiled()
                try:
                    complete = all(not self.engine.agreed(observer.interrupted()) for _ in self.sweeps(number))
                except np.linalg.LinAlgError as error:  # eigenvalues of what is not finite
                    raise not_finite(np.nan, self.engine) from error
                self._begin_again()
                value = self.finite_value()
                if self.engine.agreed(has_risen(value.objective, lowest, self.engine)):
                    raise risen(value.objective, lowest, number, self.engine)
                if observer.reads_parameters(number):
                    self.engine.bring_back()
                seconds = time.perf_counter() - began - (compiled() - compiled_before)
                stop = self.engine.agreed(observer.epoch_ended(Epoch(number, *value, max(seconds, 0.0))))
                interrupted = self.engine.agreed(observer.interrupted())
                if stop:
                    reason = "callback"
                elif tol > 0 and previous - value.objective < tol * abs(previous):
                    reason = "tol"
                elif number == epochs:
                    reason = "epochs"
                else:
                    reason = "interrupt" if interrupted else "running"
                if interrupted or reason != "running":
                    self.engine.bring_back()
                if complete:  # with the reason of an uninterrupted run: if that had stopped here, a resumed run must stop, too
                    observer.epoch_complete(reason)
                if interrupted:
                    return "interrupt"
                if reason != "running":
                    return reason
                previous, lowest = value.objective, min(lowest, value.objective)
        raise AssertionError("there was no epoch to run")

    def finite_value(self) -> ObjectiveValue:
        """The objective; raises :class:`~everypair.engine.divergence.DivergedError` if it is not finite."""
        value = self.value()
        if not np.isfinite(value.objective):
            raise not_finite(value.objective, self.engine)
        return value


@contextmanager
def compile_timer() -> Iterator[Callable[[], float]]:
    """A function that returns the seconds spent compiling kernels since entry, in any thread."""
    with event.install_timer("numba:compile", lambda _: None) as timer:
        yield lambda: timer.duration if timer.done else 0.0
