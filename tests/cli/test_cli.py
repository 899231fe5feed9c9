"""The command line: what it prints is data, what it refuses it names, and it does what the package does."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commands import done, refused, run
from forks import GUARD
from hypothesis import given
from hypothesis import strategies as st

import everypair as ep
from everypair.cli import selftest
from everypair.cli.shell import COMMANDS
from everypair.engine.solver import ICD
from everypair.persistence.folder import Folder
from everypair.recommend.archive import KIND, VERSION
from everypair.recommend.recipe_syntax import MODELS, as_text, model_settings, recipe, setting, toml

MF = ["--model", "mf", "--factors", "2", "--epochs", "2"]
README = Path(__file__).parents[2] / "README.md"


# Notation


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("user", ep.UserId()),
        ("UserId", ep.UserId()),
        ("item", ep.ItemId()),
        ("previous", ep.Previous()),
        ("attributes", ep.Attributes()),
        ("attributes:age, country", ep.Attributes("age", "country")),
        ("attributes:genres,kind=multiple,separator=|", ep.Attributes("genres", kind="multiple", separator="|")),
        ('attributes:"last, first",separator=","', ep.Attributes("last, first", separator=",")),
        ('attributes:"last, first","a=b","5"" disk",separator=","', ep.Attributes("last, first", "a=b", '5" disk', separator=",")),
        ('attributes:"separator=," , " a ","",5" disk', ep.Attributes("separator=,", " a ", "", '5" disk')),
        ("attributes:year,kind=bins,bins=5", ep.Attributes("year", kind="bins", bins=5)),
        ("history", ep.History()),
        ("History:last=50,decay=0.9,name=recent", ep.History(last=50, decay=0.9, name="recent")),
        ("history:last=none,normalize=none,name=5", ep.History(normalize="none", name="5")),
    ],
)
def test_recipes(text: str, made: Any) -> None:
    assert recipe(text) == made
    assert recipe(as_text(made)) == made


NASTY = st.text(st.sampled_from('",= \n\r\tab:|kind')) | st.text()


@given(st.lists(NASTY), st.none() | NASTY.filter(bool), NASTY)
def test_columns_of_any_name_are_written_and_read(names: list[str], separator: str | None, history: str) -> None:
    made = ep.Attributes(*names, separator=separator)
    assert recipe(as_text(made)) == made
    assert tomllib.loads(toml({"recommender": {"context": [as_text(made)]}}))["recommender"]["context"] == [as_text(made)]
    assert recipe(as_text(ep.History(name=history))) == ep.History(name=history)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("genre", "no recipe 'genre'"),
        ("", "no recipe ''"),
        ("history:lst=3", "last=..."),
        ("previous:2", "takes back=..."),
        ("user:2", "takes nothing"),
        ("attributes:a,seperator=|", "separator=..."),
        ("history:last=0", "at least 1"),
        ("attributes:a,,b", "has ''"),
        ("attributes:a,", "has ''"),
        ("attributes:my column=3", "has 'my column=3'"),
        ('attributes:"a', "a quote that is not closed"),
        ('attributes:"a"b', "characters after a closing one"),
    ],
)
def test_recipes_that_are_none(text: str, words: str) -> None:
    with pytest.raises((ValueError, TypeError), match=re.escape(words)):
        recipe(text)


def test_settings() -> None:
    texts = {"3": 3, "0.5": 0.5, "1e-3": 1e-3, "none": None, "False": False, "8,8,16": (8, 8, 16), "side": "side"}
    assert {text: setting(text) for text in texts} == texts
    assert setting("default=0.1, country=1") == {"default": 0.1, "country": 1}


VALUES = st.recursive(
    st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False) | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=3)
    ),
)


@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), VALUES, min_size=1, max_size=4))
def test_toml_is_read_back_as_it_was(entries: dict[str, Any]) -> None:
    assert tomllib.loads(toml({"model": entries})) == {"model": entries}


@pytest.mark.parametrize("name", MODELS)
def test_every_model_is_written_and_read(name: str) -> None:
    assert model_settings(MODELS[name]()) == {"name": name}


def test_numbers_of_numpy_are_numbers() -> None:
    assert tomllib.loads(toml({"model": {"factors": np.int64(3), "tol": np.float64(0.5), "n_threads": None}})) == {
        "model": {"factors": 3, "tol": 0.5}
    }


# All commands


@pytest.mark.parametrize("command", COMMANDS)
def test_help_shows_an_example(command: str) -> None:
    text = done(command, "--help").stdout
    assert "Usage: " in text
    assert f"everypair {command} " in text.split("Example")[1]
    assert done(command, "-h").stdout == text


def test_the_command_itself() -> None:
    assert all(name in done("--help").stdout for name in COMMANDS)
    assert ep.__version__ in done("--version").stdout
    refused(2, "No such command 'learn'", "learn")
    refused(2, "No such option", "inspect", "model", "--deep")


def raising(error: BaseException) -> Any:
    def function(*args: Any, **options: Any) -> Any:
        raise error

    return function


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (KeyError("files"), "unexpected KeyError: 'files' (everypair --debug COMMAND shows where)"),
        (RuntimeError("\nodd\nand long"), "unexpected RuntimeError: odd (everypair --debug COMMAND shows where)"),
        (RecursionError(), "unexpected RecursionError (everypair --debug COMMAND shows where)"),
        (MemoryError("Unable to allocate 7 TiB"), "there is not enough memory: Unable to allocate 7 TiB"),
        (MemoryError(), "there is not enough memory; use less data, or fewer factors."),
        (csv.Error("odd line"), "unexpected Error: odd line (everypair --debug COMMAND shows where)"),
        (ValueError(), "ValueError"),
    ],
)
def test_errors_are_a_line(shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, told: str) -> None:
    monkeypatch.setattr("everypair.recommender.load", raising(error))
    result = run("recommend", shop / "model", "--users", "u01")
    assert (result.exit_code, result.stderr, result.stdout) == (1, f"Error: {told}\n", "")
    assert run("--debug", "recommend", shop / "model", "--users", "u01").exception is error


# fit


def test_fit_is_what_python_does(shop: Path, tmp_path: Path) -> None:
    dataset = ep.Dataset(shop / "plays.csv", shop / "users.csv", shop / "items.csv", timestamp="time")
    context = [ep.UserId(), ep.Attributes("age", "country"), ep.Previous()]
    fitted = ep.Recommender(ep.FM(2, epochs=2), context=context).fit(dataset)
    loaded = ep.load(shop / "model")
    assert repr(loaded) == repr(fitted)
    for name, value in fitted.model.parameters_.items():
        np.testing.assert_array_equal(loaded.model.parameters_[name], value)


def test_the_summary(shop: Path, tmp_path: Path) -> None:
    arguments = ["fit", shop / "plays.csv", *MF, "--out", tmp_path / "model"]
    told = done(*arguments)
    assert not told.stdout
    assert "MF(factors=2, epochs=2)" in told.stderr
    found = json.loads(done(*arguments, "--json").stdout)
    assert found["epochs"] == 2
    assert found["objective"]["last"] < found["objective"]["first"]
    assert found["saved"] == str(tmp_path / "model")


def test_notes_on_the_data_are_lines(shop: Path, tmp_path: Path) -> None:
    (tmp_path / "users.csv").write_text("user,age\nu00,30\nnobody,20\n")
    told = done("fit", shop / "plays.csv", "--users", tmp_path / "users.csv", *MF, "--out", tmp_path / "model", "--json")
    assert "note: 1 row of users has an id without interactions, such as 'nobody'" in told.stderr
    json.loads(told.stdout)


@pytest.mark.parametrize("model", ["popularity", "coview", "mfsi", "parafac", "tucker"])
def test_every_model_fits(shop: Path, tmp_path: Path, model: str) -> None:
    told = {"coview": ["previous"], "parafac": ["user", "previous"], "tucker": ["user", "previous"]}.get(model, ["user"])
    settings = [] if model in ("popularity", "coview") else ["--factors", "2", "--epochs", "1"]
    recipes = [part for text in told for part in ("--context", text)]
    done("fit", shop / "plays.csv", "--timestamp", "time", "--model", model, *settings, *recipes, "--out", tmp_path / "m")
    assert type(ep.load(tmp_path / "m").model) is MODELS[model]


def test_settings_reach_the_model(shop: Path, tmp_path: Path) -> None:
    weights = ["--regularization", "default=0.1,W=0.2", "--no-rotate", "--dtype", "float64", "--random-state", "7"]
    done("fit", shop / "plays.csv", *MF, *weights, "--out", tmp_path / "m")
    model = ep.load(tmp_path / "m").model
    assert model.get_params() == ep.MF(
        2, epochs=2, regularization={"default": 0.1, "W": 0.2}, rotate=False, dtype="float64", random_state=7
    ).get_params()  # fmt: skip


def test_the_number_of_epochs_from_what_is_held_out(shop: Path, tmp_path: Path) -> None:
    held = ["--validation", "leave-last", "--metric", "recall@5", "--epochs", "6"]
    found = json.loads(done("fit", shop / "plays.csv", *MF, *held, "--out", tmp_path / "m", "--json").stdout)
    dataset = ep.Dataset(shop / "plays.csv")
    split = ep.evaluation.LeaveLast().split(dataset)
    stopping: Any = ep.Recommender(ep.MF(2, epochs=6)).fit(split.train, validation=split.tune, metric="recall@5").validation_
    expected = {"metric": "recall@5", "epoch": stopping.best_epoch, "value": stopping.best_value, "by_popularity": 0}
    assert found["validation"] == expected
    assert found["epochs"] == stopping.best_epoch
    kept = ep.load(tmp_path / "m")
    assert len(kept.dataset_) == len(dataset)
    figures = {"metrics": {"recall@5": {"value": stopping.best_value}}, "by_popularity": 0}
    assert kept.evaluation_ == {"protocol": "leave-last, tuning part", **figures}
    assert f"recall@5   {stopping.best_value:.4f}" in done("inspect", tmp_path / "m").stdout


def test_figures_are_kept_with_a_model_of_the_same_settings(shop: Path, tmp_path: Path) -> None:
    done("fit", shop / "plays.csv", *MF, "--out", tmp_path / "m")
    before = ep.load(tmp_path / "m")
    found = json.loads(done("evaluate", shop / "plays.csv", *MF, "--keep", tmp_path / "m", "--json").stdout)
    kept = ep.load(tmp_path / "m")
    assert kept.evaluation_ is not None
    assert kept.evaluation_["metrics"] == found["models"][1]["metrics"]
    assert kept.evaluation_["queries"] == found["queries"]
    user = kept.dataset_.users[0]
    assert kept.recommend(users=[user]).equals(before.recommend(users=[user]))
    refused(1, "made with other settings", "evaluate", shop / "plays.csv", *MF, "--epochs", "3", "--keep", tmp_path / "m")


@pytest.mark.parametrize(
    ("code", "words", "arguments"),
    [
        (2, "popularity has no option --factors", ["--model", "popularity", "--factors", "3"]),
        (2, "mf has no option --combinations", ["--model", "mf", "--combinations", "all"]),
        (2, "no recipe 'age'", ["--context", "age"]),
        (2, "--every is for --checkpoint", ["--every", "3"]),
        (2, "--patience is for --validation", ["--patience", "3"]),
        (1, "factors must be an integer of at least 1, got 'many'", ["--factors", "many"]),
        (1, "no column 'when'", ["--timestamp", "when"]),
        (1, "--rating (the column) and --at-least", ["--at-least", "4"]),
        (1, "no such file", ["--users", "nobody.csv"]),
        (1, "describes the item, not the context", ["--context", "item"]),
        (1, "no such file: model.toml", ["--config", "model.toml"]),
    ],
)
def test_fits_that_are_refused(shop: Path, tmp_path: Path, code: int, words: str, arguments: list[str]) -> None:
    refused(code, words, "fit", shop / "plays.csv", "--out", tmp_path / "m", *arguments)
    assert not (tmp_path / "m").exists()


def test_fits_without_what_they_need(shop: Path, tmp_path: Path) -> None:
    refused(2, "Give --out", "fit", shop / "plays.csv")
    refused(2, "Give the table of interactions", "fit", "--out", tmp_path)
    refused(1, "is a file, and a folder is needed", "fit", shop / "plays.csv", *MF, "--out", shop / "users.csv")
    (tmp_path / "latin.csv").write_bytes("user,item\nJörg,x\n".encode("latin-1"))
    refused(1, "UTF-8", "fit", tmp_path / "latin.csv", "--out", tmp_path / "m")
    (tmp_path / "empty.csv").write_text("user,item\n")
    refused(1, "at least one row", "fit", tmp_path / "empty.csv", "--out", tmp_path / "m")


def test_a_fit_goes_on_from_its_checkpoint(shop: Path, tmp_path: Path) -> None:
    arguments = ["fit", shop / "plays.csv", *MF, "--checkpoint", tmp_path / "state", "--every", "2"]
    done(*arguments, "--out", tmp_path / "two")
    found = json.loads(done(*arguments, "--epochs", "4", "--out", tmp_path / "four", "--json").stdout)
    assert found["epochs"] == 4
    done("fit", shop / "plays.csv", *MF, "--epochs", "4", "--out", tmp_path / "whole")
    four, whole = (ep.load(tmp_path / name).model.parameters_ for name in ("four", "whole"))
    for name, value in whole.items():
        np.testing.assert_array_equal(four[name], value)
    refused(1, "factors was 2, is 3", *arguments, "--factors", "3", "--out", tmp_path / "two")


def test_both_fits_go_on_from_their_checkpoints(shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C during the first, then during the second: in the end the model is that of an undisturbed command."""
    arguments = ["fit", shop / "plays.csv", *MF, "--epochs", "6", "--validation", "leave-last", "--patience", "9"]
    done(*arguments, "--out", tmp_path / "whole")
    sweeps, epochs = ICD.sweeps, []

    def pressed(self: ICD, epoch: int = 1) -> Any:
        epochs.append(len(epochs))
        if len(epochs) in (3, 8):
            os.kill(os.getpid(), signal.SIGINT)
        return sweeps(self, epoch)

    monkeypatch.setattr(ICD, "sweeps", pressed)
    kept = [*arguments, "--checkpoint", tmp_path / "state", "--out", tmp_path / "parts"]
    for _ in range(2):
        refused(130, " epochs were done. Nothing was saved. The same command resumes.", *kept)
    done(*kept)
    parts, whole = (ep.load(tmp_path / name).model for name in ("parts", "whole"))
    assert len(epochs) == 6 + 2 + len(whole.history_)  # type: ignore[attr-defined]
    for name, value in whole.parameters_.items():  # type: ignore[attr-defined]
        np.testing.assert_array_equal(parts.parameters_[name], value)  # type: ignore[attr-defined]
    before = len(epochs)
    done(*kept)
    assert len(epochs) == before


