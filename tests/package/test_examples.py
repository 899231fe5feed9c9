"""What the README, the documentation and the examples show works, and the examples agree with their formulas."""

from __future__ import annotations

import importlib
import re
import runpy
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import everypair as ep
from everypair import reference

from first_example import examples

FOLDER = Path(__file__).parents[2] / "examples"
MODELS = ["fpmc", "svdpp", "pitf", "parafac_four_way", "parafac_attributes", "text_vectors", "time_aware", "fading"]
SETTINGS: dict[str, Any] = {"unobserved_weight": 0.2, "regularization": 0.1, "dtype": "float64"}


@pytest.fixture
def example(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(FOLDER))
    yield importlib.import_module(request.param)
    for name in (*MODELS, "common"):
        sys.modules.pop(name, None)


def described(arguments: dict[str, Any]) -> tuple[Any, Any]:
    return arguments.get("contexts"), arguments.get("items")


@pytest.mark.parametrize("example", MODELS, indirect=True)
def test_the_objective_is_that_of_the_formula(example: Any) -> None:
    feedback, arguments = example.tiny()
    model = example.model(2, epochs=6, **SETTINGS).fit(feedback, **arguments)
    p, penalties = model.parameters_, dict.fromkeys(model.parameters_, 0.1)
    scores = example.scores(p, *described(arguments))
    np.testing.assert_allclose(model.phi_ @ model.psi_.T, scores, rtol=1e-9, atol=1e-9)
    dense = reference.objective(scores, feedback, 0.2, p, penalties)
    np.testing.assert_allclose(model.history_[-1].objective, dense.objective, rtol=1e-9)
    objectives = [epoch.objective for epoch in model.history_]
    assert objectives == sorted(objectives, reverse=True)


@pytest.mark.parametrize("example", MODELS, indirect=True)
def test_each_parameter_reaches_the_exact_minimum(example: Any) -> None:
    """All other parameters held: the scores are linear in one of them, and its best value solves linear equations."""
    feedback, arguments = example.tiny()
    start = example.model(2, epochs=2, **SETTINGS).fit(feedback, **arguments).parameters_
    for name in start:
        if name == "speed":  # not linear: see below
            continue
        held = {other: value for other, value in start.items() if other != name}
        model = example.model(2, epochs=400, **SETTINGS).fit(feedback, fixed=held, **arguments)
        expected = exact(example, feedback, arguments, start, name)
        np.testing.assert_allclose(model.parameters_[name], expected, rtol=1e-5, atol=1e-6, err_msg=name)


def exact(example: Any, feedback: ep.Feedback, arguments: Any, p: dict[str, np.ndarray], name: str) -> np.ndarray:
    """The minimum over one parameter, by the normal equations over every pair."""
    p = {key: np.array(value, float) for key, value in p.items()}
    value = p[name]
    value[...] = 0.0
    base = example.scores(p, *described(arguments)).ravel()
    columns = []
    for index in np.ndindex(*value.shape):
        value[index] = 1.0
        columns.append(example.scores(p, *described(arguments)).ravel() - base)
        value[index] = 0.0
    X = np.array(columns).T
    alpha, b, unobserved = (x.ravel() for x in reference.dense(feedback))
    weight = alpha + 0.2 * unobserved
    A = X.T @ (weight[:, None] * X) + 0.1 * np.eye(X.shape[1])
    return np.linalg.solve(A, X.T @ (b - weight * base)).reshape(value.shape)


