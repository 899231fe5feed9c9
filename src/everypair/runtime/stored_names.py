"""Names in stored files that have changed since, so that files of earlier versions open."""

from __future__ import annotations

# Current class name -> name in files of all versions.
STORED_NAMES = {"OneHotField": "LevelsField"}

# Name of a protocol in studies of 0.1 -> its name now.
PROTOCOL_NAMES = {"offline": "leave-last", "instant": "cutoff"}


def stored_name(cls: type) -> str:
    """The name of a class in stored files."""
    return STORED_NAMES.get(cls.__name__, cls.__name__)


def protocol_name(stored: str) -> str:
    """The description of a stored split, which begins with the name of its protocol, with the name of now."""
    name, comma, rest = stored.partition(",")
    return f"{PROTOCOL_NAMES.get(name, name)}{comma}{rest}"
