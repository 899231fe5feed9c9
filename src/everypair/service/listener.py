"""The listening socket, which all workers share: the kernel gives a connection to whichever of them asks first.

A socket for each worker (``SO_REUSEPORT``) would have a queue for each worker: connections in the queue of a worker that hangs, or
was killed, wait until it is replaced. With one queue the other workers answer them.
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from typing import Any

BACKLOG = 4096  # connections that wait to be accepted
HANDSHAKE_SECONDS = 0.2  # for connections that were begun before the socket stops listening
PAUSE_SECONDS = 0.1  # when the system has no file or memory for another connection
SO_ATTACH_FILTER = 26  # of Linux, which the module socket does not name
SYN, ACK, FLAGS_AT = 0x02, 0x10, 13  # in the header of TCP


def open_listener(host: str, port: int) -> socket.socket:
    """A socket that listens on an address; raises OSError if that is not possible."""
    listener = socket.socket(family_of(host), socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        used = error.errno == errno.EADDRINUSE
        reason = "it is in use" if used else (error.strerror or str(error))
        advice = ", or take it over from a service with --take-over" if used else ""
        raise OSError(f"cannot listen on {host} port {port}: {reason}. Choose another with --host and --port{advice}.") from error
    return listener


def family_of(host: str) -> socket.AddressFamily:
    """Of the sockets that listen on a host."""
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def refuse_new_connections(listener: socket.socket) -> None:
    """Let the kernel ignore attempts to connect, so that the connections that wait can be accepted until there is none.

    To close the socket at once would reset them. A client that is ignored tries again a second later, when the socket is closed.
    """
    instructions = (
        (0x30, 0, 0, FLAGS_AT),  # load the flags
        (0x54, 0, 0, SYN | ACK),  # mask them
        (0x15, 0, 1, SYN),  # unless it is the first segment of a connection, skip one
        (0x06, 0, 0, 0),  # drop it
        (0x06, 0, 0, 0xFFFF_FFFF),  # accept it
    )
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *instruction) for instruction in instructions))
    with suppress(OSError):  # elsewhere than on Linux
        listener.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack("HL", len(instructions), ctypes.addressof(code)))


class Acceptor:
    """Accepts connections for a worker, one in each turn of its event loop: a busy worker has longer turns and accepts fewer.

    Parameters
    ----------
    listener : socket
    new_protocol : callable
        Makes the protocol of a connection.
    """

    def __init__(self, listener: socket.socket, new_protocol: Callable[[], asyncio.Protocol]) -> None:
        self._listener, self._new_protocol = listener, new_protocol
        self._loop = asyncio.get_running_loop()
        self._connecting: set[asyncio.Task[Any]] = set()
        self._resume()

    def _resume(self) -> None:
        if self._listener.fileno() >= 0:
            self._loop.add_reader(self._listener.fileno(), self._accept)

    def _accept(self) -> bool:
        """Accept a connection; False if there is none."""
        try:
            connection, _ = self._listener.accept()
        except (BlockingIOError, InterruptedError):
            return False
        except ConnectionAbortedError:
            return True
        except OSError:  # too many open files: leave it to other workers, or until later
            self._loop.remove_reader(self._listener.fileno())
            self._loop.call_later(PAUSE_SECONDS, self._resume)
            return False
        connection.setblocking(False)
        with suppress(OSError):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        task = self._loop.create_task(self._connect(connection))
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)
        return True

    async def _connect(self, connection: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._new_protocol, connection)
        except OSError:  # closed by the client
            connection.close()

    async def finish(self) -> None:
        """Accept the connections that are waiting, and close the socket."""
        await asyncio.sleep(HANDSHAKE_SECONDS)
        while self._accept():
            pass
        self._loop.remove_reader(self._listener.fileno())
        self._listener.close()
        if self._connecting:
            await asyncio.wait(self._connecting)
