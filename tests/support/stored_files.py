"""Changes of stored folders, as damage or as somebody who wants to deceive makes them."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from everypair.persistence.manifest import CHECKSUM, MANIFEST, sealed


def overwritten(path: Path, content: bytes) -> None:
    """Other content in place of a file that may be read-only, in the same file: so a disk damages it."""
    path.chmod(0o644)
    path.write_bytes(content)


def resealed(folder: Path, manifest: dict[str, Any]) -> None:
    """Another manifest with the right checksum."""
    content = {name: value for name, value in manifest.items() if name != CHECKSUM}
    (folder / MANIFEST).write_bytes(sealed(content))


def rewritten(folder: Path, **changed: Any) -> None:
    """A manifest with other entries and the right checksum."""
    resealed(folder, {**json.loads((folder / MANIFEST).read_bytes()), **changed})


def with_payload(folder: Path, name: str, change: Callable[[bytearray], None]) -> None:
    """Another content of a payload, with the right checksums."""
    manifest = json.loads((folder / MANIFEST).read_bytes())
    entry = manifest["files"][name]
    content = bytearray((folder / entry["file"]).read_bytes())
    change(content)
    (folder / entry["file"]).unlink()
    entry["sha256"], entry["bytes"] = hashlib.sha256(content).hexdigest(), len(content)
    entry["file"] = re.sub("[0-9a-f]{64}", entry["sha256"], entry["file"])
    (folder / entry["file"]).write_bytes(content)
    resealed(folder, manifest)
