"""Tuning: the same seed gives the same trials, also by several calls; the test part is not looked at; the best is as found."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import xml.etree.ElementTree as ET
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import everypair as ep
from everypair.evaluation import EarlyStopping, LeaveLast, RandomPerUser, evaluate
from everypair.tuning import Tuning, default_space
from everypair.tuning.studies import quiet

optuna = pytest.importorskip("optuna", reason="needs the extra 'tune'")

SPACE: dict[str, Any] = {"unobserved_weight": (0.01, 1.0), "shrinkage": (0.01, 0.5), "factors": [2, 4]}
MODELS: dict[str, tuple[Any, list[Any]]] = {
    "MF": (ep.MF, [ep.UserId()]),
    "MFSI": (ep.MFSI, [ep.UserId(), ep.Attributes("country")]),
    "FM": (ep.FM, [ep.UserId(), ep.Previous()]),
    "PARAFAC": (ep.PARAFAC, [ep.UserId(), ep.Previous()]),
    "Tucker": (ep.Tucker, [ep.Attributes("country"), ep.Previous()]),
}


@pytest.fixture(scope="module")
def dataset() -> ep.Dataset:
    return ep.datasets.youtube_like(60, 30, seed=0, events_per_user=8)


def template(**settings: Any) -> ep.Recommender:
    return ep.Recommender(ep.MF(**{"epochs": 4, **settings}))


def tune(dataset: ep.Dataset, trials: int = 4, **options: Any) -> Tuning:
    options = {"protocol": LeaveLast(), "space": SPACE, "metric": "ndcg@5", **options}
    return ep.tune(options.pop("recommender", template()), dataset, trials=trials, **options)


def tried(tuning: Tuning) -> list[dict[str, Any]]:
    return tuning.trials.drop_columns(["seconds"]).to_pylist()


@pytest.mark.full
def test_the_same_seed_gives_the_same_trials(dataset: ep.Dataset) -> None:
    first, again, other = tune(dataset, 12), tune(dataset, 12), tune(dataset, 12, seed=1)
    assert tried(first) == tried(again)
    assert first.best == again.best
    assert tried(first)[0] == tried(other)[0], "the middle of the space"
    assert tried(first) != tried(other)
    assert tried(first)[0]["unobserved_weight"] == 0.1


def test_the_best_is_what_was_found(dataset: ep.Dataset) -> None:
    """A recommender with the best settings, fitted on the training part, has the value found, exactly."""
    before = template()
    tuning = tune(dataset, 6, recommender=before)
    split = LeaveLast().split(dataset)
    again = evaluate(tuning.recommender.fit(split.train), split.tune, ["ndcg@5"])["ndcg@5"]
    rows = tried(tuning)
    assert again == tuning.best.value == max(row["value"] for row in rows)
    params = tuning.recommender.model.get_params()
    assert {name: params[name] for name in tuning.best.settings} == tuning.best.settings
    assert params["epochs"] == tuning.best.epochs
    assert before.model.get_params() == template().model.get_params()
    assert not hasattr(before, "_dataset")
    assert tuning.stop_reason == "trials"
    assert str(tuning).startswith(f"Tuning(6 trials, best ndcg@5 {tuning.best.value:.4f}: ")


def test_shrinkage_is_l2_in_units_of_observed_pairs(dataset: ep.Dataset) -> None:
    pairs = template().pairs_per_event(LeaveLast().split(dataset).train)
    for row in tried(tune(dataset, 2)):
        expected = row["shrinkage"] / (1 + row["unobserved_weight"] * pairs)
        assert row["regularization"] == pytest.approx(expected, rel=0.02)
    row = tried(tune(dataset, 1, space={"shrinkage": (0.1, 0.1)}, recommender=template(unobserved_weight=0.5)))[0]
    assert row["regularization"] == pytest.approx(0.1 / (1 + 0.5 * pairs), rel=0.01)
    assert "unobserved_weight" not in row


@pytest.mark.full
def test_choices_are_taken_as_they_are(dataset: ep.Dataset) -> None:
    space = {"unobserved_weight": [0.12345, 0.5], "init_std": [None, 0.1], "order": ["dimension", "side"], "block_size": (1, 3)}
    tuning = tune(dataset, 8, space=space)
    rows = tried(tuning)
    assert {row["unobserved_weight"] for row in rows} == {0.12345, 0.5}
    assert {row["order"] for row in rows} == {"dimension", "side"}
    assert all(isinstance(row["block_size"], int) and 1 <= row["block_size"] <= 3 for row in rows)
    assert {row["init_std"] for row in rows} == {None, 0.1}


def test_choices_of_several_types(dataset: ep.Dataset) -> None:
    recommender = ep.Recommender(ep.Tucker(epochs=2), MODELS["Tucker"][1])
    tuning = tune(dataset, 8, recommender=recommender, space={"factors": [(2, 2, 3), 2]})
    assert {row["factors"] for row in tried(tuning)} == {"(2, 2, 3)", "2"}
    assert tuning.recommender.model.get_params()["factors"] in ((2, 2, 3), 2)
    assert "(2, 2, 3)" in tuning.svg()


def test_the_test_part_is_not_looked_at(dataset: ep.Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    split = LeaveLast().split(dataset)
    blind = replace(split, test=None)  # type: ignore[arg-type]
    assert tried(tune(dataset, protocol=blind)) == tried(tune(dataset))
    monkeypatch.setattr(LeaveLast, "_split", lambda self, dataset: blind)
    assert tried(tune(dataset)) == tried(tune(dataset, protocol=split))


@pytest.mark.full
@pytest.mark.parametrize("name", MODELS)
def test_every_model_is_tuned_by_default(name: str, dataset: ep.Dataset) -> None:
    model, context = MODELS[name]
    recommender = ep.Recommender(model(epochs=3), context)
    tuning = ep.tune(recommender, dataset, LeaveLast(), trials=2)
    assert set(default_space(recommender, dataset)) <= set(tuning.trials.column_names)
    assert tuning.recommender.fit(dataset).recommend(dataset.users[0], n=3).num_rows == 3


def test_shrinkage_beside_a_weight_that_depends_on_the_data(dataset: ep.Dataset) -> None:
    pairs = template().pairs_per_event(LeaveLast().split(dataset).train)
    for space in ({"shrinkage": (0.1, 0.1)}, {"unobserved_weight": ["auto"], "shrinkage": (0.1, 0.1)}):
        row = tried(tune(dataset, 1, space=space))[0]
        assert row["regularization"] == pytest.approx(0.1 / (1 + min(10 / pairs, 1.0) * pairs), rel=0.01)


def test_default_spaces(dataset: ep.Dataset) -> None:
    def names(model: Any) -> set[str]:
        return set(default_space(ep.Recommender(model), dataset))

    def sizes(model: Any) -> Any:
        return default_space(ep.Recommender(model), dataset).get("factors")

    common = {"unobserved_weight", "popularity_exponent", "factors"}
    assert names(ep.FM()) == names(ep.MF(regularization_exponent=1.0)) == common | {"shrinkage"}
    low, high = default_space(ep.Recommender(ep.MF()), dataset)["unobserved_weight"]
    assert low < ep.MF(2, epochs=1).fit(ep.Recommender(ep.MF(2, epochs=1)).fit(dataset).feedback_).unobserved_weight_ <= high
    assert names(ep.MF(regularization_exponent=0.0)) == names(ep.MF(regularization_exponent=0.5)) == common | {"regularization"}
    assert names(ep.MF(popularity_exponent=0.0)) == {"unobserved_weight", "shrinkage", "factors"}
    assert names(ep.PARAFAC()) == {"unobserved_weight", "regularization", "factors"}
    assert names(ep.FM(regularization={"default": 0.1, "W": 0.2})) == common
    assert sizes(ep.MF()) == [16], "there are 29 items"
    assert sizes(ep.Tucker()) == [4, 8, 16]
    assert sizes(ep.Tucker(factors=(2, 3, 4))) is None
    few = ep.Dataset({"user": ["a", "b", "c"] * 3, "item": list("xyzzyxxyz")})
    assert default_space(template(), few)["factors"] == [2]


@pytest.mark.full
def test_pruned_trials_are_recorded(dataset: ep.Dataset) -> None:
    """Those that are worse than the median, after the first few; none of them is the best."""
    tuning = tune(dataset, 25, recommender=template(epochs=8), patience=8)
    rows = tried(tuning)
    pruned = [row for row in rows if row["state"] == "pruned"]
    assert pruned
    assert rows.index(pruned[0]) >= 5
    assert max(row["value"] for row in pruned) < tuning.best.value
    assert set(tuning.importance) == set(SPACE)
    assert sum(tuning.importance.values()) == pytest.approx(1)
    assert list(tuning.importance.values()) == sorted(tuning.importance.values(), reverse=True)
    assert ">pruned" in tuning.svg()


def test_trials_that_diverge_are_not_the_end(dataset: ep.Dataset) -> None:
    tuning = tune(dataset, 5, space={"init_std": [0.1, 1e38]})
    assert {row["state"] for row in tried(tuning) if row["init_std"] == 1e38} == {"no value"}
    assert tuning.best.settings == {"init_std": 0.1}
    assert "without value" in tuning.svg()
    with pytest.raises(ValueError, match="none of 2 trials could be evaluated"):
        tune(dataset, 2, space={"init_std": [1e38]})


@pytest.mark.full
def test_a_study_goes_on(dataset: ep.Dataset, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """In three calls as in one; finished trials are kept as they are, and a name is but a name."""
    whole = tune(dataset, 12)
    file = tmp_path / "a {study} of 100%?.db"
    parts = [tune(dataset, trials, study=file) for trials in (1, 7, 12)]
    assert [tried(part) for part in parts] == [tried(whole)[:1], tried(whole)[:7], tried(whole)]
    assert parts[-1].best == whole.best
    assert parts[-1].importance == whole.importance
    seconds = [part.trials["seconds"].to_pylist() for part in parts]
    assert seconds[2][:7] == seconds[1]
    assert tried(tune(dataset, 3, study=str(file), recommender=template(n_threads=1))) == tried(whole)
    assert list(tmp_path.iterdir()) == [file]
    assert capfd.readouterr().err == ""


SCRIPT = """
import os, signal, sys
import everypair as ep
from everypair.evaluation import EarlyStopping, LeaveLast

