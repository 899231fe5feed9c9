"""Charts of the report as SVG: bars with intervals, paired bars, lines on logarithmic axes. The page has their style."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape

from everypair.reproduce.common import rounded
from everypair.runtime.svg import line, step, svg

WIDTH, HEIGHT = 460, 300
LEFT, RIGHT, TOP, BOTTOM = 52, 10, 34, 58

Axis = Callable[[float], float]  # from a value to a coordinate


def bars(
    title: str, labels: Sequence[str], values: Sequence[float], intervals: Sequence[tuple[float, float]], kinds: Sequence[str]
) -> str:
    """A bar per label, with its interval and its value above it; a line at 1, the value of the baseline."""
    top = max([1.0, *values, *(high for _, high in intervals if math.isfinite(high))]) * 1.12
    distance = step(top)
    ticks = [j * distance for j in range(int(top / distance) + 1)]
    parts = [_axis(title, [(tick, f"{tick:g}") for tick in ticks], lambda v: _y(v / top))]
    room = (WIDTH - LEFT - RIGHT) / len(labels)
    for j, (label, value, (low, high), kind) in enumerate(zip(labels, values, intervals, kinds, strict=True)):
        x, width = LEFT + room * (j + 0.16), room * 0.68
        middle = x + width / 2
        tooltip = f"{label}: {value:.3f} times Popularity"
        if math.isfinite(low) and high > low:
            tooltip += f", 95 % interval {low:.3f} to {high:.3f}"
        parts.append(_bar(x, _y(value / top), width, kind, tooltip))
        above = value
        if math.isfinite(low) and high > low:
            parts.append(_whisker(middle, _y(low / top), _y(high / top)))
            above = max(value, high)
        parts.append(f'<text class="value" x="{middle:.1f}" y="{_y(above / top) - 5:.1f}">{value:.2f}</text>')
        parts.append(_label(middle, label))
    parts.append(line(LEFT, _y(1 / top), WIDTH - RIGHT, _y(1 / top), 'class="one"'))
    return svg(title, WIDTH, HEIGHT, parts)


def paired_bars(title: str, labels: Sequence[str], pairs: Sequence[tuple[float, float]], names: tuple[str, str]) -> str:
    """Two bars per label on a logarithmic axis, each with its value above it."""
    low = math.floor(math.log10(min(min(pair) for pair in pairs)) - 0.3)
    high = math.ceil(math.log10(max(max(pair) for pair in pairs)) + 0.3)
    axis = _log(low, high)
    parts = [_axis(title, [(10.0**power, _power(power)) for power in range(low, high + 1)], axis)]
    room = (WIDTH - LEFT - RIGHT) / len(labels)
    for j, (label, pair) in enumerate(zip(labels, pairs, strict=True)):
        for side, (value, name, kind) in enumerate(zip(pair, names, ("conventional", "icd"), strict=True)):
            x, width = LEFT + room * (j + 0.14 + 0.37 * side), room * 0.35
            parts.append(_bar(x, axis(value), width, kind, f"{name}, {label}: {value:,.4g}"))
            parts.append(f'<text class="value" x="{x + width / 2:.1f}" y="{axis(value) - 5:.1f}">{rounded(value)}</text>')
        parts.append(_label(LEFT + room * (j + 0.5), label))
    parts.append(_legend([(names[0], "conventional"), (names[1], "icd")]))
    return svg(title, WIDTH, HEIGHT, parts)


def lines(title: str, across: str, series: Sequence[tuple[str, str, str, Sequence[tuple[float, float]]]]) -> str:
    """Lines on two logarithmic axes, with a dot at each point; ``series`` are (name, CSS class, dashes, points)."""
    points = [point for *_, line_points in series for point in line_points]
    low_x, high_x = (math.log10(bound([x for x, _ in points])) for bound in (min, max))
    low, high = math.floor(math.log10(min(y for _, y in points))), math.ceil(math.log10(max(y for _, y in points)))
    y = _log(low, max(high, low + 1))

    def x(value: float) -> float:
        share = (math.log10(value) - low_x) / max(high_x - low_x, 1e-9)
        return LEFT + 14 + share * (WIDTH - LEFT - RIGHT - 28)

    parts = [_axis(title, [(10.0**power, _power(power)) for power in range(low, max(high, low + 1) + 1)], y)]
    for value in sorted({x for x, _ in points}):
        parts.append(f'<text class="label" x="{x(value):.1f}" y="{HEIGHT - BOTTOM + 17}">{value:,.0f}</text>')
    parts.append(f'<text class="label" x="{(LEFT + WIDTH) / 2:.1f}" y="{HEIGHT - BOTTOM + 34}">{escape(across)}</text>')
    for name, kind, dash, line_points in series:
        path = " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in line_points)
        parts.append(f'<polyline class="{kind}" points="{path}" stroke-dasharray="{dash}"/>')
        parts += [
            f'<circle class="{kind}" cx="{x(a):.1f}" cy="{y(b):.1f}" r="3"><title>{escape(name)}: {b:.4g}</title></circle>'
            for a, b in line_points
        ]
    return svg(title, WIDTH, HEIGHT, parts)


def _axis(title: str, ticks: Sequence[tuple[float, str]], y: Axis) -> str:
    parts = [f'<text class="title" x="{LEFT}" y="18">{escape(title)}</text>']
    for value, text in ticks:
        parts.append(line(LEFT, y(value), WIDTH - RIGHT, y(value), 'class="grid"'))
        parts.append(f'<text class="tick" x="{LEFT - 7}" y="{y(value) + 4:.1f}">{text}</text>')
    return "\n".join(parts)


def _bar(x: float, y: float, width: float, kind: str, tooltip: str) -> str:
    height = max(HEIGHT - BOTTOM - y, 0.0)
    place = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"'
    return f'<rect class="{kind}" {place}><title>{escape(tooltip)}</title></rect>'


def _whisker(x: float, low: float, high: float) -> str:
    ends = "".join(line(x - 4, y, x + 4, y, 'class="whisker"') for y in (low, high))
    return line(x, low, x, high, 'class="whisker"') + ends


def _label(x: float, label: str) -> str:
    """A label below an axis, broken into two lines at the first space."""
    first, _, second = label.partition(" ")
    text = f'<text class="label" x="{x:.1f}" y="{HEIGHT - BOTTOM + 16}">{escape(first)}</text>'
    return text + (f'<text class="label" x="{x:.1f}" y="{HEIGHT - BOTTOM + 30}">{escape(second)}</text>' if second else "")


def _legend(entries: Sequence[tuple[str, str]]) -> str:
    parts = []
    for j, (name, kind) in enumerate(entries):
        x = LEFT + 150 * j
        parts.append(f'<rect class="{kind}" x="{x}" y="{HEIGHT - 14}" width="10" height="10"/>')
        parts.append(f'<text class="key" x="{x + 15}" y="{HEIGHT - 5}">{escape(name)}</text>')
    return "".join(parts)


def _y(share: float) -> float:
    return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)


def _log(low: int, high: int) -> Axis:
    return lambda value: _y((math.log10(value) - low) / (high - low))


def _power(power: int) -> str:
    return f'10<tspan dy="-5" font-size="8">{power}</tspan>'
