"""Algorithm 1 of the paper: an engine's sweeps of both sides, epoch by epoch, until done."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from numba.core import event

from everypair.engine.engine import SIDES, Engine
from everypair.engine.objective import ObjectiveValue
from everypair.engine.tower import Tower

E = TypeVar("E", bound=Engine)


class Epoch(NamedTuple):
    """What one epoch left: the objective, its parts, and the seconds it took, compilation apart."""

    epoch: int
    objective: float
    explicit: float
    implicit: float
    l2: float
    seconds: float


class RunObserver:
    """Watches a run, and may end it. This one does neither: derive from it."""

    def interrupted(self) -> bool:
        """Asked after each sweep: whether the run is to end now, its epoch cut short."""
        return False

    def epoch_ended(self, epoch: Epoch) -> bool:
        """After each epoch: whether the run is to end."""
        return False

    def epoch_complete(self, reason: str) -> None:
        """After each epoch that was not cut short, with the reason for stopping, or "running"."""


class ICD(Generic[E]):
    """Implicit coordinate descent on two towers, by an engine.

    Parameters
    ----------
    engine : Engine
    order : {"side", "dimension"}
        All of one side, then all of the other (Algorithm 1), or both sides for each dimension (Algorithms 2 and 3).
    """

    def __init__(self, engine: E, order: str = "side") -> None:
        self.engine, self.order = engine, order
        if not engine.finite:
            raise DivergedError(np.inf, engine.dtype)
        self.begin()

    @property
    def towers(self) -> dict[str, Tower]:
        return self.engine.towers

    def begin(self) -> None:
        """Vectors, Grams and scores from the parameters."""
        for side in SIDES:
            self.engine.place(side)
            self.engine.update_gram(side)
        self.engine.rescore()

    def _begin_again(self) -> None:
        """As :meth:`begin`, after an epoch: the next one depends on nothing but the parameters, and rounding errors do not add up.

        Vectors that are the parameters themselves need no computing, nor do their Grams. The Gram of the contexts is that of the
        vectors its sweep left, turned since: an epoch computes it anew before it uses it.
        """
        for side in SIDES:
            if self.order == "dimension" or not self.towers[side].capabilities.free_rows:
                self.engine.place(side)
                if self.order == "dimension" or side == "item":
                    self.engine.update_gram(side)
        self.engine.rescore()

    def sweeps(self) -> Iterator[str]:
        """One epoch, a sweep at a time: yields the side that was swept (Algorithm 1, lines 4 to 12)."""
        if self.order == "dimension":
            yield from self._sweeps_by_dimension()
            return
        for side in SIDES:
            self.engine.turn(side)
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
        """Go on from these values of the parameters, as they are stored."""
        parameters = self.engine.parameters
        expected = {name: (p.value.shape, p.value.dtype.name) for name, p in parameters.items()}
        given = {name: (value.shape, value.dtype.name) for name, value in values.items()}
        if expected != given:
            raise ValueError(
                f"the model has the parameters {expected}, and given were {given}: its towers are not those they are of."
            )
        for name, value in values.items():
            parameters[name].value[...] = value
        self.begin()

    def run(self, epochs: int, tol: float, observer: RunObserver | None = None, history: Sequence[Epoch] = ()) -> str:
        """Epochs until done; returns the reason for stopping.

        That is "epochs" (all were run), "tol" (the objective fell by less than ``tol`` of itself), "callback" (the observer said
        so), or "interrupt": the observer was interrupted, and the run ends after the running sweep, whatever else would have ended
        it in the same epoch. ``history`` are the epochs that led to the parameters.
        """
        observer = observer or RunObserver()
        previous = history[-1].objective if history else self.finite_value().objective
        with compile_timer() as compiled:
            for number in range(len(history) + 1, epochs + 1):
                began, compiled_before = time.perf_counter(), compiled()
                complete = all(not observer.interrupted() for _ in self.sweeps())
                self._begin_again()
                value = self.finite_value()
                self.engine.bring_back()
                seconds = time.perf_counter() - began - (compiled() - compiled_before)
                stop = observer.epoch_ended(Epoch(number, *value, max(seconds, 0.0)))
                pressed = observer.interrupted()
                if stop:
                    reason = "callback"
                elif tol > 0 and previous - value.objective < tol * abs(previous):
                    reason = "tol"
                elif number == epochs:
                    reason = "epochs"
                else:
                    reason = "interrupt" if pressed else "running"
                if complete:  # as an undisturbed run: one that ended here must not go on when it is resumed
                    observer.epoch_complete(reason)
                if pressed:
                    return "interrupt"
                if reason != "running":
                    return reason
                previous = value.objective
        raise AssertionError("there was no epoch to run")

    def finite_value(self) -> ObjectiveValue:
        """The objective, or an error if it cannot be computed."""
        value = self.value()
        if not np.isfinite(value.objective):
            raise DivergedError(value.objective, self.engine.dtype)
        return value


class DivergedError(ArithmeticError):
    """The objective is not a number: something is too large for the precision."""

    def __init__(self, objective: float, dtype: Any) -> None:
        advice = "use dtype='float64', or " if dtype == np.float32 else ""
        super().__init__(
            f"the objective became {objective}: feedback, weights, features or start values are too large for {dtype}. "
            f"To go on, {advice}rescale them."
        )


@contextmanager
def compile_timer() -> Iterator[Callable[[], float]]:
    """A clock of the seconds spent compiling kernels, in any thread."""
    with event.install_timer("numba:compile", lambda _: None) as timer:
        yield lambda: timer.duration if timer.done else 0.0
