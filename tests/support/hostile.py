"""What somebody writes into a file to make a program do more than read it, and what reading it must not do."""

from __future__ import annotations

import copy
import sys
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

PACKAGE = "everypair_hostile_package"  # importing it is found out
MOST = 64 * 2**20  # bytes that opening a small file may take

NUMBERS = [0, -1, 1, 2, 3, 2**31, 2**63, 2**70, 10**9, 10**12, 10**400, 0.5, -0.0, 1e-300, 1e300, float("nan"), float("inf")]
STRINGS = [
    "", "x", "\0", "é" * 300, "%s{0.__class__}", "__class__", "os", f"{PACKAGE}", f"{PACKAGE}.x", f"{PACKAGE}.x.y", "..", "../..",
    "/etc/passwd", "manifest.json", "pandas", "numpy", "object", "float128", "<f8", "O", "score", "history", "user", "auto", "all",
]  # fmt: skip
OTHERS = [None, True, False, [], {}, [[[]]], [0], ["x"], {"x": 0}, {"mapping": [[[], 0]]}, {"mapping": [["x", 1]]}, {"mapping": 3}]
OBJECTS = [
    {"class": name, "arguments": arguments}
    for name in ("Popen", "object", "MF", "UserId", "Embedding", "Machine", "Previous", f"{PACKAGE}.X")
    for arguments in ({}, {"factors": 10**9}, {"back": 10**12})
]
VALUES = [*NUMBERS, *STRINGS, *OTHERS, *OBJECTS]


def places(content: Any, place: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The place of every value in JSON data: its keys, from the outermost."""
    inner = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    return [found for key, value in inner for found in [(*place, key), *places(value, (*place, key))]]


@st.composite
def changed(draw: st.DrawFn, content: Any, changes: int = 2) -> Any:
    """The same data with some values exchanged, taken out or put under another key."""
    content = copy.deepcopy(content)
    for _ in range(draw(st.integers(1, changes))):
        there = places(content)
        if not there:
            break
        *outer, key = draw(st.sampled_from(there))
        holder = content
        for each in outer:
            holder = holder[each]
        kind = draw(st.sampled_from(["exchange"] * 6 + ["remove", "rename"]))
        if kind == "exchange":
            holder[key] = copy.deepcopy(draw(st.sampled_from(VALUES)))
        elif kind == "remove" or isinstance(holder, list):
            del holder[key]
        else:
            holder[draw(st.sampled_from(STRINGS))] = holder.pop(key)
    return content


class _Watch:
    """Files and modules that are opened and imported while it is on; an audit hook cannot be taken away."""

    def __init__(self) -> None:
        self.on, self.seen, self.installed = False, [], False

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.on and event in ("open", "import") and isinstance(arguments[0], str):
            self.seen.append(arguments[0])


_watch = _Watch()


@contextmanager
def watched(secret: Path) -> Iterator[None]:
    """Fail if the block imports the hostile package, opens ``secret``, or takes much memory."""
    if not _watch.installed:
        sys.addaudithook(_watch)
        _watch.installed = True
    _watch.seen, _watch.on = [], True
    tracemalloc.start()
    try:
        yield
    finally:
        _watch.on = False
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert not any(name.split(".")[0] == PACKAGE for name in (*_watch.seen, *sys.modules)), "imported"
        assert str(secret) not in _watch.seen, "another file was opened"
        assert peak < MOST, f"{peak:,} bytes"
