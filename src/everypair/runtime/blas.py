"""The limit of one thread for BLAS: :class:`~everypair.runtime.parallel.Workers` divides the work, and the bits stay the same.

Some libraries have one limit for the process (OpenBLAS with threads of its own), some a limit for each thread that calls them
(those on OpenMP, MKL): it depends on the library, its build, and the version of threadpoolctl. A limit of the process is set by the
first thread that enters and lifted by the last that leaves; a limit of a thread is set and lifted by each thread.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from threadpoolctl import ThreadpoolController


class Libraries:
    """The libraries with threads of their own that are loaded, BLAS among them."""

    def __init__(self) -> None:
        self._found: list[Any] = []
        self._modules = 0
        self._of_process: dict[str, bool] = {}  # by file

    def several_threads(self) -> list[tuple[Any, int]]:
        """Those that would use several threads if this thread called them, and how many."""
        if self._modules != len(sys.modules):  # new modules may bring libraries; to look for these takes longer than a request
            self._found, self._modules = ThreadpoolController().lib_controllers, len(sys.modules)
        numbers = [(library, library.num_threads) for library in self._found]
        return [(library, n) for library, n in numbers if n is not None and n > 1]

    def of_process(self, library: Any, n: int) -> bool:
        """Whether the limit of a library, now n, is that of the process: whether another thread can change it. Tried out once."""
        if library.filepath not in self._of_process:
            other = threading.Thread(target=set_limit, args=(library, 1))
            other.start()
            other.join()
            changed = library.num_threads != n
            self._of_process[library.filepath] = changed
            if changed:
                set_limit(library, n)
        return self._of_process[library.filepath]


class _Own(threading.local):
    """How often this thread is in the context, and what its own limits were before."""

    def __init__(self) -> None:
        self.depth = 0
        self.before: list[tuple[Any, int]] = []


libraries = Libraries()
_lock = threading.RLock()
_own = _Own()
_threads = 0  # in the context
_before: dict[str, tuple[Any, int]] = {}  # limits of the process before, by file


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit BLAS to one thread while this thread is in this context."""
    try:
        with _lock:
            _enter()
        yield
    finally:
        with _lock:
            _leave()


def limit_own_thread() -> None:
    """Limit BLAS to one thread when this thread calls it, for as long as the thread lives; limits of the process are left alone."""
    with _lock:
        for library, n in libraries.several_threads():
            if not libraries.of_process(library, n):
                set_limit(library, 1)


def set_limit(library: Any, n: int) -> None:
    """From version 3.8 of threadpoolctl, a thread controls OpenBLAS until it says that it is done, and others are ignored."""
    done = getattr(library, "clear_controlling_thread", None)
    if done is not None:
        done(force=True)
    library.set_num_threads(n)
    if done is not None:
        done()


def _enter() -> None:
    global _threads
    _own.depth += 1
    if _own.depth > 1:
        return
    _threads += 1
    for library, n in libraries.several_threads():
        if libraries.of_process(library, n):
            _before.setdefault(library.filepath, (library, n))
        else:
            _own.before.append((library, n))
        set_limit(library, 1)


def _leave() -> None:
    global _threads
    _own.depth -= 1
    if _own.depth:
        return
    _threads -= 1
    for library, n in [*_own.before, *(() if _threads else _before.values())]:
        set_limit(library, n)
    _own.before.clear()
    if not _threads:
        _before.clear()


def _only_this_thread() -> None:
    """A forked child has this thread alone. Others that were in the context never leave: the next to leave lifts their limits."""
    global _threads
    _threads = int(_own.depth > 0)
    _lock.release()


if hasattr(os, "register_at_fork"):  # a process is not forked while a thread changes limits: the child would have half of it
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_only_this_thread)
