"""The file of a study: one that Optuna made or may make, and for one process at a time."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

try:
    import fcntl
except ImportError:  # not a POSIX system: two processes on one study are then the caller's to avoid
    fcntl = None

OF_OPTUNA = {"studies", "trials", "version_info"}  # tables


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """No other process opens the study meanwhile. The lock is on the file itself and ends with the process, however that ends."""
    if not path.parent.is_dir():
        raise FileNotFoundError(f"study must be a file in a folder that is there, got {str(path)!r}. Make the folder first.")
    new = not path.exists()
    with path.open("ab" if new else "rb") as file:
        if fcntl is not None:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise BlockingIOError(f"{path} is in use by another search. Wait for its end, or give another path.") from error
        try:
            yield
        finally:
            if new and not path.stat().st_size:
                path.unlink()


def check_study(path: Path) -> None:
    """Refuse what is neither empty nor a database that Optuna made, before anything writes to it."""
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True)) as connection:
            tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    except sqlite3.Error as error:
        raise ValueError(f"{path} is no study that can be read: {error}. Give another path.") from error
    if tables and not tables >= OF_OPTUNA:
        raise ValueError(f"{path} is a database of something else, with the tables {', '.join(sorted(tables))}. Give another path.")
