"""Files that are there whole or not at all."""

from __future__ import annotations

import json
import math
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


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


def as_json(results: Any) -> str:
    """JSON that every reader takes: null for numbers that are not finite."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: plain(entry) for key, entry in value.items()}
        if isinstance(value, list | tuple):
            return [plain(entry) for entry in value]
        return None if isinstance(value, float) and not math.isfinite(value) else value

    return json.dumps(plain(results), indent=1, allow_nan=False) + "\n"


def write_atomically(path: Path, text: str) -> None:
    """Write beside it, then put it in place: a crash leaves the old file or the new one."""
    with writing(path) as temporary:
        temporary.write_text(text, "utf-8")


@contextmanager
def writing(path: Path, final: Callable[[], Path] | None = None) -> Iterator[Path]:
    """A place to write to, which takes the place of ``path`` (or of what ``final`` then says) when all is written, not before."""
    with told(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".everypair-{path.name}-", suffix=".part")
        os.close(handle)
        temporary = Path(name)
        try:
            yield temporary
            with temporary.open("rb") as file:
                os.fsync(file.fileno())
            os.chmod(temporary, 0o666 & ~_umask())
            os.replace(temporary, path if final is None else final())
            _sync(path.parent)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


@contextmanager
def told(path: Path) -> Iterator[None]:
    """Errors of the system that say what could not be written, and what to do."""
    try:
        yield
    except OSError as error:
        if error.errno is None:  # it is told already
            raise
        raise OSError(f"{path} cannot be written: {error.strerror or error}. Choose another place, or make room.") from error


def _sync(folder: Path) -> None:
    """Names, too, reach the disk in the order they were given."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
