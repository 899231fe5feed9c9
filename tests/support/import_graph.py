"""The imports among the modules of the package, read from its files, and the layers that they must respect."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).parents[2] / "src" / "everypair"

# From bottom to top. A module may import from its own layer and from those below it. "everypair" is the package's own __init__.
LAYERS = [
    {"runtime"}, {"kernels"}, {"columns"}, {"engine"}, {"gpu"}, {"towers"}, {"ranking"}, {"persistence"}, {"models"}, {"data"},
    {"datasets"}, {"recommend"}, {"evaluation"}, {"recommender"}, {"cluster"}, {"tuning"}, {"testing", "reference", "jax"},
    {"everypair"}, {"reproduce"}, {"service"}, {"cli"},
]  # fmt: skip
LEVEL = {name: level for level, layer in enumerate(LAYERS) for name in layer}


class Import(NamedTuple):
    source: str
    target: str
    line: int
    types_only: bool


def modules() -> dict[str, Path]:
    """Files by dotted name without the leading ``everypair.``; packages by the name of their folder."""
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        parts = parts[:-1] if parts[-1] == "__init__" else parts
        found[".".join(parts) or "everypair"] = path
    return found


MODULES = modules()


def absolute(node: ast.ImportFrom, module: str) -> str:
    """The dotted name that an import is from, also of a relative one."""
    if not node.level:
        return node.module or ""
    package = [] if module == "everypair" else module.split(".")
    up = node.level - (MODULES[module].name == "__init__.py")
    return ".".join(["everypair", *package[: len(package) - up], *filter(None, [node.module])])


def targets(node: ast.AST, module: str) -> Iterator[str]:
    """The modules of the package that a statement or a call of ``import_module`` names."""
    if isinstance(node, ast.ImportFrom):
        base = absolute(node, module)
        names = [f"{base}.{alias.name}" for alias in node.names]
    elif isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module") and isinstance(node.args[0], ast.Constant):
        names = [str(node.args[0].value)]
    else:
        return
    for name in names:
        if name.split(".")[0] == "everypair":
            inside = name.removeprefix("everypair").removeprefix(".")
            yield inside if inside in MODULES else inside.rpartition(".")[0] or "everypair"


def imports(module: str) -> Iterator[Import]:
    """Every import in a file, at any depth."""

    def walk(node: ast.AST, types_only: bool) -> Iterator[Import]:
        for target in targets(node, module):
            yield Import(module, target, getattr(node, "lineno", 0), types_only)
        guarded = isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")
        for name, value in ast.iter_fields(node):
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from walk(child, types_only or (guarded and name == "body"))

    yield from walk(ast.parse(MODULES[module].read_text()), False)


IMPORTS = [found for module in MODULES for found in imports(module)]


def level(module: str) -> int:
    return LEVEL[module.split(".")[0]]


def cyclic(edges: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """The edges that lie on a cycle."""
    following: dict[str, set[str]] = {}
    for source, target in edges:
        following.setdefault(source, set()).add(target)

    def reaches(start: str, end: str) -> bool:
        seen, todo = {start}, [start]
        while todo:
            for after in following.get(todo.pop(), ()):
                if after == end:
                    return True
                if after not in seen:
                    seen.add(after)
                    todo.append(after)
        return False

    return {(source, target) for source, target in edges if source == target or reaches(target, source)}
