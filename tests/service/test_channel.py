"""Messages between the supervisor and a worker."""

from __future__ import annotations

import asyncio
import os
import socket
import tempfile
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everypair.service import channel
from everypair.service.channel import Channel

MESSAGES = st.lists(st.tuples(st.tuples(st.text(), st.integers() | st.binary(max_size=100_000)), st.integers(0, 3)), max_size=12)


def numbered_file(number: int) -> int:
    file = os.memfd_create("numbered")
    os.write(file, str(number).encode())
    return file


@given(MESSAGES, st.integers(1, 100_000))
def test_messages_arrive_in_order_with_their_files(messages: list[tuple[tuple[Any, ...], int]], chunk: int) -> None:
    """However they are cut on the way, and although the sender closes the files at once."""

    async def exchange() -> None:
        ours, theirs = socket.socketpair()
        arrived: asyncio.Queue[tuple[tuple[Any, ...], list[bytes]]] = asyncio.Queue()
        closed = asyncio.Event()

        def receive(message: tuple[Any, ...], files: list[int]) -> None:
            contents = [os.pread(file, 100, 0) for file in files]
            for file in files:
                os.close(file)
            arrived.put_nowait((message, contents))

        receiver = Channel(theirs, receive, closed.set)
        sender = Channel(ours, lambda *_: None, lambda: None)
        n_sent, wanted = 0, []
        for message, n_files in messages:
            files = [numbered_file(n_sent + j) for j in range(n_files)]
            sender.send(*message, files=files)
            for file in files:
                os.close(file)
            wanted.append((message, [str(n_sent + j).encode() for j in range(n_files)]))
            n_sent += n_files
        assert [await arrived.get() for _ in messages] == wanted
        sender.close()
        await closed.wait()
        receiver.close()

    patch = pytest.MonkeyPatch()
    patch.setattr(channel, "CHUNK", chunk)
    with patch.context():
        before = len(os.listdir("/proc/self/fd"))
        asyncio.run(exchange())
        assert len(os.listdir("/proc/self/fd")) == before
    patch.undo()


def test_a_process_that_reads_nothing_holds_nobody_up() -> None:
    async def exchange() -> None:
        ours, theirs = socket.socketpair()
        sender = Channel(ours, lambda *_: None, lambda: None)
        with tempfile.TemporaryFile() as file:
            for number in range(100):
                sender.send("message", number, b"x" * 1_000_000, files=[file.fileno()])
        arrived: asyncio.Queue[int] = asyncio.Queue()

        def receive(message: tuple[Any, ...], files: list[int]) -> None:
            os.close(*files)
            arrived.put_nowait(message[1])

        receiver = Channel(theirs, receive, lambda: None)  # it reads at last
        assert [await arrived.get() for _ in range(100)] == list(range(100))
        sender.close()
        receiver.close()

    asyncio.run(exchange())


def test_messages_to_a_process_that_ended_are_dropped() -> None:
    async def exchange() -> None:
        ours, theirs = socket.socketpair()
        closed = asyncio.Event()
        sender = Channel(ours, lambda *_: None, closed.set)
        with tempfile.TemporaryFile() as file:
            sender.send(b"x" * 10_000_000, files=[file.fileno()])
            theirs.close()
            await closed.wait()
            sender.send("too late", files=[file.fileno()])
        sender.close()

    before = len(os.listdir("/proc/self/fd"))
    asyncio.run(exchange())
    assert len(os.listdir("/proc/self/fd")) == before
