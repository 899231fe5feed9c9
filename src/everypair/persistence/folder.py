"""Folders of a manifest and checksummed payload files, replaced atomically and verified when they are opened."""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors import SafetensorError, safe_open

from everypair.persistence.manifest import CHECKSUM, MANIFEST, is_intact, sealed
from everypair.runtime import validation as check
from everypair.runtime.atomic_files import described_errors, writing
from everypair.runtime.locks import locked_file

RECOMMENDER = ("recommender", 2)  # kind and format version of saved recommenders
ARRAYS, BYTES = ".safetensors", ".bin"
SHA256 = r"[0-9a-f]{64}"
PAYLOAD = rf"everypair-[a-z_]+-{SHA256}\.(safetensors|bin)"
OURS = re.compile(rf"{PAYLOAD}|\.everypair-[a-z_.]+-[a-z0-9_]+\.part")  # files that may be deleted
DTYPES = {"F64": "<f8", "I64": "<i8", "U64": "<u8", "F32": "<f4", "I32": "<i4", "BOOL": "|b1", "U8": "|u1"}
NAMES = {np.dtype(code): name for name, code in DTYPES.items()}

Payload = bytes | Mapping[str, np.ndarray]


class Contents(NamedTuple):
    """The content of a folder: the manifest, and each payload by name as bytes or arrays."""

    manifest: dict[str, Any]
    payloads: dict[str, Any]


