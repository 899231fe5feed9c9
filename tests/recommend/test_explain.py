"""Explanations add up to the score, name what people know, and are drawn whole."""

from __future__ import annotations

import math
import warnings
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

import everypair as ep
from everypair.columns.fields import as_field
from everypair.columns.history_field import HistoryField, Window
from everypair.engine.contribution import EVERY_ITEM, ITEM
from everypair.ranking.rank import InnerProducts
from everypair.recommend.context_batch import ContextBatch
from everypair.recommend.description import Description
from everypair.recommend.explain.explanation import SHOWN, Explanation, Summand
from everypair.runtime import svg
from everypair.towers import Concat, Constant, Embedding, Linear, Lookup, Machine, Product, Sum

from logs import logs
from sequences import Sequences, histories
from settings import COMMON

COUNTRY, PAST = ep.Attributes("country"), ep.History(last=3, decay=0.7, name="past")
FPMC = Concat(Embedding(2, "user"), Embedding(2, "previous"), Constant())
SVDPP = Sum(Embedding(2, "user"), Product(Linear(2, "history"), Embedding(2, "country")))
MODELS: dict[str, tuple[Any, list[Any]]] = {
    "MF": (ep.MF(**COMMON), [ep.UserId()]),
    "MF with L2 by weight": (ep.MF(**COMMON, regularization_exponent=0.7), [ep.UserId()]),
    "MF of the previous item": (ep.MF(**COMMON, regularization_exponent=1.0), [ep.Previous()]),
    "MF in float32": (ep.MF(**{**COMMON, "dtype": "float32", "regularization": 0.0}), [ep.UserId()]),
    "MFSI": (ep.MFSI(**COMMON), [ep.UserId(), COUNTRY, ep.History(), PAST]),
    "FM": (ep.FM(**COMMON), [COUNTRY, ep.Previous(), ep.History(normalize="mean", decay=0.9)]),
    "FM in float32": (ep.FM(**{**COMMON, "dtype": "float32"}), [ep.UserId(), ep.History(last=2), PAST]),
    "towers side by side": (ep.Separable(FPMC, Embedding(5), epochs=3), [ep.UserId(), ep.Previous()]),
    "a sum and a product": (ep.Separable(SVDPP, Embedding(2), epochs=3), [ep.UserId(), ep.History(), COUNTRY]),
    "a machine and an embedding": (ep.Separable(Machine(2), Embedding(4), epochs=3), [ep.UserId(), ep.History()]),
    "PARAFAC": (ep.PARAFAC(**COMMON), [ep.UserId(), ep.Previous()]),
    "Tucker": (ep.Tucker(**{**COMMON, "factors": 2}), [COUNTRY, ep.Previous()]),
    "Popularity": (ep.Popularity(), [ep.UserId()]),
    "CoView": (ep.CoView(), [ep.Previous()]),
}
HISTORIES = st.lists(st.integers(0, 7), max_size=6)  # some of them not known


@pytest.mark.filterwarnings("ignore::everypair.UnusedHistoryWarning")  # some of the models do not use the histories of the requests
@pytest.mark.parametrize("name", MODELS)
@given(log=logs(), data=st.data())
def test_contributions_add_up_to_the_score(name: str, log: ep.Dataset, data: st.DataObject) -> None:
    """For someone known, and for a request with a country and a history in which items repeat."""
    model, context = MODELS[name]
    recommender = ep.Recommender(model, context).fit(log)
    item, history = data.draw(st.integers(0, log.n_items - 1)), [10 * code for code in data.draw(HISTORIES)]
    user = log.users[data.draw(st.integers(0, log.n_users - 1))]
    country = data.draw(st.sampled_from(["DE", "FR", "IT"]))
    requests: list[dict[str, Any]] = [{"user": user}, {"country": country, "history": history}, {"user": user, "history": history}]
    state = recommender.state
    found, known = state.scores(ContextBatch.of_requests(requests, log))
    scores = found.block(0, len(requests))[:, item]
    scores = scores if known is None else np.where(known, scores, state.popularity[item])
    terms = np.abs(found.phi) @ np.abs(found.psi[item]) if isinstance(found, InnerProducts) else scores  # which may cancel
    for request, score, term in zip(requests, scores, terms, strict=True):
        why = recommender.explain(item=log.items[item], request=request)
        amounts = np.array(why.table["contribution"])
        size = max(float(np.abs(amounts).sum()), float(term), 1.0 if found.dtype == np.float32 else 1e-3)
        assert abs(why.score - score) <= 1e-6 * size
        assert why.score == pytest.approx(amounts.sum(), rel=1e-12, abs=1e-12 * size)
        assert math.isfinite(why.score)
        assert why.item == log.items[item]
    known = recommender.explain(user, log.items[item])
    assert known.table.equals(recommender.explain(item=log.items[item], request={"user": user}).table)


