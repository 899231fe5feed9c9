"""``TrainingRun``: runs the solver for one call of ``fit``, with callbacks, checkpoints, progress display and Ctrl-C."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from everypair.engine.solver import ICD, Epoch, RunObserver
from everypair.models.fit_state import FitState
from everypair.persistence.checkpoint import Checkpoint, GroupCheckpoint, Identity, State
from everypair.runtime.progress import Progress
from everypair.runtime.signals import may_be_handled


@dataclass
class TrainingRun(RunObserver):
    """Runs the solver, and reports its epochs to callback, checkpoint and progress display.

    Parameters
    ----------
    solver : ICD
    state : FitState
        The state of the fit; the run updates its history and stop reason.
    label : str
        Text of the progress display.
    callback : callable, optional
        ``callback(epoch)`` is called after each epoch; a true value stops the run.
    stateful : object, optional
        The user's callback if it has state to store in checkpoints: ``state()``, optionally ``arrays()``, and ``resume()``.
    checkpoint : Checkpoint, optional
    tol : float
    """

    solver: ICD
    state: FitState
    label: str
    callback: Callable[[Epoch], Any] | None
    stateful: Any
    checkpoint: Checkpoint | GroupCheckpoint | None
    tol: float

    def resume(self, identity: Callable[[], Identity], epochs: int) -> State | None:
        """Load the checkpoint of the same fit, if there is one."""
        if self.checkpoint is None:
            return None
        resumed = self.checkpoint.read(identity(), epochs)
        if resumed is not None:
            self.solver.load(resumed.parameters)
            self.state.history += resumed.history
        return resumed

    def take_over(self, finished: State) -> State:
        """Take over the state of a fit that others have done."""
        self.solver.load(finished.parameters)
        self.state.history += finished.history
        return finished

    def run(self, epochs: int, resumed: State | None) -> None:
        """Run the remaining epochs; sets ``state.stop_reason``."""
        ended = None if resumed is None else resumed.reason_to_stop(epochs, self.tol)
        if ended is not None:
            self.state.stop_reason = ended
            return
        with _first_ctrl_c() as self._interrupt, Progress(epochs, self.label) as self._progress:
            self._progress.advance(len(self.state.history))
            self.state.stop_reason = self.solver.run(epochs, self.tol, self, tuple(self.state.history))

    def reads_parameters(self, epoch: int) -> bool:
        return self.callback is not None or (self.checkpoint is not None and self.checkpoint.is_due(epoch))

    def interrupted(self) -> bool:
        return self._interrupt.is_set()

    def epoch_ended(self, epoch: Epoch) -> bool:
        self._progress.update(objective=epoch.objective)
        self.state.history.append(epoch)
        return self.callback is not None and bool(self.callback(epoch))

    def epoch_complete(self, reason: str) -> None:
        if self.checkpoint is not None:
            callback = None if self.stateful is None else self.stateful.state()
            arrays: Mapping[str, np.ndarray] = getattr(self.stateful, "arrays", dict)()
            self.checkpoint.write(State(self.state.values(), self.state.history, reason, self.tol, callback, arrays))


@contextmanager
def _first_ctrl_c() -> Iterator[threading.Event]:
    """Turn the first SIGINT into a flag; a second one acts as usual. Only in the main thread, if the signal is not ignored."""
    pressed = threading.Event()
    if threading.current_thread() is not threading.main_thread() or not may_be_handled(signal.SIGINT):
        yield pressed
        return

    def press(number: int, frame: Any) -> None:
        pressed.set()
        signal.signal(signal.SIGINT, before)

    before = signal.signal(signal.SIGINT, press)
    try:
        yield pressed
    finally:
        if signal.getsignal(signal.SIGINT) is press:  # and not a handler that a callback has installed
            signal.signal(signal.SIGINT, before)
