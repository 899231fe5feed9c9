"""Recommendations as users get them: filters that do what they say, tables of their kind, the same in any batch and thread."""

from __future__ import annotations

import copy
import pickle
import threading
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import everypair as ep
from everypair.ranking.rank import DenseScores, InnerProducts, Lists, rank
from everypair.recommend import export
from everypair.recommend.context_batch import ContextBatch
from everypair.runtime.parallel import SERIAL, Workers
from everypair.towers import Concat, Constant, Embedding, Lookup, Machine, Product, Sum

from logs import logs

COMMON: dict[str, Any] = {"factors": 8, "epochs": 2, "unobserved_weight": 0.2, "regularization": 0.3}
MODELS: dict[str, tuple[Any, Any]] = {
    "MF": (ep.MF(**COMMON), None),
    "MFSI": (ep.MFSI(**COMMON), [ep.UserId(), ep.Attributes("country", "device"), ep.History(last=3, decay=0.8)]),
    "FM": (ep.FM(**COMMON), [ep.UserId(), ep.Attributes("country"), ep.Previous(), ep.History()]),
    "PARAFAC": (ep.PARAFAC(**COMMON), [ep.UserId(), ep.Attributes("country")]),
    "Tucker": (ep.Tucker(**{**COMMON, "factors": (5, 3, 9)}), [ep.UserId(), ep.Attributes("country")]),
    "CoView": (ep.CoView(), [ep.Previous()]),
    "Popularity": (ep.Popularity(), None),
}


@pytest.fixture(scope="module")
def dataset() -> ep.Dataset:
    return ep.datasets.youtube_like(60, 50, seed=3, events_per_user=8)


def fitted(name: str, dataset: ep.Dataset) -> ep.Recommender:
    model, context = MODELS[name]
    return ep.Recommender(copy.copy(model), context).fit(dataset)


@given(
    st.integers(1, 5), st.integers(1, 40), st.integers(1, 12), st.integers(1, 4), st.integers(0, 10**6), st.booleans(), st.data()
)  # fmt: skip
def test_ranks_are_those_of_a_sort(rows: int, n_items: int, n: int, k: int, seed: int, ties: bool, data: st.DataObject) -> None:
    """By inner products in double precision, whatever was left out and however the scores were made."""
    random = np.random.default_rng(seed)
    phi, psi = (random.normal(size=(size, k)).astype(np.float32) for size in (rows, n_items))
    if ties:
        phi, psi = np.round(phi), np.round(psi)
    exact = (phi.astype(np.float64) @ psi.T.astype(np.float64)).astype(np.float32)
    lists = st.none() | st.lists(st.lists(st.integers(0, n_items - 1)), min_size=rows, max_size=rows)
    excluded, candidates = (data.draw(lists) for _ in range(2))
    allowed = data.draw(st.none() | st.lists(st.booleans(), min_size=n_items, max_size=n_items).map(np.array))
    given_lists = [
        None if each is None else Lists.of([np.array(items, np.int64) for items in each]) for each in (excluded, candidates)
    ]
    for scores in (InnerProducts(phi, psi), DenseScores(lambda start, stop: exact[start:stop].copy(), rows, n_items)):
        ids, best = rank(scores, n, SERIAL, *given_lists, allowed)
        for r in range(rows):
            left = set(range(n_items) if candidates is None else candidates[r]) - set([] if excluded is None else excluded[r])
            left = [i for i in left if allowed is None or allowed[i]]
            expected = sorted(left, key=lambda i: (-exact[r, i], i))[:n]
            assert [i for i in ids[r] if i >= 0] == expected
            np.testing.assert_array_equal(best[r, : len(expected)], exact[r, expected])
            assert np.all(best[r, len(expected) :] == -np.inf)


