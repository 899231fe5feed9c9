"""How the supervisor finds out that a worker hangs: it stops answering pings."""

from __future__ import annotations

import os

PING_SECONDS = 1.0  # between pings
IDLE_SECONDS = 5.0  # without an answer from a worker that computes nothing: it was stopped, or waits for ever
STUCK_SECONDS = 30.0  # without an answer from a worker that computes
OPEN_SECONDS = 600.0  # the same while it opens a model, which may hold the interpreter for long
MAX_STEP = 2 * PING_SECONDS  # longer pauses are the supervisor's own, and tell nothing about workers


class Heartbeat:
    """The pings to a worker, and how long it has been silent.

    Attributes
    ----------
    sent : int
        The number of the last ping.
    """

    def __init__(self) -> None:
        self.sent, self._answered = 0, 0
        self._silent = self._idle = 0.0  # seconds since the last answer; and since the last answer or computation
        self._cpu: float | None = None

    @property
    def answered(self) -> bool:
        """Whether there is an answer to the last ping."""
        return self._answered == self.sent

    def ping(self) -> int:
        """The number of a new ping."""
        if self.answered:
            self._silent = self._idle = 0.0
        self.sent += 1
        return self.sent

    def pong(self, number: int) -> None:
        """The answer to a ping has come."""
        self._answered = max(self._answered, number)
        self._silent = self._idle = 0.0

    def why_hung(self, seconds: float, cpu: float | None, opening: bool) -> str | None:
        """Why the worker is taken to hang, if it is.

        Parameters
        ----------
        seconds : float
            Since the last call.
        cpu : float, optional
            Seconds of computation of the process so far, if known.
        opening : bool
            Whether it is opening a model.
        """
        if self.answered:
            return None
        step = min(seconds, MAX_STEP)
        computes = cpu is None or cpu != self._cpu
        self._cpu, self._silent, self._idle = cpu, self._silent + step, 0.0 if computes else self._idle + step
        if self._idle >= IDLE_SECONDS:
            return f"it has neither answered nor computed for {self._idle:.0f} seconds."
        if self._silent >= (OPEN_SECONDS if opening else STUCK_SECONDS):
            return f"it has not answered for {self._silent:.0f} seconds."
        return None


def cpu_seconds(pid: int) -> float | None:
    """Seconds of computation of a process so far; None if the system does not tell."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return None
