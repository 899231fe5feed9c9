"""A fit that was interrupted, or ended by an error, says so wherever the recommender is shown, saved and opened."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import everypair as ep
from everypair.cli.shell import main
from everypair.evaluation import LeaveLast, evaluate

TABLE = {"user": [j // 5 for j in range(200)], "item": [(7 * j + j * j) % 23 for j in range(200)], "time": list(range(200))}
DATA = ep.Dataset(TABLE, timestamp="time")
NEW = {"user": [40], "item": [0], "time": [300]}
HOW = {"interrupt": "its fit was interrupted in epoch 2 of 9", "error": "its fit was ended by an error in epoch 2 of 9"}


def recommender() -> ep.Recommender:
    return ep.Recommender(ep.MF(2, epochs=9))


def press(fitted: ep.Recommender, epoch: ep.Epoch) -> None:
    if epoch.epoch == 2:
        os.kill(os.getpid(), signal.SIGINT)


def fail(fitted: ep.Recommender, epoch: ep.Epoch) -> None:
    if epoch.epoch == 2:
        raise RuntimeError("mine")


def cut(how: str, **options: Any) -> ep.Recommender:
    """A recommender whose fit was cut short."""
    made = recommender()
    if how == "error":
        with pytest.raises(RuntimeError, match="mine"):
            made.fit(DATA, fail, **options)
    else:
        made.fit(DATA, press, **options)
    return made


@pytest.mark.parametrize("how", HOW)
def test_it_says_so_until_it_is_fitted_again(how: str, tmp_path: Path) -> None:
    made, words = cut(how), HOW[how]
    assert repr(made) == f"Recommender(MF(factors=2, epochs=9), context=[UserId()], item=[ItemId()])  # {words}"
    assert repr(made.model) == f"MF(factors=2, epochs=9)  # {words}"
    assert repr(made.unfitted()) == repr(recommender())
    for folder in (tmp_path / "once", tmp_path / "updated"):
        with pytest.warns(ep.CutShortWarning, match=rf"{folder} is unfinished: {words}\. Fit it again, or continue") as told:
            made.save(folder)
        assert told[0].filename == __file__
        with pytest.warns(ep.CutShortWarning, match=words) as told:
            loaded = ep.load(folder)
        assert told[0].filename == __file__
        assert repr(loaded) == repr(made)
        made = loaded.update(NEW)  # which leaves the parameters of features as they are
    assert repr(made.fit(DATA)) == repr(recommender())
    assert repr(ep.load(made.save(folder))) == repr(recommender())


@pytest.mark.parametrize("how", HOW)
def test_a_checkpoint_continues_it(how: str, tmp_path: Path) -> None:
    made = cut(how, checkpoint=tmp_path / "state")
    made.fit(DATA, lambda *_: None, checkpoint=tmp_path / "state")
    assert repr(made) == repr(recommender())
    made.save(tmp_path / "model")


@pytest.mark.parametrize("how", HOW)
def test_inspect_says_so(how: str, tmp_path: Path) -> None:
    with pytest.warns(ep.CutShortWarning):
        cut(how).save(tmp_path)
    shown = CliRunner().invoke(main, ["inspect", str(tmp_path)], catch_exceptions=False)
    assert f"unfinished {HOW[how]}\n" in shown.stdout
    assert shown.stderr == "", "said once"
    assert json.loads(CliRunner().invoke(main, ["inspect", str(tmp_path), "--json"]).stdout)["cut_short"] == HOW[how]
    asked = CliRunner().invoke(main, ["recommend", str(tmp_path), "--users", "1"], catch_exceptions=False)
    assert f"warning: the recommender in {tmp_path} is unfinished: {HOW[how]}" in asked.stderr
    recommender().fit(DATA).save(tmp_path)
    assert "unfinished" not in CliRunner().invoke(main, ["inspect", str(tmp_path)]).stdout


def test_figures_say_so() -> None:
    split = LeaveLast().split(DATA)
    made = recommender().fit(split.train, press)
    assert f"the model is unfinished: {HOW['interrupt']}." in evaluate(made, split.test).notes


@pytest.mark.parametrize("ends", ["callback", "tol", "epochs", "validation"])
def test_other_ends_are_ends(ends: str, tmp_path: Path) -> None:
    split = LeaveLast().split(DATA)
    model = ep.MF(2, epochs=9, tol=0.99 if ends == "tol" else 0.0)
    options: dict[str, Any] = {"validation": split.tune, "patience": 1} if ends == "validation" else {}
    made = ep.Recommender(model).fit(split.train, (lambda *_: True) if ends == "callback" else None, **options)
    assert "#" not in repr(made)
    assert "#" not in repr(ep.load(made.save(tmp_path)))


def test_models_that_count_have_no_such_fits(tmp_path: Path) -> None:
    made = ep.Recommender(ep.Popularity())
    assert repr(ep.load(made.fit(DATA).save(tmp_path))) == repr(made)
    assert repr(made) == "Recommender(Popularity(), context=[UserId()], item=[ItemId()])"


def test_a_model_saved_by_a_callback_is_no_failure(tmp_path: Path) -> None:
    """Someone who saves the state of an epoch means it; what it is, the folder says."""
    recommender().fit(DATA, lambda fitting, epoch: fitting.save(tmp_path) is None)
    assert "9 epochs (running)" in CliRunner().invoke(main, ["inspect", str(tmp_path)]).stdout
    ep.load(tmp_path)
