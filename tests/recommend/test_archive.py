"""Recommenders in folders: the same after loading, whole after a crash, and refused when damaged."""

from __future__ import annotations

import copy
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file

import everypair as ep
from everypair.persistence import folder as folders
from everypair.persistence.folder import RECOMMENDER, Folder
from everypair.persistence.manifest import MANIFEST
from everypair.recommend import stored_dataset
from everypair.recommend.config import KNOWN, from_config, to_config
from everypair.towers import Concat, Constant, Core, Embedding, Linear, Machine, Product, Sum

from stored_files import overwritten, resealed, rewritten, with_payload

COMMON: dict[str, Any] = {"factors": 3, "epochs": 3, "unobserved_weight": 0.2, "regularization": 0.3}
SIDE_BY_SIDE = Concat(Embedding(2, "user"), Sum(Embedding(2, "previous"), Product(Linear(2, "history"), Embedding(2, "country"))))
MODELS: dict[str, tuple[Any, Any, Any]] = {
    "MF": (ep.MF(**COMMON), None, None),
    "MF of a country": (ep.MF(**COMMON, dtype="float64"), [ep.Attributes("country")], None),
    "MFSI": (ep.MFSI(**COMMON), [ep.UserId(), ep.History(last=3)], [ep.ItemId(), ep.Attributes("category", "language")]),
    "FM": (ep.FM(**COMMON), [ep.Attributes("country", "age"), ep.Previous(), ep.History(decay=0.9)], [ep.Attributes("category")]),
    "FM by field": (ep.FM(**{**COMMON, "regularization": {"default": 0.1, "W.user": 1.0}}), [ep.UserId(), ep.Previous()], None),
    "PARAFAC": (ep.PARAFAC(**COMMON), [ep.UserId(), ep.Previous()], None),
    "PARAFAC of all": (ep.PARAFAC(**COMMON, combinations="all"), [ep.UserId(), ep.Attributes("country")], None),
    "Tucker": (ep.Tucker(**{**COMMON, "factors": (2, 2, 3)}), [ep.Attributes("country"), ep.Previous()], None),
    "towers": (
        ep.Separable(SIDE_BY_SIDE, Embedding(4), epochs=2),
        [ep.UserId(), ep.Previous(), ep.History(), ep.Attributes("country")],
        None,
    ),
    "a machine": (ep.Separable(Machine(2), Machine(2), epochs=2), [ep.UserId()], [ep.ItemId(), ep.Attributes("category")]),
    "Popularity": (ep.Popularity(), None, None),
    "CoView": (ep.CoView(), [ep.Previous()], None),
}


pytestmark = pytest.mark.filterwarnings("ignore::everypair.FallbackWarning")  # asked for: tested in test_fallback.py


@pytest.fixture(scope="module")
def dataset() -> ep.Dataset:
    return ep.datasets.youtube_like(40, 20, seed=5, events_per_user=6)


def fitted(name: str, dataset: ep.Dataset) -> ep.Recommender:
    model, context, item = MODELS[name]
    return ep.Recommender(copy.copy(model), context, item).fit(dataset)


def answers(recommender: ep.Recommender, dataset: ep.Dataset) -> list[Any]:
    users = dataset.users.values.to_pylist()
    requests = [{"country": "DE", "history": [dataset.items[3], dataset.items[7]]}, {"age": "25-34"}, {"user": users[3]}]
    return [
        recommender.recommend(users, n=5, fallback="popular"),
        recommender.recommend(requests=requests, n=5, fallback="popular"),
        recommender.recommend(users, n=3, fallback="popular", exclude_seen=False, deny=[dataset.items[0]]),
        recommender.explain(users[1], dataset.items[4]).table,
    ]


