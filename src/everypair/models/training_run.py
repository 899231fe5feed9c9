"""One call of ``fit``: the solver's epochs with callbacks, checkpoints, a progress line and Ctrl-C around them."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from everypair.engine.solver import ICD, DivergedError, Epoch, RunObserver
from everypair.models.fit_state import FitState
from everypair.persistence.checkpoint import Checkpoint, Identity, State
from everypair.runtime.progress import Progress


@dataclass
class TrainingRun(RunObserver):
    """Runs a solver and reports to its user.

    Parameters
    ----------
    solver : ICD
    state : FitState
        Of the solver's towers; its history and stop reason follow the run.
    label : str
        Shown beside the progress line.
    callback : callable, optional
        ``callback(epoch)`` after each epoch; a true value stops.
    memory : object, optional
        A callback that remembers: it has ``state()``, perhaps ``arrays()``, and ``resume(state, arrays)``.
    checkpoint : Checkpoint, optional
    tol : float
    """

    solver: ICD
    state: FitState
    label: str
    callback: Callable[[Epoch], Any] | None
    memory: Any
    checkpoint: Checkpoint | None
    tol: float

    def resume(self, identity: Callable[[], Identity], epochs: int) -> State | None:
        """Load the state that the same fit left in the checkpoint, if there is one."""
        if self.checkpoint is None:
            return None
        found = self.checkpoint.read(identity(), epochs)
        if found is not None:
            self.solver.load(found.parameters)
            self.state.history += found.history
        return found

    def run(self, epochs: int, found: State | None) -> None:
        """The epochs that are left; sets ``state.stop_reason``."""
        ended = None if found is None else found.reason_to_stop(epochs, self.tol)
        if ended is not None:
            self.state.stop_reason = ended
            return
        with _first_ctrl_c() as self._pressed, Progress(epochs, self.label) as self._progress:
            self._progress.advance(len(self.state.history))
            self.state.stop_reason = self.solver.run(epochs, self.tol, self, tuple(self.state.history))

    def interrupted(self) -> bool:
        return self._pressed.is_set()

    def epoch_ended(self, epoch: Epoch) -> bool:
        self._progress.update(objective=epoch.objective)
        self.state.history.append(epoch)
        return self.callback is not None and bool(self.callback(epoch))

    def epoch_complete(self, reason: str) -> None:
        if self.checkpoint is not None:
            memory = None if self.memory is None else self.memory.state()
            arrays: Mapping[str, np.ndarray] = getattr(self.memory, "arrays", dict)()
            self.checkpoint.write(State(self.state.values(), self.state.history, reason, self.tol, memory, arrays))


@contextmanager
def diverging(dtype: Any) -> Iterator[None]:
    """Overflows are found by the objective, and by eigenvalue problems that do not converge."""
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            yield
    except np.linalg.LinAlgError as error:
        raise DivergedError(np.nan, np.dtype(dtype)) from error


@contextmanager
def _first_ctrl_c() -> Iterator[threading.Event]:
    """Turn the first SIGINT into a flag; a second one acts as usual. Only the main thread can."""
    pressed = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield pressed
        return

    def press(number: int, frame: Any) -> None:
        pressed.set()
        signal.signal(signal.SIGINT, before)

    before = signal.signal(signal.SIGINT, press)
    try:
        yield pressed
    finally:
        signal.signal(signal.SIGINT, before)
