"""The paper's experiments run as a user runs them, and conventional coordinate descent is what it is said to be."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given

import everypair as ep
from everypair.cli.shell import main
from everypair.models.mixins import PAPER
from everypair.recommend.context_batch import ContextBatch
from everypair.recommend.description import Description
from everypair.reproduce import cost, report
from everypair.reproduce import run as reproduce
from everypair.reproduce.run import QUICK

from logs import logs

TINY = QUICK._replace(
    users=80, items=40, factors=2, epochs=2, trials=2, tuning_events=400, sample=50, cost_events=60, catalogue=(60, 90), alone=100
)


@pytest.fixture(scope="module", autouse=True)
def small_paper() -> Any:
    """Fewer items than the paper has, so that experiments are short where kernels are not compiled."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cost, "PAPER_ITEMS", 500)
        yield


def run(*arguments: str) -> Any:
    return CliRunner().invoke(main, list(arguments))


@pytest.mark.parametrize("context", cost.CONTEXTS)
@given(log=logs())
def test_conventional_coordinate_descent_takes_the_same_steps(context: str, log: ep.Dataset) -> None:
    """From the same start, an epoch over every pair ends where an epoch of iCD does."""
    contexts = ContextBatch.of_events(log)
    columns = Description("context", cost.CONTEXTS[context], log, contexts).columns(contexts)
    feedback = ep.Feedback(np.arange(len(log)), log.item, shape=(len(log), log.n_items))
    columns = {name: c if isinstance(c, ep.Levels) else c.toarray() for name, c in columns.items()}
    columns = {name: c if isinstance(c, ep.Levels) else as_sparse(c) for name, c in columns.items()}
    settings = {"rotate": False, "field_solver": "cd", **PAPER}
    model = ep.FM(2, epochs=1, dtype="float64", unobserved_weight=0.01, regularization=0.1, **settings)
    conventional = cost.ConventionalFM(feedback, columns, model)
    start = {letter: value.copy() for letter, value in conventional.parameters.items()}
    model.fit(feedback, contexts=columns, start=start)
    conventional.epoch()
    for letter, value in conventional.parameters.items():
        np.testing.assert_allclose(model.parameters_[letter], value, rtol=1e-6, atol=1e-9, err_msg=letter)
    np.testing.assert_allclose(conventional.scores(), model.phi_ @ model.psi_.T, rtol=1e-6, atol=1e-9)


def as_sparse(matrix: np.ndarray) -> Any:
    import scipy.sparse as sp

    from everypair.columns.fields import SparseField

    return SparseField("history", sp.csr_array(matrix))


def test_costs_are_counted_and_grow_as_they_should() -> None:
    told: list[str] = []
    costs = cost.compare(60, [60, 120], 100, 2, 1, 0, told.append)
    assert len(told) == 9
    for one in costs.measured:
        assert one.problem.conventional > one.problem.icd
    for name in cost.CONTEXTS:
        small, large = (one.problem for one in costs.measured if one.context == name)
        assert large.conventional == pytest.approx(2 * small.conventional)
        assert large.icd < 1.9 * small.icd
    assert [(one.problem.contexts, one.problem.items) for one in costs.paper] == [(200_000 * 20, 500)] * 3
    assert all(one.extrapolated and one.ratios[0] > 100 for one in costs.paper)
    whole = [problem.grown(200_000 * 20, 68_000) for problem, _ in costs.alone.values()]
    assert all(problem.conventional > 3_000 * problem.icd for problem in whole)


@pytest.fixture(scope="module")
def results() -> dict[str, Any]:
    dataset = ep.datasets.youtube_like(TINY.users, TINY.items, TINY.seed)
    steps: list[str] = []
    kept: list[int] = []
    found = reproduce.reproduce(
        dataset, "youtube-like", ("age", "country"), TINY, steps.append, lambda so_far: kept.append(len(so_far["scenarios"]))
    )
    assert len(steps) == reproduce.steps(TINY)
    assert kept == [0, 1, 2, 3]
    return found


def test_the_line_ups_of_the_paper(results: dict[str, Any]) -> None:
    lineups = {scenario["name"]: [model["name"] for model in scenario["models"]] for scenario in results["scenarios"]}
    assert lineups == {
        "cold-start": ["Popularity", "Coview", "iCD-MF", "iCD-FM A"],
        "offline": ["Popularity", "Coview", "iCD-MF", "iCD-FM A", "iCD-FM P", "iCD-FM A+P+U"],
        "instant": ["Popularity", "Coview", "iCD-MF", "iCD-FM A", "iCD-FM P", "iCD-FM H", "iCD-FM A+P+H"],
    }
    for scenario in results["scenarios"]:
        base = scenario["models"][0]["metrics"]
        for model in scenario["models"]:
            for metric, m in model["metrics"].items():
                assert m["low"] <= m["value"] <= m["high"]
                assert m["relative"] == pytest.approx(m["value"] / base[metric]["value"])
            assert (model["tuning"] is None) == (model["settings"] is None)
            assert model["tuning"] is None or len(model["tuning"]) == TINY.trials
    assert json.loads(json.dumps(results, allow_nan=False)) == json.loads(json.dumps(results))


