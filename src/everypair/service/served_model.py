"""Adapter from the HTTP API to a recommender: fields of request bodies in, JSON values out."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from everypair.data import Ids
from everypair.gpu.device import ranked_on_cpu
from everypair.recommend import archive
from everypair.recommend.context_batch import ContextBatch
from everypair.recommend.fitted import ITEM
from everypair.recommend.requests import POPULAR, RequestBatch
from everypair.recommend.results import RankedLists
from everypair.recommender import Recommender
from everypair.runtime.cached import cached_property
from everypair.runtime.locks import CopyableLock
from everypair.service.errors import RequestError, field_errors
from everypair.service.item_map import ItemMap
from everypair.service.item_search import ItemSearch, json_value
from everypair.service.model_card import model_card
from everypair.service.snapshot import Snapshot, take_snapshot
from everypair.service.telemetry import log

UNSAVED = "unsaved"  # the version of a recommender that was not loaded from a folder
VERSION_LENGTH = 16  # characters of the checksum
MAX_ON_MAP = 2_000  # items
MAX_SUMMARIES, MAX_HISTORY = 100, 5_000  # items of a profile: with their summaries, and in all


class ServedModel:
    """A recommender at one version, with a method for each route. It does not change, apart from caches.

    Parameters
    ----------
    recommender : Recommender
    version : str
    title : str, optional
        The column of the items' table with titles.
    """

    def __init__(self, recommender: Recommender, version: str = UNSAVED, title: str | None = None) -> None:
        self.recommender, self.version = recommender, version
        self._state = recommender.state
        self._dataset = self._state.dataset
        self._maps: dict[str, ItemMap] = {}  # by attribute
        self._maps_lock = CopyableLock()
        self.item_search = ItemSearch(self._dataset, self._state.popularity, title)

    @classmethod
    def open(cls, model: str | os.PathLike[str] | Snapshot, title: str | None = None) -> ServedModel:
        """Open a saved model, or a snapshot of one, and warm it up. Parameters are mapped."""
        if not isinstance(model, Snapshot):
            with take_snapshot(Path(model).absolute()) as snapshot:
                return cls.open(snapshot, title)
        archived, checksum = archive.read_folder(model)
        recommender = Recommender.from_archive(archived)
        if recommender.model.cut_short is not None:
            log("model unfinished", logging.WARNING, why=recommender.model.cut_short)
        if "n_threads" in recommender.model.get_params():
            recommender.model.set_params(n_threads=1)  # parallelism is over workers
        served = cls(recommender, checksum[:VERSION_LENGTH], title)
        served.warm()
        return served

    def warm(self) -> None:
        """Compile and compute in advance what the first requests would wait for."""
        if not self._dataset.n_users:
            return
        self.recommend(user=self._dataset.users[0], n=1, fallback="popular")
        history = {"history": [self._dataset.items[int(self.item_search.most_popular[0])]]}
        self.recommend(request=history, n=1, fallback="popular")

    # lists

    def recommend(self, user: Any = None, request: Any = None, details: bool = False, **options: Any) -> dict[str, Any]:
        """The best items for a user or request."""
        batch, field = self._single_batch(user, request, options.get("fallback"))
        candidates = options.pop("candidates", None)
        ranked = self._ranked(batch, field, None if candidates is None else [candidates], options)
        (popular,) = self._popular(batch, ranked)
        return self._response({"items": self._lists(ranked, details)[0], "by_popularity": popular}, ranked, batch)

    def recommend_batch(
        self, users: Any = None, requests: Any = None, details: bool = False, candidates: Any = None, **options: Any
    ) -> dict[str, Any]:
        """The best items for each of several users or requests."""
        field = "requests" if users is None else "users"
        batch = self._batch(users, requests, field, options.get("fallback"))
        ranked = self._ranked(batch, field, candidates, options)
        lists = {"lists": self._lists(ranked, details), "by_popularity": self._popular(batch, ranked)}
        return self._response(lists, ranked, batch)

    def _popular(self, batch: RequestBatch, ranked: RankedLists) -> list[bool]:
        """Whether each list has nothing of whom it is for."""
        assert ranked.by_popularity is not None
        return (ranked.by_popularity | batch.new_users).tolist()

    def recommend_together(self, bodies: list[dict[str, Any]]) -> list[dict[str, Any] | Exception]:
        """The results (or errors) of :meth:`recommend` for several bodies, computed in one batch where that gives the same.

        The bodies all have a user, or all have a request, and agree in all other fields. If one is refused, or has a note or
        unknown values, each is computed on its own, since a batch does not say which one it was.
        """
        if len(bodies) > 1:
            field = "user" if "user" in bodies[0] else "request"
            others = {name: value for name, value in bodies[0].items() if name != field}
            try:
                response = self.recommend_batch(**{f"{field}s": [body[field] for body in bodies]}, **others)
            except RequestError:
                pass
            else:
                if response["note"] is None and not response["unknown"]:
                    lists = zip(response["lists"], response["by_popularity"], strict=True)
                    return [
                        {"model": self.version, "items": items, "by_popularity": popular, "note": None, "unknown": {}}
                        for items, popular in lists
                    ]
        return [self._recommend_or_error(body) for body in bodies]

    def _recommend_or_error(self, body: dict[str, Any]) -> dict[str, Any] | Exception:
        try:
            return self.recommend(**body)
        except Exception as error:
            return error

    def _single_batch(self, user: Any, request: Any, fallback: str | None = None) -> tuple[RequestBatch, str]:
        """The user or request of a body, and the name of its field."""
        if user is None:
            return self._batch(None, [request], "request"), "request"
        return self._batch([user], None, "user", fallback), "user"

    def _batch(self, users: list[Any] | None, requests: list[Any] | None, field: str, fallback: str | None = None) -> RequestBatch:
        """The users or requests in a field of a body."""
        if users is None:
            for j, request in enumerate(requests or ()):
                if isinstance(user := request.get(self._dataset.user_column), str | int):
                    path = field if field == "request" else f"{field}[{j}]"
                    _check_kind(self._dataset.users, [user], f"{path}.{self._dataset.user_column}")
            with field_errors(field):
                return self._state.request_batch(None, requests, self.recommender.unknown)
        if fallback == POPULAR and self.recommender.unknown == "ignore":
            _check_kind(self._dataset.users, users, field)
            with field_errors(field):
                return self._state.request_batch(users, fallback=fallback)
        codes = self._known(self._dataset.users, users, field)
        return RequestBatch(ContextBatch.of_users(self._dataset, codes), self._dataset.user_column, pa.array(users))

    def _ranked(self, batch: RequestBatch, field: str, candidates: Any, options: dict[str, Any]) -> RankedLists:
        if candidates is not None and len(candidates) != len(batch.contexts):
            message = f"must have a list for each of the {len(batch.contexts)} {field}, got {len(candidates)}"
            raise RequestError(422, message, "candidates")
        item_lists = {
            **{name: options.get(name) for name in ("allow", "deny")},
            "candidates": list(chain.from_iterable(candidates or ())),
        }
        for name, items in item_lists.items():
            _check_kind(self._dataset.items, items or (), name)
        with field_errors(field), ranked_on_cpu():
            return self._state.ranked(batch, **options, candidates=candidates, n_threads=self._n_threads)

    @property
    def _n_threads(self) -> int | None:
        return getattr(self.recommender.model, "n_threads", None)

    def similar(self, item: Any, n: int = 10, details: bool = False) -> dict[str, Any]:
        """The items most similar to an item."""
        ranked = self._similar([item], n, "item")
        return self._response({"items": self._lists(ranked, details)[0]}, ranked)

    def similar_batch(self, items: list[Any], n: int = 10, details: bool = False) -> dict[str, Any]:
        """The items most similar to each of several items."""
        ranked = self._similar(items, n, "items")
        return self._response({"lists": self._lists(ranked, details)}, ranked)

    def _similar(self, items: list[Any], n: int, field: str) -> RankedLists:
        self._need_vectors("so items cannot be compared")
        codes = self._known(self._dataset.items, items, field)
        with field_errors(field), ranked_on_cpu():
            return self._state.nearest(ITEM, codes, pa.array(items), n, self._n_threads)

    def _lists(self, ranked: RankedLists, details: bool) -> list[list[dict[str, Any]]]:
        """Ids, scores and ranks; with ``details``, titles and attributes."""
        lists = []
        for codes, scores in zip(ranked.codes, ranked.scores, strict=True):
            codes = codes[codes >= 0]
            rows = zip(self._dataset.items.take(codes).to_pylist(), scores.tolist(), range(1, len(codes) + 1), strict=False)
            entries: list[dict[str, Any]] = [{"item": item, "score": score, "rank": rank} for item, score, rank in rows]
            if details:
                for entry, more in zip(entries, self.item_search.details(codes), strict=True):
                    entry |= more
            lists.append(entries)
        return lists

    def _response(self, lists: dict[str, Any], ranked: RankedLists, batch: RequestBatch | None = None) -> dict[str, Any]:
        unused, unknown = (None, {}) if batch is None else (batch.unused, dict(batch.unknown))
        notes = [note for note in (ranked.short, unused) if note is not None]
        return {"model": self.version, **lists, "note": " ".join(notes) or None, "unknown": unknown}

    # explanations and descriptions

    def explain(self, item: Any, user: Any = None, request: Any = None) -> dict[str, Any]:
        """The contributions of features to the score of an item."""
        (code,) = self._known(self._dataset.items, [item], "item")
        batch, _ = self._single_batch(user, request)
        explanation = self._state.explained(batch.contexts, int(code), self.item_search.titles)
        return {
            "model": self.version,
            "item": explanation.item,
            "title": explanation.title,
            "score": explanation.score,
            "contributions": explanation.contributions,
        }

    def items(self, query: str, limit: int) -> dict[str, Any]:
        """Items by id or title; the most popular for an empty query."""
        codes = self.item_search.search(query, limit) if query.strip() else self.item_search.most_popular[:limit]
        return {"model": self.version, "items": self.item_search.summaries(codes)}

    def users(self, query: str, limit: int) -> dict[str, Any]:
        """Users by id."""
        codes = self.item_search.search_users(query, limit)
        return {"model": self.version, "users": self._dataset.users.take(codes).to_pylist()}

    def profile(self, user: Any) -> dict[str, Any]:
        """The attributes and the history of a user of the data."""
        (code,) = self._known(self._dataset.users, [user], "user")
        table, seen = self._dataset.user_table, self._dataset.item[self._dataset.bounds[code] : self._dataset.bounds[code + 1]]
        earlier = seen[-MAX_HISTORY:-MAX_SUMMARIES] if len(seen) > MAX_SUMMARIES else seen[:0]
        return {
            "model": self.version,
            "user": user,
            "attributes": {name: json_value(table[name][int(code)].as_py()) for name in table.column_names},
            "history": self.item_search.summaries(seen[-MAX_SUMMARIES:]),
            "earlier": self._dataset.items.take(earlier).to_pylist(),
            "seen": len(seen),
        }

    @cached_property
    def card(self) -> dict[str, Any]:
        """The model card."""
        return {"model": self.version, "facts": model_card(self.recommender, self.item_search)}

    def map(self, by: str = "") -> dict[str, Any]:
        """The most popular items in two dimensions: those in which items, or the values of an attribute, differ most."""
        item_map, popular = self._item_map(by), self.item_search.most_popular[: 2 * MAX_ON_MAP]
        codes = popular[item_map.trained[popular]][:MAX_ON_MAP]
        rows = zip(
            self._dataset.items.take(codes).to_pylist(), self.item_search.details(codes), item_map.positions[codes], strict=True
        )
        points = [{"item": item, **details, "x": float(x), "y": float(y)} for item, details, (x, y) in rows]
        return {"model": self.version, "points": points, "explained": item_map.explained}

    def place(self, user: Any = None, request: Any = None, by: str = "") -> dict[str, Any]:
        """The position of a user or request on the map."""
        item_map = self._item_map(by)
        batch, _ = self._single_batch(user, request)
        x, y = item_map.place(self._state, batch.contexts) or (None, None)
        return {"model": self.version, "x": x, "y": y}

    def _item_map(self, by: str) -> ItemMap:
        """The map for an attribute, computed when it is first requested."""
        self._need_vectors("so there is no map")
        known = self.card["facts"]["colours"]
        if by and by not in known:
            raise RequestError(
                422, f"must be an attribute of items with few values: {', '.join(map(repr, known)) or 'there is none'}.", "by"
            )
        with self._maps_lock:
            if by not in self._maps:
                self._maps[by] = ItemMap.of(self._state, self.item_search.groups(by) if by else None)
            return self._maps[by]

    def _need_vectors(self, consequence: str) -> None:
        if not self._state.adapter.has_vectors:
            raise RequestError(409, f"{type(self._state.adapter.model).__name__} has no item vectors, {consequence}.")

    # ids

    def _known(self, ids: Ids, given: list[Any], field: str) -> np.ndarray:
        """Codes of the given ids; a RequestError (404) if the data do not have one of them."""
        _check_kind(ids, given, field)
        with field_errors(field):
            codes = ids.codes(given, f"ids of {field!r}")
        if (codes < 0).any():
            unknown = given[int(np.argmin(codes))]
            advice = "" if ids is self._dataset.items else " For a new user, send attributes or a history as a request."
            raise RequestError(404, f"{unknown!r} is not known.{advice}", field)
        return codes


def _check_kind(ids: Ids, given: Iterable[Any], field: str) -> None:
    """Refuse integers where ids are strings, and the other way round, without revealing ids of the data."""
    integers = ids.kind == "integers"
    names = {True: "an integer", False: "a string"}
    for value in given:
        if isinstance(value, int) != integers:
            raise RequestError(422, f"must be {names[integers]}, as in the data, got {names[not integers]}.", field)
