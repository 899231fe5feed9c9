"""The files in which compiled kernels are kept, safe for any number of processes that read and write them at the same time.

Numba numbers the data files of a kernel and has an index of them. Two processes that add different signatures at the same moment
may give both the same number, and one then runs the code of the other (https://github.com/numba/numba/issues/4807). Here the name
of a file is made of the signature, and the file says whose code it holds: there is no index, and nothing to lock.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import os
import pickle
from collections.abc import Callable
from typing import Any

from numba.core.caching import IndexDataCacheFile

UNREADABLE = AttributeError, EOFError, ImportError, pickle.UnpicklingError  # a class that is gone, or a file that is cut off


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
        except (FileNotFoundError, *UNREADABLE):
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
