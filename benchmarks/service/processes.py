"""Services in processes: EveryPair's, and a minimal FastAPI service around implicit; and the memory of processes."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import everypair as ep
from benchmarks.service.client import HOST, connect

EPOCHS = 6
START_SECONDS = 3.0  # after the first answer, until all workers are ready
IMPLICIT_SERVICE = """
import os
os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"  # before NumPy is imported, or they count for nothing
import scipy.sparse as sp
from fastapi import FastAPI
from pydantic import BaseModel
from implicit.cpu.als import AlternatingLeastSquares
folder = os.environ["IMPLICIT_MODEL"]
model = AlternatingLeastSquares.load(folder + "/als.npz")
model.num_threads = 1
seen = sp.load_npz(folder + "/seen.npz").tocsr()
app = FastAPI()
class Ask(BaseModel):
    user: int
    n: int = 10
@app.post("/recommend")
def recommend(ask: Ask):
    items, scores = model.recommend(ask.user, seen[ask.user], N=ask.n, filter_already_liked_items=True)
    return {"items": [{"item": i, "score": s} for i, s in zip(items.tolist(), scores.tolist())]}
"""

Running = AbstractContextManager[subprocess.Popen[bytes]]


def fit_model(dataset: ep.Dataset, folder: Path, factors: int) -> None:
    """Fit and save the model of :func:`everypair_service`."""
    ep.Recommender(ep.MF(factors=factors, epochs=EPOCHS)).fit(dataset).save(folder)


def fit_implicit_model(dataset: ep.Dataset, folder: Path, factors: int) -> None:
    """Fit and save the model of :func:`implicit_service`."""
    import scipy.sparse as sp
    from implicit.cpu.als import AlternatingLeastSquares  # type: ignore[import-not-found]

    shape = (dataset.n_users, dataset.n_items)
    seen = sp.csr_matrix((np.ones(len(dataset), np.float32), (dataset.user, dataset.item)), shape)
    model = AlternatingLeastSquares(factors=factors, iterations=EPOCHS, random_state=0)
    model.fit(seen, show_progress=False)
    model.save(str(folder / "als.npz"))
    sp.save_npz(folder / "seen.npz", seen)


def everypair_service(folder: Path, port: int, workers: int, **environment: str) -> Running:
    command = [sys.executable, "-m", "everypair.cli", "serve", str(folder), "--port", str(port), "--workers", str(workers)]
    return _running([*command, "--max-concurrent", "512"], port, **environment)


@contextmanager
def succeeding_service(folder: Path, port: int, workers: int, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """A service that takes over the port of a running one, from the moment that it serves."""
    command = [sys.executable, "-m", "everypair.cli", "serve", str(folder), "--port", str(port), "--workers", str(workers)]
    command += ["--max-concurrent", "512", "--log-level", "error", "--take-over"]
    process = subprocess.Popen(command, env={**os.environ, **environment}, stderr=subprocess.PIPE)
    assert process.stderr is not None
    drain = threading.Thread(target=process.stderr.read, daemon=True)
    try:
        while not (line := process.stderr.readline()).startswith(b"Serving on"):
            if not line:
                raise RuntimeError(f"the service did not take over: {' '.join(command)}")
        drain.start()
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)
        if drain.ident is not None:
            drain.join()
        process.stderr.close()


def implicit_service(folder: Path, port: int, workers: int) -> Running:
    (folder / "implicit_service.py").write_text(IMPLICIT_SERVICE)
    command = [sys.executable, "-m", "uvicorn", "implicit_service:app", "--app-dir", str(folder), "--port", str(port)]
    return _running([*command, "--workers", str(workers), "--no-access-log"], port, IMPLICIT_MODEL=str(folder))


@contextmanager
def _running(command: list[str], port: int, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(command, env={**os.environ, **environment}, stderr=subprocess.DEVNULL)
    try:
        for _ in range(300):
            if process.poll() is not None:
                raise RuntimeError(f"the service ended with code {process.returncode}: {' '.join(command)}")
            try:
                asyncio.run(_wait_for_answer(port))
                break
            except OSError:
                time.sleep(0.2)
        time.sleep(START_SECONDS)
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


async def _wait_for_answer(port: int) -> None:
    async with connect(port) as client:
        await client.request("GET", "/openapi.json")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return probe.getsockname()[1]


def worker_pids(process: subprocess.Popen[Any]) -> list[int]:
    """The worker processes of a service; the service itself if it has none."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    workers = [int(pid) for pid in children if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    return workers or [process.pid]


def is_stopped(pid: int) -> bool:
    """Whether a process was stopped by a signal, or is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "TZ"
    except OSError:
        return True


def resident_memory(pid: int) -> tuple[int, int]:
    """Resident bytes of a process, and those of them that are private (without mapped files, which workers share)."""
    lines = (line.partition(":") for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    sizes = {name: value for name, _, value in lines if name in ("VmRSS", "RssAnon")}
    whole, private = (1024 * int(sizes[name].split()[0]) for name in ("VmRSS", "RssAnon"))
    return whole, private
