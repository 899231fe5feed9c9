"""How a new service takes over the port of a running one without a gap: it gets the same listening socket.

A service answers at a Unix socket, named after its address, in the abstract namespace: no file, and gone with the process. The new
service asks there for the listening socket. From then on both accept connections from one queue, until the old one is stopped and
leaves the queue to the new one. Only processes of the same user, and root, are answered and believed, and one at a time: a service
must know whether another one uses its socket.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import struct
from contextlib import suppress
from typing import Any

from everypair.service.listener import family_of
from everypair.service.telemetry import log

ANSWER_SECONDS = 5.0  # for a running service to answer
GREETING = b"listener"


class Handover:
    """Gives the listening socket of this service to services that ask for it.

    Parameters
    ----------
    listener : socket
    predecessor : socket, optional
        The connection to the service that this one took the socket from: it has the name until it ends.
    """

    def __init__(self, listener: socket.socket, predecessor: socket.socket | None) -> None:
        self._listener, self._predecessor, self._address = listener, predecessor, _address_of(listener)
        self._heir: socket.socket | None = None
        self._asked: socket.socket | None = None
        self._loop = asyncio.get_running_loop()
        if predecessor is None:
            self._open()
        else:
            self._loop.add_reader(predecessor.fileno(), self._predecessor_ended)

    @property
    def shared(self) -> bool:
        """Whether another service accepts connections from the same socket."""
        return self._heir is not None or self._predecessor is not None

    def _predecessor_ended(self) -> None:
        assert self._predecessor is not None
        self._forget(self._predecessor)
        self._predecessor = None
        self._open()

    def _open(self) -> None:
        self._asked = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._asked.setblocking(False)
        try:
            self._asked.bind(self._address)
            self._asked.listen()
        except OSError as error:  # in use by another service, or no abstract names on this system
            log("cannot be taken over", logging.WARNING, why=error.strerror)
            self._asked.close()
            self._asked = None
            return
        self._loop.add_reader(self._asked.fileno(), self._answer)

    def _answer(self) -> None:
        assert self._asked is not None
        with suppress(OSError):
            heir, _ = self._asked.accept()
            if self._heir is not None or not _is_trusted(heir):
                heir.close()
                return
            heir.setblocking(False)
            socket.send_fds(heir, [GREETING], [self._listener.fileno()])
            self._heir = heir
            self._loop.add_reader(heir.fileno(), self._heir_ended)
            log("port shared with a new service")

    def _heir_ended(self) -> None:
        assert self._heir is not None
        self._forget(self._heir)
        self._heir = None

    def _forget(self, connection: socket.socket) -> None:
        self._loop.remove_reader(connection.fileno())
        connection.close()

    def close(self) -> None:
        for connection in (self._asked, self._predecessor, self._heir):  # the heir takes the name when it notices
            if connection is not None:
                self._forget(connection)
        self._heir = self._predecessor = self._asked = None


def take_over(host: str, port: int) -> tuple[socket.socket, socket.socket] | None:
    """The listening socket of a service that runs on an address, and the connection to that service; None if there is none."""
    try:
        address = socket.getaddrinfo(host, port, family_of(host), socket.SOCK_STREAM)[0][4]
    except OSError:
        return None
    service = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    service.settimeout(ANSWER_SECONDS)
    listener: socket.socket | None = None
    try:
        service.connect(_name(address))
        if _is_trusted(service):
            _, files, _, _ = socket.recv_fds(service, len(GREETING), 1, socket.MSG_CMSG_CLOEXEC)
            listener = socket.socket(fileno=files[0]) if files else None
            if listener is not None and listener.getsockname()[:2] == address[:2]:
                listener.setblocking(False)
                service.setblocking(False)
                return listener, service
    except OSError:
        pass
    for opened in (service, listener):
        if opened is not None:
            opened.close()
    return None


def _address_of(listener: socket.socket) -> str:
    return _name(listener.getsockname())


def _name(address: Any) -> str:
    return f"\0everypair-serve/{address[0]}/{address[1]}"


def _is_trusted(connection: socket.socket) -> bool:
    """Whether the process at the other end belongs to the same user, or to root."""
    _, user, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    return user in (os.getuid(), 0)
