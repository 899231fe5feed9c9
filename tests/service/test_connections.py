"""Connections of a worker: slow clients, what is no HTTP, and more connections than there is room for."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import everypair as ep
from everypair.service import Limits, Settings
from everypair.service import connection_pool as pool_module
from everypair.service.connection_pool import ConnectionPool
from everypair.service.served_model import ServedModel

from services import WAIT, create_app, dataset, listening, read_to_end, send_raw

USERS = dataset().users.values.to_pylist()
TOKEN = "a token that is long enough"
BODY = b'{"user": "%s"}' % USERS[0].encode()


def head(path: str = "/v1/recommend", length: int | None = len(BODY), token: str | None = None, method: str = "POST") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", "Content-Type: application/json"]
    lines += [] if length is None else [f"Content-Length: {length}"]
    lines += [] if token is None else [f"Authorization: Bearer {token}"]
    return "\r\n".join([*lines, "", ""]).encode()


LAST = b"GET /live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


def responses(received: bytes) -> list[tuple[int, dict[str, str], Any]]:
    """Status, headers and JSON of the responses on a connection."""
    found = []
    while received:
        first, _, received = received.partition(b"\r\n\r\n")
        status, *lines = first.decode().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        length = int(headers["content-length"])
        found.append((int(status.split()[1]), headers, json.loads(received[:length])))
        received = received[length:]
    return found


def only(received: bytes) -> tuple[int, str]:
    """The status and message of the only response, an error after which the connection is closed."""
    ((status, headers, body),) = responses(received)
    assert headers["connection"] == "close"
    assert headers["content-type"] == "application/json"
    assert headers["x-content-type-options"] == "nosniff"
    assert set(body["error"]) == {"code", "message", "fields"}
    return status, body["error"]["message"]


@pytest.fixture(scope="module")
def port(recommender: ep.Recommender) -> Iterator[int]:
    with listening(create_app(recommender), receive_seconds=WAIT) as port:
        yield port


# slow clients


def test_slow_bodies_take_no_place_of_authorised_clients(recommender: ep.Recommender) -> None:
    """Sockets that send one byte of a body, with the token and without."""
    limits = Limits(concurrent=4, receive_seconds=WAIT)
    app = create_app(recommender, Settings(limits, token=TOKEN))
    with listening(app, receive_seconds=WAIT) as port, ExitStack() as opened:
        for j in range(40):
            slow = opened.enter_context(socket.create_connection(("127.0.0.1", port), timeout=WAIT))
            slow.sendall(head(token=TOKEN if j % 2 else None) + b"{")
            if not j % 2:
                assert slow.recv(100).split()[1] == b"401", "at once"
        for _ in range(8):
            (found, _) = responses(send_raw(port, head(token=TOKEN) + BODY + LAST))
            assert found[0] == 200


@pytest.mark.full
def test_slow_headers_and_bodies(recommender: ep.Recommender) -> None:
    app = create_app(recommender, Settings(Limits(receive_seconds=2)))
    with listening(app, receive_seconds=2) as port:
        assert only(send_raw(port, head()[:40])) == (408, "the headers did not arrive in 2 seconds.")
        assert only(send_raw(port, head() + BODY[:3])) == (408, "the body did not arrive in 2 seconds.")
        assert send_raw(port, b"") == b"", "a connection without a request is closed"
        assert send_raw(port, b"\r\n") == b""


@pytest.mark.full
def test_bodies_of_refused_requests_are_read_and_dropped(recommender: ep.Recommender) -> None:
    """The connection can be used again, unless the body is slow or has no end."""
    with listening(create_app(recommender, Settings(token=TOKEN)), receive_seconds=WAIT) as port:
        found = responses(send_raw(port, head() + BODY[:3], BODY[3:] + LAST))
        assert [status for status, _, _ in found] == [401, 200]
    app = create_app(recommender, Settings(Limits(receive_seconds=2), token=TOKEN))
    with listening(app, receive_seconds=2) as port:
        for sent in (head() + BODY[:3], head(length=100_000_000) + b" " * 3_000_000, head() + BODY[:3] + b"\0"):
            ((status, _, _),) = responses(send_raw(port, sent))
            assert status == 401


@pytest.mark.full
def test_a_request_after_one_that_takes_long(recommender: ep.Recommender, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may wait longer than requests may take to arrive, and its errors come after the response before."""
    similar, release = ServedModel.similar, threading.Event()

    def held_similar(self: ServedModel, **fields: Any) -> Any:
        assert release.wait(WAIT)
        return similar(self, **fields)

    held_similar.__name__ = "similar"
    monkeypatch.setattr(ServedModel, "similar", held_similar)
    body, start = b'{"item": "v01"}', b"GET /live HTTP/1.1\r\nHost: localhost\r\n"
    with listening(create_app(recommender), receive_seconds=1.0) as port:
        for rest, statuses in ((b"Connection: close\r\n\r\n", [200, 200]), (b"\0", [200])):
            release.clear()
            with socket.create_connection(("127.0.0.1", port), timeout=WAIT) as connection:
                connection.sendall(head("/v1/similar", len(body)) + body + start)
                time.sleep(1.5)  # the time for headers passes
                connection.sendall(rest)
                assert send_raw(port, LAST)  # when this is answered, the worker has read the rest
                release.set()
                found = responses(read_to_end(connection))
            assert [status for status, _, _ in found] == statuses


