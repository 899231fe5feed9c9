"""A fit that goes on where it was ended comes to the same bits as one that nothing disturbed."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.sparse.linalg import LinearOperator

import everypair as ep
from everypair.columns.history_field import HistoryField, Window
from everypair.engine.cpu import CpuEngine
from everypair.models.tower_model import TowerModel
from everypair.persistence.folder import Folder
from everypair.persistence.manifest import MANIFEST
from everypair.towers import Embedding, Product, Sum

from bumps import Bumps
from problems import MODELS, make
from stored_files import overwritten

Fit = Callable[..., TowerModel]
EPOCHS = 4
FEEDBACK = ep.Feedback([0, 0, 1, 2, 3], [0, 1, 1, 2, 0])


class EndedError(Exception):
    """What ends a fit."""


def ending_at(epoch: int) -> Callable[[TowerModel, ep.Epoch], None]:
    def callback(model: TowerModel, record: ep.Epoch) -> None:
        if record.epoch == epoch:
            raise EndedError

    return callback


def bits(model: TowerModel) -> tuple[Any, ...]:
    """All of a model but the seconds."""
    parameters = {name: (value.dtype.name, value.shape, value.tobytes()) for name, value in model.parameters_.items()}
    return parameters, [record[:5] for record in model.history_], model.stop_reason_


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def ended_and_resumed(fit: Fit, folder: Path, at: int, every: int = 1) -> TowerModel:
    with pytest.raises(EndedError):
        fit(checkpoint=folder, every=every, callback=ending_at(at))
    return fit(checkpoint=folder, every=every)


def history_field(n: int, n_items: int) -> HistoryField:
    """What each of n users saw before: a sequence of three each."""
    items = np.random.default_rng(1).integers(0, n_items, 3 * n)
    bounds = np.arange(0, 3 * n + 1, 3)
    return HistoryField(items, bounds, bounds[:-1], bounds[:-1] + np.arange(n) % 4, n_items, Window(2, 0.8, "sqrt"))


def cases() -> dict[str, Fit]:
    """Fits of every model, and of what only some can do."""
    found: dict[str, Fit] = {}
    for name in MODELS:
        for seed, dtype in enumerate(("float32", "float64")):
            problem = make(name, seed, n_contexts=12, n_items=9)
            found[f"{name}, {dtype}"] = lambda p=problem, d=dtype, **passed: _fit(p.make(epochs=EPOCHS, dtype=d), p, **passed)
    for name in ("MF", "FM"):
        problem = make(name, n_contexts=12, n_items=9)
        options = {"epochs": EPOCHS, "order": "dimension"}
        found[f"{name} by dimension"] = lambda p=problem, o=options, **passed: _fit(p.make(**o), p, **passed)
    random = np.random.default_rng(2)
    n, items = 30, 20
    cells = np.unique(random.integers(0, n * items, 200))
    feedback = ep.Feedback(cells // items, cells % items, random.normal(1.0, 0.3, len(cells)), shape=(n, items))
    contexts = {"user": np.arange(n), "history": history_field(n, items), "text": random.normal(size=(n, 3))}
    found["FM with histories"] = lambda **passed: ep.FM(4, epochs=EPOCHS).fit(feedback, contexts, **passed)
    operator = LinearOperator((n, 2), lambda v: contexts["text"][:, :2] @ v, lambda z: contexts["text"][:, :2].T @ z)
    found["MFSI with an operator"] = lambda **passed: ep.MFSI(4, epochs=EPOCHS, regularization_exponent=0.0).fit(
        feedback, {"x": operator}, **passed
    )
    columns = {"user": random.integers(0, 5, n), "time": random.random(n), "kind": random.integers(-1, 4, n)}
    towers = {"context": Product(Sum(Bumps(3), Embedding(3, "user")), Embedding(3, "kind")), "item": Embedding(3)}
    found["towers with bumps"] = lambda **passed: ep.Separable(**towers, epochs=EPOCHS).fit(feedback, columns, **passed)
    start, fixed = {"W": random.normal(size=(n, 3))}, {"H": random.normal(size=(items, 3))}
    found["held"] = lambda **passed: ep.MF(3, epochs=EPOCHS).fit(feedback, start=start, fixed=fixed, **passed)
    return found


def _fit(model: TowerModel, problem: Any, **passed: Any) -> TowerModel:
    return model.fit(problem.feedback, **problem.arguments, **passed)


CASES = cases()


@pytest.mark.parametrize("name", CASES)
def test_ended_at_any_epoch(name: str, tmp_path: Path) -> None:
    undisturbed = bits(CASES[name]())
    for at in range(1, EPOCHS + 1):
        assert bits(ended_and_resumed(CASES[name], tmp_path / str(at), at)) == undisturbed, at


@pytest.mark.full
@given(ends=st.lists(st.integers(1, 9), max_size=4), every=st.integers(1, 4), threads=st.tuples(*[st.integers(1, 2)] * 5))
@settings(max_examples=10)
def test_ended_again_and_again(ends: list[int], every: int, threads: tuple[int, ...], tmp_path_factory: Any) -> None:
    """However often, whatever ``every``, on any number of threads."""
    folder = tmp_path_factory.mktemp("checkpoint")
    random = np.random.default_rng(3)
    cells = np.unique(random.integers(0, 3000 * 40, 24_000))  # enough for several threads
    feedback = ep.Feedback(cells // 40, cells % 40, shape=(3000, 40))

    def fit(n_threads: int, **passed: Any) -> TowerModel:
        return ep.MF(4, epochs=9, n_threads=n_threads).fit(feedback, **passed)

    for end, n_threads in zip(ends, threads, strict=False):
        with contextlib.suppress(EndedError):
            fit(n_threads, checkpoint=folder, every=every, callback=ending_at(end))
    assert bits(fit(threads[-1], checkpoint=folder, every=every)) == bits(fit(1))


def test_start_values_are_not_drawn_again(tmp_path: Path) -> None:
    def fit(**passed: Any) -> TowerModel:
        return ep.MF(2, epochs=EPOCHS, random_state=None).fit(FEEDBACK, **passed)

    whole: list[Any] = []
    with pytest.raises(EndedError):
        fit(checkpoint=tmp_path, every=2, callback=ending_at(3))
    epoch_2 = content(tmp_path)
    whole.append(bits(fit(checkpoint=tmp_path)))
    for path in tmp_path.iterdir():
        path.unlink()
    for name, written in epoch_2.items():
        (tmp_path / name).write_bytes(written)
    whole.append(bits(fit(checkpoint=tmp_path)))
    assert whole[0] == whole[1]


def test_a_fit_that_had_ended_is_not_run_again(tmp_path: Path) -> None:
    first = ep.MF(2, epochs=3).fit(FEEDBACK, checkpoint=tmp_path)
    calls: list[int] = []
    again = ep.MF(2, epochs=3).fit(FEEDBACK, checkpoint=tmp_path, callback=lambda model, epoch: calls.append(epoch.epoch))
    assert bits(again) == bits(first)
    assert again.history_ == first.history_, "seconds, too"
    assert calls == []


def test_more_epochs_continue_the_run(tmp_path: Path) -> None:
    ep.MF(2, epochs=3).fit(FEEDBACK, checkpoint=tmp_path)
    more = ep.MF(2, epochs=7).fit(FEEDBACK, checkpoint=tmp_path)
    assert bits(more) == bits(ep.MF(2, epochs=7).fit(FEEDBACK))
    with pytest.raises(ValueError, match="is of epoch 7, and epochs is 3: set epochs to 7 or more"):
        ep.MF(2, epochs=3).fit(FEEDBACK, checkpoint=tmp_path)


def test_a_fit_stopped_by_tol_goes_on_with_a_smaller_one(tmp_path: Path) -> None:
    stopped = ep.MF(2, epochs=50, tol=0.1).fit(FEEDBACK, checkpoint=tmp_path)
    assert stopped.stop_reason_ == "tol"
    assert bits(ep.MF(2, epochs=50, tol=0.1).fit(FEEDBACK, checkpoint=tmp_path)) == bits(stopped)
    further = ep.MF(2, epochs=50, tol=0.01).fit(FEEDBACK, checkpoint=tmp_path)
    assert bits(further) == bits(ep.MF(2, epochs=50, tol=0.01).fit(FEEDBACK))
    assert len(further.history_) > len(stopped.history_)


def test_the_folder_is_written_when_due(tmp_path: Path) -> None:
    def written(model: TowerModel, epoch: ep.Epoch) -> None:
        path = tmp_path / "a" / "b" / MANIFEST
        found.append(len(json.loads(path.read_text())["history"]) if path.exists() else 0)

    found: list[int] = []
    ep.MF(2, epochs=8).fit(FEEDBACK, checkpoint=tmp_path / "a" / "b", every=3, callback=written)
    written(ep.MF(2), ep.Epoch(0, 0, 0, 0, 0, 0))
    assert found == [0, 0, 0, 3, 3, 3, 6, 6, 8]
    assert len(list((tmp_path / "a" / "b").iterdir())) == 2


class Patient:
    """Stops when the objective has not fallen by a tenth for two epochs: it remembers the best one."""

    def __init__(self, end: int | None = None) -> None:
        self.best, self.waited, self.end, self.resumed = float("inf"), 0, end, []

    def __call__(self, model: TowerModel, epoch: ep.Epoch) -> bool:
        better = epoch.objective < 0.9 * self.best
        self.best, self.waited = (epoch.objective, 0) if better else (self.best, self.waited + 1)
        if epoch.epoch == self.end:
            raise EndedError
        return self.waited == 2

    def state(self) -> dict[str, Any]:
        return {"best": self.best, "waited": self.waited}

    def resume(self, model: TowerModel, state: dict[str, Any], arrays: dict[str, Any]) -> None:
        self.best, self.waited = state["best"], state["waited"]
        self.resumed.append(len(model.history_))


def test_a_callback_that_remembers(tmp_path: Path) -> None:
    """It is given back what it knew when the checkpoint was written: an epoch it failed in is told to it again."""
    undisturbed = ep.MF(2, epochs=50).fit(FEEDBACK, callback=Patient())
    assert undisturbed.stop_reason_ == "callback"
    n = len(undisturbed.history_)
    for end in range(1, n + 1):
        folder = tmp_path / str(end)
        with pytest.raises(EndedError):
            ep.MF(2, epochs=50).fit(FEEDBACK, checkpoint=folder, callback=Patient(end))
        patient = Patient()
        assert bits(ep.MF(2, epochs=50).fit(FEEDBACK, checkpoint=folder, callback=patient)) == bits(undisturbed)
        assert patient.resumed == ([end - 1] if end > 1 else [])
        patient = Patient()
        ended = ep.MF(2, epochs=50).fit(FEEDBACK, checkpoint=folder, callback=patient)
        assert bits(ended) == bits(undisturbed)
        assert patient.resumed == [n]
        assert patient.waited == 2


def test_what_a_callback_knows_must_fit_into_json(tmp_path: Path) -> None:
    patient = Patient()
    patient.state = lambda: {"best": np.zeros(2)}  # type: ignore[method-assign]
    model = ep.MF(2)
    with pytest.raises(TypeError, match=r"callback.state\(\) must return JSON data, got .*ndarray"):
        model.fit(FEEDBACK, checkpoint=tmp_path, callback=patient)
    assert model.stop_reason_ == "error"


@pytest.mark.parametrize("every", [1, 3])
def test_ctrl_c_leaves_a_checkpoint_of_complete_epochs(every: int, tmp_path: Path) -> None:
    def press(model: TowerModel, epoch: ep.Epoch) -> None:
        if epoch.epoch == 4:
            os.kill(os.getpid(), signal.SIGINT)

    interrupted = ep.MF(2, epochs=9).fit(FEEDBACK, checkpoint=tmp_path, every=every, callback=press)
    assert interrupted.stop_reason_ == "interrupt"
    assert len(json.loads((tmp_path / MANIFEST).read_text())["history"]) == 4
    assert bits(ep.MF(2, epochs=9).fit(FEEDBACK, checkpoint=tmp_path)) == bits(ep.MF(2, epochs=9).fit(FEEDBACK))


def test_an_epoch_cut_short_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sweep, sweeps = CpuEngine.sweep, []

    def press(self: CpuEngine, side: str) -> None:
        sweeps.append(side)
        if len(sweeps) == 5:  # the contexts' in the third epoch
            os.kill(os.getpid(), signal.SIGINT)
        sweep(self, side)

    monkeypatch.setattr(CpuEngine, "sweep", press)
    interrupted = ep.MF(2, epochs=9).fit(FEEDBACK, checkpoint=tmp_path)
    monkeypatch.undo()
    assert sweeps == ["context", "item", "context", "item", "context"]
    assert len(interrupted.history_) == 3
    assert len(json.loads((tmp_path / MANIFEST).read_text())["history"]) == 2
    assert bits(ep.MF(2, epochs=9).fit(FEEDBACK, checkpoint=tmp_path)) == bits(ep.MF(2, epochs=9).fit(FEEDBACK))


# what is refused

COLUMNS = {"user": np.arange(4), "country": sp.csr_array(np.eye(2)[[0, 1, 0, 1]]), "text": np.random.default_rng(0).random((4, 2))}
OPERATOR = LinearOperator((4, 2), lambda v: np.ones((4, 2)) @ v, lambda z: np.ones((2, 4)) @ z)
OTHER_OPERATOR = LinearOperator((4, 2), lambda v: np.eye(4, 2) @ v, lambda z: np.eye(2, 4) @ z)
HISTORY = {"history": history_field(4, 3)}
OTHER_HISTORY = {
    "history": HistoryField(*[np.array(x) for x in ([0, 1], [0, 2], [0] * 4, [0, 1, 2, 2])], 3, Window(0, 1.0, "mean"))
}
START, NAMED = {"W": np.ones((8, 2))}, {"user": ep.Levels([0, 1, 0, 1], columns={"age": [0.1, 0.2]})}
OTHER_NAMED = {"user": ep.Levels([0, 1, 0, 1], columns={"age": [0.1, 0.3]})}


def mfsi(contexts: Any = COLUMNS, options: dict[str, Any] | None = None, feedback: Any = FEEDBACK, **passed: Any) -> TowerModel:
    return ep.MFSI(2, **{"epochs": 2, "unobserved_weight": 0.01, "regularization_exponent": 0.0, **(options or {})}).fit(
        feedback, contexts, **passed
    )


REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "setting": ({}, {"options": {"unobserved_weight": 0.1}}, "unobserved_weight was 0.01, is 0.1[.]"),
    "settings": ({}, {"options": {"step_size": 0.5, "random_state": 3}}, "step_size was 1.0, is 0.5; random_state was 0, is 3[.]"),
    "dict": (
        {"options": {"regularization": {"default": 0.1, "W": 0.2}}},
        {"options": {"regularization": {"W": 0.3, "default": 0.1}}},
        r"regularization was {'W': 0.2, 'default': 0.1}, is {'W': 0.3, 'default': 0.1}[.]",
    ),
    "pairs": (
        {},
        {"feedback": ep.Feedback([0, 0, 1, 2, 3], [0, 1, 2, 2, 0])},
        "the list of pairs of feedback differs from that of",
    ),
    "y": (
        {},
        {"feedback": ep.Feedback([0, 0, 1, 2, 3], [0, 1, 1, 2, 0], 2.0)},
        "y of feedback differs from that of the checkpoint[.]",
    ),
    "weights": (
        {},
        {"feedback": ep.Feedback([0, 0, 1, 2, 3], [0, 1, 1, 2, 0], item_weight=[1, 2, 1])},
        "item_weight of feedback differs from that of the checkpoint[.]",
    ),
    "column": (
        {},
        {"contexts": {**COLUMNS, "country": sp.csr_array(np.eye(2)[[0, 1, 1, 1]])}},
        "the column 'country' of contexts differs from that of the checkpoint[.]",
    ),
    "numbers": ({}, {"contexts": {**COLUMNS, "text": np.ones((4, 2))}}, "the column 'text' of contexts differs from that of the"),
    "levels": ({}, {"contexts": {**COLUMNS, "user": ep.Levels(range(4), 5)}}, "the column 'user' of contexts differs from that of"),
    "order": (
        {"contexts": {"a": [0, 1, 0, 1], "b": [1, 0, 0, 0]}},
        {"contexts": {"b": [1, 0, 0, 0], "a": [0, 1, 0, 1]}},
        r"the list of columns of contexts was \['a', 'b'\], is \['b', 'a'\][.]",
    ),
    "fewer": ({}, {"contexts": {"user": np.arange(4)}}, r"the list of columns of contexts was \[.*\], is \['user'\][.]"),
    "operator": (
        {"contexts": {"x": OPERATOR}},
        {"contexts": {"x": OTHER_OPERATOR}},
        "the column 'x' of contexts differs",
    ),
    "history": ({"contexts": HISTORY}, {"contexts": OTHER_HISTORY}, "the column 'history' of contexts differs from that of"),
    "described": ({"contexts": NAMED}, {"contexts": OTHER_NAMED}, "the column 'user' of contexts differs from that of the"),
    "start": ({"start": START}, {"start": {"W": np.zeros((8, 2))}}, r"start\['W'\] differs from that of the checkpoint[.]"),
    "held": ({}, {"fixed": START}, r"the list of parameters in fixed was \[\], is \['W'\][.]"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_another_fit_is_refused_and_told_why(name: str, tmp_path: Path) -> None:
    first, second, message = REFUSED[name]
    mfsi(**first, checkpoint=tmp_path)
    before = content(tmp_path)
    with pytest.raises(ValueError, match=f"is of another fit: {message}") as caught:
        mfsi(**second, checkpoint=tmp_path)
    assert "delete this one" in str(caught.value)
    assert ";" not in str(caught.value) or ";" in message, "nothing else is other"
    assert content(tmp_path) == before
    mfsi(**first, checkpoint=tmp_path)


def test_another_model_or_tower_is_refused(tmp_path: Path) -> None:
    ep.MF(2, epochs=2).fit(FEEDBACK, checkpoint=tmp_path / "a")
    with pytest.raises(ValueError, match=r"the model was MF, is MFSI[.]"):
        ep.MFSI(2, epochs=2).fit(FEEDBACK, checkpoint=tmp_path / "a")
    ep.Separable(context=Embedding(2), item=Embedding(2)).fit(FEEDBACK, checkpoint=tmp_path / "b")
    with pytest.raises(ValueError, match=r"context was Embedding\(2\), is Embedding\(2, name='P'\)[.]"):
        ep.Separable(context=Embedding(2, name="P"), item=Embedding(2)).fit(FEEDBACK, checkpoint=tmp_path / "b")


def test_the_same_settings_in_other_types_are_the_same(tmp_path: Path) -> None:
    ep.MF(2, epochs=2, regularization=0.5, dtype="float64").fit(FEEDBACK, checkpoint=tmp_path)
    ep.MF(np.int64(2), epochs=2, regularization=np.float64(0.5), dtype=np.float64).fit(FEEDBACK, checkpoint=str(tmp_path))  # type: ignore[arg-type]


class Scaled(Embedding):
    """A tower with a function and an array among its arguments."""

    def __init__(self, factors: int, function: Any) -> None:
        super().__init__(factors)
        self.function = function


def test_addresses_of_functions_are_no_settings(tmp_path: Path) -> None:
    def fit() -> None:
        def function() -> None: ...

        ep.Separable(context=Scaled(2, function), item=Embedding(2)).fit(FEEDBACK, checkpoint=tmp_path)

    fit()
    fit()


# what is damaged


def damaged(folder: Path, name: str, change: Callable[[bytes], bytes]) -> None:
    overwritten(folder / name, change((folder / name).read_bytes()))


@pytest.fixture
def finished(tmp_path: Path) -> Path:
    ep.MF(2, epochs=2).fit(FEEDBACK, checkpoint=tmp_path)
    return tmp_path


def parameters_file(folder: Path) -> str:
    (found,) = (path.name for path in folder.iterdir() if path.name != MANIFEST)
    return found


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_flipped_byte_goes_unnoticed(finished: Path, data: st.DataObject) -> None:
    good = content(finished)
    name = data.draw(st.sampled_from(sorted(good)))
    at, flip = data.draw(st.integers(0, len(good[name]) - 1)), data.draw(st.integers(1, 255))
    damaged(finished, name, lambda text: text[:at] + bytes([text[at] ^ flip]) + text[at + 1 :])
    with pytest.raises(ValueError, match=str(finished / name)):
        ep.MF(2, epochs=2).fit(FEEDBACK, checkpoint=finished)
    damaged(finished, name, lambda text: good[name])
    assert content(finished) == good


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: text[:-1], "damaged: it has .* bytes, and the manifest says"),
        (lambda text: b"", "damaged: it has 0 bytes"),
        (lambda text: text[:-1] + bytes([text[-1] ^ 1]), "damaged: its checksum does not match the manifest"),
    ],
)
def test_damaged_parameters(finished: Path, change: Any, message: str) -> None:
    name = parameters_file(finished)
    damaged(finished, name, change)
    model = ep.MF(2, epochs=2)
    with pytest.raises(ValueError, match=f"{name} is {message}.*delete"):
        model.fit(FEEDBACK, checkpoint=finished)
    assert not hasattr(model, "history_")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: text[: len(text) // 2], "is not JSON"),
        (lambda text: b"\xff\x00", "is not JSON"),
        (lambda text: b"[]", "is not the manifest of a checkpoint"),
        (lambda text: b'{"name": "site"}', "is not the manifest of a checkpoint"),
        (
            lambda text: text.replace(b'"kind": "checkpoint"', b'"kind": "picture"'),
            "is not the manifest of a checkpoint, but of a pic",
        ),
        (
            lambda text: text.replace(b'"version": 2', b'"version": 3'),
            "has format 3, and this version of everypair reads formats up to 2",
        ),
        (lambda text: text.replace(b'"factors": 2', b'"factors": 3'), "is damaged: its checksum does not match its content"),
    ],
)
def test_damaged_or_foreign_manifests(finished: Path, change: Any, message: str) -> None:
    damaged(finished, MANIFEST, change)
    with pytest.raises(ValueError, match=f"{MANIFEST} {message}"):
        ep.MF(2, epochs=2).fit(FEEDBACK, checkpoint=finished)


def test_missing_parameters(finished: Path) -> None:
    (finished / parameters_file(finished)).unlink()
    with pytest.raises(ValueError, match="is missing, and the manifest names it"):
        ep.MF(2, epochs=2).fit(FEEDBACK, checkpoint=finished)


def test_bytes_and_arrays_in_one_folder(tmp_path: Path) -> None:
    """What models are saved with: several payloads, and a second manifest in place of the first."""
    folder = Folder(tmp_path / "new", "model", 3)
    assert not folder.exists
    for value in (1, 2):
        arrays = {"x": np.asfortranarray(np.arange(6.0).reshape(2, 3)) * value, "number": np.array(value)}
        folder.write({"value": value, "keys": {1: "a", 10: "b", 9: "c"}}, {"text": b"text", "arrays": arrays})
        found = folder.open()
        assert found.manifest["value"] == value
        assert found.payloads["text"] == b"text"
        for name, array in arrays.items():
            np.testing.assert_array_equal(found.payloads["arrays"][name], array)
    assert len(list((tmp_path / "new").iterdir())) == 3
    entry = found.manifest["files"]["text"]
    assert entry == {"file": f"everypair-text-{entry['sha256']}.bin", "bytes": 4, "sha256": hashlib.sha256(b"text").hexdigest()}


def test_files_of_others_are_left_alone(finished: Path) -> None:
    left = [finished / f".everypair-{MANIFEST}-abcdefgh.part", finished / f"everypair-parameters-{'0' * 64}.safetensors"]
    others = [finished / "notes.txt", finished / f"parameters-{'0' * 64}.safetensors", finished / f".{MANIFEST}.x.part"]
    for path in [*left, *others]:
        path.write_text("?")
    ep.MF(2, epochs=3).fit(FEEDBACK, checkpoint=finished)
    assert [path.exists() for path in [*left, *others]] == [False, False, True, True, True]


# what cannot be written


def test_a_file_in_place_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    model = ep.MF(2)
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(OSError, match=r"file is a file, and a folder is needed|cannot be written: Not a directory"):
            model.fit(FEEDBACK, checkpoint=place, callback=lambda *_: pytest.fail("trained"))
    assert not hasattr(model, "history_")


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is forbidden to root")
def test_an_unwritable_folder(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(OSError, match="cannot be written: Permission denied"):
        ep.MF(2).fit(FEEDBACK, checkpoint=tmp_path, callback=lambda *_: pytest.fail("trained"))


def test_arguments() -> None:
    with pytest.raises(TypeError, match="checkpoint must be the path of a folder, got 3 of type int"):
        ep.MF(2).fit(FEEDBACK, checkpoint=3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="every must be"):
        ep.MF(2).fit(FEEDBACK, every=0)


@pytest.mark.parametrize(
    ("call", "nth"), [("fchmod", 1), *product(["replace"], [1, 2]), *product(["fsync"], [1, 2, 3]), *product(["open"], [2, 3, 4])]
)
def test_a_full_disk(call: str, nth: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever fails, of parameters or of the manifest: the old checkpoint is whole, and the model can be used."""
    undisturbed = bits(ep.MF(2, epochs=5).fit(FEEDBACK))
    ep.MF(2, epochs=2).fit(FEEDBACK, checkpoint=tmp_path)
    before, genuine, calls = content(tmp_path), getattr(os, call), []

    def full(*args: Any, **kwargs: Any) -> Any:
        if call == "open" and Path(args[0]) != tmp_path:  # the folder's, to write its names to disk
            return genuine(*args, **kwargs)
        calls.append(args)
        if len(calls) == nth:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return genuine(*args, **kwargs)

    def fill(model: TowerModel, epoch: ep.Epoch) -> None:
        monkeypatch.setattr(os, call, full)

    model = ep.MF(2, epochs=5)
    with pytest.raises(OSError, match=rf"{tmp_path}.* cannot be written: No space left on device\. Choose another path"):
        model.fit(FEEDBACK, checkpoint=tmp_path, callback=fill)
    monkeypatch.undo()
    assert model.stop_reason_ == "error"
    assert len(model.history_) == 3
    assert np.all(np.isfinite(model.predict([0, 1], [1, 0])))
    if (call, nth) != ("open", 4):  # by then, the new one is there
        assert content(tmp_path) == before
    assert bits(ep.MF(2, epochs=5).fit(FEEDBACK, checkpoint=tmp_path)) == undisturbed


