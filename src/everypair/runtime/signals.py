"""Which signals may be handled here, and Ctrl-C during imports."""

from __future__ import annotations

import signal
import sys
from types import FrameType
from typing import Any


def may_be_handled(number: int) -> bool:
    """Whether a handler may replace the present one: an ignored signal, as that of a job in the background, stays ignored, and a
    handler that was not installed by Python could not be put back."""
    return signal.getsignal(number) not in (signal.SIG_IGN, None)


def interrupt(number: int, frame: FrameType | None) -> None:
    """A handler of SIGINT that raises KeyboardInterrupt, but not inside an import: libraries swallow exceptions there, and go on as
    if the module could not be imported. It is raised in the code that needed the import, as soon as that goes on."""
    importer = None
    while frame is not None:
        if frame.f_globals.get("__name__") == "importlib._bootstrap":
            importer = frame.f_back
        frame = frame.f_back
    if importer is None:
        raise KeyboardInterrupt
    importer.f_trace = _raise
    sys.settrace(_trace_no_other)


def _raise(frame: FrameType, event: str, argument: Any) -> None:
    sys.settrace(None)
    frame.f_trace = None
    raise KeyboardInterrupt


def _trace_no_other(frame: FrameType, event: str, argument: Any) -> None:
    """For frames that begin later."""