# what is no HTTP


@pytest.mark.parametrize(
    ("content", "status", "words"),
    [
        (b"nonsense\r\n\r\n", 400, "not a request in HTTP/1.1"),
        (b"GET /health HTTP/9.9\r\nHost: localhost\r\n\r\n", 400, "HTTP version"),
        (b"GET http://[ HTTP/1.1\r\nHost: localhost\r\n\r\n", 400, "not a request in HTTP/1.1"),
        (b"POST /v1/recommend HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n", 400, "Content-Length"),
        (head(length=None)[:-2] + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", 400, "chunk size"),
        (b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 200_000 + b"\r\n\r\n", 431, "65,536 bytes"),
        (b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 2_000_000, 431, "65,536 bytes"),
        (b"GET /" + b"x" * 100_000, 431, "65,536 bytes"),
        (b"\r\n" * 100_000, 431, "65,536 bytes"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400, "not a request in HTTP/1.1"),
    ],
    ids=["no HTTP", "version", "URL", "length", "chunks", "long headers", "endless headers", "endless path", "no headers", "TLS"],
)
def test_errors_of_the_parser_are_json(port: int, content: bytes, status: int, words: str) -> None:
    last = LAST if content.startswith(b"GET /health") and content.endswith(b"\r\n\r\n") and status == 431 else b""
    found = send_raw(port, content + last)
    if last:  # the headers end, and the middleware refuses them
        first, *_ = responses(found)
        assert (first[0], first[2]["error"]["code"]) == (431, "too_large")
    else:
        code, message = only(found)
        assert code == status
        assert words in message


def test_an_error_within_a_body(port: int) -> None:
    """While the application waits for the rest of it."""
    chunked = head(length=None)[:-2] + b"Transfer-Encoding: chunked\r\n\r\n"
    with socket.create_connection(("127.0.0.1", port), timeout=WAIT) as connection:
        connection.sendall(chunked + b"3\r\n{  \r\n")
        assert send_raw(port, LAST)  # another request is answered meanwhile
        connection.sendall(b"nonsense\r\n")
        assert only(read_to_end(connection))[0] == 400


@given(content=st.binary(min_size=1, max_size=200), end=st.sampled_from([b"", b"\r\n\r\n"]))
def test_any_bytes_get_json_or_nothing(port: int, content: bytes, end: bytes) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=WAIT) as connection:
        connection.sendall(content + end)
        connection.shutdown(socket.SHUT_WR)
        for status, headers, body in responses(read_to_end(connection)):
            assert status >= 400
            assert headers["content-type"] == "application/json"
            assert body["error"]["message"]