@pytest.mark.full
def test_nearly_equal_scores_do_not_depend_on_the_batch() -> None:
    """Thousands of items whose scores differ by less than a matrix product is off by."""
    random = np.random.default_rng(0)
    psi = (1 + 1e-7 * random.normal(size=(5_000, 48))).astype(np.float32)
    phi = random.normal(size=(300, 48)).astype(np.float32)
    with Workers(2, small=0) as workers:
        together = rank(InnerProducts(phi, psi), 20, workers)
        for r in (0, 7, 299):
            apart = rank(InnerProducts(phi[r : r + 1], psi), 20, SERIAL)
            assert all(np.array_equal(one[r : r + 1], other) for one, other in zip(together, apart, strict=True))


@pytest.mark.filterwarnings("ignore::everypair.UnusedHistoryWarning")  # some of the models do not use the histories of the requests
@pytest.mark.filterwarnings("ignore::everypair.FallbackWarning")  # asked for: tested in test_fallback.py
@pytest.mark.parametrize("name", MODELS)
def test_a_list_does_not_depend_on_the_batch(name: str, dataset: ep.Dataset) -> None:
    recommender = fitted(name, dataset)
    users = dataset.users.values.to_pylist()
    histories = [[dataset.items[int(code)] for code in dataset.item[j : j + 3]] for j in range(0, 60, 3)]
    requests: list[dict[str, Any]] = [{"country": "DE", "history": history} for history in histories]
    requests += [{"user": user} for user in users[:20]]
    for argument, asked in (("users", users), ("requests", requests)):
        options: dict[str, Any] = {"n": 12, "fallback": "popular"}
        whole = recommender.recommend(**{argument: asked}, **options).drop_columns([("user", "request")[argument != "users"]])
        for some in ([0], [3, 4, 5], [11], range(7, 18)):
            part = recommender.recommend(**{argument: [asked[j] for j in some]}, **options)
            rows = np.concatenate([np.arange(12 * j, 12 * j + 12) for j in some])
            assert part.drop_columns(part.column_names[:1]).equals(whole.take(pa.array(rows)))


@pytest.mark.parametrize("name", ["MF", "FM", "CoView"])
@given(log=logs(max_items=6), data=st.data())
def test_filters(name: str, log: ep.Dataset, data: st.DataObject) -> None:
    model, context = {"MF": (ep.MF(2, epochs=1), None), "FM": (ep.FM(2, epochs=1), [ep.Previous()]), "CoView": MODELS["CoView"]}[
        name
    ]
    recommender = ep.Recommender(copy.copy(model), context).fit(log)
    ids = log.items.values.to_pylist()
    some = st.none() | st.lists(st.sampled_from([*ids, 9999]))
    allow, deny = data.draw(some), data.draw(some)
    users = log.users.values.to_pylist()
    candidates = data.draw(st.none() | st.lists(st.lists(st.sampled_from([*ids, 9999])), min_size=len(users), max_size=len(users)))
    exclude_seen, n = data.draw(st.booleans()), data.draw(st.integers(1, 8))
    filters: dict[str, Any] = {"allow": allow, "deny": deny, "candidates": candidates, "exclude_seen": exclude_seen}
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        found = recommender.recommend(users, n, **filters, fallback="popular").to_pylist()
        everything = recommender.recommend(users, len(ids), exclude_seen=False, fallback="popular").to_pylist()
    short = False
    for j, user in enumerate(users):
        watched = {log.items[code] for code in log.item[log.bounds[j] : log.bounds[j + 1]]} if exclude_seen else set()
        order = [row["item"] for row in everything if row["user"] == user]
        kept = [item for item in order if item not in watched and item not in (deny or [])]
        kept = [item for item in kept if (allow is None or item in allow) and (candidates is None or item in candidates[j])]
        rows = [row for row in found if row["user"] == user]
        assert [row["item"] for row in rows] == kept[:n]
        assert [row["rank"] for row in rows] == list(range(1, len(rows) + 1))
        short |= len(kept) < n
    assert short == any(
        issubclass(each.category, ep.FewerItemsWarning) and f"fewer than {n} " in str(each.message) for each in told
    )


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow", None])
def test_results_come_in_the_library_that_was_given(library: str | None, tmp_path: Path) -> None:
    events = {"who": ["a", "a", "b", "c"], "what": [1, 2, 1, 3], "age": [30, 30, 40, 50]}
    make: Any = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "pyarrow": pa.table, None: dict}[library]
    kind: Any = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "pyarrow": pa.Table, None: pa.Table}[library]
    recommender = ep.Recommender(ep.FM(2, epochs=1), [ep.UserId(), ep.Attributes("age", kind="value")])
    recommender.fit(ep.Dataset(make(events), user="who", item="what"))
    found = recommender.recommend(["a", "b"], n=1)
    assert isinstance(found, kind)
    assert list(found.column_names if isinstance(found, pa.Table) else found.columns) == ["who", "what", "score", "rank"]
    assert isinstance(recommender.similar_items([1], n=1), kind)
    requests = [{"who": "a", "age": 31}, {"who": None, "age": 60}]
    as_lists = recommender.recommend(requests=requests, n=2, exclude_seen=False)
    for other, own in (("pandas", pd.DataFrame), ("polars", pl.DataFrame)):
        users: Any = pd.Series(["a"]) if other == "pandas" else pl.Series(["a"])
        assert isinstance(recommender.recommend(users, n=1), own)
        table: Any = pd.DataFrame(requests) if other == "pandas" else pl.DataFrame(requests)
        answer = recommender.recommend(requests=table, n=2, exclude_seen=False)
        assert isinstance(answer, own)
        assert answer["what"].to_list() == list(as_lists["what"].to_pylist() if kind is pa.Table else as_lists["what"])  # type: ignore
    recommender.save(tmp_path)
    assert isinstance(ep.load(tmp_path).recommend("a", n=1), kind)


