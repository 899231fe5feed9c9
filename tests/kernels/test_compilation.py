"""What happens while kernels are compiled: a terminal says so, Ctrl-C waits for the compiler, others are left alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numba
import pytest
from forks import GUARD, ended_well, fork, forks_beside_threads
from numba.core import event
from numba.core.compiler_lock import global_compiler_lock
from terminals import in_terminal

from everypair.kernels import compilation
from everypair.kernels.compilation import CompilationDisplay, watch_compilation

from profiles import COMPILED

watch_compilation()
pytestmark = pytest.mark.skipif(not COMPILED, reason="nothing is compiled")

SCRIPT = """
import numba, numpy as np
from everypair.kernels.jit import fill
made = {}
exec("def nobodys(x): return x", made)
made["nobodys"].__module__ = None
print("other:", numba.njit(lambda x: x + 1)(1) * numba.njit(made["nobodys"])(1))
fill(np.zeros(3), 1.0)
fill(np.zeros((3, 2)), 1.0)
print("done")
"""


@pytest.mark.full
def test_the_first_use_says_that_it_compiles(tmp_path: Path) -> None:
    """In a terminal, and only where it does."""
    path = os.pathsep.join(path for path in sys.path if path)
    environment = {"NUMBA_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": path}
    status, cold = in_terminal([sys.executable, "-c", SCRIPT], **environment)
    assert status == 0, cold
    other, _, ours = cold.partition("other: 2")
    assert other == "", "not for functions of others"
    shown = [line.strip() for line in ours.split("\r") if line.strip()]
    assert shown == [f"compiling kernels (first use, cached afterwards): {n}" for n in (1, 2)] + ["done"]
    assert in_terminal([sys.executable, "-c", SCRIPT], **environment) == (0, "other: 2\r\ndone\r\n"), "the second time"
    environment["NUMBA_CACHE_DIR"] = str(tmp_path / "another")
    piped = subprocess.run([sys.executable, "-c", SCRIPT], env={**os.environ, **environment}, capture_output=True, check=True)
    assert (piped.stdout, piped.stderr) == (b"other: 2\ndone\n", b"")


def test_a_kernel_within_a_kernel_is_counted_and_the_line_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    display, seen = CompilationDisplay(), []

    class Line:
        def count(self) -> None:
            seen.append("one")

        def hide(self) -> None:
            seen.append("hidden")

    display._line = Line()  # type: ignore[assignment]
    monkeypatch.setattr(compilation, "_is_ours", lambda event: event.data == "ours")

    def notify(status: event.EventStatus, data: str) -> None:
        display.notify(event.Event("numba:compile", status, data))

    start, end = event.EventStatus.START, event.EventStatus.END
    for status, data in ((start, "ours"), (start, "theirs"), (start, "ours"), (end, "ours"), (end, "theirs"), (end, "ours")):
        notify(status, data)
    assert seen == ["one", "one", "hidden"]


# Ctrl-C


@contextmanager
def handler(of: Any) -> Iterator[None]:
    before = signal.signal(signal.SIGINT, of)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def test_ctrl_c_waits_for_the_compiler() -> None:
    reached = []

    def pressed() -> None:
        with global_compiler_lock:
            os.kill(os.getpid(), signal.SIGINT)
            reached.append(True)

    with handler(signal.default_int_handler):
        with pytest.raises(KeyboardInterrupt):
            pressed()
        assert reached
        assert not global_compiler_lock.is_locked()
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_ctrl_c_takes_effect_after_the_step_of_the_compiler() -> None:
    """And the handlers are called as if nothing had been between: one that gives way to another does so."""
    called = []

    def second(number: int, frame: Any) -> None:
        called.append("second")

    def first(number: int, frame: Any) -> None:
        called.append("first")
        signal.signal(signal.SIGINT, second)

    with handler(first):
        with global_compiler_lock:
            with global_compiler_lock:
                os.kill(os.getpid(), signal.SIGINT)
                assert called == []
            assert called == ["first"]
            os.kill(os.getpid(), signal.SIGINT)
            assert called == ["first"]
        assert called == ["first", "second"]
        assert signal.getsignal(signal.SIGINT) is second


@pytest.mark.parametrize("kind", [signal.SIG_IGN, signal.SIG_DFL])
def test_signals_without_a_handler_are_left_alone(kind: Any) -> None:
    with handler(kind), global_compiler_lock:
        assert signal.getsignal(signal.SIGINT) == kind


@forks_beside_threads
def test_a_child_of_a_thread_does_not_wait_for_a_compiler_of_its_parent() -> None:
    """The main thread waits for the compiler, with Ctrl-C postponed; the thread that has it forks."""
    inside, waiting, well = threading.Event(), threading.Event(), []

    class Waiting(event.Listener):
        def on_start(self, event: Any) -> None:
            if threading.current_thread() is threading.main_thread():
                waiting.set()

        def on_end(self, event: Any) -> None: ...

    def ctrl_c_works() -> None:
        try:
            os.kill(os.getpid(), signal.SIGINT)
        except KeyboardInterrupt:
            return
        raise AssertionError

    def hold() -> None:
        with global_compiler_lock:
            inside.set()
            assert waiting.wait(GUARD)
            well.append(ended_well(fork(ctrl_c_works)))

    with handler(signal.default_int_handler), event.install_listener("numba:compiler_lock", Waiting()):
        thread = threading.Thread(target=hold)
        thread.start()
        assert inside.wait(GUARD)
        with global_compiler_lock:
            thread.join(GUARD)
    assert well == [True]


def test_an_interrupted_compilation_can_be_repeated() -> None:
    @numba.njit
    def one_more(x):
        return x + 1

    class Press(event.Listener):
        def on_start(self, event: Any) -> None:
            os.kill(os.getpid(), signal.SIGINT)

        def on_end(self, event: Any) -> None: ...

    with handler(signal.default_int_handler):
        with pytest.raises(KeyboardInterrupt), event.install_listener("numba:run_pass", Press()):
            one_more(1)
        assert one_more(1) == 2
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
