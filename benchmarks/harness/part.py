"""A section's part of the report, and how its figures are written."""

from __future__ import annotations

import re
import statistics
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

WIDTH = 128  # of the text


@dataclass
class Part:
    """Markdown, pictures by name, and what was aimed at: what, the target, what was measured, whether it is met."""

    title: str
    lines: list[str] = field(default_factory=list)
    pictures: dict[str, str] = field(default_factory=dict)
    targets: list[tuple[str, str, str, bool | None]] = field(default_factory=list)

    def say(self, *text: str) -> None:
        """A paragraph, or a heading."""
        self.lines += [*textwrap.wrap(" ".join(text), WIDTH, break_long_words=False, break_on_hyphens=False), ""]

    def table(self, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """A table, numbers to the right."""
        escaped = "\\|"
        self.lines.append(f"| {' | '.join(header)} |")
        self.lines.append(f"|{'|'.join(['---', *['---:'] * (len(header) - 1)])}|")
        self.lines += [f"| {' | '.join(cell.replace('|', escaped) for cell in row)} |" for row in rows]
        self.lines.append("")

    def picture(self, name: str, title: str, svg: str) -> None:
        """A picture, and its place in the text."""
        self.pictures[name] = svg
        self.lines += [f"![{title}]({{folder}}/{name}.svg)", ""]

    def aim(self, what: str, target: str, measured: str, met: bool | None) -> None:
        self.targets.append((what, target, measured, met))


def spread(values: Sequence[float], unit: str = "s") -> str:
    """Median, and in brackets the smallest and the largest where there are more."""
    told = f"{figure(statistics.median(values))} {unit}"
    return told if len(values) == 1 else f"{told} ({figure(min(values))}-{figure(max(values))})"


def figure(value: float) -> str:
    """Three digits that count, never as a power."""
    if value == 0:
        return "0"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) >= 0.001 else f"{value:.5f}"


def megabytes(value: float) -> str:
    return f"{value / 2**20:,.0f} MB"


def verdict(met: bool | None) -> str:
    return {True: "yes", False: "no", None: ""}[met]


def numbered(entries: Sequence[dict[str, Any]], *names: str) -> list[dict[str, Any]]:
    """Entries in the order of these arguments."""
    return sorted(entries, key=lambda entry: tuple(entry["arguments"][name] for name in names))


def slug(text: str) -> str:
    """As part of a file's name.

    >>> slug("generated, 40,000 pairs")
    'generated-40-000-pairs'
    """
    return re.sub("[^a-z0-9]+", "-", text.lower()).strip("-")
