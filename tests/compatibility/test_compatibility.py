"""Folders of earlier versions open, answer as they did, and fits go on from them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import everypair as ep
from everypair.recommend.training import Training

import contents
from write import HERE, answers

VERSIONS = sorted(folder for folder in HERE.iterdir() if (folder / "expected.json").exists())
MODELS = [pytest.param(version, name, id=f"{version.name} {name}") for version in VERSIONS for name in contents.recommenders()]
TRAINED = [param for param in MODELS if hasattr(contents.recommenders()[str(param.values[1])].model, "epochs")]
# Another processor rounds otherwise: figures are compared within float32's reach, not bit for bit.
CLOSE: dict[str, Any] = {"rtol": 1e-3, "atol": 1e-5}


def expected(version: Path) -> dict[str, Any]:
    return json.loads((version / "expected.json").read_text())


@pytest.mark.filterwarnings("ignore::everypair.UnusedHistoryWarning")  # some of the models do not use the histories of the requests
@pytest.mark.filterwarnings("ignore::everypair.FallbackWarning")
@pytest.mark.parametrize(("version", "name"), MODELS)
def test_a_saved_model_answers_as_it_did(version: Path, name: str) -> None:
    recommender = ep.load(version / "models" / name, verify=True)
    found, before = answers(recommender, contents.dataset()), expected(version)[name]
    for key in before:
        if key.endswith("score"):
            np.testing.assert_allclose(found[key], before[key], **CLOSE)
        else:
            assert found[key] == before[key]


@pytest.mark.parametrize(("version", "name"), TRAINED)
def test_a_fit_goes_on_from_a_checkpoint(version: Path, name: str, tmp_path: Path) -> None:
    """The epochs after it are those of a fit that starts at its parameters. (Its own start values were those of its version.)

    But that counts its epochs from one, and matrix factorization rotates in some of them only.
    """
    shutil.copytree(version / "checkpoints" / name, tmp_path / "checkpoint")
    stopped, resumed, other = (contents.recommenders()[name] for _ in range(3))
    stopped.fit(contents.dataset(), checkpoint=tmp_path / "checkpoint")
    resumed.model.set_params(epochs=contents.TOTAL)
    resumed.fit(contents.dataset(), checkpoint=tmp_path / "checkpoint")
    stored = json.loads((version / "checkpoints" / name / "manifest.json").read_text())["history"]
    assert [list(epoch) for epoch in stopped.model.history_] == stored
    assert [list(epoch) for epoch in resumed.model.history_[: contents.EPOCHS]] == stored
    other.model.set_params(epochs=contents.TOTAL - contents.EPOCHS)
    recipes = {"context": other.context, "item": other.item}
    Training.of(other.model, recipes, other.unit, contents.dataset()).run(start=stopped.model.parameters_)
    np.testing.assert_allclose(
        objectives(resumed)[contents.EPOCHS :], objectives(other), rtol=5e-3 if name.startswith("MF ") or name == "MF" else 1e-6
    )


@pytest.mark.parametrize("version", VERSIONS, ids=lambda version: version.name)
def test_a_fit_that_was_validated_goes_on(version: Path, tmp_path: Path) -> None:
    shutil.copytree(version / "checkpoints" / "validation", tmp_path / "checkpoint")
    split = ep.evaluation.LeaveLast().split(contents.dataset())
    recommender = contents.recommenders()["FM"]
    recommender.model.set_params(epochs=contents.TOTAL)
    recommender.fit(split.train, validation=split.tune, metric="ndcg@5", checkpoint=tmp_path / "checkpoint")
    assert len(recommender.model.history_) > contents.EPOCHS
    assert recommender.validation_ is not None
    assert set(recommender.validation_.values) >= set(range(1, contents.EPOCHS + 1))


@pytest.mark.parametrize("version", VERSIONS, ids=lambda version: version.name)
def test_a_study_goes_on(version: Path, tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    study, before = tmp_path / "study.db", expected(version)["study"]
    shutil.copy(version / "study.db", study)
    template, protocol = contents.recommenders()["MF"], ep.evaluation.LeaveLast()
    found = ep.tune(template, contents.dataset(), protocol, "ndcg@5", trials=before["trials"], study=study)
    assert found.best.value == pytest.approx(before["value"])
    more = ep.tune(template, contents.dataset(), protocol, "ndcg@5", trials=before["trials"] + 1, study=study)
    assert len(more.trials) == before["trials"] + 1


def objectives(recommender: ep.Recommender) -> list[float]:
    return [epoch.objective for epoch in recommender.model.history_]  # type: ignore[attr-defined]
