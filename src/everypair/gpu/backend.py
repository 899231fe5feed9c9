"""``Backend``: where arrays lie and kernels run. On a GPU that is CuPy; the tests run the same sources on the CPU."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import numpy as np

from everypair.gpu.sources import CudaSource, checked, source

Launch = Callable[..., None]


class Backend(ABC):
    """A device: its array library, and its compiled kernels.

    Attributes
    ----------
    xp : module
        NumPy, or a library with its interface.
    name, device : str
        The device, as people know it, and as ``device=`` names it.
    """

    xp: Any
    name: str
    device: str

    def __init__(self) -> None:
        self._compiled: dict[str, Mapping[str, Callable[..., None]]] = {}

    def active(self) -> AbstractContextManager[None]:
        """While it is, allocations and launches of this thread go to this device."""
        return nullcontext()

    def kernels(self, name: str, **defined: int) -> Kernels:
        """The kernels of ``kernels/<name>.cu``, compiled at first use."""
        found = source(name, **defined)
        if found.name not in self._compiled:
            self._compiled[found.name] = self.compile(found)
        return Kernels(found, self._compiled[found.name])

    @abstractmethod
    def compile(self, source: CudaSource) -> Mapping[str, Callable[..., None]]:
        """Functions ``launch(blocks, threads, arguments)`` by the name of the kernel."""

    @abstractmethod
    def upload(self, array: np.ndarray) -> Any:
        """A copy on the device."""

    @abstractmethod
    def download(self, array: Any) -> np.ndarray:
        """A copy on the host."""

    @property
    def facts(self) -> dict[str, str]:
        """The device and what runs it, for people."""
        return {"device": self.name}

    @property
    @abstractmethod
    def free_bytes(self) -> int:
        """Memory of the device that can be taken now."""

    def floats(self, values: Any) -> tuple[Any, int]:
        """A number or an array as kernels take them: an array in float32, and its step, which is 0 if there is one for all."""
        array = np.ascontiguousarray(np.ravel(np.asarray(values)), np.float32)
        return self.upload(array), int(np.ndim(values) > 0)

    def ints(self, array: np.ndarray) -> Any:
        return self.upload(np.ascontiguousarray(array, np.int32))


class Kernels:
    """The kernels of a source, as attributes: ``kernels.name(blocks, threads, *arguments)``."""

    def __init__(self, source: CudaSource, compiled: Mapping[str, Callable[..., None]]) -> None:
        self._source, self._kernels = source, compiled

    def __getattr__(self, name: str) -> Launch:
        if name.startswith("_") or name not in self._kernels:
            raise AttributeError(f"{self._source.name} has no kernel {name}.")
        return partial(self._launch, name)

    def _launch(self, name: str, blocks: int, threads: int, *values: Any) -> None:
        values = checked(name, self._source.kernels[name], values)  # type: ignore[assignment]
        if blocks > 0:
            self._kernels[name](blocks, threads, values)
