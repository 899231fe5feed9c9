"""Keep the code in the documentation the same as in the files it comes from, which are tested.

In a page, ``<!-- code: examples/fading.py tower -->`` stands before a code block that shows the part of that file between two
lines ``# [tower]`` (``// [tower]`` in JavaScript): all the way to the left, unless the comment says "indented".
A comment without a label shows a whole file. ``python docs/include.py`` writes the blocks anew.
"""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"(<!-- code: (\S+)(?: (\w+)( indented)?)? -->\n```\w+)\n.*?(```)\n", re.DOTALL)


def snippet(path: str, label: str | None, indented: bool) -> str:
    """The lines of a file between the two that hold a label; without one, all."""
    if label is None:
        return (ROOT / path).read_text().strip("\n")
    parts = re.split(rf"^ *(?:#|//) \[{label}\]\n", (ROOT / path).read_text(), flags=re.MULTILINE)
    if len(parts) != 3:
        raise ValueError(f"{path} must have two lines '# [{label}]', got {len(parts) - 1}.")
    return (parts[1] if indented else textwrap.dedent(parts[1])).strip("\n")


def updated(page: str) -> str:
    """A page with its code blocks as the files have them."""
    return BLOCK.sub(lambda match: f"{match[1]}\n{snippet(match[2], match[3], bool(match[4]))}\n{match[5]}\n", page)


if __name__ == "__main__":
    for path in sorted((ROOT / "docs").glob("*.md")):
        page = path.read_text()
        if updated(page) != page:
            path.write_text(updated(page))
            print(f"{path.name} updated")
