"""Requests that the model in use can answer: the examples of the API description."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np

from everypair.data import Dataset
from everypair.data.tables import decoded
from everypair.recommend.context_batch import HISTORY
from everypair.service.item_search import json_value
from everypair.service.limits import Limits
from everypair.service.served_model import ServedModel

N, SEVERAL = 5, 2  # items of a list; users, requests or items of a batch

Body = dict[str, Any]


class Examples(NamedTuple):
    """By path: bodies with a title each, and query parameters."""

    bodies: dict[str, dict[str, Body]]
    queries: dict[str, dict[str, Any]]


def examples(served: ServedModel, limits: Limits, with_users: bool) -> Examples:
    """Examples with ids, attributes and types of the model.

    Parameters
    ----------
    served : ServedModel
    limits : Limits
    with_users : bool
        Whether ids of users may be in them.
    """
    dataset, facts = served.recommender.state.dataset, served.card["facts"]
    items = dataset.items.take(served.item_search.most_popular[: min(SEVERAL, limits.batch)]).to_pylist()
    active = np.flatnonzero(np.diff(dataset.bounds))[: min(SEVERAL, limits.batch)]
    users = dataset.users.take(active).to_pylist() if with_users else []
    request = {menu["name"]: _value(menu["name"], dataset) for menu in facts["takes"]["attributes"]}
    request |= {HISTORY: items[: limits.history]}
    whom: dict[str, Body] = {"A user of the data": {"user": users[0]}} if users else {}
    whom["Someone described by a request"] = {"request": request}
    groups: dict[str, Body] = {"Users of the data": {"users": users}} if users else {}
    groups["People described by requests"] = {"requests": [request, {HISTORY: []}][: limits.batch]}
    length = {"n": min(N, limits.n)}
    bodies = {
        "/v1/recommend": _each(whom, {**length, "fallback": "popular"}),
        "/v1/recommend/batch": _each(groups, {**length, "fallback": "popular"}),
        "/v1/explain": _each(whom, {"item": items[0]}),
    }
    queries: dict[str, dict[str, Any]] = {"/v1/items": {"query": str(items[0])}}
    if users:
        bodies["/v1/profile"] = {"A user of the data": {"user": users[0]}}
        queries["/v1/users"] = {"query": str(users[0])}
    if facts["has_map"]:
        bodies["/v1/similar"] = {"An item of the data": {"item": items[0], **length}}
        bodies["/v1/similar/batch"] = {"Items of the data": {"items": items, **length}}
        bodies["/v1/place"] = whom
        queries["/v1/map"] = {"by": facts["colours"][0] if facts["colours"] else ""}
    return Examples(bodies, queries)


def _each(bodies: dict[str, Body], more: Body) -> dict[str, Body]:
    return {title: {**body, **more} for title, body in bodies.items()}


def _value(name: str, dataset: Dataset) -> Any:
    """The first value of an attribute in the data that is not empty."""
    column = next(table[name] for table in (dataset.user_table, dataset.event_table) if name in table.column_names)
    for chunk in decoded(column).chunks:
        for value in chunk.drop_null():
            if value.as_py() not in ("", []):
                return json_value(float(value.as_py()) if isinstance(value.as_py(), Decimal) else value.as_py())
    return None
