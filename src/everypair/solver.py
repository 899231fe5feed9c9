"""Algorithm 1 of the paper: sides, epochs, stopping."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from numba.core import event

from everypair.objective import OTHER, Objective, Value
from everypair.progress import Progress
from everypair.towers.base import Tower

SIDES = ("context", "item")


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
        Initialised.
    rotate : bool
        Turn both sides, before each sweep, such that the other side's Gram is diagonal; towers may decline.
    order : {"side", "dimension"}
        All of one side, then all of the other (Algorithm 1), or both sides for each dimension (Algorithms 2 and 3).
    """

    def __init__(self, objective: Objective, context: Tower, item: Tower, rotate: bool = True, order: str = "side") -> None:
        self.objective = objective
        self.towers = {"context": context, "item": item}
        self.order = order
        free = any(tower.rotatable == 0 for tower in self.towers.values())
        self.rotate = rotate and order == "side" and not free and context.rotatable == item.rotatable
        feedback = objective.feedback
        self._weights = {"context": _or_one(feedback.context_weight), "item": _or_one(feedback.item_weight)}
        for side in SIDES:
            self._place(side)
            self._update_gram(side)
        objective.rescore()

    def sweeps(self) -> Iterator[str]:
        """One epoch, a sweep at a time: yields the side that was swept (Algorithm 1, lines 4 to 11)."""
        if self.order == "dimension":
            yield from self._sweeps_by_dimension()
            return
        for side in SIDES:
            if self.rotate:
                self._turn(OTHER[side])
            self.towers[side].sweep(self.objective.side(side))
            self._update_gram(side)
            yield side

    def _sweeps_by_dimension(self) -> Iterator[str]:
        """The loop of Algorithms 2 and 3: for each dimension, first the contexts', then the items' parameters."""
        plans = {side: list(self.towers[side].blocks) for side in SIDES}
        for block in dict.fromkeys(plans["context"] + plans["item"]):
            for side in SIDES:
                if block in plans[side]:
                    self.towers[side].step(self.objective.side(side), block)
                    self._update_gram(side)
                    yield side

    def value(self) -> Value:
        return self.objective.value(sum(tower.l2() for tower in self.towers.values()))

    def _place(self, side: str) -> None:
        self.objective.vectors[side] = self.towers[side].vectors(self.objective.workers)

    def _update_gram(self, side: str) -> None:
        vectors, workers = self.objective.vectors[side], self.objective.workers
        self.objective.grams[side] = self.towers[side].gram(vectors, self._weights[side], workers)

    def _turn(self, other: str) -> None:
        """Rotate both towers by the eigenvectors of the other side's Gram, which becomes diagonal. Scores do not change.

        Without L2 this is left out where the Gram is singular: dimensions that hold only rounding errors would make steps of
        noise over noise.
        """
        k = self.towers[other].rotatable
        J = self.objective.grams[other]
        values, Q = np.linalg.eigh(J[:k, :k])
        if self._unregularized and self._singular(values):
            return
        self._rotate(Q)
        norms = self._norms(other, k)
        if self._unregularized and self._singular(norms):
            self._rotate(Q.T)
            return
        J = J.copy()
        J[:k, k:] = Q.T @ J[:k, k:]
        J[k:, :k] = J[:k, k:].T
        J[:k, :k] = np.diag(norms)
        self.objective.grams[other] = J

    def _rotate(self, Q: np.ndarray) -> None:
        for side in SIDES:
            self.towers[side].rotate(Q, self.objective.vectors[side], self.objective.workers)

    def _singular(self, eigenvalues: np.ndarray) -> bool:
        tolerance = len(eigenvalues) * float(np.finfo(self.objective.dtype).eps)
        return bool(eigenvalues.min() <= tolerance * eigenvalues.max())

    @property
    def _unregularized(self) -> bool:
        parameters = [parameter for tower in self.towers.values() for parameter in tower.parameters.values()]
        return any(np.any(parameter.penalty == 0) for parameter in parameters)

    def _norms(self, side: str, k: int) -> np.ndarray:
        vectors, workers = self.objective.vectors[side], self.objective.workers
        return self.towers[side].norms(vectors, self._weights[side], workers)[:k]

    def run(
        self, epochs: int, tol: float = 0.0, callback: Callable[[Epoch], Any] | None = None, label: str = ""
    ) -> tuple[list[Epoch], str]:
        """Epochs until done, and the reason for stopping.

        That is "epochs" (all were run), "tol" (the objective fell by less than ``tol`` of itself), "callback" (it returned
        True after an epoch), or "interrupt": Ctrl-C ends the run after the running sweep, a second one at once.
        """
        history: list[Epoch] = []
        previous = self.value().objective
        reason = "epochs"
        with _compile_timer() as compiled, _ctrl_c() as interrupted, Progress(epochs, label) as progress:
            for epoch in range(1, epochs + 1):
                began, compiled_before = time.perf_counter(), compiled()
                for _ in self.sweeps():
                    if interrupted.is_set():
                        break
                value = self.value()
                seconds = time.perf_counter() - began - (compiled() - compiled_before)
                history.append(Epoch(epoch, *value, max(seconds, 0.0)))
                progress.update(objective=value.objective)
                if callback is not None and callback(history[-1]) is True:
                    reason = "callback"
                elif tol > 0 and previous - value.objective < tol * abs(previous):
                    reason = "tol"
                if interrupted.is_set():
                    reason = "interrupt"
                if reason != "epochs":
                    break
                previous = value.objective
        return history, reason


def _or_one(weight: np.ndarray | None) -> Any:
    return 1.0 if weight is None else weight


@contextmanager
def _compile_timer() -> Iterator[Callable[[], float]]:
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
