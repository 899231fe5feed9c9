"""Manifests: JSON files that end with the checksum of all their bytes before it."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

MANIFEST = "manifest.json"
CHECKSUM = "sha256"  # the last key of a manifest
END = re.compile(rf'"{CHECKSUM}": "([0-9a-f]{{64}})"\n}}\n'.encode())
END_LENGTH = len(CHECKSUM) + 73


def sealed(content: Mapping[str, Any]) -> bytes:
    """The bytes of a manifest."""
    digits = "0" * 64  # the place of the checksum
    text = json.dumps({**content, CHECKSUM: digits}, indent=1) + "\n"
    before, _, after = text.rpartition(digits)
    return (before + hashlib.sha256(before.encode()).hexdigest() + after).encode()


def is_intact(written: bytes, content: Mapping[str, Any], stored: Any) -> bool:
    """Whether a manifest holds the bytes that were written.

    ``content`` is the manifest as read from these bytes, without the checksum ``stored`` in it. Manifests of format 1 hold the
    checksum of their content, which stays the same where another last digit reads as the same number.
    """
    end = END.fullmatch(written, max(0, len(written) - END_LENGTH))
    if end is not None and end[1].decode() == hashlib.sha256(written[: end.start(1)]).hexdigest():
        return True
    return content.get("version") == 1 and stored == checksum(content)


def checksum(content: Mapping[str, Any]) -> str:
    """The checksum of the content of a whole folder: its manifest holds the checksums of its files."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
