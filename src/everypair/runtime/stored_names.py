"""Names of classes as files hold them: a class that is renamed keeps its old name there, so that earlier files still open."""

from __future__ import annotations

# Class names of today -> the name that files of every version hold.
STORED_NAMES = {"OneHotField": "LevelsField"}


def stored_name(cls: type) -> str:
    """What files call a class."""
    return STORED_NAMES.get(cls.__name__, cls.__name__)
