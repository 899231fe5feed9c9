"""What all pictures share: elements of SVG as text, and round numbers beside their scales."""

from __future__ import annotations

import math
from html import escape


def line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def text(x: float, y: float, kind: str, words: str) -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}">{escape(words)}</text>'


def step(top: float) -> float:
    """A round distance of ticks, for about five of them."""
    power = 10 ** math.floor(math.log10(top / 5))
    return next(power * factor for factor in (1, 2, 2.5, 5, 10) if top / (power * factor) <= 6)