def test_unknown_values_are_counted_or_refused(dataset: ep.Dataset) -> None:
    context = [ep.UserId(), ep.Attributes("country"), ep.History()]
    request = {"user": "nobody", "country": "Atlantis", "history": [dataset.items[5], "vinyl", "vhs"]}
    lenient = ep.Recommender(ep.FM(**COMMON), context).fit(dataset)
    same = lenient.recommend(requests=[{"history": [dataset.items[5]]}], n=3)
    for _ in range(2):
        assert lenient.recommend(requests=[request], n=3).equals(same)
    assert lenient.unknown_ == {"country": 2, "user": 2, "history": 4}
    strict = ep.Recommender(ep.FM(**COMMON), context, unknown="error").fit(dataset)
    with pytest.raises(
        ValueError, match=r"1 of 'country' that training never saw, such as 'Atlantis' in request 0.*unknown='ignore'"
    ):
        strict.recommend(requests=[request])
    for name in ("user", "history"):
        with pytest.raises(ValueError, match=f"of {name!r} that training never saw"):
            strict.recommend(requests=[{name: request[name]}])
    assert strict.recommend(requests=[{"country": "DE", "history": [dataset.items[5]]}], n=2).num_rows == 2


def test_many_threads_ask_at_once(dataset: ep.Dataset) -> None:
    """Also while new events come in: each answer is that of before, or that of after."""
    recommender = fitted("FM", dataset)
    users = dataset.users.values.to_pylist()
    new = {"user": [users[0], users[1]], "item": [dataset.items[1], dataset.items[2]], "timestamp": [10**9, 10**9]}
    before = recommender.recommend(users[:20], n=5)
    after = fitted("FM", dataset).update(new).recommend(users[:20], n=5)
    assert not before.equals(after)
    failed, stop = [], threading.Event()

    def ask() -> None:
        while not stop.is_set():
            try:
                answer = recommender.recommend(users[:20], n=5)
                assert answer.equals(before) or answer.equals(after)
                recommender.recommend(requests=[{"country": "Atlantis", "history": [dataset.items[5]]}], n=3)
            except BaseException as error:
                failed.append(error)
                return

    threads = [threading.Thread(target=ask) for _ in range(6)]
    for thread in threads:
        thread.start()
    recommender.update(new)
    stop.set()
    for thread in threads:
        thread.join()
    assert not failed
    assert recommender.recommend(users[:20], n=5).equals(after)


