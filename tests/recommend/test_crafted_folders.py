"""Folders that somebody made to deceive, with the right checksums: a clear refusal or a model, and nothing else is run or read."""

from __future__ import annotations

import json
import shutil
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import everypair as ep
from everypair.data.frames import as_frame
from everypair.persistence.manifest import CHECKSUM, MANIFEST
from everypair.towers import Concat, Embedding, Linear, Product, Sum

from hostile import PACKAGE, changed, watched
from profiles import EXAMPLES
from stored_files import resealed, rewritten

COMMON: dict[str, Any] = {"factors": 2, "epochs": 2, "unobserved_weight": 0.2}
CONTEXT = [ep.UserId(), ep.Attributes("country"), ep.Previous(), ep.History(last=3)]
TOWER = Concat(Embedding(2, "user"), Sum(Embedding(2, "previous"), Product(Linear(2, "history"), Embedding(2, "country"))))
RECOMMENDERS: dict[str, tuple[Any, Any, Any]] = {
    "MF": (ep.MF(**COMMON), None, None),
    "FM": (ep.FM(**COMMON), CONTEXT, [ep.ItemId(), ep.Attributes("category")]),
    "PARAFAC": (ep.PARAFAC(**COMMON, combinations="all"), [ep.UserId(), ep.Attributes("country")], None),
    "Tucker": (ep.Tucker(**COMMON), [ep.Attributes("country"), ep.Previous()], None),
    "towers": (ep.Separable(TOWER, Embedding(4), epochs=2), CONTEXT, None),
    "MFSI": (ep.MFSI(**COMMON), [ep.Previous(), ep.History(), ep.History(decay=0.5, half_life="9d")], None),
    "CoView": (ep.CoView(), [ep.Previous()], None),
    "Popularity": (ep.Popularity(), None, None),
}
WEIGHTS = {"MF": ep.EventWeights(half_life="30d", length=0.5), "MFSI": ep.EventWeights(decay=0.9)}
ANSWERS = ("has no vectors", "it has no vectors", "has no column", "a new event changes the loss")  # refusals of honest models


@pytest.fixture(scope="module")
def dataset() -> ep.Dataset:
    return ep.datasets.youtube_like(40, 20, seed=5, events_per_user=6)


