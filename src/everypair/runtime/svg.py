"""SVG elements and HTML pages, with escaped text that is shortened to fit."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Sequence
from html import escape
from pathlib import Path

from everypair.runtime.atomic_files import write_atomically

NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # not allowed in XML, escaped or not
NARROW, BROAD = frozenset("iIjlrtf.,:;|!'`()[]{} -"), frozenset("mwMW@%")
KINDS = (".svg", ".html")  # suffixes that save() writes
THIN = 0.4  # width of a narrow character, relative to the font size


def svg(title: str, width: float, height: float, parts: Sequence[str]) -> str:
    """An SVG document with these elements."""
    body = "\n".join(parts)
    size = f'viewBox="0 0 {width:g} {height:g}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{plain(title)}">\n{body}\n</svg>'


def line(x1: float, y1: float, x2: float, y2: float, look: str) -> str:
    """A line; ``look`` is an attribute, such as ``class="grid"`` or ``stroke="#888"``."""
    return f'<line {look} x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def text(x: float, y: float, kind: str, words: str) -> str:
    """Text; ``kind`` is its CSS class."""
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}">{plain(words)}</text>'


def step(top: float) -> float:
    """A round distance between ticks that gives about five of them from 0 to ``top``."""
    power = 10 ** math.floor(math.log10(top / 5))
    return next(power * factor for factor in (1, 2, 2.5, 5, 10) if top / (power * factor) <= 6)


def page(title: str, style: str, body: Sequence[str]) -> str:
    """A self-contained HTML page."""
    lines = [
        "<!doctype html>",
        '<html lang="en">',
        "<head>",
        '<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{plain(title)}</title>",
        f"<style>\n{style}</style>",
        "</head>",
        "<body>",
        "<main>",
        *body,
        "</main>",
        "</body>",
        "</html>",
    ]
    return "\n".join(lines) + "\n"


def plain(text: str) -> str:
    """Untrusted text for a page or picture: on one line and escaped."""
    return escape(NOT_XML.sub("\N{REPLACEMENT CHARACTER}", on_one_line(text)), quote=True)


def on_one_line(text: str) -> str:
    return " ".join(text.split())


def width_of(text: str, size: float) -> float:
    """Estimated width in a sans-serif font, rather too wide than too narrow."""
    return size * sum(map(_em, text))


def shortened(text: str, size: float, room: float) -> str:
    """``text``, with its middle replaced by an ellipsis where it is wider than ``room``: ids often differ at their ends.

    >>> shortened("history: 0123456789012345678901234567890123456789", 12, 150)
    'history: 01234…456789'
    """
    text = on_one_line(text)
    if width_of(text, size) <= room:
        return text
    most = min(len(text) - 1, int(room / (THIN * size)))
    kept = next(n for n in range(most, -1, -1) if n == 0 or width_of(_without_middle(text, n), size) <= room)
    return _without_middle(text, kept)


def _without_middle(text: str, kept: int) -> str:
    end = kept // 3
    return f"{text[: kept - end]}…{text[len(text) - end :]}"


def _em(character: str) -> float:
    if unicodedata.east_asian_width(character) in "WF":
        return 1.05
    if character in NARROW:
        return THIN
    if character in BROAD:
        return 1.0
    return 0.72 if character.isupper() else 0.64


def save(path: str | Path, title: str, drawn: str, style: str = "") -> None:
    """Write a picture to a file that ends in ``.svg``, or as a page to one that ends in ``.html``."""
    path = Path(path)
    kind = path.suffix.lower()
    if kind not in KINDS:
        raise ValueError(f"path must end in {' or '.join(KINDS)}, got {str(path)!r}.")
    write_atomically(path, drawn + "\n" if kind == ".svg" else page(title, style, [drawn]))
