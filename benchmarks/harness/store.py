"""Results that are kept as they come: a measurement that is there already, with the same arguments, is not repeated."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.harness.machine import machine, versions
from everypair.runtime.atomic_files import as_json, write_atomically

Watch = Callable[[str], Any]


class Unit(NamedTuple):
    """Something to measure: its arguments tell it from all others of its section."""

    arguments: dict[str, Any]
    measure: Callable[[], dict[str, Any]]

    @property
    def title(self) -> str:
        """Numbers and texts among the arguments."""
        told = (value for value in self.arguments.values() if isinstance(value, int | float | str))
        return ", ".join(f"{value:,}" if isinstance(value, int) else str(value) for value in told)


class Store:
    """The file of results of one machine."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.content: dict[str, Any] = {"machine": machine(), "results": []}
        if path.exists():
            found = json.loads(path.read_text("utf-8"))
            if found["machine"] != self.content["machine"]:
                raise ValueError(f"{path} has results of another machine: choose another --out, or remove it.")
            self.content = found

    def find(self, section: str, arguments: dict[str, Any]) -> dict[str, Any] | None:
        """The result that there is."""
        wanted = json.loads(as_json(arguments))
        for entry in self.content["results"]:
            if entry["section"] == section and entry["arguments"] == wanted:
                return entry["result"]
        return None

    def keep(self, section: str, arguments: dict[str, Any], result: dict[str, Any]) -> None:
        """Add a result, in place of one of the same arguments, and write them all."""
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
        write_atomically(self._path, as_json(self.content))

    def check(self) -> None:
        """An error if it cannot be written, before anything is measured."""
        write_atomically(self._path, as_json(self.content))
