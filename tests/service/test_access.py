"""Who may do what: tokens and their scopes, hosts, origins, files, headers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import everypair as ep
from everypair.service import Settings

from services import AppClient, create_app, dataset, fitted

DATA = dataset()
USERS, ITEMS = DATA.users.values.to_pylist(), DATA.items.values.to_pylist()
TOKEN, NEXT, RECOMMEND, NEXT_RECOMMEND = (
    f"{name} token that is long enough" for name in ("a", "the next", "a small", "a next small")
)


def test_a_token_protects_all_data_of_the_model(recommender: ep.Recommender) -> None:
    app = create_app(recommender, Settings(token=TOKEN, host="0.0.0.0"))
    anonymous, authorized = AppClient(app), AppClient(app, authorization=f"Bearer {TOKEN}")
    for path in ("/items", "/users", "/model", "/map", "/metrics"):
        assert anonymous.get(path).status_code == 401
        assert authorized.get(path).status_code == 200
    for headers in ({}, {"authorization": TOKEN}, {"authorization": "Bearer wrong"}, {"authorization": f"Basic {TOKEN}"}):
        assert anonymous("POST", "/recommend", {"user": USERS[0]}, headers=headers).status_code == 401
    assert authorized.post("/recommend", user=USERS[0]).status_code == 200
    for path in ("/", "/page/page.js", "/health", "/docs", "/openapi.json"):
        assert anonymous.get(path).status_code == 200
    assert anonymous.get("/openapi.json").json()["security"] == [{"token": []}]


ROUTES = [
    ("POST", "/v1/recommend", {"user": USERS[0]}), ("POST", "/v1/recommend/batch", {"users": USERS[:1]}),
    ("POST", "/v1/similar", {"item": ITEMS[0]}), ("POST", "/v1/similar/batch", {"items": ITEMS[:1]}),
    ("POST", "/v1/explain", {"user": USERS[0], "item": ITEMS[0]}), ("POST", "/v1/place", {"user": USERS[0]}),
    ("POST", "/v1/profile", {"user": USERS[0]}), ("GET", "/v1/items", None), ("GET", "/v1/users", None), ("GET", "/v1/model", None),
    ("GET", "/v1/map", None), ("GET", "/metrics", None),
]  # fmt: skip
RECOMMENDATIONS = {"/v1/recommend", "/v1/recommend/batch", "/v1/similar", "/v1/similar/batch"}


@pytest.mark.parametrize("prefix", ["/v1", ""], ids=["under /v1", "as before"])
def test_scopes(recommender: ep.Recommender, prefix: str) -> None:
    """A token for recommendations is for these alone; of each scope two tokens are valid."""
    app = create_app(recommender, Settings(token=(TOKEN, NEXT), recommend_token=(RECOMMEND, NEXT_RECOMMEND)))
    for method, path, body in ROUTES:
        sent = path.replace("/v1", prefix)
        for token in (TOKEN, NEXT):
            assert AppClient(app, authorization=f"Bearer {token}")(method, sent, body).status_code == 200, path
        for token in (RECOMMEND, NEXT_RECOMMEND):
            answer = AppClient(app, authorization=f"Bearer {token}")(method, sent, body)
            assert answer.status_code == (200 if path in RECOMMENDATIONS else 403), path
            if answer.status_code == 403:
                assert "insufficient_scope" in answer.headers["www-authenticate"]
        anonymous = AppClient(app)(method, sent, body)
        assert anonymous.status_code == 401
        assert anonymous.headers["www-authenticate"] == "Bearer"
    assert AppClient(app, authorization=f"Bearer {RECOMMEND}")("POST", f"{prefix}/reload").status_code == 403


def test_a_token_for_recommendations_alone_opens_nothing_else(recommender: ep.Recommender) -> None:
    app = create_app(recommender, Settings(recommend_token=RECOMMEND, host="0.0.0.0"))
    client = AppClient(app, authorization=f"Bearer {RECOMMEND}")
    assert client.post("/v1/recommend", user=USERS[0]).status_code == 200
    assert [client.get(path).status_code for path in ("/v1/model", "/metrics", "/health")] == [403, 403, 200]
    assert AppClient(app).get("/v1/model").status_code == 401


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER", "bEaReR"])
def test_the_scheme_of_a_token_in_any_case(recommender: ep.Recommender, scheme: str) -> None:
    app = create_app(recommender, Settings(token=TOKEN))
    assert AppClient(app, authorization=f"{scheme} {TOKEN}").get("/v1/items").status_code == 200
    assert AppClient(app, authorization=f"{scheme} {TOKEN}x").get("/v1/items").status_code == 401
    assert AppClient(app, authorization=f"{scheme}{TOKEN}").get("/v1/items").status_code == 401


@pytest.mark.parametrize(
    ("tokens", "words"),
    [
        ({"token": (TOKEN, NEXT, RECOMMEND)}, "at most 2 tokens of a kind"),
        ({"recommend_token": "short"}, "16 or more"),
        ({"token": (TOKEN, "short")}, "16 or more"),
        ({"token": (TOKEN, NEXT), "recommend_token": NEXT}, "also one for everything"),
    ],
)
def test_tokens_that_are_refused(tokens: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Settings(**tokens)


def test_a_service_without_the_page(recommender: ep.Recommender) -> None:
    client = AppClient(create_app(recommender, Settings(page=False)))
    for path in ("/", "/page/page.js"):
        assert client.get(path).status_code == 404
    assert "page/" not in client.get("/docs").text
    for path in ("/docs", "/docs/icon.svg", "/openapi.json", "/v1/items", "/ready"):
        assert client.get(path).status_code == 200


def test_a_service_that_lists_no_users(recommender: ep.Recommender) -> None:
    client = AppClient(create_app(recommender, Settings(users=False)))
    for method, path, body in (("GET", "/v1/users", None), ("POST", "/v1/profile", {"user": USERS[0]})):
        for sent in (path, path.removeprefix("/v1")):
            assert client(method, sent, body).status_code == 404
        assert path not in client.get("/openapi.json").json()["paths"]
    assert client.get("/v1/model").json()["users"] is False
    assert AppClient(create_app(recommender)).get("/v1/model").json()["users"] is True
    assert client.post("/v1/recommend", user=USERS[0]).status_code == 200
    assert not [user for user in USERS if f'"{user}"' in client.get("/openapi.json").text]


@pytest.mark.parametrize("name", ["host", "authorization", "origin", "content-type"])
def test_headers_that_must_be_sent_once(service: AppClient, name: str) -> None:
    """Of two, a proxy and the service may each believe another."""
    values = {"host": "localhost", "origin": "http://localhost", "content-type": "application/json", "authorization": "Bearer x"}
    answer = service("POST", "/v1/recommend", {"user": USERS[0]}, headers=[(name, values[name])] * 2)
    assert answer.status_code == 400
    assert name.title() in answer.json()["error"]["message"]


def test_head_works_where_get_does(service: AppClient) -> None:
    for path in (
        "/",
        "/page/page.js",
        "/docs",
        "/health",
        "/live",
        "/ready",
        "/v1/items?limit=2",
        "/items",
        "/v1/model",
        "/metrics",
    ):
        head, body = service("HEAD", path), service.get(path)
        assert head.status_code == 200, path
        assert head.content == b""
        assert head.headers["content-type"] == body.headers["content-type"]
        assert head.headers["content-length"] == str(len(body.content)) or path == "/metrics"
    assert service("HEAD", "/nothing").status_code == 404
    refused = service("HEAD", "/v1/recommend")
    assert (refused.status_code, refused.headers["allow"]) == (405, "POST")
    assert service("POST", "/health").headers["allow"] == "GET, HEAD"


def test_paths_of_earlier_versions(service: AppClient) -> None:
    for method, path, body in ROUTES:
        if path.startswith("/v1"):
            new, old = service(method, path, body), service(method, path.removeprefix("/v1"), body)
            assert (new.status_code, new.content) == (200, old.content)


def test_a_token_must_be_hard_to_guess() -> None:
    with pytest.raises(ValueError, match="16 or more printable"):
        Settings(token="short")


def test_reload_from_other_machines_needs_a_token(tmp_path: Path) -> None:
    fitted().save(tmp_path)
    for settings_, status in (
        (Settings(), 200), (Settings(host="0.0.0.0"), 403), (Settings(host="::"), 403), (Settings(host="::1"), 200),
        (Settings(host="0.0.0.0", token=TOKEN), 200),
    ):  # fmt: skip
        client = AppClient(create_app(tmp_path, settings_), authorization=f"Bearer {TOKEN}")
        assert client("POST", "/reload").status_code == status, settings_


def test_hosts_and_origins(recommender: ep.Recommender) -> None:
    """On a loopback address without a token, only hosts of this machine; never pages of other sites."""
    own = AppClient(create_app(recommender))
    for host, status in (("localhost:8000", 200), ("127.0.0.1", 200), ("[::1]:80", 200), ("evil.example", 421), ("", 421)):
        assert own("GET", "/health", headers={"host": host}).status_code == status
    for origin, status in (("http://[", 403), ("", 403), ("http://localhost", 200), ("http://evil.example", 403), ("null", 403)):
        assert own("POST", "/recommend", {"user": USERS[0]}, headers={"origin": origin}).status_code == status
    named = AppClient(create_app(recommender, Settings(host="0.0.0.0", hosts=("Shop.example",))))
    assert named("GET", "/health", headers={"host": "shop.EXAMPLE:80"}).status_code == 200
    assert named("GET", "/health", headers={"host": "localhost"}).status_code == 421
    behind = {"host": "shop.example", "origin": "https://shop.example:8443"}  # a proxy in front
    assert named("GET", "/health", headers=behind).status_code == 200
    anyone = AppClient(create_app(recommender, Settings(host="0.0.0.0")))
    assert anyone("GET", "/health", headers={"host": "any.example"}).status_code == 200


def test_headers_of_every_response(service: AppClient) -> None:
    for path in ("/health", "/", "/nothing", "/page/page.css", "/docs"):
        headers = service.get(path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert "default-src 'none'" in headers["content-security-policy"]
        assert len(headers["x-request-id"]) == 16
    assert service("GET", "/health", headers={"x-request-id": "mine-7"}).headers["x-request-id"] == "mine-7"
    assert service("GET", "/health", headers={"x-request-id": "no\tgood"}).headers["x-request-id"] != "no\tgood"


def test_clients_cannot_reach_other_files(service: AppClient) -> None:
    for path in ("/page/../../recommender.py", "/page/%2e%2e%2fapp.py", "/page/index.html", "/docs/..%2f..", "/page//etc/passwd"):
        assert service.get(path).status_code == 404
