"""Tables as text, for terminals."""

from __future__ import annotations

from collections.abc import Sequence


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Aligned columns, the first to the left."""
    widths = [max(len(row[j]) for row in (header, *rows)) for j in range(len(header))]
    lines = [
        "  ".join(cell.ljust(w) if j == 0 else cell.rjust(w) for j, (cell, w) in enumerate(zip(row, widths, strict=True)))
        for row in (header, *rows)
    ]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])
