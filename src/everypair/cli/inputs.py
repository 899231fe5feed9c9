"""Ids and requests as people give them: on the command line, in files, on standard input."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

TABLES = (".csv", ".tsv", ".tab", ".gz", ".parquet", ".pq")


def lines(path: Path) -> list[str]:
    """The lines of a text file, or of standard input.

    Nothing but a line feed ends one (a carriage return before it is dropped): ids and texts in JSON may hold other separators.
    """
    try:
        content = sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
    except FileNotFoundError:
        raise FileNotFoundError(f"no such file: {path}.") from None
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{named(path)} is not UTF-8: {error}. Convert it.") from error
    return [line.removesuffix("\r") for line in text.split("\n")]


def named(path: Path) -> str:
    return "standard input" if str(path) == "-" else str(path)


def ids_of_file(path: Path, column: str, known: Any) -> Any:
    """Ids one per line, or a column of a table."""
    from everypair.data.tables import as_table
    from everypair.data.tables import column as column_of

    if path.suffix.lower() in TABLES:
        return column_of(as_table(str(path), path, (column,)), column, str(path), "ids")
    return own_ids([line for line in lines(path) if line.strip(" \t")], known, named(path))


def own_ids(texts: list[str], known: Any, what: str) -> list[Any]:
    """As the data have them: integers or texts."""
    if not texts:
        raise ValueError(f"{what} holds no ids.")
    if known.kind != "integers":
        return texts
    try:
        return [int(text) for text in texts]
    except ValueError as error:
        raise ValueError(f"ids of this model are integers, but {what} holds other ones: {error}.") from error


def requests_of_file(path: Path) -> list[dict[str, Any]]:
    """A JSON object per line; empty lines are none."""
    return [
        request(line, f"line {number} of {named(path)}")
        for number, line in enumerate(lines(path), start=1)
        if line.strip(" \t")
    ]  # fmt: skip


def request(text: str, what: str) -> dict[str, Any]:
    """What is known of someone: a JSON object."""
    try:
        found = json.loads(text)
    except RecursionError:
        raise ValueError(f"{what} is not JSON that can be read: it is nested too deeply.") from None
    except ValueError as error:
        raise ValueError(f"{what} is not JSON: {error}.") from error
    if not isinstance(found, dict):
        raise ValueError(f'{what} must be an object such as {{"country": "DE"}}, got {text.strip()[:60]}.')
    return found
