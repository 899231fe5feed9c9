"""The supervisor in this process: switches of models, replaced workers, a signal to stop."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from everypair.service import Settings
from everypair.service.supervisor import Supervisor

from services import WAIT, fitted, get, post


@pytest.mark.usefixtures("restored_loggers")
def test_a_supervisor_in_this_process(tmp_path: Path) -> None:
    """A new model in the watched folder, a refused model, a killed worker, a signal to stop."""
    model = tmp_path / "model"
    fitted(seed=1).save(model)
    supervisor = Supervisor(model, Settings(), 0, n_workers=1, log_level="critical")
    handlers = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)]
    environment = dict(os.environ)
    found: dict[str, Any] = {}

    def version() -> str:
        return get(f"http://127.0.0.1:{supervisor.port}/health").json()["model"]

    def client() -> None:
        try:
            found["first"] = version()
            fitted(seed=2).save(model)
            end = time.monotonic() + WAIT
            while version() == found["first"] and time.monotonic() < end:
                time.sleep(0.05)
            found["second"] = version()
            (model / "manifest.json").write_text("{}")
            found["refused"] = post(f"http://127.0.0.1:{supervisor.port}/reload")
            os.kill(supervisor._workers[0].pid, signal.SIGKILL)
            found["third"] = version()
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    supervisor.run(lambda: threading.Thread(target=client).start())
    assert found["first"] != found["second"] == found["third"] == supervisor.version
    assert found["refused"].status_code == 409
    assert not [path for path in tmp_path.iterdir() if path != model]
    assert handlers == [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)]
    assert dict(os.environ) == environment
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        for take_over in (False, True):
            with pytest.raises(OSError, match="it is in use"):
                Supervisor(model, Settings(), taken.getsockname()[1], take_over=take_over)