calls, before = 0, EarlyStopping.__call__

def killed(self, recommender, epoch):
    global calls
    calls += 1
    if calls == int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)
    return before(self, recommender, epoch)

EarlyStopping.__call__ = killed
dataset = ep.datasets.youtube_like(60, 30, seed=0, events_per_user=8)
space = {"unobserved_weight": (0.01, 1.0), "shrinkage": (0.01, 0.5), "factors": [2, 4]}
ep.tune(ep.Recommender(ep.MF(epochs=4)), dataset, LeaveLast(), "ndcg@5", 6, space=space, study=sys.argv[1])
"""


@pytest.mark.full
@pytest.mark.parametrize("at", [2, 9])
def test_a_study_whose_process_was_killed_goes_on(at: int, dataset: ep.Dataset, tmp_path: Path) -> None:
    """In the first trial, or midway: as if nothing had happened."""
    file = tmp_path / "study.db"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    ended = subprocess.run([sys.executable, "-c", SCRIPT, str(file), str(at)], env=environment, check=False, timeout=300)
    assert ended.returncode == -signal.SIGKILL
    assert tried(tune(dataset, 6, study=file)) == tried(tune(dataset, 6))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"metric": "recall@5"}, "its metric is ndcg@5, now recall@5"),
        ({"protocol": RandomPerUser()}, "its protocol is leave-last, 313 events .* now random, "),
        ({"recommender": template(epochs=5)}, "its template has epochs = 4, now 5"),
        ({"recommender": ep.Recommender(ep.MFSI(epochs=4))}, "its model is MF, now MFSI"),
        (
            {"recommender": ep.Recommender(ep.MF(epochs=4), [ep.Previous()])},
            r"its template has context = \[UserId\(\)\], now \[Pr",
        ),
        ({"space": {**SPACE, "factors": [2, 8]}}, r"its space has factors = Choices\(values=\(2, 4\)\), now .*\(2, 8\)"),
        ({"space": {"unobserved_weight": (0.01, 1.0)}}, "its space has factors = .* now nothing"),
        ({"seed": 3}, "its search has seed = 0, now 3"),
        ({"patience": 3}, "its search has patience = 2, now 3"),
    ],
)
def test_a_study_of_something_else_is_refused(change: dict[str, Any], message: str, dataset: ep.Dataset, tmp_path: Path) -> None:
    file = tmp_path / "study.db"
    kept = tune(dataset, 1, study=file)
    with pytest.raises(ValueError, match=f"study.db is the study of another search: .*{message}"):
        tune(dataset, 1, study=file, **change)
    assert tried(tune(dataset, 1, study=file)) == tried(kept)


def test_a_study_of_other_data_is_refused(dataset: ep.Dataset, tmp_path: Path) -> None:
    """Also if nothing but an attribute differs."""
    tune(dataset, 1, study=tmp_path / "study.db")
    other = ep.datasets.youtube_like(60, 30, seed=0, events_per_user=8)
    assert tried(tune(other, 1, study=tmp_path / "study.db"))
    other.user_table = other.user_table.slice(1).drop_columns(["age"])
    with pytest.raises(ValueError, match=r"its data is 433 events of 60 users on 29 items .* now 433 events"):
        tune(other, 1, study=tmp_path / "study.db")


def test_files_that_are_no_study(dataset: ep.Dataset, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("not a study, but long enough to be taken for the head of one, which has 100 bytes\n" * 3)
    with pytest.raises(ValueError, match=r"notes\.txt cannot be read as a study: .* Give another path"):
        tune(dataset, study=tmp_path / "notes.txt")
    with pytest.raises(FileNotFoundError, match=r"an existing folder, got .* Create the folder"):
        tune(dataset, study=tmp_path / "no" / "study.db")
    url = f"sqlite:///{tmp_path / 'other.db'}"
    with quiet():
        optuna.create_study(storage=url, study_name="everypair", direction="maximize").ask()
    with pytest.raises(ValueError, match=r"was not created by everypair"):
        tune(dataset, study=tmp_path / "other.db")


def test_a_database_of_something_else_is_left_as_it_is(dataset: ep.Dataset, tmp_path: Path) -> None:
    file = tmp_path / "shop.db"
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE orders (id INTEGER)")
        connection.commit()
    before = file.read_bytes()
    with pytest.raises(ValueError, match=r"shop\.db is another kind of database, with the tables orders"):
        tune(dataset, study=file)
    assert file.read_bytes() == before
    assert list(tmp_path.iterdir()) == [file]


def test_one_search_at_a_time(dataset: ep.Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("fcntl")
    file = tmp_path / "study.db"
    before, refusals = EarlyStopping.__call__, []

    def meanwhile(self: EarlyStopping, recommender: Any, epoch: Any) -> bool:
        if not refusals:
            with pytest.raises(OSError, match=r"study\.db is in use by another search") as caught:
                tune(dataset, 1, study=file)
            refusals.append(caught)
        return before(self, recommender, epoch)

    monkeypatch.setattr(EarlyStopping, "__call__", meanwhile)
    assert tried(tune(dataset, 2, study=file)) == tried(tune(dataset, 2))
    assert refusals
    assert tried(tune(dataset, 2, study=file)) == tried(tune(dataset, 2))


def test_a_search_that_is_refused_leaves_no_file(dataset: ep.Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("everypair.tuning.studies.check_study", lambda path: pytest.fail("at once"))
    with pytest.raises(pytest.fail.Exception):
        tune(dataset, study=tmp_path / "study.db")
    assert not list(tmp_path.iterdir())


def test_timeout(dataset: ep.Dataset, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Also between epochs: the trial that is cut off does not count, and is run when the study goes on."""
    whole = tune(dataset, 5)
    epochs = 0
    before = EarlyStopping.__call__

    def counted(self: EarlyStopping, recommender: Any, epoch: Any) -> bool:
        nonlocal epochs
        epochs += 1
        return before(self, recommender, epoch)

    monkeypatch.setattr(EarlyStopping, "__call__", counted)
    monkeypatch.setattr("everypair.tuning.run.time.monotonic", lambda: float(epochs))
    cut = tune(dataset, 5, timeout=9.5, study=tmp_path / "study.db")
    assert epochs == 10
    assert cut.stop_reason == "timeout"
    assert 0 < len(cut.trials) < 5
    assert tried(tune(dataset, 5, study=tmp_path / "study.db")) == tried(whole)
    with pytest.raises(TimeoutError, match="no trial was finished within timeout: give more time"):
        tune(dataset, 5, timeout=0.5)


