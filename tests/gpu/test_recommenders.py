"""Recommenders whose model was fitted on a GPU: lists, copies, folders on other machines, the service, the search, commands."""

from __future__ import annotations

import copy
import json
import pickle
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commands import done, run

import everypair as ep
from everypair.gpu import device, topn
from everypair.gpu.device import DeviceError
from everypair.ranking import rank as ranking

from shim_backend import REAL

DATA = ep.datasets.youtube_like(60, 30, seed=0, events_per_user=6.0)
SPLIT = ep.evaluation.LeaveLast().split(DATA)
MISSING = "CuPy is not installed: pip install everypair"


@pytest.fixture(autouse=True)
def always(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Even the smallest lists come from the GPU; the numbers of rows that it searched."""
    searched: list[int] = []
    lists = topn.GpuTopN.lists

    def counted(self: Any, phi: np.ndarray, *args: Any) -> Any:
        searched.append(len(phi))
        return lists(self, phi, *args)

    monkeypatch.setattr(ranking, "pays", lambda n_rows, n_items, n: n <= topn.MOST)
    monkeypatch.setattr(topn.GpuTopN, "lists", counted)
    return searched


@pytest.fixture(scope="module")
def on_gpu() -> ep.Recommender:
    return ep.Recommender(ep.MF(4, epochs=2, device="cuda")).fit(SPLIT.train)


def lists_of_all(recommender: ep.Recommender) -> Any:
    with TemporaryDirectory() as folder:
        recommender.recommend_all(Path(folder) / "lists.parquet", n=3)
        return pq.read_table(Path(folder) / "lists.parquet")


def test_lists_neighbours_and_figures_are_those_of_the_cpu(on_gpu: ep.Recommender, always: list[int]) -> None:
    calls: dict[str, Any] = {
        "recommend": lambda recommender: recommender.recommend(users=list(DATA.users)[:7], n=4),
        "all": lists_of_all,
        "similar": lambda recommender: recommender.similar_items(list(DATA.items)[:9], n=3),
        "users": lambda recommender: recommender.similar_users(list(DATA.users)[:9], n=3),
        "evaluate": lambda recommender: pa.table({"ndcg": [ep.evaluation.evaluate(recommender, SPLIT.test)["ndcg@10"]]}),
    }
    for name, call in calls.items():
        always.clear()
        with device.ranked_on_cpu():
            expected = call(on_gpu)
        assert not always, name
        found = call(on_gpu)
        assert always, name
        assert found.equals(expected), name


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))])
def test_copies_leave_what_is_on_the_gpu(copied: Any, on_gpu: ep.Recommender, always: list[int]) -> None:
    before = lists_of_all(on_gpu)
    again = copied(on_gpu)
    items = again.state.adapter.item_vectors
    assert copied is copy.copy or "_table" not in vars(items)
    always.clear()
    assert lists_of_all(again).equals(before)
    assert always


@pytest.mark.skipif(REAL, reason="takes the GPU away")
def test_a_folder_opens_without_a_gpu(
    on_gpu: ep.Recommender, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, always: list[int]
) -> None:
    before, folder = lists_of_all(on_gpu), on_gpu.save(tmp_path / "model")
    monkeypatch.setattr(device, "problem", lambda number: MISSING)
    again = ep.load(folder, verify=True)
    assert again.model.device == "cuda"
    assert again.model.device_ is None
    always.clear()
    assert lists_of_all(again).equals(before)
    assert not always
    with pytest.raises(DeviceError, match=f"device='cuda' cannot be used: {MISSING}"):
        again.fit(DATA)
    assert lists_of_all(again).equals(before), "a refused fit changes nothing"
    again.model.set_params(device="cpu")
    assert again.fit(DATA).model.device_ == "cpu"


def test_the_service_ranks_on_the_cpu(
    on_gpu: ep.Recommender, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, always: list[int]
) -> None:
    pytest.importorskip("starlette")
    from everypair.service.served_model import ServedModel

    monkeypatch.setenv("EVERYPAIR_DEVICE", "cuda")
    users, items = list(DATA.users)[:9], list(DATA.items)[:9]
    expected = on_gpu.recommend(users=users, n=3)
    always.clear()
    monkeypatch.setattr(device, "cuda", None)  # nothing asks for one
    for served in (ServedModel(copy.deepcopy(on_gpu)), ServedModel.open(on_gpu.save(tmp_path / "model"))):
        lists = served.recommend_batch(users=users, n=3)["lists"]
        assert [entry["item"] for one in lists for entry in one] == expected["item"].to_pylist()
        served.similar_batch(items, n=2)
        served.recommend(request={"history": items[:2]}, n=2)
    assert not always


def test_all_trials_of_a_search_run_on_the_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("optuna")
    used: list[str | None] = []
    fit = ep.MF.fit

    def watched(self: ep.MF, *args: Any, **options: Any) -> ep.MF:
        used.append(self.device)
        return fit(self, *args, **options)

    monkeypatch.setattr(ep.MF, "fit", watched)
    template = ep.Recommender(ep.MF(2, epochs=2))
    options: dict[str, Any] = {"space": {"unobserved_weight": (0.01, 0.1)}, "study": tmp_path / "study.db"}
    tuning = ep.tune(template, DATA, ep.evaluation.LeaveLast(), trials=2, device="cuda", **options)
    assert used == ["cuda", "cuda"]
    assert tuning.recommender.model.device == "cuda"
    assert template.model.device is None
    ep.tune(template, DATA, ep.evaluation.LeaveLast(), trials=3, **options)
    assert used == ["cuda", "cuda", None], "a study goes on on another device"
    with pytest.raises(ValueError, match="device must be 'cpu'"):
        ep.tune(template, DATA, ep.evaluation.LeaveLast(), trials=3, device="gpu", **options)


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shop")
    done("example", folder, "--users", "40", "--items", "20")
    return folder


def test_commands_take_the_device(shop: Path, always: list[int]) -> None:
    data = (shop / "plays.csv", "--timestamp", "time", "--model", "mf", "--factors", "2", "--epochs", "2")
    done("fit", *data, "--device", "cuda", "--out", shop / "model")
    assert json.loads(done("inspect", shop / "model", "--json").stdout)["configuration"]["model"]["arguments"]["device"] == "cuda"
    assert "device='cuda'" in done("inspect", shop / "model").stdout
    (shop / "settings.toml").write_text(done("inspect", shop / "model", "--toml").stdout)
    assert 'device = "cuda"' in (shop / "settings.toml").read_text()
    always.clear()
    done("evaluate", shop / "plays.csv", "--config", shop / "settings.toml")
    assert always


def test_commands_say_what_cannot_run_on_a_gpu(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = (shop / "plays.csv", "--timestamp", "time", "--out", shop / "refused")
    said = [
        (("--model", "mf", "--device", "gpu"), "--device must be 'cpu', 'auto', 'cuda' or 'cuda:1' (any number), got 'gpu'."),
        (
            ("--model", "mf", "--device", "cuda", "--dtype", "float64"),
            "--device cuda cannot be used: GPUs compute in float32, and --dtype is float64. On the CPU: --device cpu.",
        ),
        (("--model", "popularity", "--device", "cuda"), "popularity has no option --device"),
    ]
    for options, words in said:
        result = run("fit", *data, *options)
        assert result.exit_code != 0
        assert words in result.stderr
        assert "unexpected" not in result.stderr
    if not REAL:
        monkeypatch.setattr(device, "problem", lambda number: MISSING)
        assert f"--device cuda cannot be used: {MISSING}" in run("fit", *data, "--model", "mf", "--device", "cuda").stderr


def test_the_help_explains_the_device() -> None:
    text = " ".join(done("fit", "--help").stdout.split())
    assert "--device" in text
    assert "EVERYPAIR_DEVICE" in text
