"""Sockets between the processes of a fit: frames of known shape, and what becomes of those who send others.

A frame has the number of the exchange, its name and the shape of its arrays, and is refused unless these are the receiver's own:
so processes that diverge stop at once. Nothing that comes from a socket is unpickled, and nothing is allocated by a size that it
names, but for texts, which have a limit.
"""

from __future__ import annotations

import hmac
import secrets
import selectors
import socket
import struct
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

import numpy as np

from everypair.runtime.group import GroupError

MAGIC = b"EPG1"
PREFIX = struct.Struct("!4sBQHQ")  # magic, kind, number, length of the header, length of the payload
DATA, ABORT = 1, 2
HEADER = 1_024  # bytes of a header at most
TEXT = 4_096  # bytes of a reason at most
BUFFER = 2**22  # bytes that a socket may hold, as far as the system lets it
NONCE = 32
DIGEST = 32
LAST_WORDS = 0.5  # seconds in which the others can read why a process stops
HANDSHAKE = 10.0  # seconds for a connection to show its token


class Address(NamedTuple):
    """Where a process listens."""

    host: str
    port: int


class Call(NamedTuple):
    """What an exchange is for: the same for all processes, or they have diverged."""

    number: int
    name: str
    dtype: str
    shape: tuple[int, ...]

    def header(self) -> bytes:
        return f"{self.name[:400]}|{self.dtype}|{','.join(map(str, self.shape))}".encode()[:HEADER]

    def __str__(self) -> str:
        return f"sum {self.number:,}, {self.name}, {self.dtype} {self.shape}"


class Listener:
    """A socket on which a process waits for those of higher number."""

    def __init__(self, host: str) -> None:
        self._socket = socket.create_server((host, 0), backlog=128)
        self.address = Address(*self._socket.getsockname()[:2])

    def accept(self, rank: int, others: Sequence[int], token: bytes, timeout: float) -> dict[int, socket.socket]:
        """Connections of these processes; one without the token is closed, and changes nothing."""
        found: dict[int, socket.socket] = {}
        deadline = time.monotonic() + timeout
        while missing := [other for other in others if other not in found]:
            self._socket.settimeout(max(deadline - time.monotonic(), 0.01))
            try:
                connection, _ = self._socket.accept()
            except TimeoutError as error:
                raise GroupError(f"process {rank} waited {timeout:g} s for connections of {_listed(missing)}.") from error
            other = _admitted(connection, rank, token)
            if other in missing:
                found[other] = connection  # type: ignore[index]
            else:
                connection.close()
        return found

    def close(self) -> None:
        self._socket.close()


def _admitted(connection: socket.socket, rank: int, token: bytes) -> int | None:
    """The number of a process that knows the token; None for anyone else."""
    try:
        connection.settimeout(HANDSHAKE)
        nonce = secrets.token_bytes(NONCE)
        connection.sendall(nonce)
        said = _read(connection, 4 + NONCE + DIGEST)
        number, theirs, proof = said[:4], said[4 : 4 + NONCE], said[4 + NONCE :]
        if not hmac.compare_digest(proof, _proof(token, b"connect", nonce, number, theirs)):
            return None
        connection.sendall(_proof(token, b"accept", theirs, struct.pack("!I", rank), nonce))
        return int(struct.unpack("!I", number)[0])
    except (OSError, GroupError):
        return None


def connect(address: Address, rank: int, other: int, token: bytes, timeout: float) -> socket.socket:
    """A connection to process ``other``, which has shown that it knows the token, too."""
    try:
        connection = socket.create_connection(address, timeout=timeout)
    except OSError as error:
        raise GroupError(f"process {rank} cannot connect to process {other} at {address.host}:{address.port}: {error}.") from error
    try:
        connection.settimeout(timeout)
        nonce, own = _read(connection, NONCE), secrets.token_bytes(NONCE)
        number = struct.pack("!I", rank)
        connection.sendall(number + own + _proof(token, b"connect", nonce, number, own))
        if not hmac.compare_digest(_read(connection, DIGEST), _proof(token, b"accept", own, struct.pack("!I", other), nonce)):
            raise GroupError("it does not know the token of this run")
    except (OSError, GroupError) as error:
        connection.close()
        raise GroupError(f"process {other} at {address.host}:{address.port} did not let process {rank} in: {error}.") from error
    return connection


