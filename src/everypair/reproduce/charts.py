"""Pictures as SVG text: bars with intervals, pairs of bars and lines on logarithmic scales. Colours come from the page's style."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape

from everypair.reproduce.common import rounded
from everypair.runtime.svg import line, step, svg

WIDTH, HEIGHT = 460, 300
LEFT, RIGHT, TOP, BOTTOM = 52, 10, 34, 58

Scale = Callable[[float], float]


def bars(
    title: str, labels: Sequence[str], values: Sequence[float], intervals: Sequence[tuple[float, float]], kinds: Sequence[str]
) -> str:
    """A bar per label from zero, with its interval and its value above; a line at 1, what all are relative to."""
    top = max([1.0, *values, *(high for _, high in intervals if math.isfinite(high))]) * 1.12
    distance = step(top)
    ticks = [j * distance for j in range(int(top / distance) + 1)]
    parts = [_axis(title, [(tick, f"{tick:g}") for tick in ticks], lambda v: _y(v / top))]
    room = (WIDTH - LEFT - RIGHT) / len(labels)
    for j, (label, value, (low, high), kind) in enumerate(zip(labels, values, intervals, kinds, strict=True)):
        x, width = LEFT + room * (j + 0.16), room * 0.68
        middle = x + width / 2
        told = f"{label}: {value:.3f} times Popularity"
        if math.isfinite(low) and high > low:
            told += f", 95 % interval {low:.3f} to {high:.3f}"
        parts.append(_bar(x, _y(value / top), width, kind, told))
        above = value
        if math.isfinite(low) and high > low:
            parts.append(_whisker(middle, _y(low / top), _y(high / top)))
            above = max(value, high)
        parts.append(f'<text class="value" x="{middle:.1f}" y="{_y(above / top) - 5:.1f}">{value:.2f}</text>')
        parts.append(_label(middle, label))
    parts.append(line(LEFT, _y(1 / top), WIDTH - RIGHT, _y(1 / top), 'class="one"'))
    return svg(title, WIDTH, HEIGHT, parts)


def paired_bars(title: str, labels: Sequence[str], pairs: Sequence[tuple[float, float]], names: tuple[str, str]) -> str:
    """Two bars per label on a logarithmic scale, each with its value above."""
    low = math.floor(math.log10(min(min(pair) for pair in pairs)) - 0.3)
    high = math.ceil(math.log10(max(max(pair) for pair in pairs)) + 0.3)
    scale = _log(low, high)
    parts = [_axis(title, [(10.0**power, _power(power)) for power in range(low, high + 1)], scale)]
    room = (WIDTH - LEFT - RIGHT) / len(labels)
    for j, (label, pair) in enumerate(zip(labels, pairs, strict=True)):
        for side, (value, name, kind) in enumerate(zip(pair, names, ("conventional", "icd"), strict=True)):
            x, width = LEFT + room * (j + 0.14 + 0.37 * side), room * 0.35
            parts.append(_bar(x, scale(value), width, kind, f"{name}, {label}: {value:,.4g}"))
            parts.append(f'<text class="value" x="{x + width / 2:.1f}" y="{scale(value) - 5:.1f}">{rounded(value)}</text>')
        parts.append(_label(LEFT + room * (j + 0.5), label))
    parts.append(_legend([(names[0], "conventional"), (names[1], "icd")]))
    return svg(title, WIDTH, HEIGHT, parts)


def lines(title: str, across: str, series: Sequence[tuple[str, str, str, Sequence[tuple[float, float]]]]) -> str:
    """Lines of (name, colour, dash) on two logarithmic scales, a dot at each measured point."""
    points = [point for *_, measured in series for point in measured]
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
    for name, kind, dash, measured in series:
        path = " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in measured)
        parts.append(f'<polyline class="{kind}" points="{path}" stroke-dasharray="{dash}"/>')
        parts += [
            f'<circle class="{kind}" cx="{x(a):.1f}" cy="{y(b):.1f}" r="3"><title>{escape(name)}: {b:.4g}</title></circle>'
            for a, b in measured
        ]
    return svg(title, WIDTH, HEIGHT, parts)


def _axis(title: str, ticks: Sequence[tuple[float, str]], y: Scale) -> str:
    parts = [f'<text class="title" x="{LEFT}" y="18">{escape(title)}</text>']
    for value, text in ticks:
        parts.append(line(LEFT, y(value), WIDTH - RIGHT, y(value), 'class="grid"'))
        parts.append(f'<text class="tick" x="{LEFT - 7}" y="{y(value) + 4:.1f}">{text}</text>')
    return "\n".join(parts)


def _bar(x: float, y: float, width: float, kind: str, told: str) -> str:
    height = max(HEIGHT - BOTTOM - y, 0.0)
    place = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"'
    return f'<rect class="{kind}" {place}><title>{escape(told)}</title></rect>'


def _whisker(x: float, low: float, high: float) -> str:
    ends = "".join(line(x - 4, y, x + 4, y, 'class="whisker"') for y in (low, high))
    return line(x, low, x, high, 'class="whisker"') + ends


def _label(x: float, label: str) -> str:
    """In two lines where there is a space."""
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


def _log(low: int, high: int) -> Scale:
    return lambda value: _y((math.log10(value) - low) / (high - low))


def _power(power: int) -> str:
    return f'10<tspan dy="-5" font-size="8">{power}</tspan>'
