"""The slot that holds the model in use: another model takes its place between two requests."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from everypair.runtime.locks import CopyableLock
from everypair.service.errors import RequestError
from everypair.service.messages import ReloadResult
from everypair.service.served_model import ServedModel
from everypair.service.telemetry import log, without_path


class ModelSlot:
    """The model in use, from a folder or from memory.

    A request reads ``current`` once, so that no response mixes two models. A replaced model is freed after its last response.

    Parameters
    ----------
    current : ServedModel
    path : path, optional
        The folder of the model, where a new one may be saved.
    title : str, optional
        See :class:`~everypair.service.settings.Settings`.

    Attributes
    ----------
    on_switch : callable
        Called when another model came into use.
    """

    def __init__(self, current: ServedModel, path: str | os.PathLike[str] | None = None, title: str | None = None) -> None:
        self.current, self._path, self._title = current, None if path is None else Path(path).absolute(), title
        self._reload_lock = CopyableLock()
        self.on_switch: Callable[[], None] = lambda: None

    def use(self, served: ServedModel) -> None:
        """Use another model from now on."""
        if served.version != self.current.version:
            before, self.current = self.current.version, served
            log("switched", model=served.version, before=before)
            self.on_switch()

    def reload(self) -> ReloadResult:
        """Open the model that is in the folder now and use it, for an application that runs in one process."""
        if self._path is None:
            raise RequestError(409, "this recommender was not loaded from a folder, so it cannot be reloaded.")
        with self._reload_lock:
            before = self.current.version
            try:
                served = ServedModel.open(self._path, self._title)
            except (ValueError, OSError) as error:
                return ReloadResult(before, False, without_path(str(error), self._path))
            self.use(served)
            return ReloadResult(served.version, served.version != before)
