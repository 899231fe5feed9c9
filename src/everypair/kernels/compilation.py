"""While Numba compiles or loads a kernel: a terminal says so, Ctrl-C waits, and processes are not forked.

All three follow Numba's own events and locks, so that nothing happens where nothing is compiled.
"""

from __future__ import annotations

import os
import signal
import threading
from functools import cache
from typing import Any

from llvmlite.binding import ffi
from numba.core import event
from numba.core.compiler_lock import global_compiler_lock

from everypair.runtime.locks import CopyableLock, hold_while_forking
from everypair.runtime.progress import Counter

PACKAGE = __name__.partition(".")[0]


@cache
def watch_compilation() -> None:
    """Begin to watch, once in a process."""
    event.register("numba:compile", CompilationDisplay())
    interrupts = PostponedInterrupts()
    event.register("numba:compiler_lock", interrupts)
    # Taken in the order of a thread that compiles, which is the reverse of this one.
    hold_while_forking(ffi.lib._lock._lock)
    hold_while_forking(global_compiler_lock._lock)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=interrupts.after_fork)


class CompilationDisplay(event.Listener):
    """A line on a terminal that counts the kernels of this package while they are compiled."""

    def __init__(self) -> None:
        self._lock, self._depth = CopyableLock(), 0
        self._line = Counter("compiling kernels (first use, cached afterwards)")

    def on_start(self, event: Any) -> None:
        if _is_ours(event):
            with self._lock:
                self._depth += 1
                self._line.count()

    def on_end(self, event: Any) -> None:
        if _is_ours(event):
            with self._lock:
                self._depth -= 1
                if not self._depth:
                    self._line.hide()


def _is_ours(event: Any) -> bool:
    module = getattr(event.data["dispatcher"].py_func, "__module__", None)
    return (module or "").partition(".")[0] == PACKAGE  # a function made by exec may have none


class PostponedInterrupts(event.Listener):
    """Ctrl-C while the main thread compiles takes effect after the step of the compiler: LLVM would swallow the exception."""

    def __init__(self) -> None:
        self._depth, self._thread = 0, 0
        self._handler: Any = None  # that is postponed
        self._pressed = False

    def on_start(self, event: Any) -> None:
        if threading.current_thread() is threading.main_thread():
            if not self._depth:
                self._begin()
            self._depth += 1

    def on_end(self, event: Any) -> None:
        if threading.current_thread() is threading.main_thread() and self._depth:
            self._depth -= 1
            if self._pressed or not self._depth:
                handler, pressed = self._end()
                if pressed:
                    handler(signal.SIGINT, None)  # usually raises KeyboardInterrupt
                if self._depth:
                    self._begin()

    def _begin(self) -> None:
        self._pressed, self._thread = False, threading.get_ident()
        self._handler = signal.getsignal(signal.SIGINT)
        if callable(self._handler):
            signal.signal(signal.SIGINT, self._press)

    def _press(self, number: int, frame: Any) -> None:
        self._pressed = True

    def _end(self) -> tuple[Any, bool]:
        """Put the handler back; returns it, and whether it has to be called."""
        pressed, self._pressed = self._pressed, False
        if signal.getsignal(signal.SIGINT) == self._press:
            signal.signal(signal.SIGINT, self._handler)
        return self._handler, pressed

    def after_fork(self) -> None:
        """A child whose parent's main thread was waiting to compile, but did not fork, has nothing to wait for."""
        if self._depth and self._thread != threading.get_ident():
            self._depth = 0
            self._end()
