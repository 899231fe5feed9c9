"""Algorithm 1 of the paper: sides, epochs, stopping."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from numba.core import event

from everypair.engine.lazy_vectors import LazyVectors
from everypair.engine.objective import OTHER, Objective, ObjectiveValue
from everypair.engine.tower import Tower, common_turns
from everypair.runtime.progress import Progress

SIDES = ("context", "item")
FEW = 2  # dimensions that are not turned: bias and constant of a factorization machine


class Epoch(NamedTuple):
    """What one epoch left: the objective, its parts, and the seconds it took, compilation apart."""

    epoch: int
    objective: float
    explicit: float
    implicit: float
    l2: float
    seconds: float


class ICD:
    """Implicit coordinate descent on two towers.

    Parameters
    ----------
    objective : Objective
    context, item : Tower
        Bound, with their start values.
    rotate : bool
        Turn both sides, before each sweep, such that the other side's Gram is diagonal; towers may decline.
    order : {"side", "dimension"}
        All of one side, then all of the other (Algorithm 1), or both sides for each dimension (Algorithms 2 and 3).
    """

    def __init__(self, objective: Objective, context: Tower, item: Tower, rotate: bool = True, order: str = "side") -> None:
        self.objective = objective
        self.towers = {"context": context, "item": item}
        self.order = order
        self._turns = [slice(a, b) for a, b in common_turns([context.turns, item.turns])] if rotate and order == "side" else []
        feedback = objective.feedback
        if not objective.finite:
            raise DivergedError(np.inf, objective.dtype)
        self._weights = {"context": _or_one(feedback.context_weight), "item": _or_one(feedback.item_weight)}
        self.begin()

    def begin(self) -> None:
        """Vectors, Grams and scores from the parameters."""
        for side in SIDES:
            self._place(side)
            self.update_gram(side)
        self.objective.rescore()

    def _begin_again(self) -> None:
        """As :meth:`begin`, after an epoch: the next one depends on nothing but the parameters, and rounding errors do not add up.

        Vectors that are the parameters themselves need no computing, nor do their Grams. The Gram of the contexts is that of the
        vectors its sweep left, turned since: an epoch computes it anew before it uses it.
        """
        for side in SIDES:
            if self.order == "dimension" or not self.towers[side].vectors_are_parameters:
                self._place(side)
                if self.order == "dimension" or side == "item":
                    self.update_gram(side)
        self.objective.rescore()

    def sweeps(self) -> Iterator[str]:
        """One epoch, a sweep at a time: yields the side that was swept (Algorithm 1, lines 4 to 12)."""
        if self.order == "dimension":
            yield from self._sweeps_by_dimension()
            return
        for side in SIDES:
            self._turn(OTHER[side])
            self.towers[side].sweep(self.objective.side(side))
            if self.towers[side].vectors_are_parameters:
                self._place(side)
            self.update_gram(side)
            yield side

    def _sweeps_by_dimension(self) -> Iterator[str]:
        """The loop of Algorithms 2 and 3: for each dimension, first the contexts', then the items' parameters."""
        plans = {side: list(self.towers[side].blocks) for side in SIDES}
        linear_first = sorted({*plans["context"], *plans["item"]}, key=lambda block: (isinstance(block, int), block))
        for block in linear_first:
            for side in SIDES:
                if block in plans[side]:
                    view = self.objective.side(side)
                    self.towers[side].step(view, block)
                    self._update_gram_of(side, view.moved)
                    yield side

    def value(self) -> ObjectiveValue:
        return self.objective.value(sum(tower.l2() for tower in self.towers.values()))

    def _place(self, side: str) -> None:
        tower, workers = self.towers[side], self.objective.workers
        if self._computes(tower):
            self.objective.vectors[side] = LazyVectors(tower, workers)
            return
        vectors = tower.vectors(workers)
        vectors.conform(self.objective.dtype)
        if not tower.vectors_are_parameters:
            vectors.own([parameter.value for parameter in tower.parameters.values()])
        self.objective.vectors[side] = vectors

    def _computes(self, tower: Tower) -> bool:
        """Whether vectors are computed when they are needed, not held: where the rotation leaves J diagonal but for a few
        dimensions, so that a step on one needs few others, or where steps need none."""
        turned = sum(turn.stop - turn.start for turn in self._turns)
        few = tower.n_dims - turned <= FEW
        return tower.has_parts and not tower.vectors_are_parameters and (few or (tower.by_levels and self.order == "side"))

    def update_gram(self, side: str) -> None:
        """J of a side whose vectors have moved."""
        vectors, workers = self.objective.vectors[side], self.objective.workers
        self.objective.grams[side] = self.towers[side].gram(vectors, self._weights[side], workers)

    def _update_gram_of(self, side: str, dims: set[int]) -> None:
        """The rows and columns of J that belong to moved dimensions: O(|C| K) for each, as Algorithm 2 has it."""
        vectors, J = self.objective.vectors[side], self.objective.grams[side]
        for f in sorted(dims):
            J[f] = J[:, f] = vectors.gram_row(f, self._weights[side], self.objective.workers)

    def _turn(self, other: str) -> None:
        """Rotate both towers by the eigenvectors of the other side's Gram, which becomes diagonal. Scores do not change.

        Only ranges of dimensions that both towers can turn are turned, each on its own. The Gram of the side about to be swept is
        out of date until its sweep is done, and not used before.

        Without L2 this is left out where the Gram is nearly singular: dimensions that hold only rounding errors would make steps
        of noise over noise.
        """
        for at in self._turns:
            values, Q = np.linalg.eigh(self.objective.grams[other][at, at])
            if self._unregularized and self._singular(values):
                continue
            self._rotate(at, Q)
            norms = np.maximum(values, 0.0)
            if not isinstance(self.objective.vectors[other], LazyVectors):  # those that are held were turned with rounding
                norms = self._norms(other)[at]
            if self._unregularized and self._singular(norms):
                self._rotate(at, Q.T)
                continue
            J = self.objective.grams[other].copy()
            J[at] = Q.T @ J[at]
            J[:, at] = J[at].T
            J[at, at] = np.diag(norms)
            self.objective.grams[other] = J

    def _rotate(self, at: slice, Q: np.ndarray) -> None:
        for side in SIDES:
            tower, vectors, workers = self.towers[side], self.objective.vectors[side], self.objective.workers
            tower.rotate(at, Q, workers)
            if tower.vectors_are_parameters:
                self._place(side)
            else:
                vectors.rotate(at, Q, workers)

    def _singular(self, eigenvalues: np.ndarray) -> bool:
        return bool(eigenvalues.min() <= np.sqrt(np.finfo(self.objective.dtype).eps) * eigenvalues.max())

    @property
    def _unregularized(self) -> bool:
        parameters = [parameter for tower in self.towers.values() for parameter in tower.parameters.values()]
        return any(np.any(parameter.penalty == 0) for parameter in parameters if not parameter.fixed)

    def _norms(self, side: str) -> np.ndarray:
        """Squared lengths of the dimensions of a side."""
        vectors, workers = self.objective.vectors[side], self.objective.workers
        return self.towers[side].norms(vectors, self._weights[side], workers)

    def load(self, values: Mapping[str, np.ndarray]) -> None:
        """Go on from these values of the parameters, as they are stored."""
        parameters = {name: p for tower in self.towers.values() for name, p in tower.parameters.items()}
        expected = {name: (p.value.shape, p.value.dtype.name) for name, p in parameters.items()}
        given = {name: (value.shape, value.dtype.name) for name, value in values.items()}
        if expected != given:
            raise ValueError(
                f"the model has the parameters {expected}, and given were {given}: its towers are not those they are of."
            )
        for name, value in values.items():
            parameters[name].value[...] = value
        self.begin()

    def run(
        self,
        epochs: int,
        tol: float,
        after_epoch: Callable[[Epoch], bool],
        label: str = "",
        history: Sequence[Epoch] = (),
        keep: Callable[[str], None] = lambda reason: None,
    ) -> str:
        """Epochs until done; returns the reason for stopping.

        That is "epochs" (all were run), "tol" (the objective fell by less than ``tol`` of itself), "callback" (``after_epoch``
        returned True), or "interrupt": Ctrl-C ends the run after the running sweep, a second one at once. Whoever pressed it is
        told so, whatever else ended the run in the same epoch.

        ``history`` are the epochs that led to the parameters. ``keep`` is called after each epoch that was not cut short, with
        "running" or the reason for stopping, once that is known.
        """
        done = len(history)
        previous = history[-1].objective if history else self.finite_value().objective
        with compile_timer() as compiled, _ctrl_c() as interrupted, Progress(epochs, label) as progress:
            progress.advance(done)
            for epoch in range(done + 1, epochs + 1):
                began, compiled_before, complete = time.perf_counter(), compiled(), False
                for _ in self.sweeps():
                    if interrupted.is_set():
                        break
                else:
                    complete = True
                self._begin_again()
                value = self.finite_value()
                seconds = time.perf_counter() - began - (compiled() - compiled_before)
                progress.update(objective=value.objective)
                stop = after_epoch(Epoch(epoch, *value, max(seconds, 0.0)))
                pressed = interrupted.is_set()
                if stop:
                    reason = "callback"
                elif tol > 0 and previous - value.objective < tol * abs(previous):
                    reason = "tol"
                elif epoch == epochs:
                    reason = "epochs"
                else:
                    reason = "interrupt" if pressed else "running"
                if complete:  # an undisturbed run would have ended here too: so says what is kept, or a later call would go on
                    keep(reason)
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
            raise DivergedError(value.objective, self.objective.dtype)
        return value


class DivergedError(ArithmeticError):
    """The objective is not a number: something is too large for the precision."""

    def __init__(self, objective: float, dtype: Any) -> None:
        advice = "use dtype='float64', or " if dtype == np.float32 else ""
        super().__init__(
            f"the objective became {objective}: feedback, weights, features or start values are too large for {dtype}. "
            f"To go on, {advice}rescale them."
        )


def _or_one(weight: np.ndarray | None) -> Any:
    return 1.0 if weight is None else weight


@contextmanager
def compile_timer() -> Iterator[Callable[[], float]]:
    """A clock of the seconds spent compiling kernels, in any thread."""
    with event.install_timer("numba:compile", lambda _: None) as timer:
        yield lambda: timer.duration if timer.done else 0.0


@contextmanager
def _ctrl_c() -> Iterator[threading.Event]:
    """Turn the first SIGINT into a flag; only the main thread can."""
    interrupted = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield interrupted
        return

    def stop(number: int, frame: Any) -> None:
        interrupted.set()
        signal.signal(signal.SIGINT, before)

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield interrupted
    finally:
        signal.signal(signal.SIGINT, before)
