"""Services to test: a small model, a client of an application in this process, and ``everypair serve`` in a process of its own."""

from __future__ import annotations

import asyncio
import functools
import math
import os
import queue
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn

import everypair as ep
import everypair.service
from everypair.service import Limits, Settings
from everypair.service.connection import connection_factory

CONTEXT = [ep.UserId(), ep.Attributes("country", "age"), ep.Previous(), ep.History(last=20)]
ITEM = [ep.ItemId(), ep.Attributes("category")]
WAIT = 300  # seconds: longer than anything takes, even under load; no result depends on it
# Each request on a new connection. Reading the certificates of the system would take longer than most requests.
get, post = (functools.partial(method, timeout=WAIT, verify=False) for method in (httpx.get, httpx.post))


def dataset(titles: bool = True, users: int = 80) -> ep.Dataset:
    return ep.datasets.youtube_like(users, 40, seed=3, titles=titles, events_per_user=8)


def fitted(model: Any = None, seed: int = 0, **recipes: Any) -> ep.Recommender:
    """A fitted recommender; by default a factorization machine with recipes of all kinds."""
    recipes = recipes or {"context": CONTEXT, "item": ITEM}
    return ep.Recommender(model or ep.FM(factors=4, epochs=2, random_state=seed), **recipes).fit(dataset())


def create_app(model: Any, settings: Settings | None = None) -> Any:
    """An application without a limit of time unless one is set: a first request compiles, which takes long on a busy machine."""
    settings = settings or Settings()
    seconds = WAIT if settings.limits.seconds == Limits.seconds else settings.limits.seconds
    return everypair.service.create_app(model, replace(settings, limits=replace(settings.limits, seconds=seconds)))


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + WAIT
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


class AppClient:
    """A client of an ASGI application in this process, without a network."""

    def __init__(self, app: Any, **headers: str) -> None:
        self._app, self._headers = app, headers

    def __call__(self, method: str, path: str, body: Any = None, **options: Any) -> httpx.Response:
        (response,) = self.concurrently([(method, path, body, options)])
        return response

    def concurrently(self, requests: list[tuple[str, str, Any, dict[str, Any]]]) -> list[httpx.Response]:
        """The responses to requests that are sent at the same time."""

        async def send(client: httpx.AsyncClient, method: str, path: str, body: Any, options: dict[str, Any]) -> httpx.Response:
            content = {} if body is None else {"json": body}
            return await client.request(method, path, **content, **options)

        async def send_all() -> list[httpx.Response]:
            transport = httpx.ASGITransport(self._app, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=self._headers) as client:
                return await asyncio.gather(*(send(client, *request) for request in requests))

        return asyncio.run(send_all())

    def post(self, path: str, **body: Any) -> httpx.Response:
        return self("POST", path, body)

    def get(self, path: str) -> httpx.Response:
        return self("GET", path)


def workers_of(service: int) -> list[int]:
    """Process ids of the workers of a service."""
    children = Path(f"/proc/{service}/task/{service}/children").read_text().split()
    return [int(pid) for pid in children if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]


class ServiceProcess:
    """A running ``everypair serve``: its address, its processes and its log."""

    def __init__(self, process: subprocess.Popen[str], url: str, lines: queue.Queue[str | None]) -> None:
        self.process, self.url, self._lines = process, url, lines
        self.client = httpx.Client(base_url=url, timeout=WAIT, verify=False)

    def post(self, path: str, **body: Any) -> httpx.Response:
        return self.client.post(path, json=body or None)  # some routes take no body

    @property
    def port(self) -> int:
        return int(self.url.rsplit(":", 1)[1])

    def workers(self) -> list[int]:
        """Process ids of the workers."""
        return workers_of(self.process.pid)

    def gauge(self, name: str) -> float:
        """A value of ``/metrics``; NaN if it is not there."""
        text = get(f"{self.url}/metrics").text
        return next((float(line.split()[-1]) for line in text.splitlines() if line.startswith(name)), math.nan)

    def wait_for_gauge(self, name: str, value: float) -> None:
        """Of a worker that is busy, ``/metrics`` shows what it said last."""
        wait_until(lambda: self.gauge(name) == value)

    def wait_for_log(self, words: str) -> str:
        """The next line of the log that contains these words."""
        while words not in (line := self._lines.get(timeout=WAIT) or pytest.fail(f"the log ended without {words!r}")):
            pass
        return line

    def rest_of_log(self) -> list[str]:
        """The lines of the log that were not read yet, up to the end of the service."""
        return list(iter(lambda: self._lines.get(timeout=WAIT), None))  # type: ignore[arg-type]


@contextmanager
def serving(folder: Path, *options: str, **environment: str) -> Iterator[ServiceProcess]:
    """Run ``everypair serve`` on a folder, on any free port."""
    patient = ("--seconds", str(WAIT), "--receive-seconds", str(WAIT))
    command = [sys.executable, "-m", "everypair.cli", "serve", str(folder), "--port", "0", *patient, *options]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, **environment})
    lines: queue.Queue[str | None] = queue.Queue()

    def read_log() -> None:
        assert process.stderr is not None
        for line in process.stderr:
            lines.put(line)
        lines.put(None)  # the end

    reader = threading.Thread(target=read_log, daemon=True)
    reader.start()
    try:
        log = [""]
        while not (match := re.match(r"Serving on (http://\S+)/ ", log[-1])):
            log.append(lines.get(timeout=WAIT) or pytest.fail(f"the service did not start: {log}"))
        service = ServiceProcess(process, match[1], lines)
        with service.client:
            yield service
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.wait(WAIT)
        reader.join(WAIT)
        assert process.stderr is not None
        process.stderr.close()


@contextmanager
def listening(app: Any, **limits: Any) -> Iterator[int]:
    """Run an application in this process on connections like those of a worker; the port."""
    config = uvicorn.Config(
        app, log_config=None, access_log=False, server_header=False, lifespan="off", ws="none",
        proxy_headers=False, http=connection_factory(Limits(**limits)), timeout_graceful_shutdown=1,
    )  # fmt: skip
    server = uvicorn.Server(config)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(1024)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join(WAIT)


def send_raw(port: int, *parts: bytes) -> bytes:
    """Send bytes on a new connection; what comes back until the connection is closed."""
    with socket.create_connection(("127.0.0.1", port), timeout=WAIT) as connection:
        with suppress(ConnectionError):
            for part in parts:
                connection.sendall(part)
        return read_to_end(connection)


def read_to_end(connection: socket.socket) -> bytes:
    received = b""
    with suppress(ConnectionResetError):
        while chunk := connection.recv(65_536):
            received += chunk
    return received


def free_port() -> int:
    """A port below those that the system gives to outgoing connections, some of which may be opened before it is used again."""
    for port in range(20_000 + os.getpid() % 10_000, 32_768):
        with socket.socket() as candidate, suppress(OSError):
            candidate.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no port is free")
