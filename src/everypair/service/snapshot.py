"""The files of the model in use, held: whatever becomes of its folder, another worker can open the same."""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from everypair.persistence.folder import MANIFEST, RECOMMENDER, Folder

PREFIX = ".everypair-serve-"
TRIES = 5  # at a folder that is being replaced


class Snapshots:
    """Folders of links to the files of a folder, each as that was at some moment.

    A model's files are never changed, but replaced and removed: a link keeps one, and costs nothing. Links are made in the folder
    for temporary files or, where that is on another disk, beside the model; where neither can be, the folder itself is used.

    Parameters
    ----------
    path : Path
        Of the model's folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._place: Path | None = None
        self._number = 0

    def take(self) -> Path:
        """What there is now; an error if that is no model."""
        folder = Folder(self.path, *RECOMMENDER)
        for again in range(TRIES, 0, -1):
            before, manifest = self.stamp(), folder.manifest()
            try:
                taken = self._linked([folder.checked(entry, verify=False) for entry in manifest.get("files", {}).values()])
            except FileNotFoundError as error:
                if again == 1 or self.stamp() == before:  # it was not replaced meanwhile
                    missing = Path(str(error.filename or error))
                    raise folder.refused(missing, "missing, and the manifest names it") from error
            else:
                if self.stamp() == before:
                    return taken
                self.drop(taken)
        raise ValueError(f"{self.path} does not stay the same for as long as it takes to look at it.")

    def _linked(self, files: list[Path]) -> Path:
        self._place = self._place or self._linkable()
        if self._place is None:
            return self.path
        self._number += 1
        made = self._place / str(self._number)
        try:
            made.mkdir(parents=True)
            for file in files:
                os.link(file, made / file.name)
            shutil.copyfile(self.path / MANIFEST, made / MANIFEST)  # people edit those
        except OSError as error:
            shutil.rmtree(made, ignore_errors=True)
            if isinstance(error, FileNotFoundError):
                raise
            return self.path
        return made

    def _linkable(self) -> Path | None:
        """A new folder that files of the model can be linked into, if there can be one."""
        for parent in (Path(tempfile.gettempdir()), self.path.parent):
            with suppress(OSError):
                place = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
                if self._links(place):
                    return place
                shutil.rmtree(place, ignore_errors=True)
        return None

    def _links(self, place: Path) -> bool:
        """Whether files of the model can be linked there."""
        try:
            os.link(self.path / MANIFEST, place / MANIFEST)
            (place / MANIFEST).unlink()
        except OSError:
            return False
        return True

    def stamp(self) -> Any:
        """What changes when anything in the folder does."""
        try:
            with os.scandir(self.path) as entries:
                return sorted((entry.name, entry.stat().st_mtime_ns, entry.stat().st_size) for entry in entries)
        except OSError:
            return None

    def keep_only(self, kept: Path) -> None:
        """Let the others go; who has their files mapped keeps those."""
        for other in self._place.iterdir() if self._place is not None else ():
            if other != kept:
                shutil.rmtree(other, ignore_errors=True)

    def drop(self, taken: Path) -> None:
        """Let one go."""
        if taken != self.path:
            shutil.rmtree(taken, ignore_errors=True)

    def close(self) -> None:
        if self._place is not None:
            shutil.rmtree(self._place, ignore_errors=True)
