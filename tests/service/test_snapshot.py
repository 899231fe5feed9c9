"""Snapshots of a model's folder in memory."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import everypair as ep
from everypair.recommend import archive
from everypair.service import memory, snapshot
from everypair.service.model_slot import ModelSlot
from everypair.service.served_model import ServedModel
from everypair.service.snapshot import take_snapshot

from services import dataset, fitted

USER = dataset().users[0]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    fitted().save(tmp_path / "model")
    return tmp_path / "model"


def payload(model: Path) -> Path:
    (numbers,) = model.glob("everypair-numbers-*")
    numbers.chmod(0o644)
    return numbers


def test_nothing_that_happens_to_the_folder_reaches_an_open_model(model: Path) -> None:
    """Not even to truncate its files, which ends processes that map them."""
    wanted = fitted().recommend(users=[USER])
    served = ServedModel.open(model)
    for file in model.iterdir():
        file.chmod(0o644)
        os.truncate(file, 0)
    assert served.recommender.recommend(users=[USER]).equals(wanted)
    shutil.rmtree(model)
    assert served.recommender.recommend(users=[USER]).equals(wanted)


def test_a_snapshot_is_the_model_and_cannot_be_changed(model: Path) -> None:
    with take_snapshot(model) as taken:
        shutil.rmtree(model)
        for _ in range(2):  # each worker opens it
            found, checksum = archive.read_folder(taken)
            assert ep.Recommender.from_archive(found).recommend(users=[USER]).equals(fitted().recommend(users=[USER]))
            assert ServedModel.open(taken).version == checksum[:16]
        for file in taken.files.values():
            for change in (lambda file=file: os.ftruncate(file, 0), lambda file=file: os.pwrite(file, b"?", 0)):
                with pytest.raises(PermissionError):
                    change()
    assert not taken.files


@given(st.sampled_from(["cut", "changed", "gone", "longer"]), st.floats(0, 1, exclude_max=True))
def test_what_is_damaged_is_refused(tmp_path_factory: pytest.TempPathFactory, damage: str, where: float) -> None:
    model = tmp_path_factory.mktemp("model")
    fitted().save(model)
    file = payload(model)
    content = bytearray(file.read_bytes())
    if damage == "gone":
        file.unlink()
    else:
        at = int(where * len(content))
        content[at] ^= 1
        file.write_bytes(bytes({"cut": content[:at], "longer": content + b"?"}.get(damage, content)))
    before = set(os.listdir("/proc/self/fd"))
    with pytest.raises(ValueError, match="missing, and the manifest" if damage == "gone" else "damaged"):
        take_snapshot(model)
    assert len(os.listdir("/proc/self/fd")) <= len(before), "files are closed"


def test_a_folder_that_changes_while_it_is_read_is_read_again(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    another = model.with_name("another")
    fitted(seed=1).save(another)
    copy, changes = snapshot._copy, [payload(model)]

    def replace_and_copy(source: Path, target: int) -> str:
        if changes:
            changes.pop().write_bytes(b"?")
            shutil.rmtree(model)
            shutil.copytree(another, model)
            raise FileNotFoundError(source)
        return copy(source, target)

    monkeypatch.setattr(snapshot, "_copy", replace_and_copy)
    with take_snapshot(model) as taken, take_snapshot(another) as wanted:
        assert taken.contents == wanted.contents

    def never_the_same(source: Path, target: int) -> str:
        (model / f"{len(list(model.iterdir()))}").touch()
        return ""

    monkeypatch.setattr(snapshot, "_copy", never_the_same)
    with pytest.raises(ValueError, match="kept changing"):
        take_snapshot(model)


def test_a_model_that_memory_cannot_hold_is_refused(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slot = ModelSlot(ServedModel.open(model), model)
    before = slot.current
    fitted(seed=1).save(model)
    monkeypatch.setattr(snapshot, "available_bytes", lambda: 1_000)
    with pytest.raises(OSError, match="bytes of memory, and 1,000 are available"):
        take_snapshot(model)
    result = slot.reload()
    assert not result.changed
    assert "the model's folder needs" in (result.refusal or "")
    assert slot.current is before
    monkeypatch.setattr(snapshot, "available_bytes", lambda: None)  # unknown
    assert slot.reload().changed


def test_limits_of_control_groups_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = memory.available_bytes()
    assert machine is not None
    assert machine > 0
    own = Path("/proc/self/cgroup").read_text().splitlines()
    group = next((line.removeprefix("0::/") for line in own if line.startswith("0::")), None)
    if group is None:
        pytest.skip("this system has no control groups of version 2")
    monkeypatch.setattr(memory, "CGROUPS", tmp_path)
    folder = tmp_path / group
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in (("max", "5000"), ("current", "4500"), ("stat", "anon 1\ninactive_file 300\n")):
        (folder / f"memory.{name}").write_text(content)
    assert memory.available_bytes() == 800
    (folder / "memory.max").write_text("max\n")
    assert memory.available_bytes() != 800
