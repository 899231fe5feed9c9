"""Charts of the report as SVG: curves on linear or logarithmic axes, and bars. Each has its own style and a light background.

Colours are those of Okabe and Ito, chosen for colour-blind readers; marks differ, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from everypair.runtime import svg

WIDTH, HEIGHT = 620, 380
LEFT, RIGHT, TOP, BOTTOM = 66, 168, 44, 50  # margins: ticks, legend, title, axis labels
NAME = "everypair-benchmark"  # class of all elements: the style must not affect other charts on the same page
COLOURS = ("#d55e00", "#0072b2", "#009e73", "#cc79a7", "#56b4e9", "#8a6d00", "#555555")
MARKS = ("circle", "square", "triangle", "diamond")
STYLE = f"""<style>
.{NAME} text {{ font: 12px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; fill: #1d2430; }}
.{NAME} .paper {{ fill: #fff; stroke: #dfe4ea; }} .{NAME} .title {{ font-size: 14px; font-weight: 600; }}
.{NAME} .tick {{ text-anchor: end; fill: #5b6675; }} .{NAME} .label {{ text-anchor: middle; fill: #5b6675; }}
.{NAME} .grid {{ stroke: #e6eaef; }} .{NAME} polyline {{ fill: none; stroke-width: 2; }}
.{NAME} .thick polyline {{ stroke-width: 3; }}
</style>"""


class Curve(NamedTuple):
    """Measured points under a name. Curves of the same ``look`` share colour and marks; None: distinct from the others."""

    name: str
    points: Sequence[tuple[float, float]]
    dash: str = ""
    look: int | None = None
    thick: bool = False


class Bar(NamedTuple):
    """A value under a name; ``ours`` chooses the colour."""

    name: str
    value: float
    ours: bool


class Axis(NamedTuple):
    """The position of values, and ticks (value, label)."""

    position: Callable[[float], float]  # from 0 to 1
    ticks: list[tuple[float, str]]


def curve_chart(title: str, x_label: str, y_label: str, curves: Sequence[Curve], log: tuple[bool, bool] = (False, False)) -> str:
    """Curves with marks. ``log``: whether x and y are logarithmic; linear axes begin at 0."""
    xs, ys = ([point[j] for curve in curves for point in curve.points] for j in (0, 1))
    x, y = _axis(xs, log[0], 0.0), _axis(ys, log[1], 0.04)
    parts = [
        STYLE,
        f'<g class="{NAME}">',
        f'<rect class="paper" x="0.5" y="0.5" width="{WIDTH - 1}" height="{HEIGHT - 1}" rx="8"/>',
    ]
    parts.append(svg.text(16, 25, "title", title))
    for value, text in y.ticks:
        parts.append(svg.line(LEFT, _y(y, value), WIDTH - RIGHT, _y(y, value), 'class="grid"'))
        parts.append(svg.text(LEFT - 8, _y(y, value) + 4, "tick", text))
    for value, text in x.ticks:
        parts.append(svg.line(_x(x, value), TOP, _x(x, value), HEIGHT - BOTTOM, 'class="grid"'))
        parts.append(svg.text(_x(x, value), HEIGHT - BOTTOM + 18, "label", text))
    parts.append(svg.text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 12, "label", x_label))
    middle = (TOP + HEIGHT - BOTTOM) / 2
    parts.append(f'<text class="label" transform="translate(18 {middle:.1f}) rotate(-90)">{svg.plain(y_label)}</text>')
    for j in reversed(range(len(curves))):  # the first on top
        parts += _curve(curves[j], j, x, y)
    return svg.svg(title, WIDTH, HEIGHT, [*parts, "</g>"])


def bar_chart(title: str, bars: Sequence[Bar]) -> str:
    """Horizontal bars with their names, as wide as the names need; ours in another colour."""
    row, top, room = 26, 40, 300
    names = min(max(7 * max(len(bar.name) for bar in bars) + 30, 120), 400)
    width, height, longest = names + room + 80, top + row * len(bars) + 12, max(bar.value for bar in bars) or 1.0
    parts = [
        STYLE,
        f'<g class="{NAME}">',
        f'<rect class="paper" x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="8"/>',
        svg.text(16, 25, "title", title),
    ]
    for j, bar in enumerate(bars):
        y, length = top + row * j, bar.value / longest * room
        colour = COLOURS[0] if bar.ours else COLOURS[1]
        parts.append(svg.text(names - 10, y + 16, "tick", svg.shortened(bar.name, 12, names - 24)))
        parts.append(f'<rect x="{names}" y="{y + 3}" width="{length:.1f}" height="{row - 8}" rx="2" fill="{colour}"/>')
        parts.append(svg.text(names + length + 8, y + 16, "value", f"{bar.value:.4f}"))
    return svg.svg(title, width, height, [*parts, "</g>"])


def _curve(curve: Curve, j: int, x: Axis, y: Axis) -> list[str]:
    """The j-th curve, and its line of the legend."""
    look = j if curve.look is None else curve.look
    colour, mark = COLOURS[look % len(COLOURS)], MARKS[look % len(MARKS)]
    points = [(_x(x, a), _y(y, b)) for a, b in curve.points]
    path = " ".join(f"{a:.1f},{b:.1f}" for a, b in points)
    dash = f' stroke-dasharray="{curve.dash}"' if curve.dash else ""
    parts = [f'<g class="{"thick" if curve.thick else "thin"}"><polyline points="{path}" stroke="{colour}"{dash}/>']
    for (a, b), (x_value, y_value) in zip(points, curve.points, strict=True):
        parts.append(_mark(mark, a, b, colour, f"{curve.name}: {x_value:.4g}, {y_value:.6g}"))
    legend_x, legend_y = WIDTH - RIGHT + 14, TOP + 8 + 22 * j
    parts.append(f'<polyline points="{legend_x},{legend_y} {legend_x + 22},{legend_y}" stroke="{colour}"{dash}/>')
    parts.append(_mark(mark, legend_x + 11, legend_y, colour, curve.name))
    parts.append(svg.text(legend_x + 29, legend_y + 4, "key", svg.shortened(curve.name, 12, RIGHT - 46)) + "</g>")
    return parts


def _mark(kind: str, x: float, y: float, colour: str, label: str) -> str:
    title = f"<title>{svg.plain(label)}</title>"
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
    """Ticks from 10^a to 10^b: each power of ten, and 2 and 5 times it where there are few."""
    digits = (1, 2, 5) if b - a < 2.5 else (1,)
    values = [digit * 10.0**power for power in range(math.floor(a), math.ceil(b) + 1) for digit in digits]
    return [(value, f"{value:,.10g}") for value in values if a <= math.log10(value) <= b]


def _x(axis: Axis, value: float) -> float:
    return LEFT + axis.position(value) * (WIDTH - LEFT - RIGHT)


def _y(axis: Axis, value: float) -> float:
    return HEIGHT - BOTTOM - axis.position(value) * (HEIGHT - TOP - BOTTOM)