@given(log=logs(max_users=4), last=st.booleans())
def test_the_items_of_a_row_at_its_minimum_are_all_there_is(log: ep.Dataset, last: bool) -> None:
    """With the items' vectors held, a row converges to the solution of its equations, and nothing is left beyond it."""
    vectors = np.random.default_rng(0).normal(size=(log.n_items, 2))
    model = ep.MF(factors=2, regularization=0.3, regularization_exponent=0.5, unobserved_weight=0.2, epochs=200, dtype="float64")
    recommender = ep.Recommender(model)
    model.fit = lambda feedback, callback: ep.MF.fit(model, feedback, fixed={"H": vectors}, callback=callback)  # type: ignore[method-assign]
    recommender.fit(log)
    for user in range(log.n_users):
        table = recommender.explain(log.users[user], log.items[-1 if last else 0]).table.to_pylist()
        assert table[-1]["value"] == f"{log.users[user]}, beyond the items"
        assert abs(table[-1]["contribution"]) <= 1e-8 * max(1.0, sum(abs(row["contribution"]) for row in table))
        watched = {str(log.items[code]) for code in log.item[log.bounds[user] : log.bounds[user + 1]]}
        assert {row["value"] for row in table[:-1]} == watched
        assert {row["field"] for row in table[:-1]} == {"history"}


@given(histories(), st.sampled_from([Window(0, 1.0, "sqrt"), Window(2, 0.5, "mean"), Window(3, 0.9, "none")]))
def test_entries_are_those_of_the_matrix(past: Sequences, window: Window) -> None:
    history = HistoryField(past.items, past.bounds, past.begin, past.end, past.n_items, window)
    matrix = history.toarray()
    fields = [history, as_field("sparse", sp.csr_array(matrix)), as_field("dense", matrix + 1.0), LazyVectors(matrix)]
    for field, expected in zip(fields, [matrix, matrix, matrix + 1.0, matrix], strict=True):
        field = as_field("field", field)
        for row in range(len(matrix)):
            found = np.zeros(matrix.shape[1])
            there, values = field.entries(row)
            assert len(np.unique(there)) == len(there)
            found[there] = values
            np.testing.assert_allclose(found, expected[row], rtol=1e-9, atol=1e-12)


class LazyVectors:
    """An operator: its rows are never seen."""

    def __init__(self, matrix: np.ndarray) -> None:
        self.shape, self._matrix = matrix.shape, matrix

    def matvec(self, v: np.ndarray) -> np.ndarray:
        return self._matrix @ v

    def rmatvec(self, z: np.ndarray) -> np.ndarray:
        return self._matrix.T @ z


CONTEXTS = {
    "user": ep.Levels([0, 1, 2, 1], 4, {"age": np.array([0.1, 0.2, 0.3, 0.4]), "country": np.array([0, 1, 1, 0])}),
    "month": np.array([0, 1, 1, 0]),
    "tags": sp.csr_array([[1.0, 0.0, 2.0], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0], [1.0, 1.0, 1.0]]),
    "text": np.arange(8.0).reshape(4, 2) - 3.5,
}
FEATURES = [
    (Embedding(3), [(("context",), 3)]),
    (Embedding(3, "user"), [(("user",), 1)]),
    (Lookup("user", Linear(3, "age", "country")), [(("user.age",), None), (("user.country",), 1)]),
    (Lookup("user", Sum(Embedding(3), Linear(3, "age"))), [(("user",), 1), (("user.age",), None)]),
    (Linear(3, "tags", "month"), [(("tags",), 0), (("tags",), 1), (("tags",), 2), (("month",), 0)]),
    (Linear(3, "text"), [(("text",), None)]),
    (Sum(Embedding(3, "month"), Product(Embedding(3, "user"), Linear(3, "tags"))), [(("month",), 0), (("user", "tags"), None)]),
    (Concat(Embedding(2, "month"), Constant()), [(("month",), 0), ((), None)]),
    (Machine(1, "tags", "user"), [*[(("tags",), j) for j in range(3)], (("user",), 1), (("tags", "user"), None), ((), None)]),
]


