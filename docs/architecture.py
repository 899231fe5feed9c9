"""Draw the layers of the package, from its imports: ``python docs/architecture.py`` writes ``docs/pictures/architecture.svg``."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests" / "support")]

from everypair.runtime import svg  # noqa: E402

from import_graph import IMPORTS, LAYERS, MODULES  # noqa: E402

PICTURE = ROOT / "docs" / "pictures" / "architecture.svg"
ROW, TOP, NAME, PURPOSE, SIZE, WIDTH = 34, 46, 16, 170, 1130, 1280
STYLE = """<style>
text { font: 13px system-ui, sans-serif; fill: #1f2933 } .name { font-weight: 600 } .head { font-weight: 600; fill: #52606d }
.small { font-size: 11px; fill: #52606d } .layer { fill: #f0f4f8 } .odd { fill: #e4ebf2 } .chip { fill: #ffffff; stroke: #9fb3c8 }
@media (prefers-color-scheme: dark) { text { fill: #e4e7eb } .head, .small { fill: #9aa5b1 } .layer { fill: #1f2933 }
.odd { fill: #27323d } .chip { fill: #323f4b; stroke: #52606d } }
</style>"""


def purpose(module: str) -> str:
    """The first line of its docstring, without markup."""
    line = (ast.get_docstring(ast.parse(MODULES[module].read_text())) or "").splitlines()[0]
    return re.sub(r"(:\w+:)?`+([^`]*)`+", r"\2", line).rstrip(".")


def picture() -> str:
    """A row for each layer, the highest first: what it is for, how large it is, and which layers it imports from."""
    names = [name for layer in LAYERS for name in sorted(layer)]
    parts, y = [STYLE], TOP
    for x, head in ((NAME, "layer"), (PURPOSE, "purpose, and the layers it imports from"), (SIZE, "size")):
        parts.append(svg.text(x, 28, "head", head))
    for number, name in enumerate(reversed(names)):
        files = [path for module, path in MODULES.items() if module.split(".")[0] == name]
        lines = sum(len(path.read_text().splitlines()) for path in files)
        uses = {found.target.split(".")[0] for found in IMPORTS if found.source.split(".")[0] == name} - {name}
        band = "odd" if number % 2 else "layer"
        parts.append(f'<rect class="{band}" x="4" y="{y}" width="{WIDTH - 8}" height="{2 * ROW - 8}" rx="6"/>')
        parts.append(svg.text(NAME, y + 24, "name", name if name != "everypair" else "everypair (__init__)"))
        parts.append(svg.text(PURPOSE, y + 24, "purpose", purpose(name)))
        parts.append(svg.text(SIZE, y + 24, "small", f"{len(files)} module{'s' * (len(files) > 1)}, {lines:,} lines"))
        x = PURPOSE
        for used in sorted(uses, key=names.index, reverse=True):
            width = 6.9 * len(used) + 15
            parts.append(f'<rect class="chip" x="{x}" y="{y + 33}" width="{width}" height="18" rx="9"/>')
            parts.append(svg.text(x + 7, y + 46, "small", used))
            x += width + 6
        y += 2 * ROW
    return svg.svg("The layers of EveryPair: each imports from those below it alone", WIDTH, y + 4, parts)


if __name__ == "__main__":
    PICTURE.write_text(picture() + "\n")
