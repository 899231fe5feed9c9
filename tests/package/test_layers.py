"""The layers of the package: imports go down, no module imports itself through others, and tests lie where the code lies."""

from __future__ import annotations

import ast
from collections import defaultdict

from import_graph import IMPORTS, LEVEL, MODULES, SOURCE, cyclic, level

BESIDE = {"benchmarks", "compatibility", "package", "support"}  # folders of tests that mirror no folder of the package


def test_every_module_has_a_layer() -> None:
    assert {module.split(".")[0] for module in MODULES} == set(LEVEL)


def test_imports_go_down() -> None:
    """Those inside functions and those for the type checker too."""
    wrong = [found for found in IMPORTS if level(found.source) < level(found.target)]
    assert not wrong, "\n".join(f"{MODULES[w.source]}:{w.line} imports {w.target}, which is in a layer above" for w in wrong)


def test_no_module_imports_itself_through_others() -> None:
    """Imports inside functions count; those for the type checker do not."""
    edges = {(found.source, found.target) for found in IMPORTS if not found.types_only}
    assert cyclic(edges) == set()


def test_the_root_is_small() -> None:
    assert len([path for path in SOURCE.glob("*.py") if path.name != "__init__.py"]) <= 8


def test_the_facade_is_small() -> None:
    """Its docstrings may be long."""
    facade = next(node for node in classes("recommender") if node.name == "Recommender")
    for node in ast.walk(facade):
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            node.body[0] = ast.Pass()
    assert len(ast.unparse(facade).splitlines()) <= 200


# Public names of two kinds of users: what a tower returns (everypair.towers.Vectors), and a recipe (everypair.Vectors).
TWICE = {"Vectors": ["engine.vectors", "recommend.recipes"]}


def test_a_name_stands_for_one_class() -> None:
    places = defaultdict(list)
    for module in MODULES:
        for node in classes(module):
            if not node.name.startswith("_"):
                places[node.name].append(module)
    assert {name: modules for name, modules in places.items() if len(modules) > 1} == TWICE


def classes(module: str) -> list[ast.ClassDef]:
    return [node for node in ast.parse(MODULES[module].read_text()).body if isinstance(node, ast.ClassDef)]


def test_tests_lie_where_the_code_lies() -> None:
    code = {path.parent.name for path in SOURCE.glob("*/*.py")}
    tests = {path.parent.name for path in (SOURCE.parents[1] / "tests").glob("*/*.py")}
    assert tests - BESIDE == code


def test_violations_would_be_found() -> None:
    assert cyclic({("a", "b"), ("b", "c"), ("c", "a"), ("c", "d"), ("e", "a")}) == {("a", "b"), ("b", "c"), ("c", "a")}
    found = {(found.source, found.target): found.types_only for found in IMPORTS}
    assert found["engine.solver", "engine.tower"] in (True, False)
    assert found["everypair", "recommender"] is True, "for the type checker"
    assert found["cli.serve", "service.supervisor"] is False, "inside a function"
