"""Locks that are right in processes that fork, and in objects that are copied or pickled.

A forked child has the forking thread alone: what other threads of its parent held would never be released. So a lock of this
package is free in the child, one of a library is held by the forking thread itself, and a file is locked by the parent alone.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any
from weakref import WeakSet

try:
    import fcntl
except ImportError:  # not a POSIX system: nothing keeps other processes out
    fcntl = None


class CopyableLock:
    """A reentrant lock. A copy of it is another lock, which nobody holds; that of a forked child at most the thread that forked."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        _locks.add(self)

    def acquire(self) -> None:
        self._lock.acquire()

    def release(self) -> None:
        self._lock.release()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.release()

    def __reduce__(self) -> tuple[type[CopyableLock], tuple[()]]:
        return CopyableLock, ()

    def _take_over(self) -> None:
        """In a forked child: free the lock if a thread of the parent held it."""
        if self._lock.acquire(blocking=False):  # nobody held it, or this thread
            self._lock.release()
        else:
            self._lock = threading.RLock()


_locks: WeakSet[CopyableLock] = WeakSet()
_locked_files: set[int] = set()  # descriptors


@contextmanager
def locked_file(descriptor: int, wait: bool = True) -> Iterator[None]:
    """Exclude other processes from what an open file or folder stands for; without ``wait``, raise BlockingIOError if one is in.

    The lock ends with the block, or with this process. To close the file would not be enough: the lock belongs to the open file,
    which children that were forked meanwhile have, too.
    """
    if fcntl is None:
        yield
        return
    _locked_files.add(descriptor)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        try:
            yield
        finally:
            fcntl.flock(descriptor, fcntl.LOCK_UN)
    finally:
        _locked_files.discard(descriptor)


def hold_while_forking(lock: Any) -> None:
    """Let processes fork only while the forking thread holds this reentrant lock: no other is in the middle of what it protects."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release)


def _after_fork() -> None:
    for lock in list(_locks):
        lock._take_over()
    for descriptor in _locked_files:  # the parent's, whose lock would last as long as this process
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, descriptor)
        os.close(nothing)
    _locked_files.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
