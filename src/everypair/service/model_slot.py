"""The slot that holds the model in use: a new model is prepared beside it and takes its place between two requests."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from everypair.runtime.locks import CopyableLock
from everypair.service.engine import ServiceEngine
from everypair.service.errors import RequestError
from everypair.service.messages import ReloadResult
from everypair.service.telemetry import log, without_path


class ModelSlot:
    """The model in use, from a folder or from memory.

    A request reads ``current`` once, so that no response mixes two models. A replaced model is freed after its last response.

    Parameters
    ----------
    current : Engine
    path : path, optional
        The folder of the model, where a new one may be saved.
    title : str, optional
        See :class:`~everypair.service.settings.Settings`.
    """

    def __init__(self, current: ServiceEngine, path: str | os.PathLike[str] | None = None, title: str | None = None) -> None:
        self.current, self._path, self._title = current, None if path is None else Path(path).absolute(), title
        self._prepared: ServiceEngine | None = None
        self._reload_lock = CopyableLock()
        self.on_switch: Callable[[], None] = lambda: None

    def prepare(self, verify: bool = True, path: Path | None = None) -> str:
        """Open the model in the folder (or in ``path``) beside the one in use and return its version."""
        folder = path or self._path
        if folder is None:
            raise RequestError(409, "this recommender was not loaded from a folder, so it cannot be reloaded.")
        self._prepared = ServiceEngine.open(folder, verify, self._title)
        return self._prepared.version

    def commit(self) -> None:
        """Use the prepared model from now on."""
        if self._prepared is not None and self._prepared.version != self.current.version:
            before, self.current = self.current.version, self._prepared
            log("switched", model=self.current.version, before=before)
            self.on_switch()
        self._prepared = None

    def drop(self) -> None:
        """Forget the prepared model."""
        self._prepared = None

    def reload(self) -> ReloadResult:
        """Prepare and commit, for an application that runs in one process."""
        with self._reload_lock:
            before = self.current.version
            try:
                self.prepare()
            except (ValueError, OSError) as error:
                self.drop()
                return ReloadResult(before, False, without_path(str(error), self._path))
            self.commit()
            return ReloadResult(self.current.version, self.current.version != before)
