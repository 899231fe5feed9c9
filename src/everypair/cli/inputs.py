"""Reading of ids and requests from the command line, files and standard input."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any


def lines(path: Path) -> list[str]:
    """The lines of a text file, or of standard input.

    Only a line feed ends a line (a carriage return before it is dropped): ids and JSON strings may contain other separators.
    """
    try:
        content = sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
    except FileNotFoundError:
        raise FileNotFoundError(f"no such file: {path}.") from None
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{named(path)} is not UTF-8: {error}. Convert it to UTF-8.") from error
    return [line.removesuffix("\r") for line in text.split("\n")]


def named(path: Path) -> str:
    return "standard input" if str(path) == "-" else str(path)


def ids_of_file(path: Path, column: str, known: Any) -> Any:
    """The ids of a text file, one per line, or of a column of a table; ``known`` are the ids of the data."""
    from everypair.data.files import is_table
    from everypair.data.tables import as_table
    from everypair.data.tables import column as column_of

    if is_table(path):
        return column_of(as_table(str(path), path, (column,), known.kind), column, str(path))
    return parse_ids([line for line in lines(path) if line.strip(" \t")], known, named(path))


def ids_of_option(entries: Iterable[str], known: Any, what: str) -> list[Any]:
    """The ids of an option that takes several, separated by commas, and may be repeated."""
    return parse_ids([part.strip() for entry in entries for part in entry.split(",") if part.strip()], known, what)


def parse_ids(values: list[str], known: Any, what: str) -> list[Any]:
    """Ids of the type that the data have: integers or strings."""
    from everypair.data.text_columns import INTEGER

    if not values:
        raise ValueError(f"{what} holds no ids.")
    if known.kind != "integers":
        return values
    stripped = [value.strip(" \t") for value in values]
    if odd := next((value for value in stripped if not re.fullmatch(INTEGER, value)), None):
        raise ValueError(f"ids of this model are integers, but {what} holds others: {odd!r} is not how an integer is written.")
    return [int(value) for value in stripped]


def requests_of_file(path: Path) -> list[dict[str, Any]]:
    """Requests of a file, a JSON object per line; empty lines are skipped."""
    return [
        request(line, f"line {number} of {named(path)}")
        for number, line in enumerate(lines(path), start=1)
        if line.strip(" \t")
    ]  # fmt: skip


def request(text: str, what: str) -> dict[str, Any]:
    """A request, parsed from JSON; ``what`` names the source in messages."""
    try:
        parsed = json.loads(text)
    except RecursionError:
        raise ValueError(f"{what} cannot be read as JSON: it is nested too deeply.") from None
    except ValueError as error:
        raise ValueError(f"{what} is not JSON: {error}.") from error
    if not isinstance(parsed, dict):
        raise ValueError(f'{what} must be a JSON object such as {{"country": "DE"}}, got {text.strip()[:60]}.')
    return parsed
