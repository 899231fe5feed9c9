"""Services to test: a small model, a client that asks an application without a network, and one that is a process of its own."""

from __future__ import annotations

import asyncio
import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

import everypair as ep

CONTEXT = [ep.UserId(), ep.Attributes("country", "age"), ep.Previous(), ep.History(last=20)]
ITEM = [ep.ItemId(), ep.Attributes("category")]


def dataset(titles: bool = True, users: int = 80) -> ep.Dataset:
    return ep.datasets.youtube_like(users, 40, seed=3, titles=titles, events_per_user=8)


def fitted(model: Any = None, seed: int = 0, **told: Any) -> ep.Recommender:
    """By default a factorization machine that is told all there is."""
    told = told or {"context": CONTEXT, "item": ITEM}
    return ep.Recommender(model or ep.FM(factors=4, epochs=2, random_state=seed), **told).fit(dataset())


class Local:
    """Asks an application in this process."""

    def __init__(self, app: Any, **headers: str) -> None:
        self._app, self._headers = app, headers

    def __call__(self, method: str, path: str, body: Any = None, **options: Any) -> httpx.Response:
        (answer,) = self.together([(method, path, body, options)])
        return answer

    def together(self, asked: list[tuple[str, str, Any, dict[str, Any]]]) -> list[httpx.Response]:
        """All at the same time."""

        async def one(client: httpx.AsyncClient, method: str, path: str, body: Any, options: dict[str, Any]) -> httpx.Response:
            content = {} if body is None else {"json": body}
            return await client.request(method, path, **content, **options)

        async def several() -> list[httpx.Response]:
            transport = httpx.ASGITransport(self._app, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=self._headers) as client:
                return await asyncio.gather(*(one(client, *each) for each in asked))

        return asyncio.run(several())

    def post(self, path: str, **body: Any) -> httpx.Response:
        return self("POST", path, body)

    def get(self, path: str) -> httpx.Response:
        return self("GET", path)


class Remote:
    """A service of its own: its address, its processes, and what it logs."""

    def __init__(self, process: subprocess.Popen[str], url: str, lines: queue.Queue[str]) -> None:
        self.process, self.url, self._lines = process, url, lines
        self.client = httpx.Client(base_url=url, timeout=60)

    def post(self, path: str, **body: Any) -> httpx.Response:
        return self.client.post(path, json=body)

    @property
    def port(self) -> int:
        return int(self.url.rsplit(":", 1)[1])

    def workers(self) -> list[int]:
        """Ids of the processes that answer."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return [int(pid) for pid in children if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]

    def gauge(self, name: str) -> float:
        """A number of /metrics."""
        text = httpx.get(f"{self.url}/metrics", timeout=60).text
        return next(float(line.split()[-1]) for line in text.splitlines() if line.startswith(name))

    def logged(self, words: str, seconds: float = 60) -> str:
        """The next line that has these words."""
        while words not in (line := self._lines.get(timeout=seconds)):
            pass
        return line

    def rest(self) -> list[str]:
        """All lines that were not looked at, when it has ended."""
        time.sleep(0.5)
        return [self._lines.get_nowait() for _ in range(self._lines.qsize())]


@contextmanager
def serving(folder: Path, *options: str, **environment: str) -> Iterator[Remote]:
    """``everypair serve`` of a folder, on any port."""
    command = [sys.executable, "-m", "everypair.cli", "serve", str(folder), "--port", "0", *options]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, **environment})
    lines: queue.Queue[str] = queue.Queue()

    def read() -> None:
        assert process.stderr is not None
        for line in process.stderr:
            lines.put(line)

    reading = threading.Thread(target=read, daemon=True)
    reading.start()
    try:
        told = []
        while not (found := re.match(r"Serving on (http://\S+)/ ", told[-1] if told else "")):
            try:
                told.append(lines.get(timeout=60))
            except queue.Empty:
                raise AssertionError(f"it did not start: {told}") from None
        remote = Remote(process, found[1], lines)
        with remote.client:
            yield remote
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.wait(60)
        reading.join(10)
        assert process.stderr is not None
        process.stderr.close()
