"""Snapshots of a model's folder in memory, which nothing that happens to the folder can reach.

A worker maps the files of its model. If it mapped those of the folder, ``cp other/* model/`` would truncate them under it, and the
kernel would kill it at its next look. So the supervisor copies the files into memory, once: anonymous files that all workers map,
sealed against changes. They need no disk, and the kernel frees them when no process has them any more, however the service ends.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from everypair.persistence.folder import RECOMMENDER, Folder
from everypair.service.memory import available_bytes

ATTEMPTS = 5  # to read a folder that is being replaced
CHUNK = 1 << 22  # bytes
SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL

Stamp = list[tuple[str, int, int]] | None


class Snapshot(Folder):
    """A model's folder as it was when :func:`take_snapshot` read it. Its checksums are verified.

    Parameters
    ----------
    path : Path
        The model's folder, which errors name.
    contents : dict
        The manifest.
    files : mapping
        Open files by the names that the manifest has for them. They belong to the snapshot.
    """

    def __init__(self, path: Path, contents: dict[str, Any], files: Mapping[str, int]) -> None:
        super().__init__(path, *RECOMMENDER)
        self.contents, self.files = contents, dict(files)

    def manifest(self) -> dict[str, Any]:
        """The manifest."""
        return self.contents

    def checked(self, entry: Any, verify: bool) -> Path:
        """A path to open a payload by, in this process."""
        return Path(f"/proc/self/fd/{self.files[entry['file']]}")

    def close(self) -> None:
        """Close the files. Those that are mapped stay in memory until they are not."""
        while self.files:
            os.close(self.files.popitem()[1])

    def __enter__(self) -> Snapshot:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


def take_snapshot(path: Path) -> Snapshot:
    """Copy a model's folder into memory; raises ValueError or OSError if there is no usable model, or no memory for it."""
    folder = Folder(path, *RECOMMENDER)
    for _ in range(ATTEMPTS):
        before = stamp_of(path)
        contents = folder.manifest()
        try:
            return _copied(folder, contents)
        except (FileNotFoundError, ValueError) as error:
            if stamp_of(path) != before:  # the folder was replaced meanwhile
                continue
            if isinstance(error, FileNotFoundError):
                raise folder.refused(Path(str(error.filename or error)), "missing, and the manifest names it") from error
            raise
    raise ValueError(f"{path} kept changing while it was read. Try again when nothing is being saved to it.")


def _copied(folder: Folder, contents: dict[str, Any]) -> Snapshot:
    entries = list(contents.get("files", {}).values())
    sources = [folder.checked(entry, verify=False) for entry in entries]
    needed, available = sum(entry["bytes"] for entry in entries), available_bytes()
    if available is not None and needed > available:
        raise OSError(
            f"{folder.path} needs {needed:,} bytes of memory, and {available:,} are available: while a model is replaced, both "
            "are in memory. Free memory, or restart the service."
        )
    snapshot = Snapshot(folder.path, contents, {})
    try:
        for source, entry in zip(sources, entries, strict=True):
            snapshot.files[entry["file"]] = copy = os.memfd_create(source.name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            if _copy(source, copy) != entry["sha256"]:
                raise folder.refused(source, "damaged: its checksum does not match the manifest")
            fcntl.fcntl(copy, fcntl.F_ADD_SEALS, SEALS)
    except BaseException:
        snapshot.close()
        raise
    return snapshot


def _copy(source: Path, copy: int) -> str:
    """Copy a file and return its checksum."""
    digest, buffer = hashlib.sha256(), bytearray(CHUNK)
    with source.open("rb", buffering=0) as file:
        while size := file.readinto(buffer):
            part = memoryview(buffer)[:size]
            digest.update(part)
            while part:
                part = part[os.write(copy, part) :]
    return digest.hexdigest()


def stamp_of(path: Path) -> Stamp:
    """Names, times and sizes of a folder's files, which change when the folder does; None if it cannot be read."""
    with suppress(OSError), os.scandir(path) as entries:
        return sorted((entry.name, entry.stat().st_mtime_ns, entry.stat().st_size) for entry in entries)
    return None