@pytest.mark.parametrize("name", ["MF", "FM", "Tucker"])
def test_neighbours_are_those_of_the_largest_cosine(name: str, dataset: ep.Dataset) -> None:
    recommender = fitted(name, dataset)
    state = recommender.state
    k = COMMON["factors"] if name == "FM" else None
    everyone = ContextBatch.of_users(dataset, np.arange(dataset.n_users))
    phi = state.vectors.vectors(state.contexts.columns(everyone))
    cases = (("items", dataset.items, recommender.item_vectors()), ("users", dataset.users, phi))
    for what, ids, vectors in cases:
        units = vectors[:, :k] / np.linalg.norm(vectors[:, :k], axis=1, keepdims=True)
        found = getattr(recommender, f"similar_{what}")([ids[4], ids[9]], n=3)
        for code in (4, 9):
            cosine = units @ units[code]
            cosine[code] = -2
            expected = np.argsort(-cosine, kind="stable")[:3]
            rows = [row for row in found.to_pylist() if row[what[:-1]] == ids[code]]
            np.testing.assert_allclose([row["score"] for row in rows], cosine[expected], rtol=1e-5)
            assert [row["similar"] for row in rows] == [ids[other] for other in expected]
    with pytest.raises(ValueError, match="items must be in the data, but 1 of 1 are not, such as 'nothing'"):
        recommender.similar_items("nothing")
    without = dataset.subset(~np.isin(dataset.item, [5, 6]))
    never_met = ep.Recommender(ep.MF(**COMMON, rotate=False)).fit(without)
    with pytest.raises(ValueError, match="nothing was learnt of item"):
        never_met.similar_items(dataset.items[5])
    assert dataset.items[6] not in never_met.similar_items(dataset.items[4], n=40)["similar"].to_pylist()
    with pytest.raises(ValueError, match="Popularity counts: it has no vectors"):
        fitted("Popularity", dataset).similar_items(dataset.items[0])


TOWERS: dict[str, tuple[Any, Any, list[int]]] = {
    "side by side": (Concat(Machine(3), Embedding(2, "user")), Concat(Machine(3), Embedding(2, name="H")), [0, 1, 2, 5, 6]),
    "a bias beside a constant": (Concat(Embedding(2, "user"), Constant()), Concat(Embedding(2), Embedding(1, name="b")), [0, 1]),
    "added up": (Sum(Machine(2), Embedding(4, "user")), Sum(Machine(2), Embedding(4, name="H")), [0, 1]),
    "of levels": (Lookup("user", Concat(Embedding(2), Constant())), Embedding(3), [0, 1]),
    "multiplied": (Product(Embedding(2, "user"), Concat(Embedding(1, "country"), Constant())), Embedding(2), [0, 1]),
}


@pytest.mark.parametrize("name", TOWERS)
def test_biases_and_constants_are_not_compared(name: str, dataset: ep.Dataset) -> None:
    """Wherever they are in a tower, and also where the other side has the constant."""
    context, item, factors = TOWERS[name]
    recipes = [ep.UserId(), ep.Attributes("country")]
    recommender = ep.Recommender(ep.Separable(context, item, epochs=2), recipes).fit(dataset)
    users = ContextBatch.of_users(dataset, np.arange(dataset.n_users))
    phi = recommender.state.vectors.vectors(recommender.state.contexts.columns(users))
    for what, ids, vectors in (("items", dataset.items, recommender.item_vectors()), ("users", dataset.users, phi)):
        units = vectors[:, factors] / np.linalg.norm(vectors[:, factors], axis=1, keepdims=True)
        cosine = units @ units[4]
        cosine[4] = -2
        found = getattr(recommender, f"similar_{what}")([ids[4]], n=3)
        assert found["similar"].to_pylist() == [ids[code] for code in np.argsort(-cosine, kind="stable")[:3]]
        np.testing.assert_allclose(found["score"], np.sort(cosine)[::-1][:3], rtol=1e-5)