@pytest.mark.parametrize("example", ["fading"], indirect=True)
def test_a_tower_of_ones_own(example: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tower of the tutorial is right, and nothing is left to gain by its nonlinear parameter."""
    feedback, arguments = example.tiny()
    example.check()
    ep.testing.check_tower(example.Fading(2), arguments["contexts"])
    right = example.Fading.derivatives

    def turned_around(*args: Any) -> Any:
        d = right(*args)
        return d._replace(second=-d.second)

    monkeypatch.setattr(example.Fading, "derivatives", turned_around)
    with pytest.raises(AssertionError) as caught:
        example.check()
    page = (FOLDER.parent / "docs" / "your-own-model.md").read_text()
    assert str(caught.value) in " ".join(page.split())
    monkeypatch.setattr(example.Fading, "derivatives", right)
    model = example.model(2, epochs=300, **SETTINGS).fit(feedback, **arguments)
    p = {name: np.array(value, float) for name, value in model.parameters_.items()}

    def objective() -> float:
        scores = example.scores(p, arguments["contexts"])
        return reference.objective(scores, feedback, 0.2, p, dict.fromkeys(p, 0.1)).objective

    best = objective()
    for j in range(len(p["speed"])):
        for step in (1e-3, -1e-3):
            p["speed"][j] += step
            assert objective() >= best - 1e-7
            p["speed"][j] -= step


@pytest.mark.full
@pytest.mark.parametrize("example", MODELS, indirect=True)
def test_examples_show_what_they_say(example: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """The model of the example is better than what it is compared with."""
    example.main()
    lines = capsys.readouterr().out.splitlines()
    rates = {line[:34].strip(): float(line.split()[-1]) for line in lines if line.startswith("  ")}
    ours = {name: rate for name, rate in rates.items() if any(word in name for word in BETTER)}
    others = {name: rate for name, rate in rates.items() if name not in ours}
    assert ours
    assert others
    for name, rate in ours.items():
        group = name.split(":")[0] if ":" in name else ""
        assert rate > max(other for key, other in others.items() if key.startswith(group)), rates


def test_the_code_in_the_documentation_is_tested_code() -> None:
    include = runpy.run_path(str(FOLDER.parent / "docs" / "include.py"))
    pages = sorted((FOLDER.parent / "docs").glob("*.md"))
    assert sum(len(include["BLOCK"].findall(page.read_text())) for page in pages) >= 9
    for page in pages:
        assert include["updated"](page.read_text()) == page.read_text(), f"{page.name}: run python docs/include.py"


@pytest.mark.full
def test_the_tutorial_runs_as_it_stands(tmp_path: Path) -> None:
    """Block after block, pasted into one file; JAX is an extra."""
    page = (FOLDER.parent / "docs" / "your-own-model.md").read_text()
    blocks = [block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "jnp" not in block]
    file = tmp_path / "tutorial.py"
    file.write_text("\n".join(blocks).replace("20_000", "2_000").replace("18_000", "1_800"))
    names = runpy.run_path(str(file))
    assert names["best"].shape == (2, 10)
    ep.testing.check_tower(names["Offset"](), n_rows=6)
    with_missing = {"user": [0, 1, 2, 1], "previous": [0, 1, -1, 2], "gap": [0.1, 2.0, 0.5, 1.0]}
    ep.testing.check_tower(names["Fading"](2), with_missing)


@pytest.mark.full
@pytest.mark.parametrize("example", ["fading"], indirect=True)
def test_the_figures_of_the_tutorial(example: Any, capsys: pytest.CaptureFixture[str]) -> None:
    example.main()
    printed = capsys.readouterr().out
    page = (FOLDER.parent / "docs" / "your-own-model.md").read_text()
    shown = page[page.index("HR@10 on held-out") :].split("\n\n")[0]
    figures = [[float(x) for x in re.findall(r"\d\.\d+", text)] for text in (shown, printed)]
    np.testing.assert_allclose(figures[0], figures[1], atol=0.02)  # other machines round otherwise


def test_the_models_page() -> None:
    """The towers it says a model is made of are those of the model."""
    page = (FOLDER.parent / "docs" / "models.md").read_text()
    k, k1, k2, k3 = 3, 2, 3, 2
    random = np.random.default_rng(0)
    feedback = ep.Feedback(*np.nonzero(random.random((6, 5)) < 0.5), shape=(6, 5))
    levels = np.stack([np.arange(6) // 2, np.arange(6) % 2], axis=1)
    blocks = re.findall(r"```python\n(.*?)# (ep\.\w+\(.*?\))\n```", page, re.DOTALL)
    assert len(blocks) == 5
    for towers, built_in in blocks:
        names = {"ep": ep, "k": k, "k1": k1, "k2": k2, "k3": k3, **{name: getattr(ep.towers, name) for name in ep.towers.__all__}}
        separable, model = eval(towers.strip(), names), eval(built_in, names)
        tensor = isinstance(model, ep.PARAFAC | ep.Tucker)
        features = {} if isinstance(model, ep.MF) else {"contexts": np.eye(6), "items": np.eye(5)}
        for one in (model, separable):  # models differ in what they take where nothing is said
            one.set_params(unobserved_weight=0.01, regularization=0.01, regularization_exponent=0.0, popularity_exponent=0.0)
        model.fit(feedback, **({"contexts": levels} if tensor else features))
        separable.fit(feedback, **({"contexts": {"U": levels[:, 0], "V": levels[:, 1]}} if tensor else features))
        for letter, value in model.parameters_.items():
            np.testing.assert_array_equal(separable.parameters_[letter], value, err_msg=f"{built_in}, {letter}")


BETTER = ["FPMC", "user and history", "PITF", "PARAFAC, ", "attributes x hour", "text", "user + user x month", "fading"]


@pytest.mark.full
def test_readme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for example in examples():
        exec(example, names)
    assert "objective over all 60,000 pairs" in capsys.readouterr().out
    assert names["scores"].shape == (1, 200)  # type: ignore[attr-defined]


@pytest.mark.full
def test_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The code and the figures of docs/data.md."""
    monkeypatch.syspath_prepend(str(FOLDER))
    example = runpy.run_path(str(FOLDER / "tables.py"))
    example["write_tables"](tmp_path)
    example["main"](tmp_path)
    printed = capsys.readouterr().out
    figures = [float(x) for x in re.findall(r"ndcg@20 (\d\.\d+)", printed)]
    assert figures[1] > 1.5 * figures[0]
    page = (FOLDER.parent / "docs" / "data.md").read_text()
    np.testing.assert_allclose([float(x) for x in re.findall(r"ndcg@20 (\d\.\d+)", page)], figures, atol=0.02)


@pytest.mark.full
def test_production(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The code and the figures of docs/production.md."""
    example = runpy.run_path(str(FOLDER / "production.py"))
    example["main"](tmp_path)
    printed = capsys.readouterr().out
    page = (FOLDER.parent / "docs" / "production.md").read_text()
    # In any order: that of contributions of nearly the same size is a matter of rounding.
    shown, found = (sorted(re.findall(r"^ *(\S.*?)  +[+-]?(\d\.\d{3})$", text, re.MULTILINE)) for text in (page, printed))
    assert [line for line, _ in shown] == [line for line, _ in found]
    np.testing.assert_allclose(*[[float(amount) for _, amount in lines] for lines in (shown, found)], atol=0.02)
    assert (tmp_path / "recommendations.parquet").exists()
    assert (tmp_path / "why.html").read_text().startswith("<!doctype html>")
