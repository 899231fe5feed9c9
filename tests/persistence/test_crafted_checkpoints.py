"""Checkpoints that somebody made to deceive, with the right checksums: refused, or the fit goes on."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import everypair as ep
from everypair.persistence.manifest import CHECKSUM, MANIFEST

from hostile import PACKAGE, changed, watched
from stored_files import resealed

DATASET = ep.datasets.youtube_like(30, 20, seed=1, events_per_user=5)
SPLIT = ep.evaluation.LeaveLast().split(DATASET)
REFUSALS = (
    "the fit was validated with", "do not belong together", "continue with the same callbacks", "of a fit of the model alone",
    "the checkpoint's EarlyStopping", "arrays must have the parameters", "the fit had ended at epoch",
)  # fmt: skip


def fit(folder: Path, epochs: int) -> None:
    recommender = ep.Recommender(ep.MF(2, epochs=epochs))
    recommender.fit(SPLIT.train, checkpoint=folder, validation=SPLIT.tune, metric="ndcg@5", patience=9)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoint") / "state"
    fit(folder, 2)
    return folder


@pytest.mark.full
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(data=st.data())
def test_any_entry_of_a_checkpoint_may_lie(data: st.DataObject, checkpoint: Path, tmp_path: Path) -> None:
    folder = tmp_path / "state"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(checkpoint, folder)
    manifest = json.loads((folder / MANIFEST).read_bytes())
    del manifest[CHECKSUM]
    resealed(folder, data.draw(changed(manifest)))
    with watched(tmp_path / PACKAGE):
        try:
            fit(folder, 3)
        except ValueError as error:
            assert any(told in str(error) for told in (str(folder), *REFUSALS)), error  # noqa: PT017


@pytest.mark.parametrize("count", [-1, 0.5, "3", None, [], True])
def test_the_queries_that_popularity_answered_are_a_number(count: object, checkpoint: Path, tmp_path: Path) -> None:
    folder = tmp_path / "state"
    shutil.copytree(checkpoint, folder)
    manifest = json.loads((folder / MANIFEST).read_bytes())
    manifest["callback"][0][0]["by_popularity"] = count
    resealed(folder, manifest)
    with pytest.raises(ValueError, match="the checkpoint's EarlyStopping cannot be used"):
        fit(folder, 3)