def test_two_hosts_are_refused(port: int) -> None:
    for second in ("localhost", "other.example"):
        ((status, _, body), _) = responses(
            send_raw(port, f"GET /live HTTP/1.1\r\nHost: localhost\r\nHost: {second}\r\n\r\n".encode() + LAST)
        )
        assert status == 400
        assert "Host" in body["error"]["message"]


def test_head_sends_no_body(port: int) -> None:
    received = send_raw(port, b"HEAD /v1/items HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    assert received.startswith(b"HTTP/1.1 200")
    assert received.endswith(b"\r\n\r\n")


def test_refused_connections_are_counted(recommender: ep.Recommender) -> None:
    with listening(create_app(recommender)) as port:
        send_raw(port, b"nonsense\r\n\r\n")
        text = send_raw(port, b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert b'everypair_requests_total{route="other",status="400"} 1.0' in text


# more connections than there is room for


def test_new_connections_displace_those_that_do_nothing(recommender: ep.Recommender) -> None:
    """Clients that are authorised keep theirs, and others get in."""
    app = create_app(recommender, Settings(Limits(receive_seconds=WAIT), token=TOKEN))
    with listening(app, receive_seconds=WAIT, connections=10) as port, ExitStack() as opened:

        def connect() -> socket.socket:
            return opened.enter_context(socket.create_connection(("127.0.0.1", port), timeout=WAIT))

        def ask(connection: socket.socket) -> int:
            connection.sendall(head(token=TOKEN) + BODY)
            received = b""
            while b"}" not in received[-1:]:
                received += connection.recv(65_536)
            return responses(received)[0][0]

        client = connect()
        assert ask(client) == 200
        sent = [b"", head()[:20], head() + b"{", head(path="/live", method="GET", length=None)]
        strangers = []
        for j in range(60):
            strangers.append(connect())
            strangers[-1].sendall(sent[j % 4])
            if j % 10 == 0:
                assert ask(client) == 200
                assert ask(connect()) == 200
        assert ask(client) == 200
        for stranger in strangers[:30]:
            read_to_end(stranger)  # they are closed


class Connection:
    """A connection that is closed when the pool says so."""

    def __init__(self) -> None:
        self.open = True

    def evict(self) -> None:
        self.open = False


@given(
    most=st.integers(1, 5),
    steps=st.lists(st.tuples(st.sampled_from(["add", "accept", "answer", "remove"]), st.integers(0, 7)), max_size=60),
)
def test_the_pool_never_exceeds_its_limit_nor_closes_those_that_are_answered(most: int, steps: list[Any]) -> None:
    pool, connections, busy = ConnectionPool(most), [], set()
    for step, which in steps:
        if step == "add":
            connection = Connection()
            full = len(busy) == most
            assert pool.add(connection) is not full
            connections += [] if full else [connection]
        elif which < len(connections) and connections[which].open:
            chosen = connections[which]
            {"accept": pool.accepted, "answer": pool.answered, "remove": pool.remove}[step](chosen)
            busy = (busy | {chosen}) if step == "accept" else busy - {chosen}
            if step == "remove":
                connections.remove(chosen)
        connections = [connection for connection in connections if connection.open]
        assert all(connection.open for connection in busy)
        assert len(pool) == len(connections) <= most
        assert all(connection in pool for connection in connections)


def test_the_pool_leaves_files_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module.resource, "getrlimit", lambda _: (pool_module.RESERVED_FILES + 2, 10_000))
    pool, connections = ConnectionPool(100), [Connection() for _ in range(3)]
    for connection in connections:
        assert pool.add(connection)
    assert [connection.open for connection in connections] == [False, True, True]
