"""Explanations of scores: as a table, as text and as a picture."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from everypair.runtime import svg as pictures
from everypair.runtime.formatting import table

SHOWN = 12  # lines of text, or bars of the picture, besides the score itself
WIDTH, LABELS, EDGE, TOP, ROW = 720.0, 262.0, 16.0, 46.0, 25.0
FONT, TITLE = 12.0, 14.0  # sizes; bold titles run a tenth wider
CELL = 30.0  # width of a cell of text, in times the width of an "m"
UP, DOWN, TOTAL, INK, RULE = "#0072b2", "#d55e00", "#5b6675", "#1d2430", "#9aa4b0"  # blue and orange suit the colour-blind
STYLE = "body { margin: 0; background: #fff; } main { max-width: 60rem; margin: 1rem auto; }\n"


class Summand(NamedTuple):
    """A summand of a score: the field it comes from, the field's value, and the amount; ``last``: listed after all features.

    ``title`` is that of the item, if the value is one.
    """

    field: str
    value: str
    amount: float
    last: bool = False
    title: str | None = None

    @property
    def label(self) -> str:
        return f"{self.field}: {_with_title(self.value, self.title)}" if self.value else self.field


class Explanation:
    """The summands of a score.

    Parameters
    ----------
    item : id
    user : id, optional
        None for a request without a known user.
    summands : iterable of Summand
        They add up to the score; those with the same field and value become one.
    title : str, optional
        Of the item.
    has_titles : bool
        Whether the data have titles of items.

    Attributes
    ----------
    score : float
        The sum of all contributions: the score by which the item is ranked, but for rounding.
    table : Arrow table
        ``field``, ``value`` and ``contribution``, the largest in absolute value first; contributions that are the same for every
        item, or for every context, come last. If the data have titles of items, ``title`` stands after ``value``.

    Examples
    --------
    >>> from everypair.recommend.explain.explanation import Explanation, Summand
    >>> country, history = Summand("country", "DE", 0.25), Summand("history", "v3", 0.5)
    >>> Explanation("v7", "ann", [country, history, Summand("item", "v7", -0.05, last=True)])
    Why v7 for ann
    field    value  contribution
    ----------------------------
    history     v3        +0.500
    country     DE        +0.250
    item        v7        -0.050
    score                  0.700
    """

    def __init__(
        self, item: Any, user: Any, summands: Iterable[Summand], title: str | None = None, has_titles: bool = False
    ) -> None:
        amounts: dict[Summand, list[float]] = {}
        for summand in summands:
            amounts.setdefault(summand._replace(amount=0.0), []).append(summand.amount)
        merged = [summand._replace(amount=math.fsum(found)) for summand, found in amounts.items()]
        self.item, self.user, self.title, self._has_titles = item, user, title, has_titles
        self._summands = sorted(merged, key=lambda summand: (summand.last, 0.0 if summand.last else -abs(summand.amount)))
        self.score = math.fsum(summand.amount for summand in self._summands)

    @property
    def table(self) -> pa.Table:
        kinds = {"field": pa.string(), "value": pa.string(), "title": pa.string(), "contribution": pa.float64()}
        found = pa.Table.from_pylist(self.contributions, pa.schema(list(kinds.items())))
        return found if self._has_titles else found.drop_columns(["title"])

    @property
    def contributions(self) -> list[dict[str, Any]]:
        """The rows of the table, with a title each: None where the value is no item, or the item has none."""
        names = ("field", "value", "title", "contribution")
        return [dict(zip(names, (s.field, s.value, s.title, s.amount), strict=True)) for s in self._summands]

    def svg(self) -> str:
        """A picture: a bar for each of the largest contributions, and one for the score."""
        return _bars(self._title(), self._shown(), self.score)

    def save(self, path: str | Path) -> None:
        """Write the picture to a file that ends in ``.svg`` or ``.html``."""
        pictures.save(path, self._title(), self.svg(), STYLE)

    def _title(self) -> str:
        whom = "this request" if self.user is None else str(self.user)
        names = (_with_title(str(self.item), self.title), whom)
        item, whom = (pictures.shortened(name, 1.1 * TITLE, WIDTH / 2 - 50.0) for name in names)
        return f"Why {item} for {whom}"

    def _shown(self) -> list[Summand]:
        """The largest, and the others added up to one."""
        features, last = ([summand for summand in self._summands if summand.last is which] for which in (False, True))
        if len(self._summands) <= SHOWN:
            return self._summands
        kept = SHOWN - 1 - len(last)
        rest = features[kept:]
        return [*features[:kept], Summand(f"{len(rest):,} others", "", math.fsum(summand.amount for summand in rest)), *last]

    def _repr_html_(self) -> str:
        return f'<div style="max-width:60rem">{self.svg()}</div>'

    def __repr__(self) -> str:
        shown = self._shown()
        write = _writer([summand.amount for summand in shown] + [self.score])
        columns = self.table.column_names
        cells = [[s.field, s.value, *([s.title or ""] if self._has_titles else [])] for s in shown]
        named = [[pictures.shortened(cell, 1.0, CELL) for cell in row] for row in cells]
        rows = [[*names, write(summand.amount, "+")] for names, summand in zip(named, shown, strict=True)]
        last = ["score", *[""] * (len(columns) - 2), write(self.score, "-")]
        return f"{self._title()}\n{table(columns, [*rows, last])}"


def _with_title(value: str, title: str | None) -> str:
    return value if title is None else f"{value} ({title})"


def _writer(amounts: list[float]) -> Callable[[float, str], str]:
    """A function that formats numbers, with the digits that suit the largest; its second argument is the sign option of formats."""
    largest = max(map(abs, amounts))
    power = math.floor(math.log10(largest)) if largest > 0.0 else 0
    counts = all(amount.is_integer() for amount in amounts)
    digits = f".{0 if counts else max(2 - power, 0)}f" if -4 <= power < 9 else ".2e"

    def write(amount: float, sign: str) -> str:
        written = f"{amount:{sign}{digits}}"
        return written if float(written) else written.lstrip("+-")

    return write


def _bars(title: str, summands: Sequence[Summand], score: float) -> str:
    """Bars from a zero line to both sides, their labels to the left, amounts at their ends; the score below a rule."""
    amounts = [*(summand.amount for summand in summands), score]
    write = _writer(amounts)
    written = [*(write(summand.amount, "+") for summand in summands), write(score, "-")]
    low, high = min(0.0, *amounts), max(0.0, *amounts)
    room = 8.0 + max(pictures.width_of(text, FONT) for text in written)
    before, after = LABELS + (room if low < 0.0 else 0.0), WIDTH - EDGE - room
    lengths = [amount / (high - low) * (after - before) if high > low else 0.0 for amount in amounts]
    zero = before - min(0.0, *lengths)
    height = TOP + ROW * len(amounts) + 14.0
    drawn = [
        f'<rect width="{WIDTH:g}" height="{height:g}" rx="8" style="fill:#fff;stroke:#dfe4ea"/>',
        _text(EDGE, 26.0, title, f"font-size:{TITLE:g}px;font-weight:600"),
    ]
    labels = [*(summand.label for summand in summands), "score"]
    for j, (label, length, number) in enumerate(zip(labels, lengths, written, strict=True)):
        y, last = TOP + ROW * j + (6.0 if j == len(summands) else 0.0), j == len(summands)
        if last:
            drawn.append(pictures.line(EDGE, y - 3.0, WIDTH - EDGE, y - 3.0, f'style="stroke:{RULE};stroke-dasharray:2 3"'))
        drawn.append(_bar(zero, y + 4.0, length, TOTAL if last else UP if length >= 0.0 else DOWN, f"{label}: {number}"))
        weight = ";font-weight:600" if last else ""
        fitted = pictures.shortened(label, FONT, LABELS - EDGE - 10.0)
        drawn.append(_text(LABELS - 10.0, y + 16.5, fitted, f"text-anchor:end{weight}"))
        side, anchor = (5.0, "start") if length >= 0.0 else (-5.0, "end")
        drawn.append(_text(zero + length + side, y + 16.5, number, f"text-anchor:{anchor}{weight}"))
    drawn.append(pictures.line(zero, TOP, zero, height - 8.0, f'style="stroke:{RULE}"'))
    return pictures.svg(title, WIDTH, height, drawn)


def _bar(zero: float, y: float, length: float, colour: str, tooltip: str) -> str:
    place = f'x="{min(zero, zero + length):.1f}" y="{y:.1f}" width="{abs(length):.1f}" height="{ROW - 8.0:g}"'
    return f'<rect {place} style="fill:{colour}"><title>{pictures.plain(tooltip)}</title></rect>'


def _text(x: float, y: float, words: str, style: str) -> str:
    """With inline styles, so that neither the page around it changes the picture nor the picture the page."""
    font = f"font-family:system-ui,sans-serif;font-size:{FONT:g}px;fill:{INK}"
    return f'<text x="{x:.1f}" y="{y:.1f}" style="{font};{style}">{pictures.plain(words)}</text>'
