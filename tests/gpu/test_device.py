"""What ``device=`` says, and what is refused before anything starts."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest

import everypair as ep
from everypair.gpu import device
from everypair.gpu.backend import Backend
from everypair.gpu.device import DeviceError

from shim_backend import REAL, Shim

FEEDBACK = ep.Feedback([0, 0, 1, 2], [0, 1, 1, 2])


def test_the_cpu_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ep.MF(2, epochs=1).fit(FEEDBACK).device_ == "cpu"
    monkeypatch.setenv("EVERYPAIR_DEVICE", "cuda")
    assert ep.MF(2, epochs=1).fit(FEEDBACK).device_ == "cuda:0"
    assert ep.MF(2, epochs=1, device="cpu").fit(FEEDBACK).device_ == "cpu"


def test_names_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"device must be 'cpu', 'auto', 'cuda' or 'cuda:1' \(any number\), got 'gpu'"):
        ep.MF(2, device="gpu").fit(FEEDBACK)
    with pytest.raises(TypeError, match="device must be a string or None, got 1 of type int"):
        ep.MF(2, device=1).fit(FEEDBACK)  # type: ignore[arg-type]
    monkeypatch.setenv("EVERYPAIR_DEVICE", "tpu")
    with pytest.raises(ValueError, match=r"the environment variable EVERYPAIR_DEVICE must be .* got 'tpu'"):
        ep.MF(2).fit(FEEDBACK)


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"dtype": "float64"}, "GPUs compute in float32, and dtype is float64"),
    ({"order": "dimension"}, "order='dimension' runs on the CPU only"),
    ({"block_size": 2}, "block_size=2 runs on the CPU only"),
]


@pytest.mark.parametrize(("options", "reason"), REFUSED, ids=lambda value: str(value)[:20])
def test_what_a_gpu_cannot_do_is_refused_with_the_reason(
    options: dict[str, Any], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(DeviceError, match=f"device='cuda' cannot be used: {reason}. On the CPU: device='cpu'"):
        ep.MF(2, epochs=1, device="cuda", **options).fit(FEEDBACK)
    with caplog.at_level(logging.INFO, logger="everypair"):
        assert ep.MF(2, epochs=1, device="auto", **options).fit(FEEDBACK).device_ == "cpu"
    assert caplog.messages == [f"MF runs on the CPU: {reason}."]


def test_auto_takes_a_gpu_and_says_so(caplog: pytest.LogCaptureFixture, backend: Backend) -> None:
    with caplog.at_level(logging.INFO, logger="everypair"):
        assert ep.MF(2, epochs=1, device="auto").fit(FEEDBACK).device_ == "cuda:0"
    assert caplog.messages == [f"MF runs on {backend.name}."]


@pytest.mark.skipif(REAL, reason="a GPU has the memory that it has")
def test_what_does_not_fit_is_refused_before_it_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "cuda", lambda number: Shim(memory=10**5))
    with pytest.raises(
        DeviceError, match=r"it needs 0\.\d\d MB of the GPU's memory \(.* for pairs, .* for vectors.*\), and 0.10 MB are free"
    ):
        ep.MF(2, epochs=1, device="cuda").fit(FEEDBACK)
    assert ep.MF(2, epochs=1, device="auto").fit(FEEDBACK).device_ == "cpu"


def test_a_refusal_keeps_the_fit_before_it() -> None:
    model = ep.MF(2, epochs=1).fit(FEEDBACK)
    before = model.parameters_["W"]
    with pytest.raises(DeviceError):
        model.set_params(device="cuda", dtype="float64").fit(FEEDBACK)
    np.testing.assert_array_equal(model.parameters_["W"], before)
