"""Plot of a hyperparameter search as SVG: a panel per setting with the value of each trial, and bars of importance."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from everypair.runtime import svg
from everypair.tuning.spaces import Choices, Range

PANEL, HEIGHT, COLUMNS = 290, 220, 3
LEFT, RIGHT, TOP, BOTTOM = 52, 14, 46, 34  # margins of a panel, for ticks, title and labels
MARGIN, HEAD, FOOT = 10, 52, 30
MOST_LABELS, LONGEST = 5, 12  # labels of an axis, characters of a label
NAME = "everypair-tuning"  # CSS class of the plot: its style must not apply to others on the same page
STYLE = f"""
.{NAME} text {{ font: 11px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; fill: #1d2430; }}
.{NAME} .paper {{ fill: #fff; stroke: #dfe4ea; }}
.{NAME} .head {{ font-size: 15px; font-weight: 600; }} .{NAME} .title {{ font-size: 12px; font-weight: 600; }}
.{NAME} .soft, .{NAME} .tick, .{NAME} .label {{ fill: #5b6675; }} .{NAME} .tick {{ text-anchor: end; }}
.{NAME} .label {{ text-anchor: middle; }} .{NAME} .grid {{ stroke: #e6eaef; }}
.{NAME} .complete {{ fill: #4f86c6; fill-opacity: .65; }} .{NAME} .pruned {{ fill: #fff; stroke: #8d98a5; stroke-width: 1.2; }}
.{NAME} .best {{ fill: #c8562a; }} .{NAME} .bar {{ fill: #4f86c6; }}
.{NAME} .found {{ text-anchor: middle; fill: #c8562a; font-weight: 600; paint-order: stroke; stroke: #fff; stroke-width: 3px; }}
"""


class TrialPoint(NamedTuple):
    """A trial that has a value."""

    number: int
    state: str  # "complete", "pruned" or "best"
    value: float
    row: Mapping[str, Any]


class ValueAxis(NamedTuple):
    """The vertical axis: the range of values of the metric, their heights, and ticks."""

    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> ValueAxis:
        low, high = min(values), max(values)
        room = (high - low) * 0.06 or max(abs(high) * 0.1, 1e-3)  # a single value is centred
        return cls(low - room, high + room)

    def y(self, value: float) -> float:
        return HEIGHT - BOTTOM - (value - self.low) / (self.high - self.low) * (HEIGHT - TOP - BOTTOM)

    def ticks(self) -> list[tuple[float, str]]:
        step = svg.step(self.high - self.low)
        digits = next(digits for digits in range(20) if math.isclose(round(step, digits), step))
        first, last = math.ceil(self.low / step), math.floor(self.high / step)
        return [(j * step, f"{j * step:.{digits}f}") for j in range(first, last + 1)]


def draw(
    rows: Sequence[Mapping[str, Any]], metric: str, space: Mapping[str, Range | Choices], importance: Mapping[str, float]
) -> str:
    """The plot of trials, given as rows of a table. It has a light background of its own."""
    complete = [row for row in rows if row["state"] == "complete"]
    best = max(complete, key=lambda row: row["value"])
    points = [
        TrialPoint(row["trial"], "best" if row is best else row["state"], row["value"], row)
        for row in rows
        if row["value"] is not None
    ]
    points.sort(key=lambda point: ("pruned", "complete", "best").index(point.state))  # the best is drawn last, on top
    axis = ValueAxis.of([point.value for point in points])
    names = [*importance, *(name for name in space if name not in importance)]
    panels = [_panel(name, space[name], points, axis) for name in names]
    if importance:
        panels.append(_bars(importance))
    columns = 2 if len(panels) in (1, 2, 4) else COLUMNS
    width = columns * PANEL + 2 * MARGIN
    height = HEAD + math.ceil(len(panels) / columns) * HEIGHT + FOOT
    title = f"{metric} on the tuning part, by setting"
    parts = [
        f'<rect class="paper" x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="8"/>',
        svg.text(16, 26, "head", title),
        svg.text(16, 44, "soft", _summary(rows, best)),
        *(
            f'<g transform="translate({MARGIN + j % columns * PANEL} {HEAD + j // columns * HEIGHT})">\n{panel}\n</g>'
            for j, panel in enumerate(panels)
        ),
        _legend(height - 14, {point.state for point in points}),
    ]
    opening = (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="{NAME}" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'style="max-width: 100%; height: auto" role="img" aria-label="{svg.plain(title)}">'
    )
    body = "\n".join(parts)
    return f"{opening}\n<style>{STYLE}</style>\n{body}\n</svg>"


def _summary(rows: Sequence[Mapping[str, Any]], best: Mapping[str, Any]) -> str:
    counts = [(sum(row["state"] == state for row in rows), state) for state in ("pruned", "no value")]
    others = "".join(f", {count} {'without value' if state == 'no value' else state}" for count, state in counts if count)
    at = f"after {best['epochs']} epoch{'s' if best['epochs'] != 1 else ''} (trial {best['trial']})"
    return f"{len(rows)} trial{'s' if len(rows) != 1 else ''}{others}; best: {best['value']:.4f} {at}"


def _panel(name: str, dimension: Range | Choices, points: Sequence[TrialPoint], axis: ValueAxis) -> str:
    """The value of each trial against one setting."""
    parts = [svg.text(LEFT, 18, "title", name)]
    for value, label in axis.ticks():
        parts.append(svg.line(LEFT, axis.y(value), PANEL - RIGHT, axis.y(value), 'class="grid"'))
        parts.append(svg.text(LEFT - 6, axis.y(value) + 4, "tick", label))
    for x, label in _labels(dimension):
        parts.append(svg.line(x, HEIGHT - BOTTOM, x, HEIGHT - BOTTOM + 4, 'class="grid"'))
        parts.append(svg.text(x, HEIGHT - BOTTOM + 16, "label", label))
    for point in points:
        x, y = _x(dimension, point.row[name], point.number), axis.y(point.value)
        tooltip = f"trial {point.number}: {name} {_short(point.row[name])}, value {point.value:.4f}"
        radius = 5 if point.state == "best" else 3.4
        parts.append(
            f'<circle class="{point.state}" cx="{x:.1f}" cy="{y:.1f}" r="{radius}"><title>{svg.plain(tooltip)}</title></circle>'
        )
        if point.state == "best":
            words = _short(point.row[name])
            half = 3.4 * len(words)
            inside = min(max(x, LEFT + half), PANEL - RIGHT - half)
            parts.append(f'<text class="found" text-anchor="middle" x="{inside:.1f}" y="{y - 9:.1f}">{svg.plain(words)}</text>')
    return "\n".join(parts)


def _bars(importance: Mapping[str, float]) -> str:
    """A bar per setting with its importance."""
    start = 134
    parts = [svg.text(16, 18, "title", "importance of settings (PED-ANOVA)")]
    room = min((HEIGHT - TOP - BOTTOM) / len(importance), 26)
    full = PANEL - RIGHT - 36 - start
    for j, (name, share) in enumerate(importance.items()):
        y = TOP + (j + 0.5) * room
        place = f'x="{start}" y="{y - 0.3 * room:.1f}" width="{max(share * full, 1):.1f}" height="{0.6 * room:.1f}"'
        parts.append(svg.text(start - 6, y + 4, "tick", _short(name, 21)))
        parts.append(f'<rect class="bar" {place} rx="2"/>')
        parts.append(svg.text(start + share * full + 6, y + 4, "soft", f"{share:.0%}"))
    return "\n".join(parts)


def _legend(y: float, states: set[str]) -> str:
    parts, x = [], 22.0
    for state, words in (("best", "best"), ("complete", "complete"), ("pruned", "pruned: its best value so far")):
        if state in states:
            parts.append(f'<circle class="{state}" cx="{x}" cy="{y - 4}" r="4"/>')
            parts.append(svg.text(x + 9, y, "soft", words))
            x += 34 + 6 * len(words)
    return "\n".join(parts)


def _x(dimension: Range | Choices, value: Any, number: int) -> float:
    """The horizontal position of a value; trials of the same choice are spread, so that all are visible."""
    width = PANEL - LEFT - RIGHT - 16
    if isinstance(dimension, Range):
        spread = math.log(dimension.high / dimension.low)
        share = math.log(value / dimension.low) / spread if spread else 0.5
        return LEFT + 8 + min(max(share, 0.0), 1.0) * width
    room = width / len(dimension.values)
    jitter = (number * 0.618) % 1 - 0.5
    return LEFT + 8 + room * (dimension.values.index(value) + 0.5 + 0.5 * jitter)


def _labels(dimension: Range | Choices) -> list[tuple[float, str]]:
    """Positions and labels of the horizontal axis: round numbers of a range, or choices."""
    if isinstance(dimension, Choices):
        width = (PANEL - LEFT - RIGHT - 16) / len(dimension.values)
        every = math.ceil(len(dimension.values) / 8)
        longest = max(2, int(width * every / 6))
        return [
            (LEFT + 8 + width * (j + 0.5), _short(value, longest)) for j, value in enumerate(dimension.values) if j % every == 0
        ]
    powers = range(math.floor(math.log10(dimension.low)), math.ceil(math.log10(dimension.high)) + 1)
    for factors in ((1, 2, 5), (1, 3), (1,)):
        marks = [float(f"{factor}e{power}") for power in powers for factor in factors]
        marks = [mark for mark in marks if dimension.low * 0.999 <= mark <= dimension.high * 1.001]
        if len(marks) <= MOST_LABELS:
            break
    marks = marks[:: math.ceil(len(marks) / MOST_LABELS)] if len(marks) > 1 else [dimension.low, dimension.high]
    return [(_x(dimension, mark, 0), _short(mark)) for mark in dict.fromkeys(marks)]


def _short(value: Any, longest: int = LONGEST) -> str:
    words = f"{value:.3g}" if isinstance(value, float) else str(value)
    return words if len(words) <= longest else words[: longest - 1] + "…"
