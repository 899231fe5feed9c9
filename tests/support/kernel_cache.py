"""A lock on the cache of compiled kernels, for test runs of several processes.

Numba keeps an index and numbered data files for each function. Two processes that add different signatures at the same moment may
give both the same number, and one then runs the code of the other (https://github.com/numba/numba/issues/4807).
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from typing import Any

from numba.core.caching import IndexDataCacheFile


def lock_kernel_cache() -> None:
    def locked(method: Callable[..., Any], operation: int) -> Callable[..., Any]:
        def call(self: Any, *args: Any) -> Any:
            os.makedirs(self._cache_path, exist_ok=True)
            with open(os.path.join(self._cache_path, "lock"), "a") as file:
                fcntl.flock(file, operation)  # until it is closed
                return method(self, *args)

        return call

    IndexDataCacheFile.load = locked(IndexDataCacheFile.load, fcntl.LOCK_SH)  # type: ignore[method-assign]
    IndexDataCacheFile.save = locked(IndexDataCacheFile.save, fcntl.LOCK_EX)  # type: ignore[method-assign]