@pytest.mark.filterwarnings("ignore::everypair.UnusedHistoryWarning")  # some of the models do not use the histories of the requests
@pytest.mark.parametrize("name", MODELS)
def test_the_same_after_loading(name: str, dataset: ep.Dataset, tmp_path: Path) -> None:
    recommender = fitted(name, dataset)
    recommender.save(tmp_path / "model")
    for verify in (False, True):
        again = ep.load(tmp_path / "model", verify=verify)
        assert repr(again) == repr(recommender)
        assert again.model.get_params().keys() == recommender.model.get_params().keys()
        for one, other in zip(answers(recommender, dataset), answers(again, dataset), strict=True):
            assert one.equals(other)
        if isinstance(recommender.model, ep.MF | ep.FM | ep.MFSI | ep.PARAFAC | ep.Tucker | ep.Separable):
            assert again.model.history_ == recommender.model.history_  # type: ignore[attr-defined]
            np.testing.assert_array_equal(again.item_vectors(), recommender.item_vectors())
            for key, value in recommender.model.parameters_.items():  # type: ignore[attr-defined]
                np.testing.assert_array_equal(again.model.parameters_[key], value)  # type: ignore[attr-defined]
    again.save(tmp_path / "again")
    names = [{path.name for path in (tmp_path / folder).iterdir()} for folder in ("model", "again")]
    assert names[0] == names[1]


@pytest.mark.parametrize("name", ["MF", "MFSI", "PARAFAC", "CoView"])
def test_a_loaded_one_is_updated_as_the_first_would_be(name: str, dataset: ep.Dataset, tmp_path: Path) -> None:
    recommender = fitted(name, dataset)
    recommender.save(tmp_path)
    again = ep.load(tmp_path)
    new = {"user": [dataset.users[0], "new"], "item": [dataset.items[1], dataset.items[2]], "timestamp": [10**9, 10**9]}
    users = [*dataset.users.values.to_pylist(), "new"]
    found = [each.update(new).recommend(users, n=4, fallback="popular") for each in (recommender, again)]
    assert found[0].equals(found[1])
    again.save(tmp_path)
    assert ep.load(tmp_path).recommend(users, n=4, fallback="popular").equals(found[0])


def test_arrays_are_mapped_and_of_the_format(dataset: ep.Dataset, tmp_path: Path) -> None:
    fitted("MF", dataset).save(tmp_path)
    again = ep.load(tmp_path)
    H = again.model.state.towers["item"].parameters["H"].value  # type: ignore[attr-defined]
    base = H
    while isinstance(base, np.ndarray) and base.base is not None:
        base = base.base
    assert type(base).__name__ == "mmap"
    assert not H.flags.writeable
    (numbers,) = tmp_path.glob("everypair-numbers-*.safetensors")
    np.testing.assert_array_equal(load_file(numbers)["parameter H"], H)
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [
        ".bin", ".bin", ".bin", ".bin", ".json", ".safetensors", ".safetensors"
    ]  # fmt: skip


@given(
    st.dictionaries(
        st.text(max_size=4), st.tuples(st.sampled_from(sorted(folders.DTYPES)), st.lists(st.integers(0, 3), max_size=3))
    )
)
def test_any_arrays(shapes: dict[str, tuple[str, list[int]]]) -> None:
    import tempfile

    random = np.random.default_rng(0)
    arrays = {name: random.integers(0, 2, shape).astype(folders.DTYPES[dtype]) for name, (dtype, shape) in shapes.items()}
    with tempfile.TemporaryDirectory() as place:
        folder = Folder(place, "test", 1)
        folder.write({"a": 1}, {"arrays": arrays, "text": b"bytes"})
        for mapped in ((), ("arrays",)):
            manifest, payloads = folder.open(mapped)
            assert manifest["a"] == 1
            assert payloads["text"] == b"bytes"
            assert payloads["arrays"].keys() == arrays.keys()
            for name, array in arrays.items():
                np.testing.assert_array_equal(payloads["arrays"][name], array)
                assert payloads["arrays"][name].dtype == array.dtype


