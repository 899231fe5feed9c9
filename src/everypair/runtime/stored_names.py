"""Names of classes in stored files: a renamed class keeps its old name there, so that files of earlier versions open."""

from __future__ import annotations

# Current class name -> name in files of all versions.
STORED_NAMES = {"OneHotField": "LevelsField"}


def stored_name(cls: type) -> str:
    """The name of a class in stored files."""
    return STORED_NAMES.get(cls.__name__, cls.__name__)