@pytest.mark.parametrize(("tower", "expected"), FEATURES, ids=lambda x: repr(x) if isinstance(x, ep.towers.Tower) else "")
def test_towers_say_which_features_there_are(tower: Any, expected: Any) -> None:
    model = ep.Separable(tower, Embedding(3), epochs=2, random_state=1)
    model.fit(ep.Feedback([0, 1, 2, 3], [0, 1, 0, 1]), contexts=None if tower is FEATURES[0][0] else CONTEXTS)
    bound, psi = model.state.towers["context"], np.array([0.3, -0.2, 0.7])
    found = bound.contributions(bound.rows.take(np.array([3])), psi)
    assert sorted((part.columns, str(part.feature)) for part in found) == sorted((names, str(j)) for names, j in expected)
    assert sum(part.amount for part in found) == pytest.approx(model.phi_[3].astype(float) @ psi, rel=1e-5, abs=1e-7)


def test_what_a_context_brings_is_the_same_for_every_item_where_items_have_a_one() -> None:
    contexts, feedback = {"tags": CONTEXTS["tags"]}, ep.Feedback([0, 1, 2, 3], [0, 1, 0, 1])
    model = ep.FM(factors=2, epochs=3).fit(feedback, contexts=contexts)
    tower = model.state.towers["context"]
    row = tower.rows.take(np.array([0]))
    found = [{part.kind: part for part in tower.contributions(row, psi.astype(float))} for psi in model.psi_]
    assert found[0][EVERY_ITEM] == found[1][EVERY_ITEM]
    assert found[0][EVERY_ITEM].columns == ("tags",)
    assert found[0][ITEM].amount != found[1][ITEM].amount


def test_features_have_the_names_people_know() -> None:
    events = {"user": [7, 7, 8, 8, 9], "item": list("xyxzx"), "device": ["tv", "tv", None, "phone", "tv"]}
    users = {"user": [7, 8, 9], "age": [15, 31, 70], "score": [0.5, 1.5, 2.5], "tags": [["a", "b"], [], ["b"]]}
    dataset = ep.Dataset(events, users={**users, "height": [1.6, 1.7, 1.9]})
    recipes = [
        ep.UserId(), ep.Previous(), ep.History(last=2), ep.Attributes("device", "tags"),
        ep.Attributes("age", "score", kind="bins", bins=3), ep.Attributes("height", kind="value"),
    ]  # fmt: skip
    description = Description("context", recipes, dataset, ContextBatch.of_events(dataset))
    request = {"user": 8, "history": ["x", "x", "z", "y"], "tags": ["b", "a", "new"], "device": None, "height": 1.55}
    contexts = ContextBatch.of_requests([request], dataset)

    def label(field: str, feature: int | None) -> str:
        return description.label(contexts, field, feature)

    assert [label("user", 0), label("user", None), label("previous", 2), label("previous", None)] == ["7", "8", "z", "y"]
    assert [label("history", 0), label("history", None)] == ["x", "2 items"]
    assert [label("device", 0), label("device", None)] == ["phone", "none"]
    assert [label("tags", 0), label("tags", None), label("height", 0), label("height", None)] == ["a", "b, a, new", "1.55", "1.55"]
    assert [label("age", j) for j in range(3)] == ["below 31", "31 to 69", "70 and more"]
    assert [label("score", j) for j in range(3)] == ["below 1.5", "1.5 to below 2.5", "2.5 and more"]
    nobody = ContextBatch.of_requests([{"history": ["x"]}], dataset)
    nothing = [description.label(nobody, name, None) for name in ("user", "history", "age", "tags")]
    assert nothing == ["none", "1 item", "none", "none"]


@pytest.fixture(scope="module")
def dataset() -> ep.Dataset:
    return ep.datasets.youtube_like(60, 30, seed=5, events_per_user=8)