def _proof(token: bytes, *parts: bytes) -> bytes:
    return hmac.digest(token, b"".join(parts), "sha256")


def _read(connection: socket.socket, n: int) -> bytes:
    found = bytearray()
    while len(found) < n:
        more = connection.recv(n - len(found))
        if not more:
            raise GroupError("a connection was closed.")
        found += more
    return bytes(found)


class _Reading:
    """The frame that is expected of another process."""

    def __init__(self, call: Call, payload: memoryview | None, limit: int) -> None:
        self._call, self._limit = call, limit
        self._into = memoryview(bytearray(PREFIX.size))
        self._have, self._part = 0, 0
        self._kind, self._number, self._lengths = DATA, 0, (0, 0)
        self.payload = payload  # where to, if its size is known
        self.text = b""

    def read(self, connection: socket.socket) -> bool:
        """Read what is there; whether the frame is complete."""
        while True:
            if self._have == len(self._into):
                if self._next_part():
                    return True
                continue
            try:
                n = connection.recv_into(self._into[self._have :])
            except (BlockingIOError, InterruptedError):
                return False
            if n == 0:
                raise ConnectionResetError("the connection was closed")
            self._have += n

    def _next_part(self) -> bool:
        """After prefix, header and payload."""
        self._part += 1
        done, self._have = self._into, 0
        if self._part == 1:
            magic, self._kind, self._number, header, payload = PREFIX.unpack(done)
            if magic != MAGIC or self._kind not in (DATA, ABORT) or header > HEADER:
                raise GroupError("what came is no frame of this protocol.")
            self._lengths = header, payload
            self._into = memoryview(bytearray(header))
            return False
        if self._part == 2:
            self._header_is(bytes(done))
            return False
        if self._kind == ABORT:
            raise GroupError(bytes(done).decode(errors="replace"))
        self.text = b"" if self.payload is not None else bytes(done)
        return True

    def _header_is(self, header: bytes) -> None:
        n = self._lengths[1]
        if self._kind == ABORT:
            if n > TEXT:
                raise GroupError("a reason to stop is too long.")
            self._into = memoryview(bytearray(n))
            return
        own = self._call.header()
        expected = n <= self._limit if self.payload is None else n == len(self.payload)
        if self._number != self._call.number or header != own or not expected:
            name, dtype, shape = [*header.decode(errors="replace").split("|"), "", ""][:3]
            raise OtherSumError(f"sum {self._number:,}, {name}, {dtype} ({shape}), {n:,} bytes")
        self._into = memoryview(bytearray(n)) if self.payload is None else self.payload


class OtherSumError(GroupError):
    """Another process asks for another sum; the message says for which."""


