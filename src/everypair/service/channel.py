"""A channel between the supervisor and a worker that never blocks its event loop, whatever the process at the other end does."""

from __future__ import annotations

import asyncio
import os
import pickle
import socket
import struct
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

HEADER = struct.Struct("<IB")  # before each message: its bytes, and the number of its files
CHUNK = 1 << 18  # bytes
MAX_FILES = 200  # in one message; the kernel passes 253

Message = tuple[Any, ...]


class Channel:
    """Messages (tuples, pickled), with open files, over one end of a pair of Unix sockets.

    Messages wait in memory until the other process reads them. A stopped process may thus receive part of a message, or send one.

    Parameters
    ----------
    end : socket
    on_message : callable
        Called with each message and its files, which then belong to the receiver.
    on_closed : callable
        Called once, when the other end is closed.
    """

    def __init__(self, end: socket.socket, on_message: Callable[[Message, list[int]], Any], on_closed: Callable[[], Any]) -> None:
        end.setblocking(False)
        self._socket, self._on_message, self._on_closed = end, on_message, on_closed
        self._outgoing: deque[tuple[memoryview, list[int]]] = deque()
        self._received, self._files = bytearray(), deque[int]()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(end.fileno(), self._receive)

    def send(self, *message: Any, files: Sequence[int] = ()) -> None:
        """Send a message as soon as the other end takes it. Files may be closed at once."""
        if self._socket.fileno() < 0:
            return
        content = pickle.dumps(message)
        self._outgoing.append((memoryview(HEADER.pack(len(content), len(files)) + content), [os.dup(file) for file in files]))
        self._flush()

    def close(self) -> None:
        if self._socket.fileno() < 0:
            return
        self._loop.remove_reader(self._socket.fileno())
        self._drop_outgoing()
        self._socket.close()
        while self._files:
            os.close(self._files.popleft())

    def _flush(self) -> None:
        while self._outgoing:
            content, files = self._outgoing.popleft()
            try:
                sent = socket.send_fds(self._socket, [content], files) if files else self._socket.send(content)
            except BlockingIOError:
                self._outgoing.appendleft((content, files))
                self._loop.add_writer(self._socket.fileno(), self._flush)
                return
            except OSError:  # the other end is gone, which the reader notices, too
                self._outgoing.appendleft((content, files))
                self._drop_outgoing()
                return
            for file in files:
                os.close(file)
            if sent < len(content):
                self._outgoing.appendleft((content[sent:], []))
        self._loop.remove_writer(self._socket.fileno())

    def _drop_outgoing(self) -> None:
        self._loop.remove_writer(self._socket.fileno())
        while self._outgoing:
            for file in self._outgoing.popleft()[1]:
                os.close(file)

    def _receive(self) -> None:
        try:
            content, files, _, _ = socket.recv_fds(self._socket, CHUNK, MAX_FILES, socket.MSG_CMSG_CLOEXEC)
        except BlockingIOError:
            return
        except OSError:
            content, files = b"", []
        if not content:
            self.close()
            self._on_closed()
            return
        self._received += content
        self._files.extend(files)
        while len(self._received) >= HEADER.size:
            size, n_files = HEADER.unpack_from(self._received)
            end = HEADER.size + size
            if len(self._received) < end:
                break
            message = pickle.loads(memoryview(self._received)[HEADER.size : end].tobytes())
            del self._received[:end]
            self._on_message(message, [self._files.popleft() for _ in range(n_files)])
