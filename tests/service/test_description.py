"""The API description, its examples, and the model card."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import everypair as ep
from everypair.service import Limits, Settings
from everypair.service.app import build_app
from everypair.service.errors import STATUSES
from everypair.service.model_slot import ModelSlot
from everypair.service.readiness import Readiness
from everypair.service.served_model import ServedModel

from services import AppClient, create_app, dataset, fitted

USERS = dataset().users.values.to_pylist()
TOKEN, RECOMMEND = "a token that is long enough", "a small token that is long enough"


def test_the_model_card_has_the_evaluation(tmp_path: Path) -> None:
    given = fitted()
    given.evaluation_ = {"queries": 5, "metrics": {"ndcg@10": {"value": 0.5, "low": 0.4, "high": 0.6}}, "notes": []}
    given.save(tmp_path)
    assert ep.load(tmp_path).evaluation_ == given.evaluation_
    assert AppClient(create_app(tmp_path)).get("/model").json()["facts"]["evaluation"] == given.evaluation_
    given.evaluation_ = {"metrics": {"ndcg@10": {"value": float("nan")}}}
    assert AppClient(create_app(given)).get("/model").json()["facts"]["evaluation"] == {"metrics": {"ndcg@10": {"value": None}}}


def test_the_api_description_needs_no_network(service: AppClient) -> None:
    page = service.get("/docs")
    assert "unsafe-inline" in page.headers["content-security-policy"]
    for name in ("swagger-ui-bundle.js", "swagger-ui.css", "start.js"):
        assert service.get(f"/docs/{name}").status_code == 200
    assert "https://" not in page.text
    described = service.get("/openapi.json").json()
    versioned = {f"/v1/{path}" for path in ("recommend", "recommend/batch", "similar", "explain", "items", "reload")}
    assert versioned | {"/live", "/ready", "/health", "/metrics"} <= set(described["paths"])
    assert not [path for path in described["paths"] if f"/v1{path}" in described["paths"]], "aliases are not described"


def operations(description: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    return [
        (method.upper(), path, operation) for path, methods in description["paths"].items() for method, operation in methods.items()
    ]


def test_every_operation_is_described(service: AppClient) -> None:
    """With a tag, a summary of its own, and all statuses that it may have."""
    description = service.get("/openapi.json").json()
    found = operations(description)
    tags = {tag["name"] for tag in description["tags"]}
    assert len({operation["summary"] for _, _, operation in found}) == len(found)
    assert len({operation["operationId"] for _, _, operation in found}) == len(found)
    for _, path, operation in found:
        assert len(operation["summary"].split()) > 2, path
        assert set(operation["tags"]) < tags
        assert {int(status) for status in operation["responses"]} == {200, *STATUSES}
        assert all(response["description"] for response in operation["responses"].values())


SHOPS: dict[str, Any] = {
    "FM": fitted,
    "MF": lambda: fitted(ep.MF(factors=2, epochs=1), context=[ep.UserId()]),
    "PARAFAC": lambda: fitted(ep.PARAFAC(factors=2, epochs=1), context=[ep.UserId(), ep.Previous()]),
    "Popularity": lambda: fitted(ep.Popularity(), context=[ep.UserId()]),
    "CoView": lambda: fitted(ep.CoView(), context=[ep.Previous()]),
    "integers": lambda: integers(),
}


def integers() -> ep.Recommender:
    """With ids that are integers, and attributes of all kinds."""
    events = {"user": [1, 1, 2, 2, 3], "item": [10, 11, 10, 12, 11], "hour": [0.5, 1.5, 2.5, 3.5, 4.5]}
    users = {"user": [1, 2, 3], "member": [True, False, True], "likes": ["a|b", "b", ""], "level": [1, 2, 1]}
    users |= {"tags": [["x"], ["x", "y"], []]}
    recipes = [ep.Attributes("hour", kind="bins"), ep.Attributes("likes", separator="|"), ep.Attributes("member", "level", "tags")]
    return ep.Recommender(ep.FM(factors=2, epochs=1), context=recipes).fit(ep.Dataset(events, users))


@pytest.mark.parametrize("limits", [{}, {"n": 2, "batch": 1, "history": 1}], ids=["default limits", "small limits"])
@pytest.mark.parametrize("shop", SHOPS)
def test_examples_can_be_sent(shop: str, limits: Any) -> None:
    """They are requests that this model answers, with its ids, attributes and types."""
    client = AppClient(create_app(SHOPS[shop](), Settings(Limits(**limits))))
    sent = set()
    for method, path, operation in operations(client.get("/openapi.json").json()):
        if "requestBody" in operation:
            for example in operation["requestBody"]["content"]["application/json"].get("examples", {}).values():
                answer = client(method, path, example["value"])
                assert answer.status_code == 200, (path, example, answer.text)
                assert answer.json().get("unknown", {}) == {}
                sent.add(path)
        elif any("example" in parameter for parameter in operation.get("parameters", ())):
            values = {parameter["name"]: parameter["example"] for parameter in operation["parameters"] if "example" in parameter}
            answer = client(method, path, params=values)
            assert answer.status_code == 200, (path, values, answer.text)
            sent.add(path)
    assert {"/v1/recommend", "/v1/recommend/batch", "/v1/explain", "/v1/profile", "/v1/items", "/v1/users"} <= sent
    assert ("/v1/similar" in sent) == client.get("/v1/model").json()["facts"]["has_map"]


def test_examples_are_those_of_the_model_in_use(tmp_path: Path) -> None:
    fitted().save(tmp_path)
    client = AppClient(create_app(tmp_path))

    def example() -> Any:
        operation = client.get("/openapi.json").json()["paths"]["/v1/profile"]["post"]
        return next(iter(operation["requestBody"]["content"]["application/json"]["examples"].values()))["value"]

    assert example()["user"] in USERS
    integers().save(tmp_path)
    assert client("POST", "/v1/reload").json()["changed"] is True
    assert example()["user"] in (1, 2, 3)


def test_examples_are_for_those_who_may_ask(recommender: ep.Recommender) -> None:
    """The description is public, ids of the data are not."""
    app = create_app(recommender, Settings(token=TOKEN, recommend_token=RECOMMEND))
    anonymous, small, full = (AppClient(app, authorization=f"Bearer {token}") for token in ("", RECOMMEND, TOKEN))
    ids = re.compile(r'"[uv]\d\d"')
    assert not ids.search(anonymous.get("/openapi.json").text)
    assert not ids.search(small.get("/openapi.json").text)
    assert ids.search(full.get("/openapi.json").text)


def test_scopes_are_described(recommender: ep.Recommender) -> None:
    both = AppClient(create_app(recommender, Settings(token=TOKEN, recommend_token=RECOMMEND))).get("/openapi.json").json()
    assert set(both["components"]["securitySchemes"]) == {"token", "recommend_token"}
    assert both["security"] == [{"token": []}]
    assert both["paths"]["/v1/similar"]["post"]["security"] == [{"token": []}, {"recommend_token": []}]
    assert both["paths"]["/ready"]["get"]["security"] == []
    assert "security" not in both["paths"]["/v1/users"]["get"]
    assert "security" not in AppClient(create_app(recommender)).get("/openapi.json").json()


# /live and /ready


def test_a_worker_that_drains_is_not_ready(recommender: ep.Recommender) -> None:
    readiness = Readiness()
    slot = ModelSlot(ServedModel(recommender))
    client = AppClient(build_app(slot, Settings(token=TOKEN), readiness=readiness))
    assert client.get("/live").json() == {"status": "live"}
    assert client.get("/ready").json() == {"status": "ready", "model": "unsaved"}
    readiness.drain()
    assert not readiness.ready
    answer = client.get("/ready")
    assert answer.status_code == 503
    assert answer.json()["error"] == {"code": "not_ready", "message": readiness.reason, "fields": []}
    assert client.get("/live").status_code == client.get("/health").status_code == 200
    assert AppClient(build_app(slot, Settings())).get("/ready").status_code == 200