KILLED = """
    import hashlib, json, os, random, signal, sys, time
    import everypair as ep
    import numpy as np

    cells = np.unique(np.random.default_rng(0).integers(0, 60 * 40, 600))
    feedback = ep.Feedback(cells // 40, cells % 40, shape=(60, 40))
    LIVES, EPOCHS_OF_A_LIFE = 20, 8

    def fit(**passed):
        model = ep.MF(8, epochs=LIVES * EPOCHS_OF_A_LIFE + 100, n_threads=1).fit(feedback, **passed)
        digest = hashlib.sha256(np.array([epoch[:5] for epoch in model.history_]).tobytes())
        for value in model.parameters_.values():
            digest.update(value.tobytes())
        return digest.hexdigest()

    def life(epochs):
        "A process that fits, and is killed at some moment after so many epochs of its own: how it ended."
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            done = []

            def callback(model, epoch):
                done.append(epoch)
                os.write(writing, b".")
                if len(done) == EPOCHS_OF_A_LIFE:  # however late the kill comes: the fit never ends
                    signal.pause()

            fit(checkpoint=sys.argv[1], callback=callback)
            os._exit(0)
        os.close(writing)
        for _ in range(epochs):
            os.read(reading, 1)
        time.sleep(chance.uniform(0.0, 0.005))  # an epoch and its checkpoint take about as long: any part of it is hit
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        os.close(reading)
        return os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL

    expected = fit()
    chance = random.Random(int(sys.argv[2]))
    epochs = [chance.randint(1, EPOCHS_OF_A_LIFE) for _ in range(LIVES)]
    killed = sum(life(each) for each in epochs)
    with open(f"{sys.argv[1]}/manifest.json") as file:
        done = len(json.load(file)["history"])
    print(killed, sum(epochs) - LIVES <= done <= LIVES * EPOCHS_OF_A_LIFE, fit(checkpoint=sys.argv[1], every=1000) == expected)
"""


@pytest.mark.full
def test_killed_at_twenty_moments(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(KILLED), str(tmp_path / "checkpoint"), "5"],
        capture_output=True,
        text=True,
        check=True,
        timeout=600,
    )
    assert done.stdout.split() == ["20", "True", "True"]
    assert len(list((tmp_path / "checkpoint").iterdir())) == 2
