"""Limits of size, time and concurrency, and bodies that are refused."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

import everypair as ep
from everypair.service import Limits, Settings
from everypair.service.middleware import CONNECTION_KEY
from everypair.service.served_model import ServedModel

from services import WAIT, AppClient, create_app, dataset

DATA = dataset()
USERS, ITEMS = DATA.users.values.to_pylist(), DATA.items.values.to_pylist()


async def endless() -> AsyncIterator[bytes]:
    """A body without a declared length."""
    while True:
        yield b"u" * 100


class Sender:
    """Sends a request to an application, its body bit by bit, without a network."""

    def __init__(self, app: Any, path: str = "/v1/recommend", **headers: str) -> None:
        self.messages: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.status: int | None = None
        self.headers: dict[bytes, bytes] = {}
        self.arrived = asyncio.Event()  # the first part of the body
        pairs = {"host": "localhost", "content-type": "application/json", "transfer-encoding": "chunked", **headers}
        scope = {
            "type": "http", "method": "POST", "path": path, "query_string": b"", "root_path": "",
            "headers": [(name.encode(), value.encode()) for name, value in pairs.items()],
        }  # fmt: skip
        self.done = asyncio.ensure_future(app(scope, self._receive, self._send))

    async def _receive(self) -> dict[str, Any]:
        message = await self.messages.get()
        if self.messages.empty():
            self.arrived.set()
        return message

    async def _send(self, message: Any) -> None:
        self.status = message.get("status", self.status)
        self.headers |= dict(message.get("headers", ()))

    def body(self, content: bytes, more: bool = False) -> Sender:
        self.messages.put_nowait({"type": "http.request", "body": content, "more_body": more})
        return self


def test_requests_count_when_their_bodies_are_there(recommender: ep.Recommender) -> None:
    """Those that send slowly take no place of others."""
    app = create_app(recommender, Settings(Limits(concurrent=2)))

    async def statuses() -> list[int | None]:
        slow = [Sender(app).body(b'{"user": ', more=True) for _ in range(20)]
        for sender in slow:
            await sender.arrived.wait()
        body = b'{"user": "%s"}' % USERS[0].encode()
        for sender in (found := [Sender(app).body(body), Sender(app).body(body)]):
            await sender.done
        for sender in slow:
            await sender.body(b'"%s"}' % USERS[1].encode()).done
        return [sender.status for sender in (*found, *slow)]

    found = asyncio.run(statuses())
    assert found[:2] == [200, 200]
    assert set(found[2:]) <= {200, 429}, "they are answered when they are complete, or refused if too many are"
    assert 200 in found[2:]


def test_slow_bodies_have_a_limit_of_their_own(recommender: ep.Recommender) -> None:
    app = create_app(recommender, Settings(Limits(receive_seconds=0.1)))

    async def sent() -> Sender:
        sender = Sender(app).body(b"{", more=True)
        await sender.done
        return sender

    sender = asyncio.run(sent())
    assert sender.status == 408
    assert sender.headers[b"connection"] == b"close"


def test_large_bodies_that_arrive_at_a_time_are_limited_in_all(recommender: ep.Recommender) -> None:
    app = create_app(recommender, Settings(Limits(concurrent=2, body=1_000)))

    async def statuses() -> list[int | None]:
        slow = [Sender(app).body(b'{"user": "' + b"u" * 900, more=True) for _ in range(2)]
        for sender in slow:
            await sender.arrived.wait()
        refused = Sender(app).body(b"{" * 900, more=True)
        await refused.done
        small = Sender(app).body(b'{"user": "%s"}' % USERS[0].encode())
        await small.done
        for sender in slow:
            await sender.body(b'"}').done
        return [refused.status, small.status, *(sender.status for sender in slow)]

    assert asyncio.run(statuses()) == [429, 200, 404, 404]


def test_a_token_is_checked_before_the_body_is_read(recommender: ep.Recommender) -> None:
    app = create_app(recommender, Settings(token="a token that is long enough"))

    async def status(**headers: str) -> int | None:
        sender = Sender(app, **headers)  # which sends nothing of its body
        await asyncio.wait_for(sender.done, WAIT)
        return sender.status

    assert asyncio.run(status()) == 401
    assert asyncio.run(status(authorization="Bearer another token, just as long")) == 401
    assert asyncio.run(status(host="", origin="http://other.example")) == 403


def limited(recommender: ep.Recommender, **limits: Any) -> AppClient:
    return AppClient(create_app(recommender, Settings(Limits(**limits))))


def test_limits_are_enforced(recommender: ep.Recommender) -> None:
    client = limited(recommender, n=5, batch=2, history=3, ids=2, body=300)
    assert client.post("/recommend", user=USERS[0], n=5).status_code == 200
    assert client.post("/recommend", user=USERS[0], n=6).status_code == 422
    assert client.post("/recommend/batch", users=USERS[:3]).status_code == 422
    assert client.post("/recommend", request={"history": ITEMS[:4]}).status_code == 422
    assert client.post("/recommend", user=USERS[0], allow=ITEMS[:3]).status_code == 422
    large = client.post("/recommend", user="u" * 300)
    assert large.status_code == 413
    assert "300 bytes" in large.json()["error"]["message"]
    assert client("POST", "/recommend", content=endless()).status_code == 413
    fields = client.get("/openapi.json").json()["components"]["schemas"]["Recommend"]["properties"]
    assert fields["n"]["maximum"] == 5


@pytest.mark.parametrize(
    "limits", [{"n": 0}, {"seconds": 0.0}, {"body": 1.5}, {"concurrent": -1}, {"receive_seconds": 0.0}, {"connections": 0}]
)
def test_invalid_limits(limits: Any) -> None:
    with pytest.raises((ValueError, TypeError), match=next(iter(limits))):
        Limits(**limits)


def with_similar_held(recommender: ep.Recommender, monkeypatch: pytest.MonkeyPatch, refusals: int, **limits: Any) -> AppClient:
    """A client of an application that works on /similar until it has refused so many requests."""
    similar, refused, release = ServedModel.similar, [], threading.Event()

    def held_similar(self: ServedModel, **fields: Any) -> Any:
        release.wait(WAIT)
        return similar(self, **fields)

    held_similar.__name__ = "similar"
    monkeypatch.setattr(ServedModel, "similar", held_similar)
    app = create_app(recommender, Settings(Limits(**limits)))

    async def observed(scope: Any, receive: Any, send: Any) -> None:
        async def observe(message: Any) -> None:
            await send(message)
            if message.get("status") in (429, 503):
                refused.append(message)
                if len(refused) == refusals:
                    release.set()

        await app(scope, receive, observe)

    return AppClient(observed)


def test_a_request_that_takes_too_long(recommender: ep.Recommender, monkeypatch: pytest.MonkeyPatch) -> None:
    client = with_similar_held(recommender, monkeypatch, refusals=1, seconds=0.2)
    answer = client.post("/similar", item=ITEMS[0])
    assert answer.status_code == 503
    assert answer.json()["error"]["code"] == "timeout"
    assert "0.2 seconds" in answer.json()["error"]["message"]


class Connection:
    """One whose client reads the headers of a response and no more."""

    def __init__(self) -> None:
        self.accepted, self.aborted, self.status = False, False, 0

    def accept(self) -> None:
        self.accepted = True

    def abort(self) -> None:
        self.aborted = True

    async def send(self, message: Any) -> None:
        self.status = message.get("status", self.status)
        if message["type"] == "http.response.body" and self.status == 200:
            await asyncio.Event().wait()


def test_responses_that_clients_do_not_read_are_aborted(recommender: ep.Recommender) -> None:
    app = create_app(recommender, Settings(Limits(seconds=0.5)))

    async def ask() -> Connection:
        connection, pairs = Connection(), {b"host": b"localhost"}
        scope = {
            "type": "http",
            "method": "GET",
            "path": "/live",
            "query_string": b"",
            "root_path": "",
            "headers": [*pairs.items()],
        }
        unread = [{"type": "http.request", "body": b"", "more_body": False}]

        async def receive() -> Any:
            return unread.pop() if unread else await asyncio.Event().wait()

        await app({**scope, CONNECTION_KEY: connection}, receive, connection.send)
        return connection

    connection = asyncio.run(ask())
    assert (connection.accepted, connection.aborted) == (True, True)


def test_an_event_loop_that_ends_during_a_batch(recommender: ep.Recommender, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests of the next event loop do not wait for that batch."""
    app, recommend_together = create_app(recommender), ServedModel.recommend_together
    begun, release = threading.Event(), threading.Event()

    def slow(self: ServedModel, bodies: Any) -> Any:
        begun.set()
        release.wait(WAIT)
        return recommend_together(self, bodies)

    monkeypatch.setattr(ServedModel, "recommend_together", slow)

    async def impatient() -> None:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
            asking = asyncio.ensure_future(client.post("/recommend", json={"user": USERS[0]}))
            await asyncio.to_thread(begun.wait, WAIT)
            asking.cancel()

    asyncio.run(impatient())
    release.set()
    assert AppClient(app).post("/recommend", user=USERS[0]).status_code == 200


