"""How the supervisor finds out that a worker hangs: it stops answering pings."""

from __future__ import annotations

import os

PING_SECONDS = 0.5  # between pings
HANG_SECONDS = 1.0  # without an answer from a worker that computes nothing: it was stopped, or waits for ever
STUCK_SECONDS = 30.0  # without an answer from a worker that computes
OPEN_SECONDS = 600.0  # the same while it opens a model, which may hold the interpreter for long
MAX_STEP = 1.5 * PING_SECONDS  # longer pauses are the supervisor's own, and tell nothing about workers


class Heartbeat:
    """The pings to a worker, and how long it has been silent.

    Parameters
    ----------
    hang_seconds : float
        Without an answer from a worker that computes nothing, after which it is taken to hang.

    Attributes
    ----------
    sent : int
        The number of the last ping.
    """

    def __init__(self, hang_seconds: float = HANG_SECONDS) -> None:
        self._hang_seconds = hang_seconds
        self.sent, self._answered = 0, 0
        self._silent = self._idle = 0.0  # seconds since the last answer; and since the last answer or computation
        self._cpu: float | None = None

    @property
    def answered(self) -> bool:
        """Whether there is an answer to the last ping."""
        return self._answered == self.sent

    def ping(self, cpu: float | None) -> int:
        """The number of a new ping; ``cpu`` as in :meth:`why_hung`."""
        if self.answered:
            self._silent = self._idle = 0.0
            self._cpu = cpu
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
            See :func:`cpu_seconds`.
        opening : bool
            Whether it is opening a model.
        """
        if self.answered:
            return None
        step = min(seconds, MAX_STEP)
        computes = cpu is None or cpu != self._cpu
        self._cpu, self._silent, self._idle = cpu, self._silent + step, 0.0 if computes else self._idle + step
        if self._idle >= self._hang_seconds:
            return f"it has neither answered nor computed for {self._idle:.1f} seconds."
        if self._silent >= (OPEN_SECONDS if opening else STUCK_SECONDS):
            return f"it has not answered for {self._silent:.0f} seconds."
        return None


def cpu_seconds(pid: int) -> float | None:
    """Seconds of computation of a process so far; None if it is about to compute, or the system does not tell.

    A thread that waits for a processor or for a disk would go on if it could: on a busy machine, that is no sign of a worker that
    hangs.
    """
    threads = f"/proc/{pid}/task"
    try:
        if any(_fields(f"{threads}/{thread}")[0] in (b"R", b"D") for thread in os.listdir(threads)):
            return None
        fields = _fields(f"/proc/{pid}")
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return None


def _fields(folder: str) -> list[bytes]:
    """What the kernel says of a process or a thread, from its state on."""
    with open(f"{folder}/stat", "rb") as file:
        return file.read().rpartition(b")")[2].split()