def test_what_a_factorization_machine_says(dataset: ep.Dataset) -> None:
    recommender = ep.Recommender(ep.FM(**COMMON), [ep.Attributes("country"), ep.Previous(), ep.History()]).fit(dataset)
    first, second = dataset.items[1], dataset.items[2]
    why = recommender.explain(item=dataset.items[3], request={"country": "DE", "history": [first, second, first]})
    rows = why.table.to_pylist()
    found = [(row["field"], row["value"]) for row in rows]
    assert sorted(found[:-2]) == [("country", "DE"), ("history", first), ("history", second), ("previous", first)]
    assert found[-2:] == [("same for every item", ""), ("item", dataset.items[3])]
    sizes = [abs(row["contribution"]) for row in rows[:-2]]
    assert sizes == sorted(sizes, reverse=True)
    assert why.table.schema.types == [pa.string(), pa.string(), pa.float64()]
    assert str(why) == repr(why)
    assert str(why).startswith(f"Why {dataset.items[3]} for this request\nfield")
    assert str(why).splitlines()[-1].split()[0] == "score"


def test_what_other_models_say(dataset: ep.Dataset) -> None:
    user, code = dataset.users[4], int(np.argmax(np.bincount(dataset.item)))
    item, last = dataset.items[code], dataset.items[int(dataset.item[dataset.bounds[5] - 1])]

    def rows(name: str, **request: Any) -> list[tuple[Any, ...]]:
        model, context = MODELS[name]
        recommender = ep.Recommender(model, context).fit(dataset)
        return [tuple(row.values()) for row in recommender.explain(item=item, request=request or {"user": user}).table.to_pylist()]

    seen = float(np.sum(dataset.item == code))
    assert rows("Popularity") == [("everyone", f"seen {seen:.0f} times", seen)]
    for name in ("MF", "PARAFAC"):
        assert rows(name, user="nobody") == [("popularity", "nothing else is known", seen)]
    assert [row[:2] for row in rows("PARAFAC")] == [("user x previous", f"{user} x {last}")]
    assert [row[:2] for row in rows("MF of the previous item")] == [("previous", str(last))]
    follows = (dataset.item[1:] == code) & (dataset.user[1:] == dataset.user[:-1])
    before = int(dataset.item[np.flatnonzero(follows)[0]])
    count, share = rows("CoView", history=[dataset.items[before]])
    assert count[:2] == ("previous", dataset.items[before])
    assert count[2] == pytest.approx(np.sum(follows & (dataset.item[:-1] == before)))
    assert share[:2] == ("popularity", "decides ties")
    assert rows("CoView", history=[]) == [share]


def test_what_cannot_be_explained(dataset: ep.Dataset) -> None:
    model = ep.Popularity()
    recommender = ep.Recommender(model).fit(dataset)
    user, item = dataset.users[0], dataset.items[0]
    for arguments, options in (((), {}), ((user,), {}), ((), {"item": item}), ((user, item), {"request": {}})):
        with pytest.raises(TypeError, match="an item and either a user or a request"):
            recommender.explain(*arguments, **options)
    with pytest.raises(ValueError, match=r"items must be in the data.*such as 'v999'"):
        recommender.explain(user, "v999")
    with pytest.raises(ep.NotFittedError):
        ep.Recommender(ep.MF()).explain(user, item)
    ep.Recommender(model).fit(dataset)
    with pytest.raises(ValueError, match="a model of its own"):
        recommender.explain(user, item)


def test_equal_parts_are_one() -> None:
    why = Explanation("x", None, [Summand("user", "ann", 0.5), Summand("user", "bob", 0.1), Summand("user", "ann", -0.2)])
    assert [tuple(row.values()) for row in why.table.to_pylist()] == [("user", "ann", pytest.approx(0.3)), ("user", "bob", 0.1)]


TEXTS = st.text(max_size=80) | st.sampled_from(["<script>&\"'", "W" * 300, "日本語" * 40, "\x00\x1b[0m", "a\nb"])
AMOUNTS = st.sampled_from([0.0, 1e-12, -3e7, 0.25]) | st.floats(-1e12, 1e12)
SUMMANDS = st.builds(Summand, TEXTS, TEXTS, AMOUNTS, st.just(False)) | st.builds(
    Summand, st.just("item"), TEXTS, AMOUNTS, st.just(True)
)


