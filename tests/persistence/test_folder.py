"""Folders: every byte counts, files of others stay, and files that a process has mapped are never written to."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import everypair as ep
from everypair.persistence.folder import Folder
from everypair.persistence.manifest import CHECKSUM, MANIFEST, checksum, is_intact, sealed

from stored_files import overwritten

KIND = ("thing", 2)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
)
# Their last digits do not matter to whoever reads them: another one gives the same number.
NUMBERS = [0.004842958999997959, 346.87669876861315, 1e-05, 0.1, 1e22]


def written(folder: Path, value: int = 1) -> Path:
    arrays = {"x": np.arange(6.0) * value}
    Folder(folder, *KIND).write({"seconds": NUMBERS, "value": value}, {"arrays": arrays, "text": b"text"})
    return folder


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def flips(good: bytes) -> list[bytes]:
    """The bytes with each bit of each of them changed."""
    return [good[:at] + bytes([good[at] ^ (1 << bit)]) + good[at + 1 :] for at in range(len(good)) for bit in range(8)]


@pytest.mark.full
def test_every_flipped_bit_of_a_manifest_is_found(tmp_path: Path) -> None:
    good = sealed({"kind": "thing", "version": 2, "seconds": NUMBERS})
    folder = Folder(tmp_path, *KIND)
    same = 0
    for bad in flips(good):
        (tmp_path / MANIFEST).write_bytes(bad)
        with pytest.raises(ValueError, match=MANIFEST):
            folder.manifest()
        try:
            same += json.loads(bad) == json.loads(good)
        except ValueError:
            continue
    assert same, "none of them reads as the same, so that a checksum of the content would do"


@given(st.dictionaries(st.text(max_size=5), JSON, max_size=4), st.data())
def test_any_change_of_bytes_is_found(entries: dict[str, Any], data: st.DataObject) -> None:
    entries.pop(CHECKSUM, None)
    good = sealed(entries)
    stored = json.loads(good).pop(CHECKSUM)
    assert is_intact(good, {key: value for key, value in json.loads(good).items() if key != CHECKSUM}, stored)
    at, byte = data.draw(st.integers(0, len(good) - 1)), data.draw(st.integers(0, 255))
    kind = data.draw(st.sampled_from(["change", "cut", "insert"]))
    bad = good[:at] + (b"" if kind == "cut" else bytes([byte])) + good[at + (kind != "insert") :]
    assert is_intact(bad, entries, stored) == (bad == good)


def test_folders_of_format_1_hold_the_checksum_of_their_content(tmp_path: Path) -> None:
    manifest = {"kind": "thing", "version": 1, "seconds": NUMBERS, "files": {}}
    (tmp_path / MANIFEST).write_text(json.dumps({**manifest, CHECKSUM: checksum(manifest)}, indent=1) + "\n")
    assert Folder(tmp_path, *KIND).manifest() == manifest
    for version in (1, 2):
        lie = {**manifest, "version": version, "seconds": []}
        (tmp_path / MANIFEST).write_text(json.dumps({**lie, CHECKSUM: checksum(manifest)}, indent=1) + "\n")
        with pytest.raises(ValueError, match="checksum does not match"):
            Folder(tmp_path, *KIND).manifest()


def test_a_folder_that_holds_other_things_is_refused(tmp_path: Path) -> None:
    for name in ("notes.txt", ".gitkeep", "everypair-notes.txt", "below"):
        place = tmp_path / f"with {name}"
        place.mkdir()
        (place / name).mkdir() if name == "below" else (place / name).write_text("mine")
        with pytest.raises(FileExistsError, match=f"is not the folder of a thing, and holds '{name}'. Choose a new or an empty"):
            written(place)
        assert [path.name for path in place.iterdir()] == [name]


def test_a_folder_of_ours_is_written_to(tmp_path: Path) -> None:
    """Empty, absent, with an earlier content, or with what a crash left; files that others put there since stay."""
    (tmp_path / "empty").mkdir()
    left = tmp_path / "left"
    shutil.copytree(written(tmp_path / "first"), left)
    (left / MANIFEST).unlink()
    (left / f".everypair-{MANIFEST}-0123456789abcdef.part").write_text("half")
    (left / ".everypair-arrays-abcd_fgh.part").write_text("half")
    for place in (tmp_path / "empty", tmp_path / "a" / "b", tmp_path / "first", left):
        assert Folder(written(place, 2), *KIND).open().manifest["value"] == 2
        assert len(list(place.iterdir())) == 3
        (place / "notes.txt").write_text("mine")
        written(place, 3)
        assert len(list(place.iterdir())) == 4


def test_models_and_checkpoints_keep_to_their_folders(tmp_path: Path) -> None:
    dataset = ep.datasets.youtube_like(30, 20, seed=0)
    (tmp_path / "notes.txt").write_text("mine")
    recommender = ep.Recommender(ep.MF(2, epochs=1))
    with pytest.raises(FileExistsError, match=r"is not the folder of a checkpoint, and holds 'notes\.txt'"):
        recommender.fit(dataset, lambda *_: pytest.fail("trained"), checkpoint=tmp_path)
    recommender.fit(dataset)
    with pytest.raises(
        FileExistsError, match=r"is not the folder of a recommender, and holds 'notes\.txt'.*, such as .*recommender"
    ):
        recommender.save(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_payloads_are_read_only(tmp_path: Path) -> None:
    """To write into one would end every process that has it mapped; the manifest is not mapped."""
    written(tmp_path)
    for path in tmp_path.iterdir():
        assert bool(path.stat().st_mode & 0o222) == (path.name == MANIFEST)


AS_NOBODY = """
    import mmap, os, shutil, subprocess, sys
    from pathlib import Path

    import numpy as np
    from everypair.persistence.folder import Folder

    if os.geteuid() == 0:  # nothing is forbidden to root
        os.chown(sys.argv[1], 65534, 65534)
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
    place, kind = Path(sys.argv[1]), ("thing", 2)
    for name in ("a", "b"):
        Folder(place / name, *kind).write({}, {"arrays": {"x": np.arange(6.0)}})
    mapped = Folder(place / "b", *kind).open(mapped=("arrays",)).payloads["arrays"]["x"]
    files = [str(path) for path in (place / "a").iterdir()]
    done = subprocess.run(["cp", *files, str(place / "b")], capture_output=True, text=True)
    print(done.returncode, "ermission denied" in done.stderr, mapped.tolist() == list(range(6)))
    for value in (2.0, 2.0, 3.0):  # over itself, over others
        Folder(place / "b", *kind).write({}, {"arrays": {"x": np.arange(6.0) * value}})
    shutil.copytree(place / "b", place / "c")
    Folder(place / "c", *kind).write({}, {"arrays": {"x": np.arange(6.0) * 4}})
    print(Folder(place / "c", *kind).open().payloads["arrays"]["x"][1], len(list((place / "c").iterdir())))
    for name in ("a", "b", "c"):
        shutil.rmtree(place / name)
    print(list(place.iterdir()))
