"""Which model answers: another one is made ready beside it, and takes its place between two requests."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

from everypair.service.engine import Engine
from everypair.service.errors import Refused
from everypair.service.telemetry import log, without_path
from everypair.service.worker import Reloaded


class ModelSlot:
    """The model in use, of a folder or of one's own.

    A request takes ``current`` once, and keeps to it: no answer is made by two models. What was in use goes when its last answer
    has been made.

    Parameters
    ----------
    current : Engine
    path : path, optional
        Of its folder, which another model may be put into.
    title : str, optional
        See :class:`~everypair.service.settings.Settings`.
    """

    def __init__(self, current: Engine, path: str | os.PathLike[str] | None = None, title: str | None = None) -> None:
        self.current, self._path, self._title = current, None if path is None else Path(path).absolute(), title
        self._ready: Engine | None = None
        self._changing = threading.Lock()
        self.watch: Callable[[], None] = lambda: None

    def prepare(self, verify: bool = True, path: Path | None = None) -> str:
        """Open what is in the folder, or in another, beside what is in use; its version. An error if it cannot be used."""
        place = path or self._path
        if place is None:
            raise Refused(409, "this recommender was not loaded from a folder: there is nothing to load again.")
        self._ready = Engine.open(place, verify, self._title)
        return self._ready.version

    def commit(self) -> None:
        """Answer with it from now on."""
        if self._ready is not None and self._ready.version != self.current.version:
            before, self.current = self.current.version, self._ready
            log("switched", model=self.current.version, before=before)
            self.watch()
        self._ready = None

    def drop(self) -> None:
        """Leave it as it was."""
        self._ready = None

    def reload(self) -> Reloaded:
        """Both, in this process alone."""
        with self._changing:
            before = self.current.version
            try:
                self.prepare()
            except (ValueError, OSError) as error:
                self.drop()
                return Reloaded(before, False, without_path(str(error), self._path))
            self.commit()
            return Reloaded(self.current.version, self.current.version != before)
