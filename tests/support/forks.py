"""Forked processes for tests: a child that hangs ends after a while, with the stacks of its threads on standard error."""

from __future__ import annotations

import faulthandler
import os
import signal
import traceback
from collections.abc import Callable
from typing import Any

import pytest

GUARD = int(os.environ.get("EVERYPAIR_GUARD", "300"))  # seconds: longer than anything takes; no result depends on it
# Python 3.12 and later warn of any fork beside threads, and JAX, where another test has imported it: such forks are what is tested.
forks_beside_threads = pytest.mark.filterwarnings(
    "ignore:This process .* is multi-threaded:DeprecationWarning", r"ignore:os\.fork\(\) was called:RuntimeWarning"
)


def fork(work: Callable[[], Any]) -> int:
    """Call ``work`` in a forked child, which then ends at once; returns its process id."""
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        faulthandler.register(signal.SIGALRM, file=2, chain=True)
        signal.alarm(GUARD)
        work()
        status = 0
    except BaseException:
        os.write(2, traceback.format_exc().encode())
    os._exit(status)


def ended_well(child: int) -> bool:
    """Wait for a child; whether its work was done without an error."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
