"""A light HTTP client, and load generators: closed loop (a request after each answer) and open loop (a constant rate)."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

HOST = "127.0.0.1"


class Client(asyncio.Protocol):
    """A persistent connection with one request at a time. Costs less than an HTTP library, on the cores of the service.

    Attributes
    ----------
    last : bool
        Whether the service closes the connection after the response that it sent.
    """

    def __init__(self) -> None:
        self._buffer, self._answer, self.last = b"", None, False

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
            self._buffer, self.last = b"", b"connection: close" in head.lower()
            assert self._answer is not None
            self._answer.set_result((int(head[9:12]), body))

    async def request(self, method: str, path: str, body: Any = None) -> tuple[int, bytes]:
        """Status and body of the response; raises ConnectionError if there is none."""
        if self._transport.is_closing():
            raise ConnectionError("closed")
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
async def connect(port: int) -> AsyncIterator[Client]:
    _, client = await asyncio.get_running_loop().create_connection(Client, HOST, port)
    try:
        yield client
    finally:
        client.close()


async def closed_loop(port: int, connections: int, seconds: float, body: Callable[[], Any]) -> list[float]:
    """Response times where each connection sends its next recommendation request as soon as it has an answer."""
    end, times = time.perf_counter() + seconds, []

    async def connection() -> None:
        async with connect(port) as client:
            while (began := time.perf_counter()) < end:
                await _recommend(client, body())
                times.append(time.perf_counter() - began)

    await asyncio.gather(*(connection() for _ in range(connections)))
    return times


async def open_loop(port: int, connections: int, seconds: float, body: Callable[[], Any], rate: float) -> list[float]:
    """Response times at a constant rate, whether or not earlier requests are answered; counted from the planned moment."""
    times: list[float] = []
    planned: asyncio.Queue[float] = asyncio.Queue()

    async def connection() -> None:
        async with connect(port) as client:
            while (due := await planned.get()) >= 0:
                await _recommend(client, body())
                times.append(time.perf_counter() - due)

    tasks = [asyncio.ensure_future(connection()) for _ in range(connections)]
    began = time.perf_counter()
    for j in range(int(rate * seconds)):
        due = began + j / rate
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        planned.put_nowait(due)
    for _ in tasks:
        planned.put_nowait(-1.0)
    await asyncio.gather(*tasks)
    return times


async def _recommend(client: Client, body: Any) -> None:
    status, answer = await client.request("POST", "/recommend", body)
    assert status == 200, (status, answer)