def test_mf_and_coview_are_popularity_for_strangers(results: dict[str, Any]) -> None:
    popularity, coview, mf, _ = (model["metrics"] for model in results["scenarios"][0]["models"])
    assert popularity == coview == mf


def test_the_report_needs_nothing_but_itself(results: dict[str, Any]) -> None:
    page = report.page(results)
    assert page.startswith("<!doctype html>")
    assert not re.findall(r"(?:src|href)=|url\(|@import|<script", page)
    assert page.count("<svg") == 9
    assert "nan" not in page.lower()
    for scenario in results["scenarios"]:
        for model in scenario["models"]:
            assert model["name"] in page
    text = report.terminal(results)
    assert "extrapolated" in text
    assert "The paper's findings" in text
    partial = {key: value for key, value in results.items() if key not in ("cost", "findings", "seconds")}
    assert "Cold-start" in report.page(partial)
    assert "Cold-start" in report.terminal(partial)


@pytest.mark.full
def test_reproduce_from_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reproduce, "QUICK", TINY)
    out = tmp_path / "new" / "report"
    done = run("reproduce", "--quick", "--out", str(out), "--trials", "1", "--save-model")
    assert done.exit_code == 0, done.output
    assert "Instant recommendation" in done.stdout
    kept = ep.load(out / "model")
    assert "history" in str(kept.context).lower()
    assert kept.evaluation_ is not None
    assert "title" in kept.dataset_.item_table.column_names
    written = json.loads((out / "results.json").read_text())
    assert written["scale"]["trials"] == 1
    assert sorted(path.name for path in out.iterdir()) == ["index.html", "model", "results.json"]
    monkeypatch.setattr(reproduce, "reproduce", lambda *args: written)
    again = run("reproduce", "--quick", "--out", str(out), "--json")
    assert json.loads(again.stdout) == written


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["reproduce", "--data", "movielens-1m"], "give --path"),
        (["reproduce", "--path", "/nowhere"], "--path is for real data"),
        (["reproduce", "--data", "movielens-1m", "--path", "/nowhere"], "/nowhere"),
        (["reproduce", "--users", "3"], "not in the range"),
    ],
)
def test_errors_are_a_line(arguments: list[str], message: str) -> None:
    done = run(*arguments)
    assert done.exit_code != 0
    assert message in done.output
    assert "Traceback" not in done.output
    assert not done.stdout


def test_a_folder_that_cannot_be_written_is_told_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reproduce, "QUICK", TINY)
    monkeypatch.setattr(reproduce, "_scenario", lambda *args: pytest.fail("nothing should have begun"))
    (tmp_path / "file").write_text("")
    done = run("reproduce", "--quick", "--out", str(tmp_path / "file" / "report"))
    assert done.exit_code == 1
    assert "file" in done.output


@pytest.mark.full
def test_what_was_there_stays_until_all_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reproduce, "QUICK", TINY)
    old = '{"data": {}, "scale": {}, "scenarios": []}'
    (tmp_path / "results.json").write_text(old)

    def interrupted(*args: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(reproduce.cost, "compare", interrupted)
    assert run("reproduce", "--quick", "--out", str(tmp_path)).exit_code != 0
    assert (tmp_path / "results.json").read_text() == old
    assert len(json.loads((tmp_path / "results.partial.json").read_text())["scenarios"]) == 3


def test_errors_with_a_traceback_on_request() -> None:
    done = run("--debug", "reproduce", "--data", "movielens-1m")
    assert isinstance(done.exception, ValueError)


@pytest.mark.parametrize("arguments", [[], ["reproduce"]])
def test_help(arguments: list[str]) -> None:
    done = run(*arguments, "--help")
    assert done.exit_code == 0
    assert "Usage: " in done.stdout


@pytest.mark.full
@pytest.mark.more
def test_the_findings_of_the_paper_come_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """As ``everypair reproduce --quick`` has them."""
    monkeypatch.setattr(cost, "PAPER_ITEMS", 68_000)
    scale = QUICK._replace(cost_events=200, catalogue=(150,), alone=400)
    found = reproduce.reproduce(
        ep.datasets.youtube_like(scale.users, scale.items, scale.seed),
        "youtube-like",
        ("age", "gender", "country", "device"),
        scale,
    )
    assert [(finding["finding"], finding["why"]) for finding in found["findings"] if finding["verdict"] != "yes"] == []


@pytest.mark.parametrize(
    ("name", "content"), [("index.html", "<p>my site"), ("results.json", '{"mine": 1}'), ("results.json", "[")]
)
def test_a_report_replaces_reports_alone(name: str, content: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reproduce, "reproduce", lambda *_, **__: pytest.fail("run"))
    (tmp_path / name).write_text(content)
    done = run("reproduce", "--quick", "--out", str(tmp_path))
    assert done.exit_code == 1
    assert f"{tmp_path / name} is not of an earlier report, and would be replaced." in done.output
    assert (tmp_path / name).read_text() == content
