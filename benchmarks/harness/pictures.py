"""Pictures of the report: lines on linear or logarithmic scales, and bars. Each brings its own style and light background.

Colours are those of Okabe and Ito, which most people can tell apart; marks differ, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from everypair.runtime import svg

WIDTH, HEIGHT = 620, 380
LEFT, RIGHT, TOP, BOTTOM = 66, 168, 44, 50  # room for ticks, the key, the title and labels
NAME = "everypair-benchmark"  # its style must not change other pictures on the same page
COLOURS = ("#d55e00", "#0072b2", "#009e73", "#cc79a7", "#56b4e9", "#8a6d00", "#555555")
MARKS = ("circle", "square", "triangle", "diamond")
STYLE = f"""<style>
.{NAME} text {{ font: 12px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; fill: #1d2430; }}
.{NAME} .paper {{ fill: #fff; stroke: #dfe4ea; }} .{NAME} .title {{ font-size: 14px; font-weight: 600; }}
.{NAME} .tick {{ text-anchor: end; fill: #5b6675; }} .{NAME} .label {{ text-anchor: middle; fill: #5b6675; }}
.{NAME} .grid {{ stroke: #e6eaef; }} .{NAME} polyline {{ fill: none; stroke-width: 2; }}
.{NAME} .thick polyline {{ stroke-width: 3; }}
</style>"""


class Line(NamedTuple):
    """Measured points under a name. Lines of the same ``look`` share colour and marks; None: a look of its own."""

    name: str
    points: Sequence[tuple[float, float]]
    dash: str = ""
    look: int | None = None
    thick: bool = False


class Bar(NamedTuple):
    """A figure under a name."""

    name: str
    value: float
    ours: bool


class Axis(NamedTuple):
    """Where values are on it, and its ticks."""

    place: Callable[[float], float]  # from 0 to 1
    ticks: list[tuple[float, str]]


def lines(title: str, across: str, up: str, series: Sequence[Line], log: tuple[bool, bool] = (False, False)) -> str:
    """A picture of lines with marks; scales begin at 0 where they are linear."""
    xs, ys = ([point[j] for line in series for point in line.points] for j in (0, 1))
    x, y = _axis(xs, log[0], 0.0), _axis(ys, log[1], 0.04)
    parts = [
        STYLE,
        f'<g class="{NAME}">',
        f'<rect class="paper" x="0.5" y="0.5" width="{WIDTH - 1}" height="{HEIGHT - 1}" rx="8"/>',
    ]
    parts.append(svg.text(16, 25, "title", title))
    for value, text in y.ticks:
        parts.append(svg.line(LEFT, _down(y, value), WIDTH - RIGHT, _down(y, value), 'class="grid"'))
        parts.append(svg.text(LEFT - 8, _down(y, value) + 4, "tick", text))
    for value, text in x.ticks:
        parts.append(svg.line(_over(x, value), TOP, _over(x, value), HEIGHT - BOTTOM, 'class="grid"'))
        parts.append(svg.text(_over(x, value), HEIGHT - BOTTOM + 18, "label", text))
    parts.append(svg.text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 12, "label", across))
    middle = (TOP + HEIGHT - BOTTOM) / 2
    parts.append(f'<text class="label" transform="translate(18 {middle:.1f}) rotate(-90)">{svg.plain(up)}</text>')
    for j in reversed(range(len(series))):  # the first on top
        parts += _drawn(series[j], j, x, y)
    return svg.svg(title, WIDTH, HEIGHT, [*parts, "</g>"])


def bars(title: str, series: Sequence[Bar]) -> str:
    """Figures beside each other, ours in a colour of their own; as wide as the names need."""
    row, top, room = 26, 40, 300
    names = min(max(7 * max(len(bar.name) for bar in series) + 30, 120), 400)
    width, height, longest = names + room + 80, top + row * len(series) + 12, max(bar.value for bar in series) or 1.0
    parts = [
        STYLE,
        f'<g class="{NAME}">',
        f'<rect class="paper" x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="8"/>',
        svg.text(16, 25, "title", title),
    ]
    for j, bar in enumerate(series):
        down, long = top + row * j, bar.value / longest * room
        colour = COLOURS[0] if bar.ours else COLOURS[1]
        parts.append(svg.text(names - 10, down + 16, "tick", svg.shortened(bar.name, 12, names - 24)))
        parts.append(f'<rect x="{names}" y="{down + 3}" width="{long:.1f}" height="{row - 8}" rx="2" fill="{colour}"/>')
        parts.append(svg.text(names + long + 8, down + 16, "value", f"{bar.value:.4f}"))
    return svg.svg(title, width, height, [*parts, "</g>"])


def _drawn(line: Line, j: int, x: Axis, y: Axis) -> list[str]:
    look = j if line.look is None else line.look
    colour, mark = COLOURS[look % len(COLOURS)], MARKS[look % len(MARKS)]
    places = [(_over(x, a), _down(y, b)) for a, b in line.points]
    path = " ".join(f"{a:.1f},{b:.1f}" for a, b in places)
    dash = f' stroke-dasharray="{line.dash}"' if line.dash else ""
    parts = [f'<g class="{"thick" if line.thick else "thin"}"><polyline points="{path}" stroke="{colour}"{dash}/>']
    for (a, b), (seconds, value) in zip(places, line.points, strict=True):
        parts.append(_mark(mark, a, b, colour, f"{line.name}: {seconds:.4g}, {value:.6g}"))
    key = TOP + 8 + 22 * j
    at = WIDTH - RIGHT + 14
    parts.append(f'<polyline points="{at},{key} {at + 22},{key}" stroke="{colour}"{dash}/>')
    parts.append(_mark(mark, at + 11, key, colour, line.name))
    parts.append(svg.text(at + 29, key + 4, "key", svg.shortened(line.name, 12, RIGHT - 46)) + "</g>")
    return parts


def _mark(kind: str, x: float, y: float, colour: str, told: str) -> str:
    title = f"<title>{svg.plain(told)}</title>"
    if kind == "circle":
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}">{title}</circle>'
    corners = {
        "square": ((-3.5, -3.5), (3.5, -3.5), (3.5, 3.5), (-3.5, 3.5)),
        "triangle": ((0, -4.8), (4.6, 3.4), (-4.6, 3.4)),
        "diamond": ((0, -5), (5, 0), (0, 5), (-5, 0)),
    }[kind]
    return f'<polygon points="{" ".join(f"{x + a:.1f},{y + b:.1f}" for a, b in corners)}" fill="{colour}">{title}</polygon>'


def _axis(values: Sequence[float], log: bool, room: float) -> Axis:
    if log:
        a, b = math.log10(min(values)), math.log10(max(values))
        margin = max(0.03 * (b - a), 0.02) + room
        a, b = a - margin, b + margin
        return Axis(lambda value: (math.log10(value) - a) / (b - a), _powers(a, b))
    high = 1.05 * max(values) or 1.0
    distance = svg.step(high)
    ticks = [(j * distance, f"{j * distance:,.10g}") for j in range(int(high / distance) + 1)]
    return Axis(lambda value: value / high, ticks)


def _powers(a: float, b: float) -> list[tuple[float, str]]:
    """Ticks from 10^a to 10^b: 1, 2 and 5 of each power where there are few powers."""
    digits = (1, 2, 5) if b - a < 2.5 else (1,)
    values = [digit * 10.0**power for power in range(math.floor(a), math.ceil(b) + 1) for digit in digits]
    return [(value, f"{value:,.10g}") for value in values if a <= math.log10(value) <= b]


def _over(axis: Axis, value: float) -> float:
    return LEFT + axis.place(value) * (WIDTH - LEFT - RIGHT)


def _down(axis: Axis, value: float) -> float:
    return HEIGHT - BOTTOM - axis.place(value) * (HEIGHT - TOP - BOTTOM)
