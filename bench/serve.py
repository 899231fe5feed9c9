"""What a service can take: ``python bench/serve.py NAME [--data FOLDER]`` (see ``--help``).

``load``: requests per second and their times, of single recommendations of ten with seen items left out, beside a minimal FastAPI
service around implicit with the same users, items and factors; both with as many workers, asked in turn by one client process.
``soak``: a mix of requests, of people who leave, of switches of the model, for minutes: the memory of workers over time.

``--data`` is a folder with ``train.parquet`` (columns user and item); without it, a log is generated. Needs the extra
``serve``, and implicit for ``load``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import everypair as ep

from recommend import events

HOST = "127.0.0.1"
N = 10
IMPLICIT = """
import os
import scipy.sparse as sp
from fastapi import FastAPI
from pydantic import BaseModel
os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"
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


# a client that costs little itself


class Client(asyncio.Protocol):
    """A connection that is kept: a request at a time, whole answers."""

    def __init__(self) -> None:
        self._buffer, self._answer = b"", None

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(exc or ConnectionError("closed"))

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, found, body = self._buffer.partition(b"\r\n\r\n")
        if not found:
            return
        length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
        assert length is not None, head
        if len(body) >= int(length[1]):
            self._buffer = b""
            assert self._answer is not None
            self._answer.set_result((int(head[9:12]), body))

    async def ask(self, method: str, path: str, body: Any = None) -> tuple[int, bytes]:
        content = b"" if body is None else json.dumps(body).encode()
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: {HOST}\r\nContent-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
        )
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(head.encode() + content)
        return await self._answer

    def close(self) -> None:
        self._transport.close()


@asynccontextmanager
async def connected(port: int) -> AsyncIterator[Client]:
    _, client = await asyncio.get_running_loop().create_connection(Client, HOST, port)
    try:
        yield client
    finally:
        client.close()


async def closed(port: int, connections: int, seconds: float, asked: Callable[[], Any]) -> list[float]:
    """Each connection asks again as soon as it has an answer: as many requests as can be."""
    until, times = time.perf_counter() + seconds, []

    async def one() -> None:
        async with connected(port) as client:
            while (began := time.perf_counter()) < until:
                status, body = await client.ask("POST", "/recommend", asked())
                assert status == 200, (status, body)
                times.append(time.perf_counter() - began)

    await asyncio.gather(*(one() for _ in range(connections)))
    return times


async def steady(port: int, rate: float, connections: int, seconds: float, asked: Callable[[], Any]) -> list[float]:
    """Requests at fixed moments, whether or not those before are answered; their times begin at those moments."""
    times: list[float] = []
    waiting: asyncio.Queue[float] = asyncio.Queue()

    async def one() -> None:
        async with connected(port) as client:
            while (due := await waiting.get()) >= 0:
                status, body = await client.ask("POST", "/recommend", asked())
                assert status == 200, (status, body)
                times.append(time.perf_counter() - due)

    ready = [asyncio.ensure_future(one()) for _ in range(connections)]
    began = time.perf_counter()
    for j in range(int(rate * seconds)):
        due = began + j / rate
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        waiting.put_nowait(due)
    for _ in ready:
        waiting.put_nowait(-1.0)
    await asyncio.gather(*ready)
    return times


# services


@contextmanager
def running(command: list[str], port: int, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    threads = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, env={**os.environ, **threads, **environment}, stderr=subprocess.DEVNULL)
    try:
        for _ in range(300):
            if process.poll() is not None:
                raise RuntimeError(f"{command} ended")
            try:
                asyncio.run(_answers(port))
                break
            except OSError:
                time.sleep(0.2)
        time.sleep(3.0)  # all workers
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


async def _answers(port: int) -> None:
    async with connected(port) as client:
        await client.ask("GET", "/openapi.json")


def everypair(folder: Path, port: int, workers: int) -> Any:
    command = [sys.executable, "-m", "everypair.cli", "serve", str(folder), "--port", str(port), "--workers", str(workers)]
    return running([*command, "--max-concurrent", "512"], port)


def implicit_service(folder: Path, port: int, workers: int) -> Any:
    (folder / "implicit_service.py").write_text(IMPLICIT)
    command = [sys.executable, "-m", "uvicorn", "implicit_service:app", "--app-dir", str(folder), "--port", str(port)]
    return running([*command, "--workers", str(workers), "--no-access-log"], port, IMPLICIT_MODEL=str(folder))


def fitted(dataset: ep.Dataset, folder: Path, factors: int) -> None:
    ep.Recommender(ep.MF(factors=factors, epochs=6)).fit(dataset).save(folder / "model")


def implicit_fitted(dataset: ep.Dataset, folder: Path, factors: int) -> None:
    import scipy.sparse as sp
    from implicit.cpu.als import AlternatingLeastSquares  # type: ignore[import-not-found]

    shape = (dataset.n_users, dataset.n_items)
    seen = sp.csr_matrix((np.ones(len(dataset), np.float32), (dataset.user, dataset.item)), shape)
    model = AlternatingLeastSquares(factors=factors, iterations=6, random_state=0)
    model.fit(seen, show_progress=False)
    model.save(str(folder / "als.npz"))
    sp.save_npz(folder / "seen.npz", seen)


def memory(pid: int) -> tuple[int, int]:
    """Bytes that a process holds, and those of them that are its own: no files that are mapped, which all workers share."""
    facts = dict(
        line.split(":")
        for line in Path(f"/proc/{pid}/status").read_text().splitlines()
        if line.startswith("Rss") or "VmRSS" in line
    )
    return int(facts["VmRSS"].split()[0]) * 1024, int(facts["RssAnon"].split()[0]) * 1024


