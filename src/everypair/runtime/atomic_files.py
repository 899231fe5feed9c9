"""Atomic file writes: after a crash, a file has its old content or its new content, never part of it."""

from __future__ import annotations

import json
import math
import os
import secrets
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

READ_ONLY = 0o444  # permissions that a file which must not be changed in place may have


class ResultsFile:
    """A JSON file of results that take long to compute. Until they are complete, they are kept in ``<stem>.partial.json``."""

    def __init__(self, path: Path) -> None:
        self._path, self.partial = path, path.with_name(f"{path.stem}.partial{path.suffix}")

    def keep(self, results: Any) -> None:
        """Write the results so far to the partial file."""
        write_atomically(self.partial, as_json(results))

    def complete(self, results: Any) -> None:
        """Write the final file and remove the partial one."""
        write_atomically(self._path, as_json(results))
        self.partial.unlink(missing_ok=True)


def as_json(results: Any) -> str:
    """Standard JSON: NaN and infinities, which it does not have, become null."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: plain(entry) for key, entry in value.items()}
        if isinstance(value, list | tuple):
            return [plain(entry) for entry in value]
        return None if isinstance(value, float) and not math.isfinite(value) else value

    return json.dumps(plain(results), indent=1, allow_nan=False) + "\n"


def write_atomically(path: Path, text: str) -> None:
    """Write ``text`` to a temporary file in the same folder, then rename it to ``path``."""
    with writing(path) as temporary:
        temporary.write_text(text, "utf-8")


@contextmanager
def writing(path: Path, final: Callable[[], Path] | None = None, *, read_only: bool = False) -> Iterator[Path]:
    """A temporary path to write to. When the block ends without an error, it is renamed to ``path``, or to ``final()`` if given
    (a name that depends on the content). ``read_only`` files cannot be changed in place, only replaced."""
    with described_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = _new_file(path)
        try:
            yield temporary
            with temporary.open("rb") as file:
                os.fsync(file.fileno())
                if read_only:
                    os.fchmod(file.fileno(), stat.S_IMODE(os.fstat(file.fileno()).st_mode) & READ_ONLY)
            os.replace(temporary, path if final is None else final())
            _sync(path.parent)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


def _new_file(path: Path) -> Path:
    """An empty file beside ``path``. The system applies the umask: a process that asks for it changes it for all its threads."""
    temporary = path.with_name(f".everypair-{path.name}-{secrets.token_hex(8)}.part")
    os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o666))
    return temporary


@contextmanager
def described_errors(path: Path) -> Iterator[None]:
    """Raise OSErrors of the system again with a message that names ``path`` and says what to do."""
    try:
        yield
    except OSError as error:
        if error.errno is None:  # raised by an inner call of this function
            raise
        raise OSError(f"{path} cannot be written: {error.strerror or error}. Choose another path, or free space.") from error


def _sync(folder: Path) -> None:
    """Flush a folder, so that renames reach the disk in order."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