def test_item_biases_rank_for_unknown_users(dataset: ep.Dataset) -> None:
    """A constant of the contexts meets the biases of items, as in a factorization machine; without one, nothing is known."""
    recipes, unknown = [ep.UserId()], [{"country": "DE"}]
    with_bias = Concat(Embedding(2, "user"), Constant()), Concat(Embedding(2), Embedding(1, name="bias"))
    recommender = ep.Recommender(ep.Separable(*with_bias, epochs=3), recipes).fit(dataset)
    best = np.argsort(-recommender.item_vectors()[:, 2], kind="stable")[:4]
    assert recommender.recommend(requests=unknown, n=4)["item"].to_pylist() == [dataset.items[code] for code in best]
    no_bias = (Embedding(2, "user"), Embedding(2)), (Concat(Embedding(2, "user"), Constant()), Concat(Embedding(2), Constant()))
    for context, item in no_bias:
        recommender = ep.Recommender(ep.Separable(context, item, epochs=1), recipes).fit(dataset)
        with pytest.raises(ValueError, match="Separable can say nothing about 1 of 1"):
            recommender.recommend(requests=unknown)


@pytest.mark.filterwarnings("ignore::everypair.FallbackWarning")  # asked for: tested in test_fallback.py
@pytest.mark.parametrize("name", ["MF", "CoView"])
def test_everyone_at_once(name: str, dataset: ep.Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, "USERS_AT_ONCE", 25)
    recommender = fitted(name, dataset)
    users = dataset.users.values.to_pylist()
    expected = recommender.recommend(users, n=7, fallback="popular", deny=[dataset.items[3]])
    assert recommender.recommend_all(tmp_path / "all.parquet", n=7, deny=[dataset.items[3]]) == tmp_path / "all.parquet"
    assert pq.read_table(tmp_path / "all.parquet").equals(expected)
    recommender.recommend_all(tmp_path / "all.csv", n=7, deny=[dataset.items[3]])
    assert pyarrow.csv.read_csv(tmp_path / "all.csv")["item"].to_pylist() == expected["item"].to_pylist()
    recommender.recommend_all(tmp_path / "some.parquet", n=2, users=users[5:7])
    assert pq.read_table(tmp_path / "some.parquet")["user"].to_pylist() == [users[5]] * 2 + [users[6]] * 2
    with pytest.warns(ep.FewerItemsWarning, match="60 of 60 lists have fewer than 4 items: there are 47 in all.*allow"):
        recommender.recommend_all(tmp_path / "few.parquet", n=4, allow=dataset.items.values.to_pylist()[:3], exclude_seen=False)
    with pytest.raises(ValueError, match=r"must end in \.parquet, \.csv, \.jsonl"):
        recommender.recommend_all(tmp_path / "all.xlsx")
    monkeypatch.setattr(export.results, "table", lambda *args: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        recommender.recommend_all(tmp_path / "all.parquet", n=1)
    assert pq.read_table(tmp_path / "all.parquet").equals(expected)
    assert {path.name for path in tmp_path.iterdir()} == {"all.parquet", "all.csv", "some.parquet", "few.parquet"}


@pytest.mark.parametrize("name", ["MF", "MFSI", "FM", "PARAFAC", "Tucker"])
def test_exact_search_elsewhere_gives_the_same_list(name: str, dataset: ep.Dataset, tmp_path: Path) -> None:
    recommender = fitted(name, dataset)
    users = dataset.users.values.to_pylist()
    expected = recommender.recommend(users, n=9, exclude_seen=False)
    lists = np.array(expected["item"].to_pylist()).reshape(len(users), 9)
    for out in ("items.npz", "items.parquet"):
        recommender.export_vectors(tmp_path / out)
    recommender.export_vectors(tmp_path / "users.parquet", of="users")
    with np.load(tmp_path / "items.npz", allow_pickle=False) as arrays:
        ids, psi = arrays["ids"], arrays["vectors"]
    table, queries = pq.read_table(tmp_path / "items.parquet"), pq.read_table(tmp_path / "users.parquet")
    assert table["item"].to_pylist() == ids.tolist() == dataset.items.values.to_pylist()
    np.testing.assert_array_equal(np.array(table["vector"].to_pylist(), np.float32), psi)
    assert queries["user"].to_pylist() == users
    phi = np.array(queries["vector"].to_pylist(), np.float32)
    np.testing.assert_array_equal(phi, recommender.context_vectors(users))
    order = np.argsort(-(phi.astype(np.float64) @ psi.T.astype(np.float64)).astype(np.float32), axis=1, kind="stable")[:, :9]
    np.testing.assert_array_equal(ids[order], lists)


def test_an_index_for_search(dataset: ep.Dataset, tmp_path: Path) -> None:
    index = pytest.importorskip("usearch.index")
    recommender = fitted("FM", dataset)
    users = dataset.users.values.to_pylist()
    recommender.export_vectors(tmp_path / "items.usearch")
    found = index.Index.restore(tmp_path / "items.usearch")
    ids = pq.read_table(tmp_path / "items.usearch.ids.parquet")["item"].to_pylist()
    matches = found.search(recommender.context_vectors(users), 5, exact=True)
    expected = recommender.recommend(users, n=5, exclude_seen=False)["item"].to_pylist()
    assert [ids[key] for key in matches.keys.ravel()] == expected


def test_an_empty_cell_says_nothing(dataset: ep.Dataset) -> None:
    recommender = fitted("FM", dataset)
    user = dataset.users[3]
    said = recommender.recommend(requests=[{"user": user}, {"country": "DE"}], n=3)
    for make in (pd.DataFrame, pl.DataFrame):
        frame = make({"user": [user, None], "country": [None, "DE"]})
        numbers = make({"user": [user, user], "country": [float("nan"), None]})
        assert len({row["item"] for row in nw_rows(recommender.recommend(requests=numbers, n=3))}) == 3
        assert [row["item"] for row in nw_rows(recommender.recommend(requests=frame, n=3))] == said["item"].to_pylist()
    numbered = ep.Recommender(ep.MF(2, epochs=1)).fit(ep.Dataset({"user": [1, 1, 2], "item": [1, 2, 3]}))
    frame = pd.DataFrame({"user": [1, None], "history": [None, [3]]})  # whose users are floats
    assert len(numbered.recommend(requests=frame, n=1)) == 2
    assert numbered.recommend(np.array([]), n=1).schema.field("user").type == pa.int64()


def nw_rows(frame: Any) -> list[dict[str, Any]]:
    return frame.to_dict("records") if isinstance(frame, pd.DataFrame) else frame.to_dicts()


def test_copies_are_recommenders_of_their_own(dataset: ep.Dataset) -> None:
    recommender = fitted("MFSI", dataset)
    before = recommender.recommend(dataset.users[0], n=5)
    for other in (copy.deepcopy(recommender), pickle.loads(pickle.dumps(recommender))):
        assert other.recommend(dataset.users[0], n=5).equals(before)
        other.update({"user": [dataset.users[0]], "item": [before["item"][0].as_py()], "timestamp": [10**9]})
        assert not other.recommend(dataset.users[0], n=5).equals(before)
    assert recommender.recommend(dataset.users[0], n=5).equals(before)


def test_what_is_allowed_costs_what_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others are not scored."""
    scored = []
    block = InnerProducts.block
    monkeypatch.setattr(InnerProducts, "block", lambda self, start, stop: scored.append(self.n_items) or block(self, start, stop))
    random = np.random.default_rng(0)
    phi, psi = random.normal(size=(20, 4)), random.normal(size=(500, 4))
    allowed = np.arange(500) % 7 == 0
    seen = Lists.of([random.integers(0, 500, 30) for _ in range(20)])
    few = rank(InnerProducts(phi, psi), 5, SERIAL, seen, None, allowed)
    monkeypatch.setattr("everypair.ranking.rank.FEW", 10**9)
    many = rank(InnerProducts(phi, psi), 5, SERIAL, seen, None, allowed)
    assert set(scored) == {500, int(allowed.sum())}
    assert all(np.array_equal(one, other) for one, other in zip(few, many, strict=True))


REFUSED: dict[str, tuple[Any, str]] = {
    "nobody": (lambda r, d: r.recommend(), "either users=.* or requests="),
    "both": (lambda r, d: r.recommend(["u"], requests=[{}]), "either users=.* or requests="),
    "a request as a user": (lambda r, d: r.recommend([{"country": "DE"}]), r"go to recommend\(requests"),
    "strangers": (lambda r, d: r.recommend(["x", d.users[0], "y"]), "2 of 3 are not, such as 'x'.*describe them by a request"),
    "integers for texts": (lambda r, d: r.recommend([3]), "users are integers"),
    "no list": (lambda r, d: r.recommend(3.5), "users must be a list of ids"),
    "no items": (lambda r, d: r.recommend(d.users[0], n=0), "n must be at least 1"),
    "allow a text": (lambda r, d: r.recommend(d.users[0], allow="v01"), "allow must be a list of ids"),
    "one list of two": (lambda r, d: r.recommend([d.users[0], d.users[1]], candidates=[["v01"]]), "for each of the 2 users.*got 1"),
    "no fallback": (lambda r, d: r.recommend(d.users[0], fallback="none"), "fallback must be one of"),
    "of what": (lambda r, d: r.export_vectors("x.npz", of="contexts"), "of must be one of 'items', 'users'"),
    "no such file": (lambda r, d: r.export_vectors("x.txt"), r"must end in \.parquet, \.npz, \.usearch"),
    "unknown unknown": (lambda r, d: ep.Recommender(ep.MF(), unknown="drop"), "unknown must be one of"),
    "a table of users": (lambda r, d: r.recommend(pd.DataFrame({"user": ["u"]})), "got a table: give one of its columns"),
    "a column named rank": (lambda r, d: ep.Dataset({"rank": [1], "item": [2]}, user="rank"), "must not be named 'rank'"),
    "vectors of contexts": (
        lambda r, d: ep.Recommender(ep.Separable(ep.towers.Embedding(2), ep.towers.Embedding(2))).fit(d),
        r"a vector for each context of the fit.*Embedding\(2, 'user'\)",
    ),
    "vectors of items": (
        lambda r, d: ep.Recommender(
            ep.Separable(ep.towers.Embedding(2, "user"), ep.towers.Embedding(2)), item=[ep.Attributes("category")]
        ).fit(d),
        r"a vector for each item.*add ItemId\(\)",
    ),
    "nothing known": (lambda r, d: r.context_vectors(requests=[{}]), "MF can say nothing about 1 of 1"),
    "a checkpoint of counts": (lambda r, d: ep.Recommender(ep.Popularity()).fit(d, checkpoint="x"), "is not trained by epochs"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(case: str, dataset: ep.Dataset) -> None:
    attempt, message = REFUSED[case]
    recommender = fitted("MF", dataset)
    with pytest.raises((TypeError, ValueError), match=message):
        attempt(recommender, dataset)
