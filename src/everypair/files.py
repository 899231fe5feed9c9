"""Files that are there whole or not at all."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

MANIFEST = "manifest.json"
ARRAYS, BYTES = ".safetensors", ".bin"
PAYLOAD = r".+-[0-9a-f]{64}\.(safetensors|bin)"
REMOVABLE = re.compile(rf"{PAYLOAD}|\.({PAYLOAD}|manifest\.json)\.[^.]+\.part")

Payload = bytes | Mapping[str, np.ndarray]


class Results:
    """A JSON file of results that take long: those so far beside it, itself when they are complete."""

    def __init__(self, path: Path) -> None:
        self._path, self.partial = path, path.with_name(f"{path.stem}.partial{path.suffix}")

    def keep(self, results: Any) -> None:
        """What there is so far; an error if it cannot be written, before anything is lost."""
        write_atomically(self.partial, as_json(results))

    def complete(self, results: Any) -> None:
        write_atomically(self._path, as_json(results))
        self.partial.unlink(missing_ok=True)


class Contents(NamedTuple):
    """What a folder holds: the manifest as it was given, and the payloads by name, bytes or arrays."""

    manifest: dict[str, Any]
    payloads: dict[str, Any]


class Folder:
    """A manifest and the files it names, replaced all at once: a crash leaves the old ones or the new ones.

    A payload is bytes, or arrays by name, and lies in a file named after its sha256. The manifest is JSON: what the caller says,
    and under "files" the file, size and checksum of each payload. Replacing it makes new payloads current; then the old ones are
    removed. A payload of bytes is read as bytes, one of arrays as arrays by name.

    Parameters
    ----------
    path : path
    kind : str
        What the folder holds; another kind is refused.
    version : int
        Of the format; a newer one is refused.
    """

    def __init__(self, path: str | os.PathLike[str], kind: str, version: int) -> None:
        self.path, self.kind, self.version = Path(path), kind, version

    def make(self) -> None:
        """The folder itself, if need be; an error if nothing can be written to it."""
        if self.path.exists() and not self.path.is_dir():
            raise NotADirectoryError(f"{self.path} is a file, and a folder is needed. Choose another place.")
        with _told(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.path) as file:
                file.write(b"?")

    def write(self, manifest: Mapping[str, Any], payloads: Mapping[str, Payload]) -> None:
        """Put these in place of what there is."""
        with _told(self.path):
            try:
                files = {name: self._store(name, payload) for name, payload in payloads.items()}
                told = {"kind": self.kind, "version": self.version, **manifest, "files": files}
                told = json.loads(json.dumps(told))  # keys that are numbers become text
                _write(self.path / MANIFEST, _text({**told, "sha256": _checksum(told)}))
            finally:
                self._tidy()

    def _store(self, name: str, payload: Payload) -> dict[str, Any]:
        content, suffix = (payload, BYTES) if isinstance(payload, bytes) else (_as_safetensors(payload), ARRAYS)
        digest = hashlib.sha256(content).hexdigest()
        file = f"{name}-{digest}{suffix}"
        _write(self.path / file, content)
        return {"file": file, "bytes": len(content), "sha256": digest}

    def _tidy(self) -> None:
        """Remove what the manifest does not name: payloads of before, and what a crash left half written."""
        with suppress(OSError, ValueError, KeyError):
            kept = {MANIFEST}
            if (self.path / MANIFEST).exists():
                kept |= {entry["file"] for entry in json.loads((self.path / MANIFEST).read_bytes())["files"].values()}
            for path in self.path.iterdir():
                if path.name not in kept and REMOVABLE.fullmatch(path.name):
                    path.unlink(missing_ok=True)

    def read(self) -> Contents | None:
        """What there is, checked; None where there is no manifest."""
        path = self.path / MANIFEST
        if not path.exists():
            return None
        try:
            manifest = json.loads(path.read_bytes())
        except ValueError as error:
            raise self._refused(path, f"not JSON: {error}") from error
        if not isinstance(manifest, dict) or manifest.get("kind") != self.kind:
            kind = manifest.get("kind") if isinstance(manifest, dict) else None
            raise self._refused(path, f"not the manifest of a {self.kind}" + (f", but of a {kind}" if kind else ""))
        version = manifest.get("version")
        if isinstance(version, int) and version > self.version:
            raise ValueError(
                f"{path} has format {version}, and this version of everypair reads {self.version} and older ones: use the version "
                f"that wrote it, or a later one."
            )
        if manifest.pop("sha256", None) != _checksum(manifest):
            raise self._refused(path, "damaged: its checksum does not fit its text")
        return Contents(manifest, {name: self._load(**entry) for name, entry in manifest["files"].items()})

    def _load(self, file: str, bytes: int, sha256: str) -> Any:  # noqa: A002 - as the manifest has it
        path = self.path / file
        if path.parent != self.path or not path.exists():
            raise self._refused(path, "missing, and the manifest names it")
        content = path.read_bytes()
        if len(content) != bytes:
            raise self._refused(path, f"damaged: it has {len(content)} bytes, and the manifest says {bytes}")
        if hashlib.sha256(content).hexdigest() != sha256:
            raise self._refused(path, "damaged: its checksum is not that of the manifest")
        if path.suffix != ARRAYS:
            return content
        try:
            return load(content)
        except SafetensorError as error:
            raise self._refused(path, f"not made of arrays: {error}") from error

    def _refused(self, path: Path, why: str) -> ValueError:
        return ValueError(f"{path} is {why}. Bring back a copy of the {self.kind}, or delete {self.path}.")


def as_json(results: Any) -> str:
    """JSON that every reader takes: null for numbers that are not finite."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: plain(entry) for key, entry in value.items()}
        if isinstance(value, list | tuple):
            return [plain(entry) for entry in value]
        return None if isinstance(value, float) and not math.isfinite(value) else value

    return json.dumps(plain(results), indent=1, allow_nan=False) + "\n"


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write beside it, then put it in place: a crash leaves the old file or the new one."""
    with _told(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        _write(path, content)


@contextmanager
def _told(path: Path) -> Iterator[None]:
    """Errors of the system that say what could not be written, and what to do."""
    try:
        yield
    except OSError as error:
        raise OSError(f"{path} cannot be written: {error.strerror or error}. Choose another place, or make room.") from error


def _write(path: Path, content: str | bytes) -> None:
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o666 & ~_umask())
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    _sync(path.parent)


def _sync(folder: Path) -> None:
    """Names, too, reach the disk in the order they were given."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _as_safetensors(arrays: Mapping[str, np.ndarray]) -> bytes:
    return save({name: np.asarray(array, order="C") for name, array in arrays.items()})


def _text(manifest: Mapping[str, Any]) -> str:
    return json.dumps(manifest, indent=1) + "\n"


def _checksum(manifest: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
