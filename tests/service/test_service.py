"""The application in this process: responses equal to the library's, bit for bit; refusals; reloads."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import everypair as ep
from everypair.service import Settings
from everypair.service.item_map import ItemMap
from everypair.service.item_search import ItemSearch
from everypair.service.served_model import ServedModel

from profiles import EXAMPLES
from services import WAIT, AppClient, create_app, dataset, fitted

DATA = dataset()
USERS, ITEMS = DATA.users.values.to_pylist(), DATA.items.values.to_pylist()


# lists

requests = st.fixed_dictionaries(
    {},
    optional={
        "country": st.sampled_from(["DE", "BR", "nowhere"]),
        "age": st.sampled_from(["25-34", None]),
        "history": st.lists(st.sampled_from([*ITEMS, "strange"]), max_size=6),
        "user": st.sampled_from([*USERS[:5], "stranger"]),
    },
)
filters = st.fixed_dictionaries(
    {"n": st.integers(1, 50)},
    optional={
        "exclude_seen": st.booleans(),
        "allow": st.lists(st.sampled_from([*ITEMS, "strange"]), min_size=1),
        "deny": st.lists(st.sampled_from([*ITEMS, "strange"])),
    },
)


def rows(table: Any) -> list[tuple[Any, float, int]]:
    return list(zip(table["item"].to_pylist(), table["score"].to_pylist(), table["rank"].to_pylist(), strict=True))


def entries(items: list[dict[str, Any]]) -> list[tuple[Any, float, int]]:
    return [(entry["item"], entry["score"], entry["rank"]) for entry in items]


@pytest.mark.filterwarnings("ignore::everypair.FewerItemsWarning")
@given(who=st.one_of(st.sampled_from(USERS), requests), options=filters)
@settings(max_examples=2 * EXAMPLES)
def test_lists_are_those_of_the_recommender(
    recommender: ep.Recommender, service: AppClient, who: Any, options: dict[str, Any]
) -> None:
    by_user = isinstance(who, str)
    wanted = recommender.recommend(**({"users": [who]} if by_user else {"requests": [who]}), **options)
    found = service.post("/recommend", **{"user" if by_user else "request": who}, **options)
    assert found.status_code == 200
    assert entries(found.json()["items"]) == rows(wanted)
    assert (found.json()["note"] is None) == (len(wanted) == options["n"])
    batch = service.post("/recommend/batch", **{"users" if by_user else "requests": [who, who]}, **options).json()
    assert [entries(items) for items in batch["lists"]] == [rows(wanted)] * 2


@pytest.mark.parametrize(
    "model",
    [
        (ep.MF(factors=4, epochs=2), {}),
        (ep.MFSI(factors=4, epochs=2), {"context": [ep.Attributes("country"), ep.UserId()]}),
        (ep.PARAFAC(factors=3, epochs=2), {"context": [ep.UserId(), ep.Previous()]}),
        (ep.Popularity(), {"context": [ep.UserId()]}),
        (ep.CoView(), {"context": [ep.Previous()]}),
    ],
    ids=lambda model: type(model[0]).__name__,
)
def test_every_kind_of_model_answers(model: Any, tmp_path: Path) -> None:
    fitted(model[0], **(model[1] or {"context": [ep.UserId()]})).save(tmp_path)
    loaded, client = ep.load(tmp_path), AppClient(create_app(tmp_path))
    for user in USERS[:3]:
        assert entries(client.post("/recommend", user=user, n=5).json()["items"]) == rows(loaded.recommend(users=[user], n=5))
        explained = client.post("/explain", user=user, item=ITEMS[4]).json()
        explanation = loaded.explain(user, ITEMS[4])
        assert explained["score"] == explanation.score
        assert [part["contribution"] for part in explained["contributions"]] == explanation.table["contribution"].to_pylist()
    facts = client.get("/model").json()["facts"]
    assert facts["name"] == type(model[0]).__name__
    vectors = isinstance(model[0], ep.MF | ep.MFSI | ep.PARAFAC)
    assert facts["has_map"] == vectors
    assert client.get("/map").status_code == (200 if vectors else 409)
    assert client.post("/similar", item=ITEMS[0]).status_code == (200 if vectors else 409)


def test_batched_requests_are_answered_like_single_ones(recommender: ep.Recommender, service: AppClient) -> None:
    """Also with unknown users, other lengths, and short lists among them."""
    bodies: list[dict[str, Any]] = [{"user": user, "n": 3} for user in USERS[:40]]
    bodies += [{"user": "stranger", "n": 3}, {"user": USERS[0], "n": 40}, {"user": USERS[1], "n": 3, "deny": ITEMS[:3]}]
    bodies += [{"request": {"history": [item]}, "n": 2} for item in ITEMS[:5]]
    batched = service.concurrently([("POST", "/recommend", body, {}) for body in bodies])
    for body, found in zip(bodies, batched, strict=True):
        alone = service("POST", "/recommend", body)
        assert (found.status_code, found.json()) == (alone.status_code, alone.json())
        assert found.status_code == (404 if body.get("user") == "stranger" else 200)


@given(users_and_requests=st.lists(st.one_of(st.sampled_from(USERS), requests), min_size=2, max_size=12), n=st.integers(1, 12))
def test_lists_do_not_depend_on_concurrent_requests(service: AppClient, users_and_requests: list[Any], n: int) -> None:
    bodies = [{"user" if isinstance(who, str) else "request": who, "n": n} for who in users_and_requests]
    batched = service.concurrently([("POST", "/recommend", body, {}) for body in bodies])
    alone = [service("POST", "/recommend", body) for body in bodies]
    assert [(answer.status_code, answer.json()) for answer in batched] == [(answer.status_code, answer.json()) for answer in alone]


def test_batched_requests_with_numbers_of_several_types() -> None:
    """A column of integers that one request has as a float, and another not at all."""
    users = {"user": [1, 2, 3, 4], "level": [1, 2, 1, None], "age": [20, 30, 40, 50]}
    recipes = [ep.Attributes("level", kind="category"), ep.Attributes("age", kind="value")]
    events = {"user": [1, 1, 2, 2, 3, 4], "item": [10, 11, 10, 12, 11, 13]}
    client = AppClient(create_app(ep.Recommender(ep.FM(factors=2, epochs=2), context=recipes).fit(ep.Dataset(events, users))))
    sent = [
        {"level": 1},
        {"level": 2.0},
        {"age": 33.3},
        {"age": 33},
        {"level": None, "age": 2**53 + 1},
        {},
        {"user": 2, "level": 1},
    ]
    batched = client.concurrently([("POST", "/recommend", {"request": request, "n": 3}, {}) for request in sent])
    for request, found in zip(sent, batched, strict=True):
        assert found.json() == client.post("/recommend", request=request, n=3).json(), request


def test_similar_items_are_those_of_the_recommender(recommender: ep.Recommender, service: AppClient) -> None:
    wanted = recommender.similar_items(ITEMS[:2], n=4)
    found = service.post("/similar/batch", items=ITEMS[:2], n=4).json()["lists"]
    alone = [service.post("/similar", item=item, n=4).json()["items"] for item in ITEMS[:2]]
    assert found == alone
    flat = [(entry["item"], entry["score"]) for items in found for entry in items]
    assert flat == list(zip(wanted["similar"].to_pylist(), wanted["score"].to_pylist(), strict=True))


# items, users, the model card


def test_items_are_found_by_id_and_title(service: AppClient) -> None:
    (first, *_) = found = service.get("/items?query=v0").json()["items"]
    assert {entry["item"] for entry in found} == {f"v0{j}" for j in range(10)}
    assert [entry["events"] for entry in found] == sorted((entry["events"] for entry in found), reverse=True)
    assert set(first) == {"item", "title", "attributes", "events"}
    assert set(first["attributes"]) == {"category", "language"}
    word = first["title"].split()[0].lower()
    assert first["item"] in {entry["item"] for entry in service.get(f"/items?query={word}&limit=100").json()["items"]}
    assert service.get(f"/items?query={first['item'].upper()}").json()["items"][0] == first
    assert service.get("/items?query=%25_nothing").json()["items"] == []
    popular = service.get("/items?limit=3").json()["items"]
    assert len(popular) == 3
    assert popular[0]["events"] == max(entry["events"] for entry in service.get("/items?limit=100").json()["items"])


def test_users_and_their_profiles(service: AppClient) -> None:
    assert set(service.get("/users?query=U0").json()["users"]) == set(USERS[:10])
    profile = service.post("/profile", user=USERS[7]).json()
    events = DATA.item[DATA.bounds[7] : DATA.bounds[8]]
    assert [entry["item"] for entry in profile["history"]] == [ITEMS[j] for j in events]
    assert profile["seen"] == len(events)
    assert set(profile["attributes"]) == {"age", "gender", "country", "device"}
    assert service.post("/profile", user="stranger").status_code == 404


def test_the_model_card_lists_what_a_request_may_have(recommender: ep.Recommender, service: AppClient) -> None:
    answer = service.get("/model").json()
    facts = answer["facts"]
    assert [menu["name"] for menu in facts["takes"]["attributes"]] == ["country", "age"]
    assert "DE" in facts["takes"]["attributes"][0]["options"]
    assert facts["takes"]["history"] is True
    assert facts["title"] == "title"
    assert facts["colours"] == ["category", "language"]
    assert facts["objective"] == [epoch.objective for epoch in recommender.model.history_]  # type: ignore[attr-defined]
    assert facts["context"] == ["user", "attributes:country,age", "previous", "history:last=20"]
    assert facts["evaluation"] is None


def test_menus_of_numbers_booleans_and_lists(tmp_path: Path) -> None:
    events = {"user": [1, 1, 2, 2, 3], "item": [10, 11, 10, 12, 11], "hour": [0.5, 1.5, 2.5, 3.5, 4.5]}
    users = {"user": [1, 2, 3], "member": [True, False, True], "likes": ["a|b", "b", ""], "level": [1, 2, 1]}
    users |= {"tags": [["x"], ["x", "y"], []]}
    recipes = [ep.Attributes("hour", kind="bins"), ep.Attributes("likes", separator="|"), ep.Attributes("member", "level", "tags")]
    shop = ep.Recommender(ep.FM(factors=2, epochs=1), context=recipes).fit(ep.Dataset(events, users))
    client = AppClient(create_app(shop))
    menus = {menu["name"]: menu for menu in client.get("/model").json()["facts"]["takes"]["attributes"]}
    assert {name: (menu["kind"], menu["value"]) for name, menu in menus.items()} == {
        "hour": ("number", "number"), "likes": ("several", "text"), "member": ("one", "boolean"), "level": ("one", "number"),
        "tags": ("several", "text"),
    }  # fmt: skip
    assert menus["likes"]["separator"] == "|"
    request = {"hour": 2, "likes": "a|b", "member": True, "level": 2, "tags": ["x", "y"]}
    found = client.post("/recommend", request=request, n=2).json()
    assert entries(found["items"]) == rows(shop.recommend(requests=[request], n=2))
    assert found["unknown"] == {}
    assert client.get("/items?query=1").json()["items"][0]["title"] is None
    explained = client.post("/explain", request=request, item=10).json()
    assert explained["contributions"][-1]["value"] == "10"


def test_unknown_values_are_counted_in_the_response(service: AppClient) -> None:
    found = service.post("/recommend", request={"country": "nowhere", "history": ["strange", ITEMS[0]], "user": "stranger"}).json()
    assert found["unknown"] == {"country": 1, "history": 1, "user": 1}


def test_details_are_titles_and_attributes(service: AppClient) -> None:
    (first,) = service.post("/recommend", user=USERS[0], n=1, details=True).json()["items"]
    (plain,) = service.post("/recommend", user=USERS[0], n=1).json()["items"]
    assert first == {**plain, "title": first["title"], "attributes": first["attributes"]}
    known = service.get(f"/items?query={first['item']}").json()["items"][0]
    assert (first["title"], first["attributes"]) == (known["title"], known["attributes"])


def test_explanations_name_items_by_their_titles(service: AppClient) -> None:
    parts = service.post("/explain", request={"country": "DE", "history": [ITEMS[3]]}, item=ITEMS[5]).json()["contributions"]
    titles = dict(zip(ITEMS, DATA.item_table["title"].to_pylist(), strict=True))
    by_field = {part["field"]: part for part in parts}
    assert by_field["previous"]["title"] == by_field["history"]["title"] == titles[ITEMS[3]]
    assert by_field["item"]["title"] == titles[ITEMS[5]]
    assert by_field["country"]["title"] is None


def test_the_title_may_be_any_column() -> None:
    search = ItemSearch(DATA, np.ones(DATA.n_items), "category")
    assert search.titles.of([0]) == [DATA.item_table["category"][0].as_py()]
    assert search.attributes == ["title", "language"]
    with pytest.raises(ValueError, match="items have no column 'nome'; they have 'title', 'category', 'language'"):
        ItemSearch(DATA, np.ones(DATA.n_items), "nome")


# the map


def test_a_map_is_a_projection_of_directions(recommender: ep.Recommender, service: AppClient) -> None:
    answer = service.get("/map").json()
    vectors = recommender.item_vectors()[:, :4].astype(np.float64)
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    values = np.linalg.eigvalsh(np.cov(units.T))
    assert answer["explained"] == pytest.approx(values[-2:].sum() / values.sum())
    places = np.array([[point["x"], point["y"]] for point in answer["points"]])
    order = [ITEMS.index(point["item"]) for point in answer["points"]]
    centred = units - units.mean(axis=0)
    assert np.linalg.svd(places, compute_uv=False) == pytest.approx(np.linalg.svd(centred, compute_uv=False)[:2], rel=1e-4)
    assert np.abs(places).max() <= np.linalg.norm(centred[order], axis=1).max() + 1e-9


def test_a_user_is_placed_by_the_direction_of_the_vector(recommender: ep.Recommender, service: AppClient) -> None:
    item_map = ItemMap.of(recommender.state)
    phi = recommender.context_vectors(users=[USERS[3]])[0, :4].astype(np.float64)
    x, y = (phi / np.linalg.norm(phi) - item_map.mean) @ item_map.axes
    answer = service.post("/place", user=USERS[3]).json()
    assert (answer["x"], answer["y"]) == pytest.approx((x, y))


def test_a_map_by_groups_separates_them() -> None:
    """Two groups that differ in the direction of least variance: discriminant axes separate them, principal components do not."""
    random = np.random.default_rng(0)
    vectors, groups = random.normal(size=(400, 5)), np.arange(400) % 2
    vectors[:, :4] /= np.linalg.norm(vectors[:, :4], axis=1, keepdims=True)
    vectors[:, 4] = 0.03 * vectors[:, 4] + 0.6 * groups
    shop = ep.Recommender(ep.MF(factors=5, epochs=1)).fit(ep.Dataset({"user": [0] * 400, "item": np.arange(400)}))
    directions = shop.state.item_directions
    directions.units.psi[:] = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)

    def gap(item_map: ItemMap) -> float:
        first, second = (item_map.positions[groups == group] for group in (0, 1))
        return float(np.linalg.norm(first.mean(axis=0) - second.mean(axis=0)) / np.sqrt(first.var(axis=0).sum()))

    assert gap(ItemMap.of(shop.state, groups)) > 3 * gap(ItemMap.of(shop.state))


def test_a_map_of_one_dimension() -> None:
    client = AppClient(create_app(fitted(ep.MF(factors=1, epochs=1), context=[ep.UserId()])))
    points = client.get("/map").json()["points"]
    assert {point["y"] for point in points} == {0.0}
    assert client.get("/map?by=category").status_code == 200
    assert client.post("/place", user=USERS[0], by="category").json()["y"] == 0.0
    assert client.post("/place", request={"history": []}).json()["x"] is None


# refusals


@pytest.mark.parametrize(
    ("path", "body", "status", "field", "words"),
    [
        ("/recommend", {"user": "stranger"}, 404, "user", "not known"),
        ("/recommend", {"user": 5}, 422, "user", "must be a string, as in the data, got an integer"),
        ("/recommend", {"user": True}, 422, "user", "string"),
        ("/recommend", {"user": None}, 422, "user", "null"),
        ("/recommend", {"user": 2**70}, 422, "user", "64 bits"),
        ("/recommend", {"user": "u" * 2000}, 422, "user", "2,000 characters"),
        ("/recommend", {}, 422, "body", "give either user or request"),
        ("/recommend", {"user": USERS[0], "request": {}}, 422, "body", "give either user or request"),
        ("/recommend", {"user": USERS[0], "n": 0}, 422, "n", "greater than or equal to 1"),
        ("/recommend", {"user": USERS[0], "n": 1001}, 422, "n", "less than or equal to 1000"),
        ("/recommend", {"user": USERS[0], "n": 2.0}, 422, "n", "integer"),
        ("/recommend", {"user": USERS[0], "n": "3"}, 422, "n", "integer"),
        ("/recommend", {"user": USERS[0], "nn": 3}, 422, "nn", "not permitted"),
        ("/recommend", {"user": USERS[0], "exclude_seen": 1}, 422, "exclude_seen", "boolean"),
        ("/recommend", {"user": USERS[0], "fallback": "any"}, 422, "fallback", "popular"),
        ("/recommend", {"user": USERS[0], "allow": [1]}, 422, "allow", "got an integer"),
        ("/recommend", {"user": USERS[0], "deny": [[]]}, 422, "deny[0]", "a list of 0"),
        ("/recommend", {"user": USERS[0], "candidates": "v01"}, 422, "candidates", "list"),
        ("/recommend", {"request": {"colour": "red"}}, 422, "request.colour", "the data do not have"),
        ("/recommend", {"request": {"country": True}}, 422, "request.country", "must be of type"),
        ("/recommend", {"request": {"country": {"a": 1}}}, 422, "request.country", "an object"),
        ("/recommend", {"request": {"history": "v01"}}, 422, "request.history", "list of item ids"),
        ("/recommend", {"request": {"history": [1, 2]}}, 422, "request.history", "integers"),
        ("/recommend", {"request": {"history": [None]}}, 422, "request.history", ""),
        ("/recommend", {"request": {"user": 5}}, 422, "request.user", "got an integer"),
        ("/recommend", {"request": []}, 422, "request", "must be an object"),
        ("/recommend", {"request": {f"a{j}": 1 for j in range(300)}}, 422, "request", "at most 200 names"),
        ("/recommend/batch", {"users": []}, 422, "users", "a list of 1 to 256 ids, got a list of 0"),
        ("/recommend/batch", {"requests": [{"user": USERS[0]}, {"user": 5}]}, 422, "requests[1].user", "got an integer"),
        ("/recommend/batch", {"users": USERS[:1], "candidates": [[[]]]}, 422, "candidates[0][0]", "a list of 0"),
        ("/recommend/batch", {"users": [USERS[0], "stranger"]}, 404, "users", "'stranger' is not known"),
        ("/recommend/batch", {"requests": [{}, {"country": True}]}, 422, "requests[1].country", "must be of type"),
        ("/recommend/batch", {"users": USERS[:2], "candidates": [[]]}, 422, "candidates", "a list for each of the 2 users, got 1"),
        ("/similar", {"item": "strange"}, 404, "item", "not known"),
        ("/similar", {}, 422, "item", "required"),
        ("/explain", {"item": ITEMS[0]}, 422, "body", "give either"),
        ("/explain", {"item": "strange", "user": USERS[0]}, 404, "item", "not known"),
        ("/explain", {"item": ITEMS[0], "request": {"colour": 1}}, 422, "request.colour", "do not have"),
        ("/place", {"user": USERS[0], "by": "nothing"}, 422, "by", "'category', 'language'"),
    ],
)  # fmt: skip
def test_bad_fields_are_named(service: AppClient, path: str, body: Any, status: int, field: str, words: str) -> None:
    answer = service("POST", path, body)
    assert answer.status_code == status
    error = answer.json()["error"]
    assert field in {problem["field"] for problem in error["fields"]}, error
    assert words in " ".join(problem["message"] for problem in error["fields"])
    assert error["code"] == ("not_found" if status == 404 else "invalid")


@pytest.mark.parametrize(
    "content",
    [
        b"", b"{", b"nonsense", b'{"user": NaN}', b'{"user": Infinity}', b'{"n": 1e999, "user": "u01"}', b"[" * 200_000,
        b'{"user":' * 5_000, b'{"user": "\\ud800"}', b'{"user": "\xff\xfe"}', b"null", b"[]", b'"text"', b"\x00",
        b'{"user": "u01", "user": 5}', b'{"n": 123456789012345678901234567890, "user": "u01"}',
    ],
)  # fmt: skip
def test_malformed_bodies(service: AppClient, content: bytes) -> None:
    answer = service("POST", "/recommend", content=content, headers={"content-type": "application/json"})
    assert answer.status_code in (400, 422)
    assert answer.json()["error"]["message"]
    assert "Traceback" not in answer.text


@given(text=st.text(max_size=40))
def test_ids_in_any_script(service: AppClient, text: str) -> None:
    text = text.encode("utf-8", "replace").decode()  # httpx refuses to send lone surrogates
    assert service.post("/recommend", user=text).status_code == (200 if text in USERS else 404)
    assert service.post("/recommend", request={"history": [text]}).status_code == 200
    assert service("GET", "/items", params={"query": text}).status_code == 200


def test_ids_in_any_script_are_found() -> None:
    names = ["ünïcode", "日本語", "emoji 🎧", "a/b?c=d&e", " spaces ", "\n", "'\";--"]
    shop = ep.Recommender(ep.MF(factors=2, epochs=1)).fit(ep.Dataset({"user": names, "item": names}))
    client = AppClient(create_app(shop))
    for name in names:
        (found,) = client.post("/recommend", user=name, n=1, exclude_seen=False).json()["items"]
        assert found["item"] in names
        assert client("GET", "/items", params={"query": name}).json()["items"][0]["item"] in names


def test_error_responses_are_short(service: AppClient) -> None:
    """Also for a body with thousands of errors."""
    for body in (
        {"users": USERS[:1], "candidates": [[[]] * 10_000] * 30},
        {"request": {f"a{j}": {} for j in range(50_000)}},
        {f"field {j}": 1 for j in range(50_000)},
    ):
        answer = service("POST", "/recommend/batch" if "users" in body else "/recommend", body)
        assert answer.status_code == 422
        assert len(answer.content) < 10_000


def test_dates_are_sent_as_strings() -> None:
    born = ["1980-01-01", "1990-05-05", "1980-01-01"]
    users = pa.table({"user": ["a", "b", "c"], "born": pa.array(born).cast(pa.date32()), "codes": [[1, 2], [2], []]})
    recipes = [ep.Attributes("born", kind="category"), ep.Attributes("codes")]
    shop = ep.Recommender(ep.FM(factors=2, epochs=1), context=recipes).fit(
        ep.Dataset({"user": list("abc"), "item": list("xyx")}, users)
    )
    client = AppClient(create_app(shop))
    menus = client.get("/model").json()["facts"]["takes"]["attributes"]
    assert menus[0]["options"] == sorted(set(born))
    assert (menus[1]["kind"], menus[1]["value"]) == ("several", "number")
    found = client.post("/recommend", request={"born": born[1], "codes": [2]}).json()
    assert found["items"] == client.post("/recommend", user="b", exclude_seen=False).json()["items"]
    assert found["unknown"] == {}
    assert client.post("/recommend", request={"born": "yesterday"}).json()["error"]["fields"][0]["field"] == "request.born"


def test_items_without_titles() -> None:
    items = pa.table({"item": list("xyz"), "title": [["a"], ["b"], []], "name": ["first", " ", None]})
    shop = ep.Recommender(ep.MF(factors=2, epochs=1)).fit(ep.Dataset({"user": list("abc"), "item": list("xyz")}, items=items))
    found = AppClient(create_app(shop)).get("/items").json()["items"]
    assert [entry["title"] for entry in found] == ["first", None, None]
    with pytest.raises(ValueError, match="titles must be strings or numbers"):
        create_app(shop, Settings(title="title"))


def test_an_application_does_not_follow_updates_of_its_recommender(recommender: ep.Recommender) -> None:
    """Responses come from the version that they name."""
    own = fitted(ep.MF(factors=2, epochs=1), context=[ep.UserId()])
    client = AppClient(create_app(own))
    before = client.post("/explain", user=USERS[0], item=ITEMS[0]).json()
    own.update({"user": [USERS[0], "somebody"], "item": [ITEMS[1], ITEMS[2]], "timestamp": [2**40, 2**40]})
    assert client.post("/explain", user=USERS[0], item=ITEMS[0]).json() == before
    assert client.post("/recommend", user="somebody").status_code == 404


def test_requests_that_the_model_cannot_score() -> None:
    client = AppClient(create_app(fitted(ep.MF(factors=2, epochs=1), context=[ep.UserId()])))
    refused = client.post("/recommend", request={"history": []})
    assert refused.status_code == 422
    assert "MF can say nothing" in refused.json()["error"]["message"]
    found = client.post("/recommend", request={"history": []}, fallback="popular", n=3).json()
    assert len(found["items"]) == 3
    assert found["by_popularity"] is True
    assert client.post("/recommend", user=USERS[0]).json()["by_popularity"] is False


def test_unknown_users_get_what_is_popular_on_request() -> None:
    """Alone, in a batch, and among requests that are answered together."""
    own = fitted(ep.MF(factors=2, epochs=1), context=[ep.UserId()])
    client, users = AppClient(create_app(own)), [USERS[0], "stranger", USERS[1]]
    assert client.post("/recommend", user="stranger").status_code == 404
    assert client.post("/recommend/batch", users=users).status_code == 404
    assert client.post("/recommend", user=7, fallback="popular").json()["error"]["fields"][0]["field"] == "user"
    popular = client.post("/recommend", request={"history": []}, fallback="popular", n=3).json()
    found = client.post("/recommend", user="stranger", fallback="popular", n=3).json()
    assert found == {**popular, "unknown": {"user": 1}}
    batch = client.post("/recommend/batch", users=users, fallback="popular", n=3).json()
    assert batch["by_popularity"] == [False, True, False]
    assert batch["lists"][1] == found["items"]
    assert batch["unknown"] == {"user": 1}
    served = ServedModel(own)
    bodies = [{"user": user, "fallback": "popular", "n": 3} for user in users]
    assert served.recommend_together(bodies) == [served.recommend(**body) for body in bodies]
    bodies = [{"request": {"history": history}, "fallback": "popular", "n": 3} for history in ([], [ITEMS[0]])]
    assert served.recommend_together(bodies) == [served.recommend(**body) for body in bodies]
    strict = AppClient(create_app(ep.Recommender(ep.MF(factors=2, epochs=1), unknown="error").fit(DATA)))
    assert strict.post("/recommend", user="stranger", fallback="popular").status_code == 404


def test_popularity_in_batched_requests() -> None:
    client = AppClient(create_app(fitted(ep.MF(factors=2, epochs=1), context=[ep.UserId()])))
    bodies: list[dict[str, Any]] = [{"user": user, "n": 3, "fallback": "popular"} for user in (*USERS[:20], "stranger")]
    batched = client.concurrently([("POST", "/v1/recommend", body, {}) for body in bodies])
    assert [answer.json()["by_popularity"] for answer in batched] == [False] * 20 + [True]
    assert [answer.json() for answer in batched] == [client("POST", "/v1/recommend", body).json() for body in bodies]


# reloads


def test_reload_switches_to_the_model_in_the_folder(tmp_path: Path) -> None:
    first, second = fitted(seed=1), fitted(seed=2)
    first.save(tmp_path)
    client = AppClient(create_app(tmp_path))
    before = client.get("/health").json()["model"]
    assert client("POST", "/reload").json() == {"model": before, "changed": False}
    second.save(tmp_path)
    assert client.get("/health").json()["model"] == before
    assert entries(client.post("/recommend", user=USERS[0]).json()["items"]) == rows(first.recommend(users=[USERS[0]]))
    after = client("POST", "/reload").json()
    assert after["changed"] is True
    assert after["model"] != before
    found = client.post("/recommend", user=USERS[0])
    assert found.headers["x-model-version"] == found.json()["model"] == after["model"]
    assert entries(found.json()["items"]) == rows(second.recommend(users=[USERS[0]]))


@pytest.mark.parametrize("damage", ["cut", "flipped", "gone", "foreign"])
def test_a_damaged_model_is_refused(tmp_path: Path, damage: str) -> None:
    fitted(seed=1).save(tmp_path)
    client = AppClient(create_app(tmp_path))
    before = client.get("/health").json()["model"]
    fitted(seed=2).save(tmp_path)
    (numbers,) = tmp_path.glob("everypair-numbers-*")
    if damage == "cut":
        os.truncate(numbers, 100)
    elif damage == "flipped":
        content = bytearray(numbers.read_bytes())
        content[-5] ^= 1
        numbers.write_bytes(content)
    elif damage == "gone":
        numbers.unlink()
    else:
        (tmp_path / "manifest.json").write_text("{}")
    answer = client("POST", "/reload")
    assert answer.status_code == 409
    message = answer.json()["error"]["message"]
    assert f"{before} still answers" in message
    assert str(tmp_path) not in message
    assert client.post("/recommend", user=USERS[0]).json()["model"] == before
    fitted(seed=2).save(tmp_path) if damage != "foreign" else (tmp_path / "manifest.json").unlink()
    fitted(seed=2).save(tmp_path)
    assert client("POST", "/reload").json()["changed"] is True


def test_item_vectors_are_mapped_from_the_file(tmp_path: Path) -> None:
    """Not copied, so that workers share them."""
    fitted(ep.MF(factors=4, epochs=1), context=[ep.UserId()]).save(tmp_path)
    psi = ServedModel.open(tmp_path).recommender.state.vectors.psi
    assert not psi.flags.writeable
    base: Any = psi
    while not isinstance(base, np.memmap):
        base = base.base
    assert base.filename is not None


def test_an_unsaved_recommender_cannot_be_reloaded(service: AppClient) -> None:
    assert service.get("/health").json()["model"] == "unsaved"
    assert service("POST", "/reload").status_code == 409


def test_no_response_mixes_two_models(tmp_path: Path) -> None:
    """While models are switched under load, each response is that of the model it names."""
    models = [fitted(seed=seed) for seed in (1, 2)]
    models[0].save(tmp_path)
    app = create_app(tmp_path)
    client, wanted, stop = AppClient(app), {}, threading.Event()
    answered: dict[str, threading.Event] = {}  # by model

    def switch() -> None:
        try:
            for j in range(6):
                models[j % 2].save(tmp_path)
                version = AppClient(app)("POST", "/reload").json()["model"]
                wanted[version] = [rows(models[j % 2].recommend(users=[user])) for user in USERS[:8]]
                assert answered.setdefault(version, threading.Event()).wait(WAIT)
        finally:
            stop.set()

    async def ask() -> list[Any]:
        found: list[Any] = []
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as http:

            async def ask_repeatedly(j: int) -> None:
                while not stop.is_set():
                    answer = await http.post("/recommend", json={"user": USERS[j]})
                    assert answer.status_code == 200
                    found.append((j, answer.json()))
                    answered.setdefault(answer.json()["model"], threading.Event()).set()

            await asyncio.gather(*(ask_repeatedly(j) for j in range(8)))
        return found

    wanted[client.get("/health").json()["model"]] = [rows(models[0].recommend(users=[user])) for user in USERS[:8]]
    switching = threading.Thread(target=switch)
    switching.start()
    found = asyncio.run(ask())
    switching.join()
    assert len({answer["model"] for _, answer in found}) == 2
    for j, answer in found:
        assert entries(answer["items"]) == wanted[answer["model"]][j]