def test_a_model_and_a_checkpoint_in_one_folder_are_refused(shop: Path, tmp_path: Path) -> None:
    places = ["--out", tmp_path / "m", "--checkpoint", tmp_path / "sub" / ".." / "m"]
    refused(2, "--out and --checkpoint are both", "fit", shop / "plays.csv", *MF, *places)
    places = ["--out", tmp_path / "m" / "fit", "--checkpoint", tmp_path / "m", "--validation", "leave-last"]
    refused(2, "--out and --checkpoint are both", "fit", shop / "plays.csv", *MF, *places)
    places = ["--out", tmp_path / "m", "--checkpoint", tmp_path / "m" / "state"]
    refused(2, "--checkpoint is inside --out", "fit", shop / "plays.csv", *MF, *places)
    assert not list(tmp_path.iterdir())


def test_a_folder_of_other_things_is_refused_before_the_fit(shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ep.Recommender, "fit", lambda *_, **__: pytest.fail("fitted"))
    for name, content, words in (
        ("notes.txt", "mine", "is not the folder of a recommender, and holds 'notes.txt'. Choose a new or an empty folder"),
        ("manifest.json", '{"name": "my web app"}', "is not the manifest of a recommender, and would be overwritten"),
    ):
        place = tmp_path / Path(name).stem
        place.mkdir()
        (place / name).write_text(content)
        refused(1, words, "fit", shop / "plays.csv", *MF, "--out", place)
        assert [path.name for path in place.iterdir()] == [name]