@given(st.lists(SUMMANDS.filter(lambda part: not part.last), max_size=30), st.lists(SUMMANDS, max_size=2), TEXTS, st.none() | TEXTS)
def test_pictures_are_whole(features: list[Summand], more: list[Summand], item: str, user: str | None) -> None:
    why = Explanation(item, user, [*features, *more])
    root = ElementTree.fromstring(why.svg())
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    texts = root.findall("{*}text")
    bars = [rect for rect in root.findall("{*}rect") if rect.find("{*}title") is not None]
    assert 1 <= len(bars) <= SHOWN + 1
    assert len(texts) == 1 + 2 * len(bars)
    for text in texts:
        size = 14 if "600" in text.attrib["style"] else 12
        x, y, wide = float(text.attrib["x"]), float(text.attrib["y"]), svg.width_of(text.text or "", size)
        left = x - wide if "text-anchor:end" in text.attrib["style"] else x
        assert left >= -1.0
        assert left + wide <= width + 1.0
        assert 0.0 < y < height
    for bar in bars:
        x, y = float(bar.attrib["x"]), float(bar.attrib["y"])
        assert 0.0 <= x <= x + float(bar.attrib["width"]) <= width
        assert y + float(bar.attrib["height"]) <= height
    assert "<script" not in why._repr_html_()
    assert len(str(why).splitlines()) == 3 + len(bars)


def test_the_smallest_are_summed() -> None:
    parts = [Summand("history", f"v{j}", 1.0 / (j + 1)) for j in range(40)]
    why = Explanation("v99", "ann", [*parts, Summand("item", "v99", 0.001, last=True)])
    shown = [text.text for text in ElementTree.fromstring(why.svg()).findall("{*}text")]
    rest = sum(part.amount for part in parts[10:])
    assert shown[0] == "Why v99 for ann"
    assert shown[1::2] == [*(f"history: v{j}" for j in range(10)), "30 others", "item: v99", "score"]
    assert shown[2::2][10] == f"{rest:+.2f}"
    assert shown[-1] == f"{why.score:.2f}"
    assert len(why.table) == 41


def test_pictures_are_saved(tmp_path: Path) -> None:
    why = Explanation("v<1>", "ann", [Summand("country", "D&E", 0.5)])
    why.save(tmp_path / "why.svg")
    assert ElementTree.parse(tmp_path / "why.svg").getroot().tag == "{http://www.w3.org/2000/svg}svg"
    why.save(str(tmp_path / "why.HTML"))
    page = (tmp_path / "why.HTML").read_text()
    assert page.startswith("<!doctype html>")
    assert "<title>Why v&lt;1&gt; for ann</title>" in page
    with pytest.raises(ValueError, match=r"must end in \.svg or \.html, got '.*why\.png'"):
        why.save(tmp_path / "why.png")


# titles


@pytest.mark.parametrize("column", ["title", "Name", None])
@pytest.mark.parametrize("name", ["MF", "MFSI"])
def test_items_are_shown_with_their_titles(name: str, column: str | None, tmp_path: Path) -> None:
    log = ep.datasets.youtube_like(40, 20, seed=5, titles=True)
    titles = log.item_table["title"].to_pylist()
    log.item_table = log.item_table.rename_columns({"title": column or "heading"})
    model, context = MODELS[name]
    recommender = ep.Recommender(model, context).fit(log)
    request = {"history": [log.items[3]], "country": "DE"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ep.UnusedHistoryWarning)
        why = recommender.explain(item=log.items[5], request=request)
    if column is None:
        assert why.title is None
        assert why.table.column_names == ["field", "value", "contribution"]
        assert "(" not in repr(why).splitlines()[0]
        return
    assert why.title == titles[5]
    assert why.table.column_names == ["field", "value", "title", "contribution"]
    by_field = {row["field"]: row["title"] for row in why.table.to_pylist()}
    assert by_field["history"] == titles[3]
    assert {title for field, title in by_field.items() if field in ("country", "user")} <= {None}
    header, columns, *_ = repr(why).splitlines()
    assert header.startswith(f"Why {log.items[5]} ({titles[5][:10]}")
    assert columns.split() == ["field", "value", "title", "contribution"]
    assert svg.plain(titles[3])[:12] in why.svg()


def test_titles_do_not_change_what_adds_up() -> None:
    log = ep.datasets.youtube_like(40, 20, seed=5, titles=True)
    recommender = ep.Recommender(ep.MF(**COMMON)).fit(log)
    titled = recommender.explain(log.users[0], log.items[0])
    log.item_table = log.item_table.drop_columns(["title"])
    plain = ep.Recommender(ep.MF(**COMMON)).fit(log).explain(log.users[0], log.items[0])
    assert titled.score == plain.score
    assert titled.table.drop_columns(["title"]).equals(plain.table)
