"""Snapshots of a model's folder by hard links, so that restarted workers open the model in use whatever is saved meanwhile."""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from everypair.persistence.folder import RECOMMENDER, Folder
from everypair.persistence.manifest import MANIFEST

PREFIX = ".everypair-serve-"
ATTEMPTS = 5  # to read a folder that is being replaced


class Snapshots:
    """Hard links to the files of a model's folder, a folder of links for each snapshot.

    Files of a model are replaced and removed but never changed, so a link preserves a file at no cost. Links are made in the
    temporary folder or, if that is on another disk, beside the model; if neither works, the model's folder itself is used.

    Parameters
    ----------
    path : Path
        The model's folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._link_folder: Path | None = None
        self._number = 0

    def take(self) -> Path:
        """A folder with the files that the model has now; raises ValueError or OSError if there is no usable model."""
        folder = Folder(self.path, *RECOMMENDER)
        for attempts_left in range(ATTEMPTS, 0, -1):
            before, manifest = self.stamp(), folder.manifest()
            try:
                snapshot = self._link([folder.checked(entry, verify=False) for entry in manifest.get("files", {}).values()])
            except FileNotFoundError as error:
                if attempts_left == 1 or self.stamp() == before:  # the folder was not replaced meanwhile
                    missing = Path(str(error.filename or error))
                    raise folder.refused(missing, "missing, and the manifest names it") from error
            else:
                if self.stamp() == before:
                    return snapshot
                self.drop(snapshot)
        raise ValueError(f"{self.path} kept changing while it was read. Try again when nothing is being saved to it.")

    def _link(self, files: list[Path]) -> Path:
        self._link_folder = self._link_folder or self._new_link_folder()
        if self._link_folder is None:
            return self.path
        self._number += 1
        snapshot = self._link_folder / str(self._number)
        try:
            snapshot.mkdir(parents=True)
            for file in files:
                os.link(file, snapshot / file.name)
            shutil.copyfile(self.path / MANIFEST, snapshot / MANIFEST)  # a copy, since people edit manifests in place
        except OSError as error:
            shutil.rmtree(snapshot, ignore_errors=True)
            if isinstance(error, FileNotFoundError):
                raise
            return self.path
        return snapshot

    def _new_link_folder(self) -> Path | None:
        """A new folder on the model's disk; None if there is no place for one."""
        for parent in (Path(tempfile.gettempdir()), self.path.parent):
            with suppress(OSError):
                folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
                if self._can_link(folder):
                    return folder
                shutil.rmtree(folder, ignore_errors=True)
        return None

    def _can_link(self, folder: Path) -> bool:
        """Whether files of the model can be linked into a folder."""
        try:
            os.link(self.path / MANIFEST, folder / MANIFEST)
            (folder / MANIFEST).unlink()
        except OSError:
            return False
        return True

    def stamp(self) -> Any:
        """Names, times and sizes of the files, which change when the folder does; None if it cannot be read."""
        try:
            with os.scandir(self.path) as entries:
                return sorted((entry.name, entry.stat().st_mtime_ns, entry.stat().st_size) for entry in entries)
        except OSError:
            return None

    def keep_only(self, snapshot: Path) -> None:
        """Remove all other snapshots. Processes that have their files mapped keep them."""
        for other in self._link_folder.iterdir() if self._link_folder is not None else ():
            if other != snapshot:
                shutil.rmtree(other, ignore_errors=True)

    def drop(self, snapshot: Path) -> None:
        """Remove a snapshot."""
        if snapshot != self.path:
            shutil.rmtree(snapshot, ignore_errors=True)

    def close(self) -> None:
        """Remove all snapshots."""
        if self._link_folder is not None:
            shutil.rmtree(self._link_folder, ignore_errors=True)