@pytest.fixture(scope="module")
def saved(dataset: ep.Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of models, a package that must not be imported, and a file that must not be read."""
    place = tmp_path_factory.mktemp("saved")
    for name, (model, context, item) in RECOMMENDERS.items():
        ep.Recommender(model, context, item, event_weights=WEIGHTS.get(name)).fit(dataset).save(place / name)
    (place / "path" / PACKAGE).mkdir(parents=True)
    (place / "path" / PACKAGE / "__init__.py").write_text("raise SystemExit('a folder ran code')\n")
    return place


def manifest_of(folder: Path) -> dict[str, Any]:
    return {key: value for key, value in json.loads((folder / MANIFEST).read_bytes()).items() if key != CHECKSUM}


def use(folder: Path, dataset: ep.Dataset) -> None:
    """Open it and ask everything; a refusal is a ValueError when it is opened, and then only one that honest models know."""
    try:
        recommender = ep.load(folder)
    except (ValueError, FileNotFoundError) as error:
        assert str(folder) in str(error)  # noqa: PT017
        return
    item = dataset.items[2]
    for ask in (
        lambda: recommender.recommend(dataset.users.values.to_pylist()[:3], n=3, fallback="popular"),
        lambda: recommender.recommend(requests=[{"history": [item]}], n=2, fallback="popular"),
        lambda: recommender.explain(dataset.users[1], item),
        lambda: recommender.similar_items([item], n=2),
        lambda: repr(recommender),
        lambda: recommender.update({"user": [dataset.users[0]], "item": [item], "timestamp": [10**10]}),
        lambda: recommender.save(folder),
    ):
        try:
            ask()
        except ValueError as error:
            assert any(answer in str(error) for answer in ANSWERS), error  # noqa: PT017


@pytest.mark.full
@settings(max_examples=8 * EXAMPLES, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(name=st.sampled_from(sorted(RECOMMENDERS)), data=st.data())
def test_any_entry_of_a_manifest_may_lie(
    name: str, data: st.DataObject, saved: Path, dataset: ep.Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(saved / "path")
    folder = tmp_path / "model"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(saved / name, folder)
    resealed(folder, data.draw(changed(manifest_of(folder))))
    with watched(saved / "path" / PACKAGE / "__init__.py"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        use(folder, dataset)


@pytest.mark.parametrize("frame", [f"{PACKAGE}.x", PACKAGE, "os", "", "numpy", "../pandas", 3])
def test_tables_come_in_known_libraries_alone(
    frame: Any, saved: Path, dataset: ep.Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Looking for the module of a dotted name imports its package."""
    monkeypatch.syspath_prepend(saved / "path")
    shutil.copytree(saved / "MF", tmp_path / "model")
    facts = manifest_of(tmp_path / "model")["facts"]
    facts["dataset"]["frame"] = frame
    rewritten(tmp_path / "model", facts=facts)
    with watched(saved / "path" / PACKAGE / "__init__.py"), pytest.raises(ValueError, match="frame"):
        ep.load(tmp_path / "model").recommend(dataset.users[0])
    with watched(saved / "path" / PACKAGE / "__init__.py"), pytest.raises(ValueError, match="frame must be one of"):
        as_frame(pa.table({}), frame)
    assert PACKAGE not in sys.modules


NUMBERS: dict[str, tuple[str, list[Any], Any, str]] = {
    "no threads": ("MF", ["configuration", "model", "arguments", "n_threads"], 0, "n_threads must be at least 1, got 0"),
    "too many threads": ("MF", ["configuration", "model", "arguments", "n_threads"], 10**9, "n_threads must be at most 1,024"),
    "half an epoch": ("FM", ["configuration", "model", "arguments", "epochs"], 0.5, "epochs must be an integer"),
    "a model in a model": (
        "FM",
        ["configuration", "model", "arguments", "tol"],
        {"class": "MF", "arguments": {}},
        "of FM cannot be",
    ),
    "more contexts than events": ("Tucker", ["facts", "model", "contexts"], 10**12, "contexts must be at most"),
    "an endless weight": ("FM", ["facts", "model", "unobserved weight"], float("inf"), "unobserved weight must be a finite"),
    "an exponent": ("MF", ["configuration", "model", "arguments", "regularization_exponent"], 1e300, "L2 is too large"),
    "a spread of zero": ("FM", ["facts", "model", "history", 0, "seconds"], "x", "seconds of epoch 1 must be a number"),
    "another first epoch": ("FM", ["facts", "model", "history", 0, "epoch"], 7, "epoch must be at most 1, got 7"),
    "a unit of time": ("MF", ["facts", "dataset", "time_unit"], "fortnight", "time_unit must be one of"),
    "columns of one name": ("MF", ["facts", "dataset", "user_column"], "item", "the columns of ids cannot be"),
    "weights of events": ("MF", ["configuration", "event_weights"], "all", "event_weights"),
    "another weight of events": ("MF", ["configuration", "event_weights"], {"size": 3}, "size"),
    "events without weight": ("MFSI", ["configuration", "event_weights", "decay"], 0.0, "decay must be"),
    "weights by times that there are not": ("MF", ["facts", "dataset", "time_counts"], True, "has the positions of events"),
    "a half-life": ("MFSI", ["configuration", "context", 2, "arguments", "half_life"], "9 nights", "half_life must be"),
    "a checksum": ("MF", ["files", "numbers", "sha256"], {}, "list of files is incomplete"),
    "a path": ("MF", ["files", "numbers", "file"], "../secret", "is not the name of a payload"),
    "an absolute path": ("MF", ["files", "users", "file"], "/etc/passwd", "is not the name of a payload"),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_absurd_values_are_refused(name: str, saved: Path, dataset: ep.Dataset, tmp_path: Path) -> None:
    model, keys, value, message = NUMBERS[name]
    shutil.copytree(saved / model, tmp_path / "model")
    manifest = manifest_of(tmp_path / "model")
    holder: Any = manifest
    for key in keys[:-1]:
        holder = holder[key]
    holder[keys[-1]] = value
    resealed(tmp_path / "model", manifest)
    with pytest.raises(ValueError, match=message):
        ep.load(tmp_path / "model").recommend(requests=[{"history": [dataset.items[1]]}])


def test_links_out_of_the_folder_are_not_followed(saved: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(saved / "MF", folder)
    (tmp_path / "current").symlink_to(folder)
    ep.load(tmp_path / "current", verify=True)
    (payload,) = folder.glob("everypair-numbers-*")
    for path in (payload, folder / MANIFEST):
        path.rename(tmp_path / "elsewhere")
        path.symlink_to(tmp_path / "elsewhere")
        with pytest.raises(ValueError, match=f"{path.name} is a link out of the folder"):
            ep.load(folder)
        path.unlink()
        (tmp_path / "elsewhere").rename(path)
    payload.rename(folder / "inside")
    payload.symlink_to(folder / "inside")
    ep.load(folder, verify=True)


@pytest.mark.parametrize("n_threads", [0, -1, 0.5, "2", True, 10**9])
def test_threads_are_checked_wherever_they_are_used(n_threads: Any, dataset: ep.Dataset) -> None:
    """Also when they are set after the fit."""
    recommender = ep.Recommender(ep.MF(2, epochs=1)).fit(dataset)
    recommender.model.n_threads = n_threads
    user, item = dataset.users[0], dataset.items[0]
    for ask in (
        lambda: recommender.recommend([user]),
        lambda: recommender.similar_items([item]),
        lambda: recommender.similar_users([user]),
        lambda: recommender.model.recommend(0),
        lambda: recommender.fit(dataset),
        lambda: ep.evaluation.evaluate(recommender, ep.evaluation.LeaveLast().split(dataset).test, allow_trained=True),
    ):
        with pytest.raises((ValueError, TypeError), match="n_threads must be"):
            ask()


def test_ids_are_plain(saved: Path, tmp_path: Path) -> None:
    """A column that holds each value once would grow without limit when it is decoded."""
    from everypair.persistence.folder import RECOMMENDER, Folder

    shutil.copytree(saved / "MF", tmp_path / "model")
    folder = Folder(tmp_path / "model", *RECOMMENDER)
    manifest, payloads = folder.open()
    indices = pa.array(np.zeros(2**16, np.int8))
    table = pa.table({"id": pa.DictionaryArray.from_arrays(indices, pa.array(["x" * 2**16]))})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    content = {key: value for key, value in manifest.items() if key != "files"}
    folder.write(content, {**payloads, "users": sink.getvalue().to_pybytes()})
    with watched(tmp_path / "nothing"), pytest.raises(ValueError, match="ids of users must be 64-bit integers or strings"):
        ep.load(tmp_path / "model")