def test_ctrl_c_returns_what_there_is(dataset: ep.Dataset, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    calls, at = 0, 9
    before = EarlyStopping.__call__

    def interrupted(self: EarlyStopping, recommender: Any, epoch: Any) -> bool:
        nonlocal calls
        calls += 1
        if calls == at:
            os.kill(os.getpid(), signal.SIGINT)
        return before(self, recommender, epoch)

    monkeypatch.setattr(EarlyStopping, "__call__", interrupted)
    cut = tune(dataset, 6, study=tmp_path / "study.db")
    assert cut.stop_reason == "interrupt"
    assert 0 < len(cut.trials) < 6
    assert tried(tune(dataset, 6, study=tmp_path / "study.db")) == tried(tune(dataset, 6))
    calls, at = 0, 1
    with pytest.raises(KeyboardInterrupt):
        tune(dataset, 6)


@pytest.mark.parametrize("where", ["ask", "tell"])
def test_ctrl_c_between_fits(dataset: ep.Dataset, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, where: str) -> None:
    """Before the third, or when it has been stored."""
    before, calls, at = getattr(optuna.Study, where), 0, 3

    def interrupted(*args: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == at and where != "tell":
            raise KeyboardInterrupt
        done = before(*args, **options)
        if calls == at:
            raise KeyboardInterrupt
        return done

    monkeypatch.setattr(optuna.Study, where, interrupted)
    cut = tune(dataset, 6, study=tmp_path / "study.db")
    assert cut.stop_reason == "interrupt"
    assert len(cut.trials) == (3 if where == "tell" else 2)
    assert tried(tune(dataset, 6, study=tmp_path / "study.db")) == tried(tune(dataset, 6))
    if where != "tell":
        calls, at = 0, 1
        with pytest.raises(KeyboardInterrupt):
            tune(dataset, 6)


def test_what_is_unknown_is_treated_as_the_template_says(dataset: ep.Dataset) -> None:
    strict = ep.Recommender(ep.MF(epochs=2), unit="event", unknown="error")
    found = tune(dataset, 1, recommender=strict).recommender
    assert (found.unit, found.unknown) == ("event", "error")


def test_a_failing_trial_is_an_error(dataset: ep.Dataset, tmp_path: Path) -> None:
    """A mistake of the caller's is not taken for a bad trial."""
    with pytest.raises(ValueError, match="block_size must be at least 1"):
        tune(dataset, 3, recommender=template(block_size=0), study=tmp_path / "study.db")


@pytest.mark.full
@pytest.mark.parametrize("trials", [1, 3, 25])
def test_the_picture(trials: int, dataset: ep.Dataset, tmp_path: Path) -> None:
    """Well-formed, with nothing outside of it, a panel per setting and all trials in each; style of its own."""
    tuning = tune(dataset, trials)
    tuning.save(tmp_path / "what.svg")
    root = ET.parse(tmp_path / "what.svg").getroot()
    assert tuning._repr_html_() == tuning.svg()
    panels = [g for g in root if g.tag.endswith("}g")]
    assert len(panels) == len(SPACE) + bool(tuning.importance)
    for panel in panels[: len(SPACE)]:
        dots = [dot for dot in panel if dot.tag.endswith("circle")]
        assert len(dots) == trials
        assert [dot.get("class") for dot in dots].count("best") == 1
        for dot in dots:
            assert 52 <= float(dot.get("cx", "nan")) <= 276
            assert 20 <= float(dot.get("cy", "nan")) <= 186
    style = next(root.iterfind("{*}style")).text or ""
    assert all(rule.strip().startswith(".everypair-tuning") for rule in style.replace("}", "}\n").splitlines() if rule.strip())


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "a model": ({"recommender": ep.MF()}, "recommender must be a Recommender, got MF"),
    "nothing to tune": ({"recommender": ep.Recommender(ep.Popularity())}, r"trained by epochs .* tuned, got Popularity\(\)"),
    "no protocol": ({"protocol": "LeaveLast"}, r"such as everypair.evaluation.LeaveLast\(\), or a Split, got 'LeaveLast'"),
    "another split": (
        {"protocol": LeaveLast().split(ep.datasets.youtube_like(50, 20, seed=0))},
        "protocol is a split of other data than dataset",
    ),
    "no metric": ({"metric": "ndcg"}, "such as 'ndcg@10', got 'ndcg'"),
    "no trials": ({"trials": 0}, "trials must be at least 1"),
    "no time": ({"timeout": 0}, "timeout must be a finite number greater than 0"),
    "no seed": ({"seed": -1}, "seed must be at least 0"),
    "no space": ({"space": {}}, "space must map arguments"),
    "epochs": ({"space": {"epochs": (1, 9)}}, "must not have 'epochs': each trial finds its best epoch"),
    "an argument it has not": ({"space": {"depth": (1, 9)}}, "'depth', which is no argument of MF: it has factors, "),
    "from 0": (
        {"space": {"unobserved_weight": (0, 1)}},
        r"space\['unobserved_weight'\] must be a tuple \(low, high\) with 0 <",
    ),
    "no choice": ({"space": {"factors": []}}, r"or a list of choices, got \[\]"),
    "no integers": ({"space": {"factors": (1.5, 9)}}, r"must be two integers, as factors is one, got \(1.5, 9\)"),
    "the same twice": ({"space": {"shrinkage": (0.1, 1), "regularization": (0.1, 1)}}, "the same setting in other units"),
    "another exponent": (
        {"space": {"shrinkage": (0.1, 1)}, "recommender": template(regularization_exponent=0.5)},
        r"\(regularization_exponent=1\), got regularization_exponent=0.5. Search 'regularization'",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_refused(case: str, dataset: ep.Dataset) -> None:
    change, message = WRONG[case]
    with pytest.raises((TypeError, ValueError), match=message):
        tune(dataset, **change)


def test_not_a_dataset() -> None:
    with pytest.raises(TypeError, match=r"dataset must be an everypair\.Dataset, got dict"):
        tune({"user": []})  # type: ignore[arg-type]


def test_without_optuna(dataset: ep.Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(ImportError, match=r'pip install "everypair\[tune\]"'):
        tune(dataset)


def test_optunas_own_settings_are_left_alone(dataset: ep.Dataset) -> None:
    before = optuna.logging.get_verbosity()
    try:
        for level in (optuna.logging.WARNING, optuna.logging.INFO):
            optuna.logging.set_verbosity(level)
            tune(dataset, 1)
            assert optuna.logging.get_verbosity() == level
    finally:
        optuna.logging.set_verbosity(before)


def test_values_are_those_of_one_fit(dataset: ep.Dataset) -> None:
    """The value after each epoch is that of a fit that goes on: a trial has as many epochs as were run, no more."""
    tuning = tune(dataset, 1, patience=99)
    split = LeaveLast().split(dataset)
    settings = {**tuning.best.settings, "epochs": 4}
    stopping = EarlyStopping(split.tune, "ndcg@5", patience=99)
    ep.Recommender(ep.MF(**settings)).fit(split.train, stopping)
    assert list(stopping.values) == [1, 2, 3, 4]
    assert (stopping.best_epoch, stopping.best_value) == (tuning.best.epochs, tuning.best.value)