def told(name: str, times: list[float], seconds: float) -> None:
    milliseconds = 1e3 * np.array(times)
    middle, high, longest = np.quantile(milliseconds, [0.5, 0.99, 1.0])
    print(
        f"{name:<42} {len(times) / seconds:7.0f}/s   p50 {middle:6.1f} ms   p99 {high:6.1f} ms   longest {longest:6.1f} ms",
        flush=True,
    )


def load(dataset: ep.Dataset, given: argparse.Namespace) -> None:
    random = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        fitted(dataset, folder, given.factors)
        implicit_fitted(dataset, folder, given.factors)
        with everypair(folder / "model", 8765, given.workers), implicit_service(folder, 8766, given.workers):
            users = {
                8765: lambda: dataset.users[int(random.integers(dataset.n_users))],
                8766: lambda: int(random.integers(dataset.n_users)),
            }
            names = {8765: "EveryPair", 8766: "implicit, minimal FastAPI service"}
            found: dict[tuple[int, str], list[float]] = {}
            for _ in range(given.repeats):
                for port in names:
                    asked = lambda port=port: {"user": users[port](), "n": N}  # noqa: E731
                    found.setdefault((port, "most"), []).extend(asyncio.run(closed(port, given.connections, given.seconds, asked)))
                    found.setdefault((port, "steady"), []).extend(asyncio.run(steady(port, given.rate, 64, given.seconds, asked)))
            whole = given.repeats * given.seconds
            for (port, how), times in found.items():
                told(
                    f"{names[port]}, {f'{given.connections} clients' if how == 'most' else f'{given.rate:g} per second'}",
                    times,
                    whole,
                )


def soak(dataset: ep.Dataset, given: argparse.Namespace) -> None:
    random = np.random.default_rng(0)
    some = lambda ids: ids[int(random.integers(len(ids)))]  # noqa: E731
    mix: list[Callable[[], tuple[str, Any]]] = [
        lambda: ("/recommend", {"user": some(dataset.users), "n": N}),
        lambda: ("/recommend", {"request": {"history": [some(dataset.items) for _ in range(20)]}, "n": N}),
        lambda: ("/recommend/batch", {"users": [some(dataset.users) for _ in range(16)], "n": N}),
        lambda: ("/similar", {"item": some(dataset.items), "n": N}),
        lambda: ("/explain", {"user": some(dataset.users), "item": some(dataset.items)}),
        lambda: ("/recommend", {"user": None, "n": -1}),
    ]

    async def one(port: int, until: float, counts: dict[int, int]) -> None:
        while time.perf_counter() < until:
            async with connected(port) as client:
                for _ in range(int(random.integers(1, 50))):
                    path, body = mix[int(random.integers(len(mix)))]()
                    asking = client.ask("POST", path, body)
                    if random.random() < 0.01:  # hang up in the middle
                        asyncio.ensure_future(asking).add_done_callback(lambda f: f.cancelled() or f.exception())
                        break
                    status, _ = await asking
                    counts[status] = counts.get(status, 0) + 1

    async def switching(folder: Path, until: float) -> None:
        recommender = ep.load(folder)
        while time.perf_counter() < until - 20:
            await asyncio.sleep(20)
            recommender.unknown_["switch"] = recommender.unknown_.get("switch", 0) + 1  # another version of the same
            await asyncio.to_thread(recommender.save, folder)

    async def measuring(pids: list[int], until: float, sizes: list[tuple[float, list[tuple[int, int]]]]) -> None:
        began = time.perf_counter()
        while time.perf_counter() < until:
            sizes.append((time.perf_counter() - began, [memory(pid) for pid in pids]))
            await asyncio.sleep(2)

    async def all_of_it(folder: Path, pids: list[int]) -> None:
        until = time.perf_counter() + given.seconds
        counts: dict[int, int] = {}
        sizes: list[tuple[float, list[tuple[int, int]]]] = []
        await asyncio.gather(*(one(8765, until, counts) for _ in range(8)), switching(folder, until), measuring(pids, until, sizes))
        print(f"answers by status: {dict(sorted(counts.items()))}, {sum(counts.values()) / given.seconds:.0f}/s")
        moments, held = np.array([moment for moment, _ in sizes]), np.array([each for _, each in sizes]) / 2**20
        late = moments > given.seconds / 2  # caches and the pools of the allocator are full by then
        for j, pid in enumerate(pids):
            whole, own = held[:, j, 0], held[:, j, 1]
            slopes = [np.polyfit(moments[late], size[late], 1)[0] * 60 for size in (whole, own)]
            print(f"worker {pid}: slope over the last half {slopes[0]:+.2f} MiB per minute, {slopes[1]:+.2f} of its own memory")
            for at in np.linspace(0, len(moments) - 1, 11).astype(int):
                print(f"  {moments[at]:5.0f} s  {whole[at]:6.1f} MiB, {own[at]:6.1f} of them its own")

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "model"
        fitted(dataset, Path(name), given.factors)
        with everypair(folder, 8765, given.workers) as process:
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            workers = [int(pid) for pid in children if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]
            asyncio.run(all_of_it(folder, workers))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=["load", "soak"])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--factors", type=int, default=64)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--connections", type=int, default=16, help="clients that ask again at once")
    parser.add_argument("--rate", type=float, default=400.0, help="requests per second at fixed moments")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each part of load (300 for soak)")
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    {"load": load, "soak": soak}[given.name](events(given.data), given)