class Folder:
    """A manifest and its payload files, replaced atomically: after a crash, the folder holds the old ones or the new ones.

    A payload is bytes, or arrays by name (safetensors), in a file named after its sha256, which cannot be written to: processes may
    have it mapped. The manifest is JSON: the caller's entries, and under "files" the file name, size and checksum of each payload.
    Replacing the manifest makes new payloads current; then the old files are removed. Processes that have them open or mapped keep
    them.

    Parameters
    ----------
    path : path
    kind : str
        What the folder holds, such as "checkpoint"; a folder of another kind is refused.
    version : int
        Version of the format; a newer one is refused.
    """

    def __init__(self, path: str | os.PathLike[str], kind: str, version: int) -> None:
        self.path, self.kind, self.version = Path(path), kind, version

    def make(self) -> None:
        """Create the folder if it does not exist, and check that it can be written to and holds nothing else."""
        if self.path.exists() and not self.path.is_dir():
            raise NotADirectoryError(f"{self.path} is a file, and a folder is needed. Choose another path.")
        with described_errors(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            self._refuse_other_files()
            with tempfile.TemporaryFile(dir=self.path, prefix=".everypair-probe-", suffix=".part") as file:
                file.write(b"?")

    def write(self, manifest: Mapping[str, Any], payloads: Mapping[str, Payload]) -> None:
        """Replace the content of the folder."""
        self.make()
        with self._locked():
            self._refuse_other_files()
            self.refuse_other_kinds()
            try:
                files = {name: self._store(name, payload) for name, payload in payloads.items()}
                whole = {"kind": self.kind, "version": self.version, **manifest, "files": files}
                with writing(self.path / MANIFEST) as temporary:
                    temporary.write_bytes(sealed(whole))
            finally:
                self._tidy()

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Exclude other writers: their new files are in no manifest yet, and ``_tidy`` would remove them."""
        with described_errors(self.path):
            handle = os.open(self.path, os.O_RDONLY)
            try:
                with locked_file(handle):
                    yield
            finally:
                os.close(handle)

    def _store(self, name: str, payload: Payload) -> dict[str, Any]:
        suffix = BYTES if isinstance(payload, bytes) else ARRAYS
        digest, size = hashlib.sha256(), 0
        with (
            writing(self.path / name, lambda: self.path / _payload_name(name, suffix, digest), read_only=True) as temporary,
            temporary.open("wb") as file,
        ):
            for part in [payload] if isinstance(payload, bytes) else _safetensors(payload):
                digest.update(part)
                file.write(part)
                size += memoryview(part).nbytes
        return {"file": _payload_name(name, suffix, digest), "bytes": size, "sha256": digest.hexdigest()}

    def _refuse_other_files(self) -> None:
        """Raise if the folder has no manifest, and holds other things."""
        others = [] if self.exists else sorted(path.name for path in self.path.iterdir() if not OURS.fullmatch(path.name))
        if others:
            more = f" and {len(others) - 1:,} more" if len(others) > 1 else ""
            raise FileExistsError(
                f"{self.path} is not the folder of a {self.kind}, and holds {others[0]!r}{more}. Choose a new or an empty "
                f"folder, such as {self.path / self.kind}."
            )

    def refuse_other_kinds(self) -> None:
        """Raise if the folder holds a manifest of another kind, which would be overwritten."""
        if not self.exists:
            return
        manifest, kind = self.path / MANIFEST, None
        with suppress(ValueError, RecursionError, AttributeError):
            kind = json.loads(manifest.read_bytes()).get("kind")
        if kind != self.kind:
            raise FileExistsError(
                f"{manifest} is not the manifest of a {self.kind}, and would be overwritten. Choose another folder, or delete it."
            )

    def _tidy(self) -> None:
        """Remove files that the manifest does not name: earlier payloads, and temporary files that a crash left."""
        with suppress(OSError, ValueError, RecursionError, KeyError, TypeError, AttributeError):
            kept = set()
            if self.exists:
                kept = {entry["file"] for entry in json.loads((self.path / MANIFEST).read_bytes())["files"].values()}
            for path in self.path.iterdir():
                if path.name not in kept and OURS.fullmatch(path.name):
                    with suppress(OSError):
                        path.unlink()

    @property
    def exists(self) -> bool:
        """Whether the folder has a manifest."""
        return (self.path / MANIFEST).exists()

    def open(self, mapped: tuple[str, ...] = (), verify: bool = True) -> Contents:
        """Read the content and verify it.

        Parameters
        ----------
        mapped : names of payloads
            Payloads whose arrays are mapped into memory instead of read.
        verify : bool
            Whether to verify the checksums of the mapped payloads. All others are always verified.
        """
        manifest = self.manifest()
        for retry in (True, False):
            try:
                return Contents(manifest, {name: self._payload(name, entry, mapped, verify) for name, entry in _files(manifest)})
            except FileNotFoundError as error:
                manifest, before = self.manifest(), manifest
                if not retry or manifest == before:  # not replaced by another process in between
                    raise self.refused(Path(str(error)), "missing, and the manifest names it") from None
        raise AssertionError

    def manifest(self) -> dict[str, Any]:
        """Read the manifest alone and verify it."""
        path = self.path / MANIFEST
        if not self.path.exists():
            raise FileNotFoundError(f"there is no folder {self.path}.")
        if not path.is_file():
            raise FileNotFoundError(f"{self.path} does not hold a {self.kind}: there is no {MANIFEST} in it.")
        self._refuse_link_out(path)
        written = path.read_bytes()
        try:
            manifest = json.loads(written)
        except (ValueError, RecursionError) as error:
            raise self.refused(path, f"not JSON: {error}") from error
        if not isinstance(manifest, dict) or manifest.get("kind") != self.kind:
            kind = manifest.get("kind") if isinstance(manifest, dict) else None
            raise self.refused(path, f"not the manifest of a {self.kind}" + (f", but of a {kind}" if kind else ""))
        version = manifest.get("version")
        if type(version) is not int or version < 1:
            raise self.refused(path, f"damaged: its format version cannot be {version!r}")
        if version > self.version:
            raise ValueError(
                f"{path} has format {version}, and this version of everypair reads formats up to {self.version}: use the version "
                f"that wrote it, or a later one."
            )
        try:
            intact = is_intact(written, manifest, manifest.pop(CHECKSUM, None))
        except RecursionError:
            intact = False
        if not intact:
            raise self.refused(path, "damaged: its checksum does not match its content")
        return manifest

    def _payload(self, name: str, entry: Any, mapped: tuple[str, ...], verify: bool) -> Any:
        path = self.checked(entry, verify or name not in mapped)
        named = self.path / entry["file"]
        if named.suffix != ARRAYS:
            return path.read_bytes()
        try:
            arrays = _mapped(path)
        except (SafetensorError, ValueError, KeyError, TypeError, OverflowError) as error:
            raise self.refused(named, f"not a file of arrays: {error}") from error
        return arrays if name in mapped else {key: np.array(array) for key, array in arrays.items()}

    def checked(self, entry: Any, verify: bool) -> Path:
        """The path of a payload, checked to exist with the right size and, with ``verify``, the right checksum."""
        try:
            file, size, sha256 = entry["file"], check.integer("bytes", entry["bytes"], low=0), entry["sha256"]
            named = re.fullmatch(PAYLOAD, file) is not None and re.fullmatch(SHA256, sha256) is not None
        except (KeyError, TypeError, ValueError) as error:
            raise self.refused(self.path / MANIFEST, "damaged: its list of files is incomplete") from error
        if not named:
            raise self.refused(self.path / MANIFEST, f"damaged: {file!r} is not the name of a payload, or {sha256!r} no checksum")
        path = self.path / file
        if not path.is_file():
            raise FileNotFoundError(path)
        self._refuse_link_out(path)
        if path.stat().st_size != size:
            raise self.refused(path, f"damaged: it has {path.stat().st_size:,} bytes, and the manifest says {size:,}")
        if verify:
            with path.open("rb") as content:
                if hashlib.file_digest(content, "sha256").hexdigest() != sha256:
                    raise self.refused(path, "damaged: its checksum does not match the manifest")
        return path

    def _refuse_link_out(self, path: Path) -> None:
        """Raise if a file is elsewhere: a folder that someone else made would choose what is read."""
        if not path.resolve().is_relative_to(self.path.resolve()):
            raise ValueError(f"{path} is a link out of the folder. Put the file itself there (cp -rL copies links as files).")

    def refused(self, path: Path, why: str) -> ValueError:
        """The error of a folder that cannot be used."""
        return ValueError(f"{path} is {why}. Restore the {self.kind} from a backup, or delete {self.path}.")


def _payload_name(name: str, suffix: str, digest: Any) -> str:
    return f"everypair-{name}-{digest.hexdigest()}{suffix}"


def _files(manifest: Mapping[str, Any]) -> list[tuple[str, Any]]:
    files = manifest.get("files")
    return list(files.items()) if isinstance(files, dict) else []


def _safetensors(arrays: Mapping[str, np.ndarray]) -> Iterator[Any]:
    """The bytes of a safetensors file, array by array, without a copy of all. Wider types come first, so that all are aligned."""
    plain = {name: np.asarray(array, np.asarray(array).dtype.newbyteorder("<"), order="C") for name, array in arrays.items()}
    for name, array in plain.items():
        if array.dtype not in NAMES:
            raise TypeError(f"{name!r} has dtype {array.dtype}, which cannot be stored. Use one of {', '.join(map(str, NAMES))}.")
    ordered = sorted(plain, key=lambda name: (-plain[name].itemsize, name))
    header, at = {}, 0
    for name in ordered:
        array = plain[name]
        header[name] = {"dtype": NAMES[array.dtype], "shape": list(array.shape), "data_offsets": [at, at + array.nbytes]}
        at += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    yield len(text).to_bytes(8, "little") + text
    for name in ordered:
        if plain[name].size:
            yield plain[name].reshape(-1).view(np.uint8).data


def _mapped(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a file, mapped into memory, after its header was checked against the file."""
    with safe_open(path, "np") as file:
        names = set(file.keys())
    with path.open("rb") as content:
        length = int.from_bytes(content.read(8), "little")
        header = json.loads(content.read(length))
    header.pop("__metadata__", None)
    if set(header) != names:
        raise ValueError("its header does not match its arrays")
    whole = np.memmap(path, np.uint8, "r")
    arrays = {}
    for name, entry in header.items():
        dtype, (start, stop) = np.dtype(DTYPES[entry["dtype"]]), entry["data_offsets"]
        part = whole[8 + length + start : 8 + length + stop]
        arrays[name] = np.asarray(part).view(dtype).reshape(entry["shape"]) if stop > start else np.empty(entry["shape"], dtype)
    return arrays
