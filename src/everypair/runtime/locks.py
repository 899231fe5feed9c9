"""Locks in objects that are copied or pickled."""

from __future__ import annotations

import threading
from types import TracebackType


class CopyableLock:
    """A reentrant lock; a copy of it is another lock, which nobody holds."""

    def __init__(self) -> None:
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._lock.release()

    def __reduce__(self) -> tuple[type[CopyableLock], tuple[()]]:
        return CopyableLock, ()