def test_too_many_concurrent_requests(recommender: ep.Recommender, monkeypatch: pytest.MonkeyPatch) -> None:
    client = with_similar_held(recommender, monkeypatch, refusals=3, concurrent=3)
    sent: Any = [("POST", "/similar", {"item": ITEMS[0]}, {})] * 6 + [("GET", "/health", None, {})]
    answers = client.concurrently(sent)
    assert sorted(answer.status_code for answer in answers) == [200] * 4 + [429] * 3
    assert answers[-1].status_code == 200
    busy = next(answer for answer in answers if answer.status_code == 429)
    assert busy.headers["retry-after"] == "1"
    assert client.post("/similar", item=ITEMS[0]).status_code == 200


# bodies


def test_bodies_where_none_is_expected(service: AppClient) -> None:
    """However small. Where there is no such route, that is the answer."""
    for content in (b"x" * 2_000, b"{}"):
        for method, path, status in (
            ("GET", "/v1/items", 413), ("POST", "/v1/reload", 413), ("GET", "/health", 413), ("GET", "/page/page.js", 413),
            ("POST", "/health", 405), ("POST", "/", 405), ("POST", "/nothing", 404), ("POST", "/v1/recomend", 404),
        ):  # fmt: skip
            answer = service(method, path, content=content, headers={"content-type": "application/json"})
            assert answer.status_code == status, path
            assert answer.json()["error"]["message"]
        assert service("POST", "/v1/reload", content=_one_by_one(content)).status_code == 413
    assert service("GET", "/items/").status_code == 404


async def _one_by_one(content: bytes) -> AsyncIterator[bytes]:
    """A body without a declared length."""
    for j in range(len(content)):
        yield content[j : j + 1]


def test_bodies_must_have_the_content_type_of_json(service: AppClient) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded", ""):
        answer = service("POST", "/recommend", content=b'{"user": "u01"}', headers={"content-type": kind})
        assert answer.status_code == 415
    assert service(
        "POST", "/recommend", content=b'{"user": "u01"}', headers={"content-type": "application/json; charset=utf-8"}
    ).is_success
