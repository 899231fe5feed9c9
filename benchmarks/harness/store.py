"""Stored results: each measurement is kept with its arguments as soon as it is done, and found again by them."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.harness.system import hardware, versions
from everypair.runtime.atomic_files import as_json, write_atomically


class Measurement(NamedTuple):
    """A measurement to make. Its arguments distinguish it from all others of its section; they are stored, so keep their names."""

    arguments: dict[str, Any]
    measure: Callable[[], dict[str, Any]]

    @property
    def title(self) -> str:
        """The numbers and strings among the arguments."""
        values = (value for value in self.arguments.values() if isinstance(value, int | float | str))
        return ", ".join(f"{value:,}" if isinstance(value, int) else str(value) for value in values)


class ResultStore:
    """The results of one machine, in a JSON file.

    ``content`` has the hardware ("machine") and a list of "results", each with its section, arguments, date, versions and result.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.content: dict[str, Any] = {"machine": hardware(), "results": []}
        if path.exists():
            found = json.loads(path.read_text("utf-8"))
            if found["machine"] != self.content["machine"]:
                raise ValueError(f"{path} has results of another machine: choose another --out, or remove it.")
            self.content = found

    def find(self, section: str, arguments: dict[str, Any]) -> dict[str, Any] | None:
        """The stored result of these arguments, or None."""
        wanted = json.loads(as_json(arguments))
        for entry in self.content["results"]:
            if entry["section"] == section and entry["arguments"] == wanted:
                return entry["result"]
        return None

    def add(self, section: str, arguments: dict[str, Any], result: dict[str, Any]) -> None:
        """Add a result, replacing one of the same arguments, and write the file."""
        wanted = json.loads(as_json(arguments))
        others = [e for e in self.content["results"] if (e["section"], e["arguments"]) != (section, wanted)]
        entry = {
            "section": section,
            "arguments": wanted,
            "date": datetime.date.today().isoformat(),
            "versions": versions(),
            "result": json.loads(as_json(result)),
        }
        self.content["results"] = [*others, entry]
        self.write()

    def write(self) -> None:
        """Write the file; called before the first measurement, so that an unwritable path is an error at once."""
        write_atomically(self._path, as_json(self.content))