def test_an_interrupted_fit_leaves_what_there_was(shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done("fit", shop / "plays.csv", *MF, "--out", tmp_path / "m")
    before = (tmp_path / "m" / "manifest.json").read_text()
    monkeypatch.setattr(ep.Recommender, "fit", raising(KeyboardInterrupt()))
    refused(130, "interrupted", "fit", shop / "plays.csv", *MF, "--epochs", "3", "--out", tmp_path / "m")
    assert (tmp_path / "m" / "manifest.json").read_text() == before


@pytest.mark.full
def test_ctrl_c(shop: Path, tmp_path: Path) -> None:
    """As a terminal sends it, during a fit that would take hours."""
    command = [sys.executable, "-m", "everypair.cli", "fit", shop / "plays.csv", "--model", "mf", "--epochs", "10000000"]
    places = ["--out", tmp_path / "m", "--checkpoint", tmp_path / "state", "--every", "100"]
    process = subprocess.Popen([*command, *places], stderr=subprocess.PIPE, text=True)
    while not (tmp_path / "state" / "manifest.json").exists():  # a hundred epochs are done
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    told = process.communicate(timeout=GUARD)[1]
    assert process.returncode == 130, told
    assert "of 10000000 epochs were done. Nothing was saved" in told
    assert "The same command resumes." in told
    assert "Traceback" not in told


# TOML files


def config(folder: Path, **changes: str) -> Path:
    """A file of settings; sections by name replace those there are."""
    sections = {
        "data": 'interactions = "plays.csv"\ntimestamp = "time"',
        "model": 'name = "mf"\nfactors = 3\nepochs = 2\nregularization = {default = 0.1, W = 0.2}',
        "recommender": 'context = ["user"]',
        "split": 'protocol = "leave-last"',
        "evaluate": 'metric = ["ndcg@3"]',
        "tune": 'trials = 2\nspace = ["factors=2,3"]',
    } | changes
    path = folder / f"{abs(hash(tuple(changes.items())))}.toml"
    path.write_text("\n".join(f"[{name}]\n{text}" for name, text in sections.items()))
    return path


def test_a_file_serves_all_commands(shop: Path, tmp_path: Path) -> None:
    path = config(shop)
    done("fit", "--config", path, "--factors", "2", "--out", tmp_path / "m")
    model = ep.load(tmp_path / "m").model
    assert repr(model) == "MF(factors=2, regularization={'default': 0.1, 'W': 0.2}, epochs=2)"
    found = json.loads(done("evaluate", "--config", path, "--json").stdout)
    assert list(found["models"][1]["metrics"]) == ["ndcg@3"]
    assert list(json.loads(done("evaluate", "--config", path, "--metric", "mrr@5", "--json").stdout)["models"][1]["metrics"]) == [
        "mrr@5"
    ]


@pytest.mark.parametrize(
    ("words", "changes"),
    [
        ("'factrs' in [model]", {"model": "factrs = 3"}),
        ("'modle', which is no section", {"modle": "factors = 3"}),
        ("'user_column' in [data]", {"data": 'user_column = "u"'}),
        ("trials in [tune]", {"tune": "trials = 2.5"}),
        ("must be a path", {"data": "interactions = 3"}),
        ("is not a TOML file", {"model": "factors ="}),
    ],
)
def test_what_a_file_says_in_vain_is_named(shop: Path, tmp_path: Path, words: str, changes: dict[str, str]) -> None:
    refused(1, words, "tune", "--config", config(shop, **changes))


def test_a_saved_model_as_a_file(shop: Path, tmp_path: Path) -> None:
    (shop / "again.toml").write_text(done("inspect", shop / "model", "--toml").stdout)
    tables = ["--users", shop / "users.csv", "--items", shop / "items.csv", "--timestamp", "time"]
    done("fit", shop / "plays.csv", *tables, "--config", shop / "again.toml", "--out", tmp_path / "m")
    assert repr(ep.load(tmp_path / "m")) == repr(ep.load(shop / "model"))


def test_the_file_of_the_documentation(tmp_path: Path) -> None:
    page = (README.parent / "docs" / "command-line.md").read_text()
    (block,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    done("example", tmp_path, "--users", "30", "--items", "20")
    (tmp_path / "model.toml").write_text(block)
    small = ["--config", tmp_path / "model.toml", "--factors", "2", "--epochs", "1"]
    assert "recall@10" in done("evaluate", *small).stdout
    done("fit", *small)
    assert ep.load(tmp_path / "model").context[2] == ep.History(last=50)
    for section, entries in tomllib.loads(block).items():
        assert entries, section


# recommend


def read(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_recommendations_are_those_of_python(shop: Path) -> None:
    expected = ep.load(shop / "model").recommend(users=["u01", "u02"], n=4).to_pylist()
    rows = read(done("recommend", shop / "model", "--users", "u01,u02", "-n", "4").stdout)
    assert [(row["user"], row["item"], int(row["rank"])) for row in rows] == [(r["user"], r["item"], r["rank"]) for r in expected]
    np.testing.assert_array_equal(np.array([row["score"] for row in rows], np.float32), np.float32([r["score"] for r in expected]))
    lines = done("recommend", shop / "model", "--users", "u01", "--users", "u02", "-n", "4", "--json").stdout.splitlines()
    assert [json.loads(line)["item"] for line in lines] == [row["item"] for row in rows]


def test_users_of_files(shop: Path, tmp_path: Path) -> None:
    expected = done("recommend", shop / "model", "--users", "u01,u02").stdout
    (tmp_path / "ids.txt").write_text("u01\n\nu02\n")
    (tmp_path / "ids.csv").write_text("user,age\nu01,3\nu02,4\n")
    for name in ("ids.txt", "ids.csv"):
        assert done("recommend", shop / "model", "--users-file", tmp_path / name).stdout == expected
    assert done("recommend", shop / "model", "--users-file", "-", stdin="u01\nu02\n").stdout == expected


def test_everyone(shop: Path, tmp_path: Path) -> None:
    printed = read(done("recommend", shop / "model", "--all", "-n", "3").stdout)
    assert len(printed) == 60 * 3
    for kind in ("csv", "parquet", "jsonl"):
        out = tmp_path / f"new/recommendations.{kind}"
        assert not done("recommend", shop / "model", "--all", "-n", "3", "--out", out).stdout
        found = {"csv": lambda p: read(p.read_text()), "parquet": lambda p: pq.read_table(p).to_pylist()}.get(
            kind, lambda p: [json.loads(line) for line in p.read_text().splitlines()]
        )(out)
        assert [(row["user"], row["item"], int(row["rank"])) for row in found] == [
            (row["user"], row["item"], int(row["rank"])) for row in printed
        ]


def test_requests(shop: Path, tmp_path: Path) -> None:
    requests = [{"country": "DE"}, {"user": "u01"}, {}]
    text = "".join(json.dumps(request) + "\n\n" for request in requests)
    expected = ep.load(shop / "model").recommend(requests=requests, n=2)
    rows = read(done("recommend", shop / "model", "--requests", "-", "-n", "2", stdin=text).stdout)
    assert [(int(row["request"]), row["item"]) for row in rows] == [(r["request"], r["item"]) for r in expected.to_pylist()]
    (tmp_path / "r.jsonl").write_text(text)
    assert read(done("recommend", shop / "model", "--requests", tmp_path / "r.jsonl", "-n", "2").stdout) == rows
    assert done("recommend", shop / "model", "--requests", "-", stdin="").stdout == "request,item,score,rank\n"
    refused(1, "line 2 of standard input is not JSON", "recommend", shop / "model", "--requests", "-", stdin="{}\n{x\n")
    refused(1, "line 1 of standard input must be a JSON object", "recommend", shop / "model", "--requests", "-", stdin="[1]\n")
    refused(1, "has 'town'", "recommend", shop / "model", "--requests", "-", stdin='{"town": "x"}\n')
    deep = '{"country": ' + "[" * 100_000 + "]" * 100_000 + "}"
    refused(
        1,
        "line 1 of standard input cannot be read as JSON: it is nested",
        "recommend",
        shop / "model",
        "--requests",
        "-",
        stdin=deep,
    )
    refused(2, "--request cannot be read as JSON: it is nested", "explain", shop / "model", "--item", "v02", "--request", deep)


def test_lines_end_with_a_line_feed_alone(tmp_path: Path) -> None:
    """Other separators are part of ids, and of texts in JSON; so are spaces."""
    odd = ["a\u2028b", "a\x85b", "a\x0bb", "a\x0cb", "a\rb", " a ", "\u2028"]
    log = ep.Dataset({"user": odd * 2, "item": odd + odd[1:] + odd[:1]}, {"user": odd, "town": odd})
    ep.Recommender(ep.MF(2, epochs=1), [ep.UserId()]).fit(log).save(tmp_path / "m")
    ep.Recommender(ep.FM(2, epochs=1), [ep.Attributes("town")]).fit(log).save(tmp_path / "fm")
    (tmp_path / "ids").write_bytes("\r\n".join(odd).encode() + b"\n\n")
    arguments = ["recommend", tmp_path / "m", "-n", "1", "--json", "--include-seen"]
    for source, stdin in ((tmp_path / "ids", None), ("-", "\n".join(odd))):
        told = done(*arguments, "--users-file", source, "--allow", tmp_path / "ids", stdin=stdin).stdout.split("\n")
        assert [json.loads(line)["user"] for line in told if line] == odd
    requests = "\n".join(
        json.dumps({"town": town}, ensure_ascii=False) for town in odd if town.isprintable() or ord(max(town)) > 31
    )
    assert len(done("recommend", tmp_path / "fm", "-n", "1", "--requests", "-", "--json", stdin=requests).stdout.split("\n")) > 3
    done("explain", tmp_path / "m", "--user", " a ", "--item", "a\u2028b")


def test_filters(shop: Path, tmp_path: Path) -> None:
    (tmp_path / "some.txt").write_text("v03\nv04\nv05\n")
    arguments = ["recommend", shop / "model", "--users", "u01", "-n", "30", "--include-seen"]
    allowed = done(*arguments, "--allow", tmp_path / "some.txt")
    assert {row["item"] for row in read(allowed.stdout)} == {"v03", "v04", "v05"}
    assert "note: 1 of 1 lists have fewer than 30 items" in allowed.stderr
    assert {row["item"] for row in read(done(*arguments, "--deny", tmp_path / "some.txt").stdout)}.isdisjoint({"v03", "v04", "v05"})


def test_ids_that_are_integers(tmp_path: Path) -> None:
    (tmp_path / "plays.csv").write_text("user,item\n" + "".join(f"{u},{i}\n" for u in range(5) for i in range(u, u + 3)))
    done("fit", tmp_path / "plays.csv", *MF, "--out", tmp_path / "m")
    assert read(done("recommend", tmp_path / "m", "--users", "3", "-n", "1").stdout)[0]["user"] == "3"
    assert json.loads(done("explain", tmp_path / "m", "--user", "3", "--item", "1", "--json").stdout)["user"] == 3
    refused(1, "are integers", "recommend", tmp_path / "m", "--users", "three")
    refused(1, "'03' is not how an integer is written", "recommend", tmp_path / "m", "--users", "1,03")
    refused(1, "are integers", "explain", tmp_path / "m", "--user", "+3", "--item", "1")
    (tmp_path / "ids.csv").write_text("user\n03\n")
    refused(1, "row 0 has '03'", "recommend", tmp_path / "m", "--users-file", tmp_path / "ids.csv")


def test_ids_that_are_strings_of_digits(tmp_path: Path) -> None:
    """Today's list of ids may be numbers alone: those of the model are strings."""
    (tmp_path / "plays.csv").write_text("user,item\nx,01\n7,1\n7,x\n8,01\n")
    done("fit", tmp_path / "plays.csv", *MF, "--out", tmp_path / "m")
    (tmp_path / "users.csv").write_text("user\n7\n8\n")
    (tmp_path / "items.tsv").write_text("item\n1\n")
    pq.write_table(pa.table({"user": ["7"]}), tmp_path / "part-0.parquet")
    (tmp_path / "folder").mkdir()
    for j, user in enumerate(("7", "8")):
        pq.write_table(pa.table({"user": [user]}), tmp_path / "folder" / f"part-{j}.parquet")
    for argument in (["--users", "7,8"], ["--users-file", tmp_path / "users.csv"], ["--users-file", tmp_path / "folder"]):
        rows = read(
            done("recommend", tmp_path / "m", *argument, "-n", "1", "--include-seen", "--allow", tmp_path / "items.tsv").stdout
        )
        assert [(row["user"], row["item"]) for row in rows] == [("7", "1"), ("8", "1")]


def test_tables_with_keys_of_their_own_and_all_items(shop: Path, tmp_path: Path) -> None:
    (tmp_path / "plays.csv").write_text((shop / "plays.csv").read_text().replace(",", ";"))
    (tmp_path / "users.csv").write_text((shop / "users.csv").read_text().replace("user,", "id,", 1))
    (tmp_path / "items.csv").write_text((shop / "items.csv").read_text().replace("item,", "id,", 1) + "v99,film 99,news,2020\n")
    told = ["--context", "user", "--item-context", "attributes:category", "--factors", "2", "--epochs", "2"]
    tables = ["--users", tmp_path / "users.csv", "--items", tmp_path / "items.csv", "--users-key", "id", "--items-key", "id"]
    note = done("fit", tmp_path / "plays.csv", *tables, "--all-items", *told, "--out", tmp_path / "m").stderr
    assert "has no events: kept." in note
    model = ep.load(tmp_path / "m")
    assert "v99" in model.dataset_.items
    (tmp_path / "again.toml").write_text(done("inspect", tmp_path / "m", "--toml").stdout)
    data = tomllib.loads((tmp_path / "again.toml").read_text())["data"]
    assert (data["users_key"], data["items_key"], data["all_items"]) == ("id", "id", True)
    done("fit", tmp_path / "plays.csv", *tables[:4], "--config", tmp_path / "again.toml", "--out", tmp_path / "again")
    assert ep.load(tmp_path / "again").dataset_.items.same(model.dataset_.items)
    done("evaluate", tmp_path / "plays.csv", *tables, "--all-items", *told, "--metric", "coverage@40")


def test_recommendations_that_are_refused(shop: Path, tmp_path: Path) -> None:
    refused(2, "Give one of --users", "recommend", shop / "model")
    refused(2, "got --users and --all", "recommend", shop / "model", "--users", "u01", "--all")
    refused(2, "--fallback error does not go with it", "recommend", shop / "model", "--all", "--fallback", "error")
    refused(2, "--json is for standard output", "recommend", shop / "model", "--all", "--json", "--out", tmp_path / "x.csv")
    refused(1, "such as 'nobody'", "recommend", shop / "model", "--users", "nobody")
    refused(1, "there is no folder", "recommend", tmp_path / "none", "--users", "u01")
    refused(1, "out must end in", "recommend", shop / "model", "--users", "u01", "--out", tmp_path / "x.txt")
    refused(1, "holds no ids", "recommend", shop / "model", "--users-file", "-", stdin="\n")
    refused(1, "no such file", "recommend", shop / "model", "--users-file", tmp_path / "ids.txt")
    (tmp_path / "latin.txt").write_bytes("Jörg".encode("latin-1"))
    refused(1, "is not UTF-8", "recommend", shop / "model", "--users-file", tmp_path / "latin.txt")
    assert not list(tmp_path.glob("x.*"))


def test_strangers_get_what_is_popular_on_request(shop: Path, tmp_path: Path) -> None:
    done("fit", shop / "plays.csv", *MF, "--out", tmp_path / "m")
    refused(1, "MF can say nothing", "recommend", tmp_path / "m", "--requests", "-", stdin="{}\n")
    popular = done("recommend", tmp_path / "m", "--requests", "-", "--fallback", "popular", "-n", "3", stdin="{}\n").stdout
    items = [line.split(",")[1] for line in (shop / "plays.csv").read_text().splitlines()[1:]]
    counts = [items.count(row["item"]) for row in read(popular)]
    assert counts == sorted(map(items.count, set(items)), reverse=True)[:3]


@pytest.mark.full
def test_a_pipe_that_is_closed_early(shop: Path) -> None:
    command = f"{shlex.quote(sys.executable)} -m everypair.cli recommend {shop / 'model'} --all -n 30 | head -1"
    piped = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=GUARD, check=True)
    assert piped.stdout == "user,item,score,rank\n"
    assert "Traceback" not in piped.stderr
    assert "Error" not in piped.stderr


# evaluate


@pytest.mark.parametrize(
    ("protocol", "options", "splitter"),
    [
        ("leave-last", [], ep.evaluation.LeaveLast()),
        ("cutoff", ["--test-share", "0.2", "--sample", "40"], ep.evaluation.Cutoff(test=0.2, sample=40)),
        ("cold-start", ["--tune-share", "0.3", "--split-seed", "5"], ep.evaluation.ColdStart(tune=0.3, seed=5)),
        ("random", [], ep.evaluation.RandomPerUser()),
    ],
)
def test_figures_are_those_of_python(shop: Path, protocol: str, options: list[str], splitter: Any) -> None:
    arguments = ["evaluate", shop / "plays.csv", "--timestamp", "time", *MF, "--protocol", protocol, *options]
    found = json.loads(done(*arguments, "--metric", "ndcg@5", "--metric", "coverage@5", "--on", "tune", "--json").stdout)
    split = splitter.split(ep.Dataset(shop / "plays.csv", timestamp="time"))
    fitted = ep.Recommender(ep.MF(2, epochs=2)).fit(split.train)
    expected = ep.evaluation.evaluate(fitted, split.tune, ["ndcg@5", "coverage@5"])
    popularity, model = found["models"]
    low, high = expected.interval("ndcg@5")
    assert model["metrics"]["ndcg@5"] == {"value": expected["ndcg@5"], "low": low, "high": high}
    assert model["metrics"]["coverage@5"] == {"value": expected["coverage@5"], "low": None, "high": None}
    assert popularity["name"] == "Popularity"
    assert found["queries"] == len(expected.user)


def test_a_table_of_figures(shop: Path) -> None:
    told = done("evaluate", shop / "plays.csv", *MF)
    header, _, *rows = told.stdout.splitlines()
    assert header.split() == ["recall@10", "ndcg@10"]
    assert [row.split()[0] for row in rows] == ["Popularity", "MF"]
    assert len(done("evaluate", shop / "plays.csv", "--model", "popularity").stdout.splitlines()) == 3


def test_a_published_split(shop: Path, tmp_path: Path) -> None:
    header, *lines = (shop / "plays.csv").read_text().splitlines(keepends=True)
    (tmp_path / "train.csv").write_text(header + "".join(lines[:-200]))
    (tmp_path / "test.csv").write_text(header + "".join(lines[-200:]))
    parts = ["--train", tmp_path / "train.csv", "--test", tmp_path / "test.csv"]
    found = json.loads(done("evaluate", *parts, *MF, "--json").stdout)
    split = ep.evaluation.given(tmp_path / "train.csv", tmp_path / "test.csv")
    expected = ep.evaluation.evaluate(ep.Recommender(ep.MF(2, epochs=2)).fit(split.train), split.test)
    assert found["models"][1]["metrics"]["ndcg@10"]["value"] == expected["ndcg@10"]
    refused(2, "--train and --test together", "evaluate", *parts[:2], *MF)
    refused(2, "--train and --test replace PLAYS", "evaluate", shop / "plays.csv", *parts, *MF)
    refused(2, "--train and --test replace --protocol", "evaluate", *parts, "--protocol", "random", *MF)


def test_evaluations_that_are_refused(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refused(2, "leave-last takes no --sample", "evaluate", shop / "plays.csv", *MF, "--sample", "3")
    refused(1, "needs timestamps", "evaluate", shop / "plays.csv", *MF, "--protocol", "cutoff")
    monkeypatch.setattr(ep.Recommender, "fit", lambda *args, **options: pytest.fail("nothing should have been fitted"))
    refused(1, "got 'ndgc@10'", "evaluate", shop / "plays.csv", *MF, "--metric", "ndgc@10")


# tune


@pytest.mark.full
def test_settings_that_were_found_are_fitted(shop: Path, tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    out, picture = tmp_path / "sub" / "best.toml", tmp_path / "why.html"
    arguments = [
        "tune",
        shop / "plays.csv",
        "--timestamp",
        "time",
        *MF,
        "--space",
        "factors=2,3",
        "--space",
        "unobserved_weight=0.01:1",
    ]
    kept = [*arguments, "--study", tmp_path / "study.db", "--trials"]
    text = done(*kept, "3", "--out", out, "--picture", picture).stdout
    assert "unobserved_weight" in text
    assert picture.read_text().startswith("<!doctype html>")
    found = json.loads(done(*kept, "4", "--json").stdout)
    assert len(found["trials"]) == 4
    assert found["best"]["value"] == max(trial["value"] for trial in found["trials"] if trial["state"] == "complete")
    settings = tomllib.loads(out.read_text())["model"]
    done("fit", "--config", out, "--out", tmp_path / "m")
    model = ep.load(tmp_path / "m").model
    assert {name: model.get_params()[name] for name in settings if name != "name"} == {
        k: v for k, v in settings.items() if k != "name"
    }
    assert len(ep.load(tmp_path / "m").dataset_) == len(ep.Dataset(shop / "plays.csv"))


def test_an_interrupted_search_prints_what_there_is(shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two fits."""
    optuna = pytest.importorskip("optuna")
    ask, asked = optuna.Study.ask, []

    def pressed(self: Any) -> Any:
        asked.append(self)
        if len(asked) == 3:
            raise KeyboardInterrupt
        return ask(self)

    monkeypatch.setattr(optuna.Study, "ask", pressed)
    arguments = ["tune", shop / "plays.csv", *MF, "--space", "factors=2,3", "--trials", "5", "--json"]
    result = run(*arguments, "--out", tmp_path / "best.toml")
    assert result.exit_code == 130
    found = json.loads(result.stdout)
    assert (found["stop_reason"], len(found["trials"])) == ("interrupt", 2)
    assert tomllib.loads((tmp_path / "best.toml").read_text())["model"]["name"] == "mf"
    asked[:] = [None, None]
    refused(130, "interrupted", *arguments)


def test_searches_that_are_refused(shop: Path, tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    refused(2, "--space takes NAME=LOW:HIGH", "tune", shop / "plays.csv", *MF, "--space", "factors")
    refused(1, "space has 'colour'", "tune", shop / "plays.csv", *MF, "--space", "colour=1,2")
    refused(2, "must end in .svg or .html", "tune", shop / "plays.csv", *MF, "--picture", tmp_path / "why.txt")


# explain, inspect, example


def test_explanations(shop: Path, tmp_path: Path) -> None:
    why = ep.load(shop / "model").explain("u01", "v02")
    assert done("explain", shop / "model", "--user", "u01", "--item", "v02").stdout == f"{why!r}\n"
    request = ["--request", '{"country": "DE", "history": ["v03"]}', "--item", "v02"]
    found = json.loads(done("explain", shop / "model", *request, "--json", "--picture", tmp_path / "why.svg").stdout)
    assert sum(part["contribution"] for part in found["contributions"]) == pytest.approx(found["score"])
    assert (tmp_path / "why.svg").read_text().startswith("<svg")
    refused(2, "either --user or --request", "explain", shop / "model", "--item", "v02")
    refused(2, "--request is not JSON", "explain", shop / "model", "--item", "v02", "--request", "{country: DE}")
    refused(2, "--request must be a JSON object", "explain", shop / "model", "--item", "v02", "--request", "[]")
    refused(2, "must end in .svg or .html", "explain", shop / "model", "--user", "u01", "--item", "v02", "--picture", "why.png")
    refused(1, "such as 'v99'", "explain", shop / "model", "--user", "u01", "--item", "v99")


def test_what_is_in_a_folder(shop: Path) -> None:
    found = json.loads(done("inspect", shop / "model", "--json").stdout)
    assert (found["users"], found["items"], found["verified"]) == (60, 30, True)
    assert found["events"] == len((shop / "plays.csv").read_text().splitlines()) - 1
    shapes = {array["name"]: array["shape"] for array in found["arrays"]}
    assert shapes["parameter H"] == [2, 30]
    assert found["unobserved_weight"] == ep.load(shop / "model").model.unobserved_weight_  # type: ignore[attr-defined]
    text = done("inspect", shop / "model").stdout
    assert "of an unobserved pair" in text
    assert "FM(factors=2, epochs=2)" in text
    assert "verified: yes" in text
    assert "verified: no" in done("inspect", shop / "model", "--no-verify").stdout
    refused(2, "one of --toml and --json", "inspect", shop / "model", "--toml", "--json")


@pytest.mark.parametrize(
    ("evaluation", "shown"),
    [
        ({"metrics": {"ndcg@10": {"value": 0.25}, "mine": 0.5}}, ["ndcg@10    0.2500", "mine       0.5000"]),
        ({"metrics": {"ndcg@10": {"value": "a quarter"}, "mine": "half"}}, []),
        ({"metrics": ["ndcg@10"]}, []),
        ({"metrics": None, "notes": 3}, []),
        ({}, []),
    ],
)
def test_figures_may_be_anything(shop: Path, tmp_path: Path, evaluation: Any, shown: list[str]) -> None:
    recommender = ep.load(shop / "model")
    recommender.evaluation_ = evaluation
    recommender.save(tmp_path / "model")
    lines = done("inspect", tmp_path / "model").stdout.splitlines()
    assert [line for line in lines if line.startswith(("ndcg", "mine"))] == shown
    assert json.loads(done("inspect", tmp_path / "model", "--json").stdout)["evaluation"] == evaluation


def test_damage_is_found_and_named(shop: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(shop / "model", folder)
    (numbers,) = folder.glob("everypair-numbers-*")
    content = bytearray(numbers.read_bytes())
    content[-1] ^= 1
    numbers.write_bytes(content)
    refused(1, numbers.name, "inspect", folder)
    done("inspect", folder, "--no-verify")
    numbers.unlink()
    refused(1, numbers.name, "inspect", folder, "--no-verify")
    refused(1, "manifest.json", "inspect", tmp_path)
    refused(1, "there is no folder", "inspect", tmp_path / "none")


def test_folders_that_cannot_be_loaded(shop: Path, tmp_path: Path) -> None:
    """Though their checksums are right: what is in them makes no sense, or is of a class that a command does not know."""
    folder = tmp_path / "model"
    shutil.copytree(shop / "model", folder)
    stored = Folder(folder, KIND, VERSION)
    manifest, payloads = stored.open()
    own = {key: value for key, value in manifest.items() if key in ("package", "configuration", "by_user", "facts", "unknown")}
    bounds = payloads["index"]["events bounds"]
    stored.write(own, {**payloads, "index": {**payloads["index"], "events bounds": bounds[::-1].copy()}})
    refused(1, "does not hold a recommender that can be used", "inspect", folder)

    class Mine(ep.MF):
        pass

    ep.Recommender(Mine(2, epochs=1)).fit(ep.Dataset(shop / "plays.csv")).save(tmp_path / "mine", custom=[Mine])
    shown = run("inspect", tmp_path / "mine")
    assert shown.exit_code == 1
    assert "'Mine'" in shown.stdout
    assert "1 epoch (" in shown.stdout
    assert "Only Python can load it, with custom=[Mine]." in shown.stderr
    assert shown.stderr.count("custom=") == 1


def test_examples_are_not_replaced_unasked(tmp_path: Path) -> None:
    arguments = ["example", tmp_path / "new", "--users", "20", "--items", "10"]
    done(*arguments)
    before = (tmp_path / "new" / "plays.csv").read_text()
    refused(1, "plays.csv", *arguments, "--seed", "1")
    assert (tmp_path / "new" / "plays.csv").read_text() == before
    done(*arguments, "--seed", "1", "--force")
    assert (tmp_path / "new" / "plays.csv").read_text() != before
    log, generated = ep.Dataset(tmp_path / "new" / "plays.csv", timestamp="time"), ep.datasets.youtube_like(20, 10, 1)
    np.testing.assert_array_equal(log.item, generated.item)


# doctor


@pytest.mark.full
def test_the_doctor_finds_nothing() -> None:
    found = json.loads(done("doctor", "--json").stdout)
    assert found["packages"]["everypair"]
    assert all(check["passed"] for check in found["checks"])
    text = done("doctor").stdout
    assert text.count("ok   ") == len(found["checks"]) == 4


@pytest.mark.full
def test_the_work_of_the_doctor_is_shared_by_threads() -> None:
    from everypair.runtime.parallel import SMALL

    assert len(selftest._log(selftest.SHARED)) > SMALL


def test_the_doctor_finds_something(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise RuntimeError("no room")

    monkeypatch.setattr(
        selftest, "checks", lambda: {"a": lambda: None, "b": lambda: "1 is not 2", "c": lambda: selftest.tried(broken)}
    )
    result = run("doctor", "--json")
    assert result.exit_code == 1
    assert [check["trouble"] for check in json.loads(result.stdout)["checks"]] == [None, "1 is not 2", "RuntimeError: no room"]
    assert "FAIL b: 1 is not 2" in run("doctor").stdout


@pytest.mark.full
def test_the_doctor_warms_up() -> None:
    assert "kernels of all models are compiled" in done("doctor", "--warm").stderr


# README


@pytest.mark.full
def test_the_session_of_the_readme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Line by line, as it stands."""
    section = README.read_text().split("## Without Python")[1].split("\n## ")[0]
    (block,) = re.findall(r"```sh\n(.*?)```", section, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    commands = [shlex.split(line, comments=True) for line in block.replace("\\\n", " ").splitlines() if line.strip()]
    assert {command[1] for command in commands} == {"example", "fit", "evaluate", "recommend", "explain"}
    for command in commands:
        assert command[0] == "everypair"
        printed = done(*command[1:]).stdout
        assert (command[1] in ("example", "fit")) != bool(printed)
