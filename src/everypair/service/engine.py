"""A recommender that answers: what clients ask, as the package takes it, and its answers as plain data."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Mapping
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from everypair.data import Ids
from everypair.recommend import archive
from everypair.recommend.context_batch import HISTORY, ContextBatch
from everypair.recommend.fitted import ITEM
from everypair.recommend.requests import RequestBatch
from everypair.recommend.results import RankedLists
from everypair.recommender import Recommender
from everypair.service.errors import Refused, about
from everypair.service.item_map import ItemMap
from everypair.service.item_search import Catalogue, item_code, plain
from everypair.service.model_card import facts

UNSAVED = "unsaved"  # the version of a recommender that was never in a folder
LETTERS = 16  # of a version
ON_MAP, LATEST, EARLIER = 2_000, 100, 5_000  # items of a map, and of a profile, at most: told in full, and all


class Engine:
    """A recommender, its version, and what is shown of its items. Nothing in it changes, but what it has counted.

    Parameters
    ----------
    recommender : Recommender
    version : str
    title : str, optional
        The column of items that has titles.
    """

    def __init__(self, recommender: Recommender, version: str = UNSAVED, title: str | None = None) -> None:
        self.recommender, self.version = recommender, version
        self._state = recommender.state
        self._dataset = self._state.dataset
        self._landscapes: dict[str, ItemMap] = {}
        self._mapping = threading.Lock()
        self.catalogue = Catalogue(self._dataset, self._state.popularity, title)

    @classmethod
    def open(cls, path: str | os.PathLike[str], verify: bool = True, title: str | None = None) -> Engine:
        """Of a folder, warm: what is made at a first request is made now. Parameters are mapped into memory."""
        archived, checksum = archive.read(path, verify)
        recommender = Recommender.from_archive(archived)
        if "n_threads" in recommender.model.get_params():
            recommender.model.set_params(n_threads=1)  # requests share the cores among themselves
        engine = cls(recommender, checksum[:LETTERS], title)
        engine.warm()
        return engine

    def warm(self) -> None:
        """Compile and compute what answers need."""
        if not self._dataset.n_users:
            return
        self.recommend(user=self._dataset.users[0], n=1, fallback="popular")
        history = {"history": [self._dataset.items[int(self.catalogue.most_popular[0])]]}
        self.recommend(request=history, n=1, fallback="popular")

    # lists

    def recommend(self, user: Any = None, request: Any = None, details: bool = False, **asked: Any) -> dict[str, Any]:
        """The best items for someone."""
        batch, field = self._single(user, request)
        candidates = asked.pop("candidates", None)
        ranked = self._ranked(batch, field, None if candidates is None else [candidates], asked)
        return self._told({"items": self._lists(ranked, details)[0]}, ranked, batch.unknown)

    def recommend_batch(
        self, users: Any = None, requests: Any = None, details: bool = False, candidates: Any = None, **asked: Any
    ) -> dict[str, Any]:
        """The best items for each of several."""
        field = "requests" if users is None else "users"
        batch = self._batch(users, requests, field)
        ranked = self._ranked(batch, field, candidates, asked)
        return self._told({"lists": self._lists(ranked, details)}, ranked, batch.unknown)

    def recommend_together(self, asked: list[dict[str, Any]]) -> list[dict[str, Any] | Exception]:
        """As :meth:`recommend` of each, computed at once where that gives the same: for users, or for requests, with all other
        fields equal, and nothing to be said of any of them."""
        if len(asked) > 1:
            field = "user" if "user" in asked[0] else "request"
            others = {name: value for name, value in asked[0].items() if name != field}
            try:
                together = self.recommend_batch(**{f"{field}s": [one[field] for one in asked]}, **others)
            except Refused:  # which of them?
                pass
            else:
                if together["note"] is None and not together["unknown"]:
                    return [{"model": self.version, "items": items, "note": None, "unknown": {}} for items in together["lists"]]
        return [self._or_error(one) for one in asked]

    def _or_error(self, asked: dict[str, Any]) -> dict[str, Any] | Exception:
        try:
            return self.recommend(**asked)
        except Exception as error:
            return error

    def _single(self, user: Any, request: Any) -> tuple[RequestBatch, str]:
        """Whom a body names, and the field of it that does."""
        if user is None:
            return self._batch(None, [request], "request"), "request"
        return self._batch([user], None, "user"), "user"

    def _batch(self, users: list[Any] | None, requests: list[Any] | None, field: str) -> RequestBatch:
        """Those whom a body names, in a field of it."""
        if users is None:
            for j, request in enumerate(requests or ()):
                if isinstance(user := request.get(self._dataset.user_column), str | int):
                    place = field if field == "request" else f"{field}[{j}]"
                    _check_kind(self._dataset.users, [user], f"{place}.{self._dataset.user_column}")
            with about(field):
                return self._state.request_batch(None, requests, self.recommender.unknown)
        codes = self._known(self._dataset.users, users, field)
        return RequestBatch(ContextBatch.of_users(self._dataset, codes), self._dataset.user_column, pa.array(users))

    def _ranked(self, batch: RequestBatch, field: str, candidates: Any, asked: dict[str, Any]) -> RankedLists:
        if candidates is not None and len(candidates) != len(batch.contexts):
            said = f"must have a list for each of the {len(batch.contexts)} {field}, got {len(candidates)}"
            raise Refused(422, said, "candidates")
        listed = {
            **{name: asked.get(name) for name in ("allow", "deny")},
            "candidates": list(chain.from_iterable(candidates or ())),
        }
        for name, items in listed.items():
            _check_kind(self._dataset.items, items or (), name)
        with about(field):
            return self._state.ranked(batch, **asked, candidates=candidates, n_threads=self._n_threads)

    @property
    def _n_threads(self) -> int | None:
        return getattr(self.recommender.model, "n_threads", None)

    def similar(self, item: Any, n: int = 10, details: bool = False) -> dict[str, Any]:
        """The items most like one."""
        ranked = self._alike([item], n, "item")
        return self._told({"items": self._lists(ranked, details)[0]}, ranked, {})

    def similar_batch(self, items: list[Any], n: int = 10, details: bool = False) -> dict[str, Any]:
        """The items most like each of several."""
        ranked = self._alike(items, n, "items")
        return self._told({"lists": self._lists(ranked, details)}, ranked, {})

    def _alike(self, items: list[Any], n: int, field: str) -> RankedLists:
        self._need_vectors(" to compare items by")
        codes = self._known(self._dataset.items, items, field)
        with about(field):
            return self._state.nearest(ITEM, codes, pa.array(items), n, self._n_threads)

    def _lists(self, ranked: RankedLists, details: bool) -> list[list[dict[str, Any]]]:
        """Ids, scores and ranks; with titles and attributes where they are wanted."""
        lists = []
        for codes, scores in zip(ranked.codes, ranked.scores, strict=True):
            codes = codes[codes >= 0]
            named = zip(self._dataset.items.take(codes).to_pylist(), scores.tolist(), range(1, len(codes) + 1), strict=False)
            entries: list[dict[str, Any]] = [{"item": item, "score": score, "rank": rank} for item, score, rank in named]
            if details:
                for entry, more in zip(entries, self.catalogue.details(codes), strict=True):
                    entry |= more
            lists.append(entries)
        return lists

    def _told(self, answer: dict[str, Any], ranked: RankedLists, unknown: Mapping[str, int]) -> dict[str, Any]:
        return {"model": self.version, **answer, "note": ranked.short, "unknown": dict(unknown)}

    # what is known

    def explain(self, item: Any, user: Any = None, request: Any = None) -> dict[str, Any]:
        """Why an item has its score."""
        (code,) = self._known(self._dataset.items, [item], "item")
        batch, _ = self._single(user, request)
        why = self._state.explained(batch.contexts, int(code))
        return {
            "model": self.version,
            "item": why.item,
            "score": why.score,
            "contributions": [{**part, "title": self._title_of(part)} for part in why.table.to_pylist()],
        }

    def _title_of(self, part: dict[str, Any]) -> str | None:
        """Of the item that a contribution is of, if it is one."""
        field = self._state.contexts.fields.get(part["field"])
        of_item = part["field"] in ("item", HISTORY) if field is None else field.ids == "items"
        code = item_code(self._dataset.items, part["value"]) if of_item else None
        return None if code is None else self.catalogue.title(code)

    def items(self, query: str, limit: int) -> dict[str, Any]:
        """Items by id or title; the most popular for an empty query."""
        found = self.catalogue.search(query, limit) if query.strip() else self.catalogue.most_popular[:limit]
        return {"model": self.version, "items": self.catalogue.found(found)}

    def users(self, query: str, limit: int) -> dict[str, Any]:
        """Users by id."""
        found = self.catalogue.search_users(query, limit)
        return {"model": self.version, "users": self._dataset.users.take(found).to_pylist()}

    def profile(self, user: Any) -> dict[str, Any]:
        """What the data say of a user."""
        (code,) = self._known(self._dataset.users, [user], "user")
        table, seen = self._dataset.user_table, self._dataset.item[self._dataset.bounds[code] : self._dataset.bounds[code + 1]]
        return {
            "model": self.version,
            "user": user,
            "attributes": {name: plain(table[name][int(code)].as_py()) for name in table.column_names},
            "history": self.catalogue.found(seen[-LATEST:]),
            "earlier": self._dataset.items.take(seen[-EARLIER:-LATEST] if len(seen) > LATEST else seen[:0]).to_pylist(),
            "seen": len(seen),
        }

    @cached_property
    def model(self) -> dict[str, Any]:
        """The facts of the model."""
        return {"model": self.version, "facts": facts(self.recommender, self.catalogue)}

    def map(self, by: str = "") -> dict[str, Any]:
        """The most popular items in two dimensions: those in which they differ most, or in which values of an attribute do."""
        landscape, popular = self._landscape(by), self.catalogue.most_popular[: 2 * ON_MAP]
        codes = popular[landscape.met[popular]][:ON_MAP]
        named = zip(
            self._dataset.items.take(codes).to_pylist(), self.catalogue.details(codes), landscape.places[codes], strict=True
        )
        shown = [{"item": item, **details, "x": float(x), "y": float(y)} for item, details, (x, y) in named]
        return {"model": self.version, "points": shown, "explained": landscape.explained}

    def place(self, user: Any = None, request: Any = None, by: str = "") -> dict[str, Any]:
        """Where someone is on the map."""
        landscape = self._landscape(by)
        batch, _ = self._single(user, request)
        x, y = landscape.place(self._state, batch.contexts) or (None, None)
        return {"model": self.version, "x": x, "y": y}

    def _landscape(self, by: str) -> ItemMap:
        """As it was made when it was first asked for; there are as many as attributes."""
        self._need_vectors(", and so there is no map")
        known = self.model["facts"]["colours"]
        if by and by not in known:
            raise Refused(
                422, f"must be an attribute of items with few values: {', '.join(map(repr, known)) or 'there is none'}.", "by"
            )
        with self._mapping:
            if by not in self._landscapes:
                self._landscapes[by] = ItemMap.of(self._state, self.catalogue.groups(by) if by else None)
            return self._landscapes[by]

    def _need_vectors(self, why: str) -> None:
        if not self._state.adapter.has_vectors:
            raise Refused(409, f"{type(self._state.adapter.model).__name__} counts: it has no vectors{why}.")

    # what clients may name

    def _known(self, ids: Ids, asked: list[Any], field: str) -> np.ndarray:
        """Codes of ids that must be of the data."""
        _check_kind(ids, asked, field)
        with about(field):
            codes = ids.codes(asked, f"ids of {field!r}")
        if (codes < 0).any():
            stranger = asked[int(np.argmin(codes))]
            advice = "" if ids is self._dataset.items else " For someone new, say what is known in a request."
            raise Refused(404, f"{stranger!r} is not known.{advice}", field)
        return codes


def _check_kind(ids: Ids, asked: Iterable[Any], field: str) -> None:
    """Refuse integers where texts are, and the other way round, without naming any of the data's."""
    whole = ids.kind == "integers"
    names = {True: "an integer", False: "a text"}
    for one in asked:
        if isinstance(one, int) != whole:
            raise Refused(422, f"must be {names[whole]}, as in the data, got {names[not whole]}.", field)
