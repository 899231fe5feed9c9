"""One section of the report: paragraphs, tables, charts and targets; and the format of its numbers."""

from __future__ import annotations

import re
import statistics
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

WIDTH = 128  # characters of a line


class Target(NamedTuple):
    """A quantity, its target, its measured value, and whether the target is met (None: not decidable)."""

    quantity: str
    target: str
    measured: str
    met: bool | None


@dataclass
class ReportSection:
    """Lines of Markdown under a title, charts (SVG) by name, and targets."""

    title: str
    lines: list[str] = field(default_factory=list)
    charts: dict[str, str] = field(default_factory=dict)
    targets: list[Target] = field(default_factory=list)

    def add_paragraph(self, *text: str) -> None:
        """Add a paragraph or a heading."""
        self.lines += [*textwrap.wrap(" ".join(text), WIDTH, break_long_words=False, break_on_hyphens=False), ""]

    def add_table(self, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Add a table; all columns but the first are aligned to the right."""
        escaped = "\\|"
        self.lines.append(f"| {' | '.join(header)} |")
        self.lines.append(f"|{'|'.join(['---', *['---:'] * (len(header) - 1)])}|")
        self.lines += [f"| {' | '.join(cell.replace('|', escaped) for cell in row)} |" for row in rows]
        self.lines.append("")

    def add_chart(self, name: str, title: str, svg: str) -> None:
        """Add a chart, and refer to its file; ``{folder}`` stands for the folder of the report."""
        self.charts[name] = svg
        self.lines += [f"![{title}]({{folder}}/{name}.svg)", ""]

    def add_target(self, quantity: str, target: str, measured: str, met: bool | None) -> None:
        self.targets.append(Target(quantity, target, measured, met))


def median_and_range(values: Sequence[float], unit: str = "s") -> str:
    """The median, followed by the smallest and the largest in brackets if there are several values.

    >>> median_and_range([3.0, 1.0, 2.0])
    '2 s (1-3)'
    """
    middle = f"{three_digits(statistics.median(values))} {unit}"
    return middle if len(values) == 1 else f"{middle} ({three_digits(min(values))}-{three_digits(max(values))})"


def three_digits(value: float) -> str:
    """Three significant digits, never in exponential notation."""
    if value == 0:
        return "0"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) >= 0.001 else f"{value:.5f}"


def megabytes(value: float) -> str:
    return f"{value / 2**20:,.0f} MB"


def yes_or_no(met: bool | None) -> str:
    return {True: "yes", False: "no", None: ""}[met]


def sorted_by(entries: Sequence[dict[str, Any]], *names: str) -> list[dict[str, Any]]:
    """Stored results in the order of these arguments."""
    return sorted(entries, key=lambda entry: tuple(entry["arguments"][name] for name in names))


def slug(text: str) -> str:
    """A part of a file name.

    >>> slug("generated, 40,000 pairs")
    'generated-40-000-pairs'
    """
    return re.sub("[^a-z0-9]+", "-", text.lower()).strip("-")