def test_a_crash_leaves_the_old_one_or_the_new_one(dataset: ep.Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever step fails, also over a folder that was there."""
    first, second = fitted("MF", dataset), fitted("FM", dataset)
    place = tmp_path / "model"
    first.save(place)
    before = answers(first, dataset)[0]
    steps = 0
    while True:
        left = [steps]

        def fails(*args: Any, left: list[int] = left, original: Any = os.replace) -> None:
            left[0] -= 1
            if left[0] < 0:
                raise OSError(28, "No space left on device")
            original(*args)

        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", fails)
            try:
                second.save(place)
                break
            except OSError as error:
                told = str(error)
        assert "cannot be written: No space left on device" in told
        assert answers(ep.load(place, verify=True), dataset)[0].equals(before)
        assert not [path for path in place.iterdir() if path.suffix == ".part"]
        steps += 1
    assert steps >= 5
    assert answers(ep.load(place, verify=True), dataset)[0].equals(answers(second, dataset)[0])
    referred = {entry["file"] for entry in json.loads((place / "manifest.json").read_text())["files"].values()}
    assert {path.name for path in place.iterdir()} == referred | {"manifest.json"}


@pytest.mark.full
def test_killed_while_saving(dataset: ep.Dataset, tmp_path: Path) -> None:
    """A process that saves two models in turn, killed at any moment: one of them is there."""
    script = """
import sys, everypair as ep
dataset = ep.datasets.youtube_like(40, 20, seed=5, events_per_user=6)
two = [ep.Recommender(ep.MF(factors=k, epochs=1)).fit(dataset) for k in (2, 3)]
two[0].save(sys.argv[1])
print("ready", flush=True)
while True:
    for one in two:
        one.save(sys.argv[1])
"""
    random = np.random.default_rng(0)
    for _ in range(3):
        with subprocess.Popen([sys.executable, "-c", script, str(tmp_path / "model")], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(float(random.uniform(0.01, 0.2)))
            process.kill()
        model = ep.load(tmp_path / "model", verify=True).model
        assert model.factors in (2, 3)  # type: ignore[attr-defined]


def reads(place: Path, dataset: ep.Dataset, verify: bool) -> str | None:
    """What loading and asking says; None if it works. Nothing but a clear error may come of it."""
    try:
        recommender = ep.load(place, verify=verify)
        recommender.recommend(dataset.users.values.to_pylist()[:3], n=3, fallback="popular")
        recommender.recommend(requests=[{"history": [dataset.items[2]]}], n=2, fallback="popular")
    except (ValueError, FileNotFoundError, ep.FewerItemsWarning) as error:
        return str(error)
    return None


@pytest.mark.parametrize("name", ["MF", "FM", "CoView", "Tucker"])
def test_every_flipped_byte_is_found(name: str, dataset: ep.Dataset, tmp_path: Path) -> None:
    place = tmp_path / "model"
    recommender = fitted(name, dataset)
    history = getattr(recommender.state.adapter.model, "history_", [])
    history[:] = [epoch._replace(seconds=0.004842958999997959) for epoch in history]  # each run tests the same bytes
    recommender.save(place)
    random = np.random.default_rng(0)
    for path in sorted(place.iterdir()):
        content = path.read_bytes()
        for at in random.integers(0, len(content), 12):
            changed = content[:at] + bytes([content[at] ^ (1 << int(random.integers(8)))]) + content[at + 1 :]
            overwritten(path, changed)
            told = reads(place, dataset, verify=True)
            assert told is not None
            assert path.name in told or MANIFEST in told
            reads(place, dataset, verify=False)
        for cut in (0, len(content) // 2, len(content) - 2):
            overwritten(path, content[:cut])
            assert reads(place, dataset, verify=False) is not None
        overwritten(path, content)
    assert reads(place, dataset, verify=True) is None


@pytest.mark.parametrize("name", ["MF", "FM", "MFSI", "CoView", "PARAFAC"])
def test_lies_with_the_right_checksums(name: str, dataset: ep.Dataset, tmp_path: Path) -> None:
    """Someone who changes files and their checksums gets an error, or numbers: never a crash, never code that is run."""
    place = tmp_path / "model"
    fitted(name, dataset).save(place)
    original = tmp_path / "original"
    shutil.copytree(place, original)
    random = np.random.default_rng(1)
    for _ in range(60):
        shutil.rmtree(place)
        shutil.copytree(original, place)
        manifest = json.loads((place / "manifest.json").read_text())
        if random.random() < 0.5:

            def change(content: bytearray) -> None:
                for at in random.integers(0, len(content), int(random.integers(1, 4))):
                    content[at] = int(random.choice([0, 1, 127, 128, 255, content[at] ^ 1]))

            with_payload(place, random.choice(sorted(manifest["files"])), change)
        else:
            tampered(manifest, random)
            resealed(place, manifest)
        reads(place, dataset, verify=True)


def tampered(manifest: dict[str, Any], random: np.random.Generator) -> None:
    """Change, drop or exchange something somewhere in it."""
    at: Any = manifest
    while True:
        keys = list(at) if isinstance(at, dict) else list(range(len(at)))
        if not keys:
            return
        key = keys[int(random.integers(len(keys)))]
        if isinstance(at[key], dict | list) and random.random() < 0.8:
            at = at[key]
            continue
        lies = [
            None,
            -1,
            0,
            1e300,
            2**70,
            "x",
            "../../etc/passwd",
            [],
            {},
            {"class": "Popen", "arguments": {}},
            True,
            [[[]]],
            10**9,
        ]
        at[key] = lies[int(random.integers(len(lies)))]
        return


def with_arrays(place: Path, payload: str, changed: dict[str, np.ndarray]) -> None:
    """The folder with other arrays, and the right checksums."""
    folder = Folder(place, *RECOMMENDER)
    manifest, payloads = folder.open()
    payloads[payload] |= changed
    folder.write({name: value for name, value in manifest.items() if name != "files"}, payloads)


LIES: dict[str, tuple[str, str, str, Any]] = {
    "bounds that wrap around": ("MF", "index", "events bounds", lambda b: np.r_[0, 2**63 - 1, -(2**63), -1, b[4:]]),
    "bounds of bytes": ("MF", "index", "events bounds", lambda b: np.r_[0, 255, 3, b[3:] % 256].astype(np.uint8)),
    "narrow bounds": ("MF", "index", "events bounds", lambda b: np.r_[0, 2**31 - 1, -(2**31), -1, b[4:]].astype(np.int32)),
    "items beyond the last": ("MF", "index", "events item", lambda i: i + 1),
    "rows beyond the last": ("MF", "index", "rows", lambda r: r + 1),
    "too few rows": ("MF", "index", "rows", lambda r: r[:-3]),
    "too few levels": ("PARAFAC", "index", "met 0", lambda m: m[:1]),
    "levels of numbers": ("PARAFAC", "index", "met 0", lambda m: m.astype(np.int64)),
    "users not met": ("FM by field", "index", "context user met", lambda m: m[:2]),
    "a flat Gram": ("MF", "numbers", "context gram", lambda g: g[:1]),
    "times of another length": ("MF", "numbers", "events time", lambda t: t[:-1]),
    "parameters of another shape": ("MF", "numbers", "parameter H", lambda h: h[:, :-1]),
    "parameters of another kind": ("FM", "numbers", "parameter W", lambda w: w.astype(np.float64)),
    "weights of other items": ("MF", "numbers", "item weight", lambda w: w[:-1]),
    "weights below zero": ("MF", "numbers", "item weight", lambda w: -w),
    "counts of another length": ("CoView", "numbers", "counts", lambda c: c[:-1]),
    "counts beyond the last": ("CoView", "index", "indices", lambda i: i + 1),
}


@pytest.mark.parametrize("lie", LIES)
def test_arrays_that_do_not_fit_are_refused(lie: str, dataset: ep.Dataset, tmp_path: Path) -> None:
    name, payload, key, change = LIES[lie]
    fitted(name, dataset).save(tmp_path)
    array = Folder(tmp_path, *RECOMMENDER).open().payloads[payload][key]
    with_arrays(tmp_path, payload, {key: change(array)})
    with pytest.raises(ValueError, match="does not hold a recommender that can be used"):
        ep.load(tmp_path)


@pytest.mark.parametrize("version", [None, "2", 2.5, [], -3, True])
def test_a_format_is_a_number(version: Any, dataset: ep.Dataset, tmp_path: Path) -> None:
    fitted("Popularity", dataset).save(tmp_path)
    rewritten(tmp_path, version=version)
    with pytest.raises(ValueError, match="its format version cannot be"):
        ep.load(tmp_path)


def test_what_is_claimed_is_not_allocated(dataset: ep.Dataset, tmp_path: Path) -> None:
    fitted("MF", dataset).save(tmp_path)
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    manifest["facts"]["model"]["contexts"] = 10**12
    rewritten(tmp_path, facts=manifest["facts"])
    with pytest.raises(ValueError, match="a row for each of 1,000,000,000,000 contexts"):
        ep.load(tmp_path)
    fitted("MF", dataset).save(tmp_path)
    sink = pa.BufferOutputStream()
    table = pa.table({"id": ["x" * 10_000 + f"{j:05}" for j in range(dataset.n_users)]})
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(table)
    folder = Folder(tmp_path, *RECOMMENDER)
    manifest, payloads = folder.open()
    told = {key: value for key, value in manifest.items() if key != "files"}
    folder.write(told, {**payloads, "users": sink.getvalue().to_pybytes()})
    with pytest.raises(ValueError, match="a table is compressed"):
        ep.load(tmp_path)


@pytest.mark.parametrize("compression", [None, "zstd", "lz4"])
def test_compressed_tables_are_told_by_their_headers(compression: str | None) -> None:
    columns = {"a": pa.array(["x", "y"] * 50).dictionary_encode(), "b": list(range(100)), "c": [[1, 2]] * 100, "d": [None] * 100}
    table = pa.table(columns)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_table(table, max_chunksize=30)
    content = sink.getvalue().to_pybytes()
    if compression is None:
        assert stored_dataset.table_of(content).equals(table)
    else:
        with pytest.raises(ValueError, match="a table is compressed"):
            stored_dataset.table_of(content)


def test_settings_of_the_next_fit_are_not_those_of_this_one(dataset: ep.Dataset, tmp_path: Path) -> None:
    recommender = fitted("MF", dataset)
    asked = [{"history": [dataset.items[3], dataset.items[5]]}]
    before = recommender.context_vectors(requests=asked)
    recommender.model.set_params(regularization=50.0, factors=7, dtype="float64")
    recommender.save(tmp_path)
    np.testing.assert_array_equal(ep.load(tmp_path).context_vectors(requests=asked), before)


def test_folders_of_others_are_left_alone(dataset: ep.Dataset, tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text('{"name": "my web app"}')
    (tmp_path / f"weights-{'0' * 64}.bin").write_text("mine")
    with pytest.raises(FileExistsError, match="would be overwritten"):
        fitted("MF", dataset).save(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["manifest.json", f"weights-{'0' * 64}.bin"]


def test_what_is_refused(dataset: ep.Dataset, tmp_path: Path) -> None:
    place = tmp_path / "model"
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        ep.load(place)
    place.mkdir()
    with pytest.raises(FileNotFoundError, match="does not hold a recommender: there is no manifest"):
        ep.load(place)
    recommender = fitted("MF", dataset)
    recommender.save(place)
    rewritten(place, version=99)
    with pytest.raises(ValueError, match="has format 99, and this version of everypair reads formats up to 2"):
        ep.load(place)
    rewritten(place, version=1, kind="checkpoint")
    with pytest.raises(ValueError, match="not the manifest of a recommender, but of a checkpoint"):
        ep.load(place)
    (place / "manifest.json").write_text("[1, 2")
    with pytest.raises(ValueError, match=r"manifest\.json is not JSON"):
        ep.load(place)
    with pytest.raises(FileExistsError, match="is not the manifest of a recommender, and would be overwritten"):
        recommender.save(place)
    (place / "manifest.json").unlink()
    recommender.save(place)
    (numbers,) = place.glob("everypair-numbers-*")
    numbers.unlink()
    with pytest.raises(ValueError, match=r"numbers-.* is missing, and the manifest names it"):
        ep.load(place)
    (tmp_path / "file").write_text("")
    with pytest.raises(NotADirectoryError, match="is a file, and a folder is needed"):
        recommender.save(tmp_path / "file")
    with pytest.raises(ValueError, match="not fitted"):
        ep.Recommender(ep.MF()).save(place)


def test_classes_of_ones_own(dataset: ep.Dataset, tmp_path: Path) -> None:
    class Own(Embedding):
        pass

    model = ep.Separable(Own(2, "user"), Embedding(2), epochs=1)
    recommender = ep.Recommender(model, [ep.UserId()]).fit(dataset)
    with pytest.raises(ValueError, match=r"class of your own.*custom=\[Own\]"):
        recommender.save(tmp_path)
    recommender.save(tmp_path, custom=[Own])
    with pytest.raises(ValueError, match=r"'Own' is not a class of this version.*custom="):
        ep.load(tmp_path)
    again = ep.load(tmp_path, custom=[Own])
    assert type(again.model.context) is Own  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match="custom must be a list of classes"):
        ep.load(tmp_path, custom=[print])  # type: ignore[list-item]


@pytest.mark.parametrize(
    "value",
    [
        *(model for model, _, _ in MODELS.values()),
        ep.MF(dtype=np.float64, regularization={"W": np.float64(0.1)}),  # type: ignore[arg-type]
        Core(Embedding(2, "a"), Embedding(3, "b"), factors=2, combinations="all", name="core"),
        Concat(Constant(), Linear(2, "a", "b", name="x"), Machine(2, "a", names=("b", "w", "W"))),
        ep.Attributes("a", "b", kind="bins", bins=5), ep.History(last=3, decay=0.5, normalize="mean", name="h"), ep.UserId(),
    ],
)  # fmt: skip
def test_configurations_are_plain_data(value: Any) -> None:
    again = from_config(json.loads(json.dumps(to_config(value))))
    assert type(again) is type(value)
    assert repr(again) == repr(value) or "dtype" in repr(value)
    assert to_config(again) == to_config(value)


def test_only_known_classes_are_made() -> None:
    assert {"MF", "FM", "Separable", "Embedding", "Core", "History"} <= set(KNOWN)
    for lie in ({"class": "Popen", "arguments": {}}, {"class": "MF"}, {"arguments": {}}, {"class": ["MF"], "arguments": {}}):
        with pytest.raises((ValueError, TypeError)):
            from_config(lie)
    with pytest.raises(TypeError, match="cannot be stored"):
        to_config(ep.MF(regularization=np.zeros(3)))


@pytest.mark.parametrize("model", [ep.MF, ep.FM])
def test_the_weight_that_was_used(model: Any, dataset: ep.Dataset, tmp_path: Path) -> None:
    """It depends on the data of the fit, and is the same ever after."""
    recommender = ep.Recommender(model(3, epochs=2)).fit(dataset)
    weight = recommender.model.unobserved_weight_
    recommender.save(tmp_path / "model")
    again = ep.load(tmp_path / "model")
    of_items = recommender.model.item_weight_
    np.testing.assert_array_equal(again.model.item_weight_, of_items)  # type: ignore[attr-defined]
    new = {"user": [dataset.users[0]], "item": [dataset.items[1]], "timestamp": [10**10]}
    assert weight == again.model.unobserved_weight_ == again.update(new).model.unobserved_weight_  # type: ignore[attr-defined]
    more = again.update({**new, "item": ["never seen"]}).model.item_weight_  # type: ignore[attr-defined]
    expected = dict(zip(dataset.items.values.to_pylist(), of_items, strict=True)) | {"never seen": of_items.min()}
    assert dict(zip(again.dataset_.items.values.to_pylist(), more, strict=True)) == expected
    manifest = json.loads((tmp_path / "model" / "manifest.json").read_text())
    assert str(weight)[:8] in json.dumps(manifest)