"""


def test_copying_over_a_model_that_is_mapped_is_refused() -> None:
    """By the system, to everybody but root; saving over it, copies, and deletion work as they did."""
    with tempfile.TemporaryDirectory() as place:  # others may not enter that of the test
        command = [sys.executable, "-c", textwrap.dedent(AS_NOBODY), place]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == ["1 True True", "4.0 2", "[]"], done.stderr


@pytest.mark.parametrize("mask", [0o022, 0o027, 0o077, 0o002])
def test_the_umask_decides_who_may_read(mask: int, tmp_path: Path) -> None:
    before = os.umask(mask)
    try:
        written(tmp_path / "folder")
    finally:
        os.umask(before)
    for path in (tmp_path / "folder").iterdir():
        expected = (0o666 if path.name == MANIFEST else 0o444) & ~mask
        assert stat.S_IMODE(path.stat().st_mode) == expected


def test_damage_of_a_payload_is_found(tmp_path: Path) -> None:
    written(tmp_path)
    for name, good in content(tmp_path).items():
        for bad in flips(good)[::7] if name != MANIFEST else []:
            overwritten(tmp_path / name, bad)
            with pytest.raises(ValueError, match=f"{name} is damaged"):
                Folder(tmp_path, *KIND).open()
        overwritten(tmp_path / name, good)
    Folder(tmp_path, *KIND).open()