class Links:
    """Connections of process ``rank`` to all others.

    Parameters
    ----------
    rank : int
    connections : mapping
        By number of the other process.
    timeout : float
        Seconds without a byte from processes that are waited for, after which the run fails.
    """

    def __init__(self, rank: int, connections: Mapping[int, socket.socket], timeout: float) -> None:
        self.rank, self._connections, self._timeout = rank, dict(connections), timeout
        self.sent = self.received = 0  # bytes
        self._midway: set[int] = set()  # processes that have a part of a frame
        for connection in self._connections.values():
            connection.setblocking(False)
            if connection.family in (socket.AF_INET, socket.AF_INET6):
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                for buffer in (socket.SO_SNDBUF, socket.SO_RCVBUF):
                    connection.setsockopt(socket.SOL_SOCKET, buffer, BUFFER)

    @property
    def others(self) -> list[int]:
        return sorted(self._connections)

    def exchange(self, call: Call, out: Mapping[int, Sequence[np.ndarray]], into: Mapping[int, np.ndarray]) -> None:
        """Send arrays to each other process, and receive one from each."""
        reading = {other: _Reading(call, _bytes_of(into[other]), 0) for other in self.others}
        self._run(call, {other: [_bytes_of(array) for array in out[other]] for other in self.others}, reading)

    def gather(self, call: Call, own: bytes, limit: int) -> dict[int, bytes]:
        """What each process says, up to so many bytes."""
        if len(own) > limit:
            raise GroupError(f"process {self.rank} has {len(own):,} bytes to say, and the limit is {limit:,}: {call}.")
        reading = {other: _Reading(call, None, limit) for other in self.others}
        self._run(call, {other: [memoryview(own)] for other in self.others}, reading)
        return {**{other: reader.text for other, reader in reading.items()}, self.rank: own}

    def _run(self, call: Call, out: Mapping[int, list[memoryview]], reading: Mapping[int, _Reading]) -> None:
        header = call.header()
        sending: dict[int, list[memoryview]] = {}
        for other, parts in out.items():
            n = sum(len(part) for part in parts)
            frame = PREFIX.pack(MAGIC, DATA, call.number, len(header), n) + header
            sending[other] = [memoryview(frame), *[part for part in parts if len(part)]]
            self.sent += len(frame) + n
        waiting = set(self.others)
        with selectors.DefaultSelector() as selector:
            for other, connection in self._connections.items():
                selector.register(connection, selectors.EVENT_READ | selectors.EVENT_WRITE, other)
            while waiting or any(sending.values()):
                ready = selector.select(self._timeout)
                if not ready:
                    late = sorted(waiting | {other for other, parts in sending.items() if parts})
                    raise GroupError(f"{_listed(late)} did not answer for {self._timeout:g} s: {call}.")
                for key, events in ready:
                    self._serve(key.fileobj, key.data, events, sending, reading, waiting, call)
                    wanted = (selectors.EVENT_READ if key.data in waiting else 0) | (
                        selectors.EVENT_WRITE if sending[key.data] else 0
                    )
                    if not wanted:
                        selector.unregister(key.fileobj)
                    elif wanted != key.events:
                        selector.modify(key.fileobj, wanted, key.data)

    def _serve(self, connection: Any, other: int, events: int, sending: Any, reading: Any, waiting: set[int], call: Call) -> None:
        try:
            if events & selectors.EVENT_READ and other in waiting and reading[other].read(connection):
                waiting.discard(other)
                self.received += PREFIX.size + len(call.header()) + len(reading[other].payload or reading[other].text)
            if events & selectors.EVENT_WRITE:
                while sending[other]:
                    part = sending[other][0]
                    n = connection.send(part)
                    self._midway.add(other)
                    if n < len(part):
                        sending[other][0] = part[n:]
                    else:
                        sending[other].pop(0)
                self._midway.discard(other)
        except (BlockingIOError, InterruptedError):
            pass
        except OtherSumError as error:
            raise GroupError(
                f"the processes have diverged: process {self.rank} asks for {call}; process {other} for {error}."
            ) from None
        except OSError as error:
            self._last_words(connection, reading[other])
            raise GroupError(f"process {other} is gone ({error}): {call}.") from error

    @staticmethod
    def _last_words(connection: Any, reader: _Reading) -> None:
        """Why a process left, if it said so before its connection was closed."""
        try:
            while not reader.read(connection):
                pass
        except OSError:
            return

    def abort(self, reason: str) -> None:
        """Tell all others why this process stops, as far as that is possible at once."""
        text = reason.encode()[:TEXT]
        frame = PREFIX.pack(MAGIC, ABORT, 0, 0, len(text)) + text
        for other, connection in self._connections.items():
            try:
                if other not in self._midway:
                    connection.settimeout(0.2)
                    connection.sendall(frame)
                connection.shutdown(socket.SHUT_WR)
            except OSError:
                continue
        until = time.monotonic() + LAST_WORDS
        for connection in self._connections.values():  # what is not read when a socket is closed takes the last frame along
            try:
                while time.monotonic() < until:
                    connection.settimeout(max(until - time.monotonic(), 0.01))
                    if not connection.recv(65_536):
                        break
            except OSError:
                continue

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()


def linked(rank: int, listener: Listener, addresses: Mapping[int, Address], token: bytes, timeout: float) -> Links:
    """Process ``rank`` connected to all others: it connects to those before it, and waits for those after it."""
    connections = {other: connect(addresses[other], rank, other, token, timeout) for other in range(rank)}
    connections |= listener.accept(rank, range(rank + 1, len(addresses)), token, timeout)
    listener.close()
    return Links(rank, connections, timeout)


def _bytes_of(array: np.ndarray) -> memoryview:
    return memoryview(cast(Any, array.reshape(-1).view(np.uint8))) if array.size else memoryview(b"")


def _listed(ranks: Sequence[int]) -> str:
    return f"process{'es' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"
