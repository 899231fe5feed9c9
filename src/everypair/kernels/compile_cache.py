"""The files in which compiled kernels are kept, safe for any number of processes that read and write them at the same time.

Numba numbers the data files of a kernel and has an index of them. Two processes that add different signatures at the same moment
may give both the same number, and one then runs the code of the other (https://github.com/numba/numba/issues/4807). Here the name
of a file is made of the signature, and the file says whose code it holds: there is no index, and nothing to lock.

To keep code saves time and no more: where the disk is full, or the folder is gone, each process compiles for itself.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import os
import pickle
from collections.abc import Callable
from typing import Any

from numba.core.caching import FunctionCache, IndexDataCacheFile

UNREADABLE = AttributeError, EOFError, ImportError, pickle.UnpicklingError  # a class that is gone, or a file that is cut off


def keep_safely(cache: FunctionCache) -> None:
    """Have the cache of a kernel that Numba made keep its code in :class:`KernelFiles`."""
    cache.__class__, cache._cache_file.__class__ = KernelCache, KernelFiles


class KernelCache(FunctionCache):
    """The cache of a kernel, which is compiled whether or not its code can be kept."""

    def save_overload(self, sig: Any, data: Any) -> None:
        with contextlib.suppress(OSError):
            super().save_overload(sig, data)


class KernelFiles(IndexDataCacheFile):
    """The compiled code of a kernel on disk, a file for each signature and processor. What cannot be read is compiled anew."""

    def save(self, key: Any, data: Any) -> None:
        content = self._dump((self._version, self._source_stamp, key)), self._dump(data)
        with self._open_for_write(self._path(key)) as file:
            pickle.dump(content, file, protocol=-1)

    def load(self, key: Any) -> Any:
        try:
            with open(self._path(key), "rb") as file:
                owner, data = pickle.load(file)
            return pickle.loads(data) if pickle.loads(owner) == (self._version, self._source_stamp, key) else None
        except (OSError, *UNREADABLE):
            return None

    def flush(self) -> None:
        for path in glob.glob(self._path_of("*", glob.escape)):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)

    def _path(self, key: Any) -> str:
        """By signature and processor. The rest of the key changes with the source: newer code replaces what is there."""
        signature, processor, *_ = key
        return self._path_of(hashlib.sha256(repr((signature, processor)).encode()).hexdigest()[:20])

    def _path_of(self, which: str, escape: Callable[[str], str] = str) -> str:
        before, after = self._data_name_pattern.split("{number:d}")
        return escape(os.path.join(self._cache_path, before)) + which + after
