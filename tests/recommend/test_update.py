"""New events, users and items without a fit: exact, and nothing else moves."""

from __future__ import annotations

import copy
import datetime as dt
import tempfile
import threading
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import everypair as ep
from everypair.recommend import fold_in
from everypair.recommend import update as updating
from everypair.recommend.fitted import FittedState
from everypair.recommend.level_parameters import LevelSlots
from everypair.recommend.training_set import TrainingSet
from everypair.towers import Embedding, Linear, Sum

from logs import logs

COMMON: dict[str, Any] = {"factors": 3, "epochs": 3, "dtype": "float64", "unobserved_weight": 0.2, "regularization": 0.3}
COUNTRY = ep.Attributes("country")
MODELS: dict[str, tuple[Any, list[Any]]] = {
    "MF": (ep.MF(**COMMON), [ep.UserId()]),
    "MF with L2 by weight": (ep.MF(**COMMON, regularization_exponent=0.7), [ep.UserId()]),
    "MF by popularity": (ep.MF(**COMMON, regularization_exponent=0.7, popularity_exponent=0.6), [ep.UserId()]),
    "MFSI": (ep.MFSI(**COMMON), [ep.UserId(), COUNTRY, ep.History(last=2)]),
    "FM": (ep.FM(**COMMON), [COUNTRY, ep.UserId(), ep.Previous()]),
    "FM with L2 by weight": (ep.FM(**COMMON, regularization_exponent=0.5), [ep.UserId(), ep.History()]),
    "FM by popularity": (ep.FM(**COMMON, popularity_exponent=0.8), [COUNTRY, ep.UserId(), ep.Previous()]),
    "PARAFAC": (ep.PARAFAC(**COMMON), [ep.UserId(), COUNTRY]),
    "Tucker": (ep.Tucker(**{**COMMON, "factors": (2, 2, 3)}), [COUNTRY, ep.UserId()]),
    "MF by event": (ep.MF(**COMMON), [ep.UserId()]),
    "MF of the previous item": (ep.MF(**COMMON), [ep.Previous()]),
    "MF of a country": (ep.MF(**COMMON, regularization_exponent=0.5), [COUNTRY]),
    "a sum of towers": (
        ep.Separable(Sum(Embedding(3, "user"), Linear(3, "country")), Embedding(3), epochs=2, dtype="float64"),
        [ep.UserId(), COUNTRY],
    ),
    "without users": (ep.FM(**COMMON), [COUNTRY, ep.Previous()]),
}


@st.composite
def updates(draw: st.DrawFn) -> tuple[ep.Dataset, ep.Dataset, dict[str, Any]]:
    """A log, what there was of it before, and the rest as a table; some users and items are in the rest alone."""
    whole = draw(logs(min_users=3, min_events=2, repeats=draw(st.sampled_from(["keep", "sum"]))))
    new = np.array(draw(st.lists(st.booleans(), min_size=len(whole), max_size=len(whole))))
    new[0], new[-1] = True, False
    return whole, table_of(whole, ~new), table_of(whole, new)  # type: ignore[return-value]


def table_of(log: ep.Dataset, rows: np.ndarray) -> dict[str, Any]:
    assert log.time is not None
    return {"user": log.users.take(log.user[rows]), "item": log.items.take(log.item[rows]), "time": log.time[rows]}


def people(log: ep.Dataset) -> dict[str, Any]:
    return {"user": log.users.values, "country": log.user_table["country"]}


def begun(name: str, log: ep.Dataset, before: Any) -> ep.Recommender:
    model, context = MODELS[name]
    unit = "event" if name == "MF by event" else "auto"
    dataset = ep.Dataset(before, people(log), timestamp="time", repeats=log.repeats)
    return ep.Recommender(copy.copy(model), context, unit=unit).fit(dataset)


@pytest.mark.parametrize("name", MODELS)
@given(update=updates())
def test_ids_are_at_their_minimum_and_all_else_stays(name: str, update: Any) -> None:
    log, before, new = update
    recommender = begun(name, log, before)
    parameters = {key: value.copy() for key, value in recommender.model.parameters_.items()}  # type: ignore[attr-defined]
    fold_items = updating._fold_in_items
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(updating, "_fold_in_items", lambda *args: None)
        users_alone = copy.deepcopy(recommender).update(new, people(log))
    recommender.update(new, people(log))
    assert updating._fold_in_items is fold_items
    dataset = recommender.dataset_
    assert sorted(zip(dataset.user, dataset.item, strict=True)) == sorted(zip(log.user, log.item, strict=True))
    assert all_else_stays(parameters, recommender, dataset, new)
    affected = np.unique(dataset.users.codes(new["user"]))
    if ep.UserId() in recommender.context:
        at_its_minimum(users_alone.state, "context", affected)
    at_its_minimum(recommender.state, "item", np.unique(dataset.items.codes(new["item"])))


def all_else_stays(before: dict[str, np.ndarray], recommender: ep.Recommender, dataset: ep.Dataset, new: dict[str, Any]) -> bool:
    """Parameters that are of no id with new events: the same rows, though there may be more of them now."""
    touched = {"users": np.unique(dataset.users.codes(new["user"])), "items": np.unique(dataset.items.codes(new["item"]))}
    state = recommender.state
    for side, tower in state.vectors.towers.items():
        for name, parameter in tower.parameters.items():
            rows = parameter.show().reshape(sum(part.size for part in parameter.parts), -1)
            offset = 0
            for part in parameter.parts:
                own, offset = rows[offset : offset + part.size], offset + part.size
                field = state.contexts.fields.get(str(part.field)) if side == "context" else None
                if side == "context" and (field is None or field.ids is None) and part.size <= 2:  # of features: countries, biases
                    start = before[name].reshape(-1, own.shape[1]) if own.shape[1] else before[name]
                    assert all(any(np.array_equal(row, old) for old in start) or not row.any() for row in own), name
                if side == "item" and part.field == "item":
                    kept = np.setdiff1d(np.arange(part.size), touched["items"])
                    old = before[name].reshape(-1, own.shape[1])
                    assert all(any(np.array_equal(own[j], row) for row in old) or not own[j].any() for j in kept), name
    return True


def at_its_minimum(state: FittedState, side: str, ids: np.ndarray) -> None:
    """No step of an id's own parameters lowers the dense loss over all pairs."""
    adapter = state.vectors
    training = TrainingSet.of(state.dataset, state.by_user)
    columns = state.contexts.columns(training.contexts)
    tower = adapter.towers[side]
    column = "item" if side == "item" else adapter.column_of("user", list(state.contexts.fields))
    shift = int(isinstance(adapter.model, ep.PARAFAC | ep.Tucker) and side == "context")
    slots = LevelSlots(tower, column)
    assert len(slots.strength)
    feedback = training.feedback
    shape = (len(training.contexts), state.dataset.n_items)
    alpha = np.zeros(shape)
    rows = np.repeat(np.arange(shape[0]), np.diff(feedback.by_context.indptr))
    alpha[rows, feedback.by_context.indices] = np.broadcast_to(feedback.alpha, len(feedback))
    n = np.ones(shape[1]) if adapter.model.item_weight_ is None else adapter.model.item_weight_
    weight = np.where(alpha > 0, alpha, adapter.model.unobserved_weight * n)
    counts = feedback.context_count if side == "context" else feedback.item_count
    exponent, random = adapter.model.regularization_exponent, np.random.default_rng(0)

    for own in ids:
        level = int(own) + shift
        mine = training.contexts.user == own if side == "context" else np.arange(shape[1]) == own
        others = mine.sum() * n.sum() if side == "context" else n[mine].sum() * shape[0]
        observed = counts[mine].sum() + adapter.model.unobserved_weight * others

        def loss(level: int = level, observed: float = observed) -> float:
            adapter.settle()
            adapter.forget_items()
            scores = adapter.vectors(columns) @ adapter.psi.T
            l2 = np.sum(slots.strength * observed**exponent * slots.read(level) ** 2)
            return float(np.sum(weight * (scores - (alpha > 0)) ** 2) + l2)

        best, at = loss(), slots.read(level)
        for step in random.normal(size=(4, len(at))):
            for size in (1e-2, -1e-2, 1.0):
                slots.write(slice(level, level + 1), at + size * step)
                assert loss() >= best * (1 - 1e-9) - 1e-9
        slots.write(slice(level, level + 1), at)


@pytest.mark.parametrize("name", ["MF with L2 by weight", "MF by popularity"])
@given(update=updates())
def test_matrix_factorization_agrees_with_a_fit_that_holds_the_items(name: str, update: Any) -> None:
    log, before, new = update
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(updating, "_fold_in_items", lambda *args: None)
        recommender = begun(name, log, before).update(new, people(log))
    dataset = recommender.dataset_
    model = ep.MF(**{**COMMON, "epochs": 400}, regularization_exponent=0.7, popularity_exponent=0.0)
    weight = recommender.model.item_weight_  # type: ignore[attr-defined]  # that of the fit
    events, alpha = dataset.counted()
    pairs = dataset.user[events], dataset.item[events]
    feedback = ep.Feedback(*pairs, alpha=alpha, shape=(dataset.n_users, dataset.n_items), item_weight=weight, duplicates="sum")
    model.fit(feedback, fixed={"H": recommender.item_vectors()})
    for user in np.unique(dataset.users.codes(new["user"])):
        found = recommender.context_vectors(dataset.users[int(user)])[0]
        np.testing.assert_allclose(found, model.phi_[user], rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("name", MODELS)
@given(update=updates(), moved=st.booleans())
def test_the_gram_of_contexts_is_kept_in_step(name: str, update: Any, moved: bool) -> None:
    """Also where users that have no new events are told to live elsewhere now."""
    log, before, new = update
    recommender = begun(name, log, before)
    elsewhere = {"user": log.users.values, "country": ["FR"] * log.n_users}
    for _ in range(2):
        recommender.update(new, elsewhere if moved else people(log))
    state = recommender.state
    phi = state.vectors.vectors(state.contexts.columns(TrainingSet.of(state.dataset, state.by_user).contexts)).astype(np.float64)
    np.testing.assert_allclose(state.vectors.context_gram, phi.T @ phi, rtol=1e-6, atol=1e-8)
    assert state.vectors.n_contexts == len(phi)


@given(st.integers(0, 10**6), st.integers(1, 8))
@example(58, 2)
@example(70, 3)
def test_without_l2_the_minimum_nearest_to_zero(seed: int, k: int) -> None:
    """Also where the equations of fewer events than dimensions have pivots that are rounding."""
    random = np.random.default_rng(seed)
    S = random.normal(size=(random.integers(0, k + 1), k)) * 10.0 ** random.uniform(-1.0, 0.0, k)
    A, rhs = S.T @ S, S.T @ random.normal(size=len(S))
    found = fold_in.minimum(A, rhs, np.zeros(k))
    assert np.linalg.norm(A @ found - rhs) <= 1e-6 * np.linalg.norm(rhs)
    assert np.linalg.norm(found) <= 1.01 * np.linalg.norm(np.linalg.pinv(S) @ np.linalg.pinv(S).T @ rhs)


@pytest.mark.parametrize("unit", ["user", "event"])
@pytest.mark.parametrize("repeats", ["keep", "sum", "drop"])
@given(data=st.data())
def test_someone_new_is_folded_in_as_a_user_would_be(unit: str, repeats: str, data: st.DataObject) -> None:
    """By a history in a request, or by the same events in an update: the same vector, if the items' are held."""
    log = data.draw(logs(repeats=repeats))
    model = ep.MF(**COMMON, regularization_exponent=0.5)
    recommender = ep.Recommender(model, unit=unit).fit(log)
    history = data.draw(st.lists(st.sampled_from(log.items.values.to_pylist()), min_size=1, max_size=6))
    asked = recommender.context_vectors(requests=[{"history": history}])
    known = recommender.context_vectors(requests=[{"user": log.users[0], "history": history}])
    np.testing.assert_array_equal(asked, known)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(updating, "_fold_in_items", lambda *args: None)
        recommender.update({"user": ["someone new"] * len(history), "item": history, "time": np.arange(len(history))})
    np.testing.assert_allclose(recommender.context_vectors("someone new"), asked, rtol=1e-9, atol=1e-12)


def test_updates_at_once_are_all_there() -> None:
    log = ep.datasets.youtube_like(30, 12, seed=1, events_per_user=5)
    recommender = ep.Recommender(ep.MF(**COMMON)).fit(log)
    new = [{"user": [f"new {j}"], "item": [log.items[j]], "timestamp": [10**9]} for j in range(8)]
    threads = [threading.Thread(target=recommender.update, args=(events,)) for events in new]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert recommender.recommend([f"new {j}" for j in range(8)], n=1).num_rows == 8


def test_very_many_rows_are_folded_in_piece_by_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    log = ep.datasets.youtube_like(20, 12, seed=1, events_per_user=9)
    new = {"user": [log.users[0], log.users[1]], "item": [log.items[0], log.items[1]], "timestamp": [10**9, 10**9]}
    found = []
    for room in (fold_in.TANGENT_ENTRIES, 1):
        monkeypatch.setattr(fold_in, "TANGENT_ENTRIES", room)
        recommender = ep.Recommender(ep.FM(**COMMON), [ep.UserId(), ep.Previous()]).fit(log).update(new)
        found.append(recommender.context_vectors(log.users.values.to_pylist()))
    np.testing.assert_allclose(found[0], found[1], rtol=1e-8, atol=1e-10)


def test_settings_for_the_next_fit_stay() -> None:
    log = ep.datasets.youtube_like(30, 12, seed=1, events_per_user=5)
    recommender = ep.Recommender(ep.MF(**COMMON)).fit(log)
    recommender.model.set_params(epochs=77)
    recommender.update({"user": [log.users[0]], "item": [log.items[0]], "timestamp": [10**9]})
    assert recommender.model.epochs == 77  # type: ignore[attr-defined]


def test_ratings_below_the_least_change_nothing() -> None:
    events = {"user": [1, 1, 2, 3], "item": [1, 2, 1, 2], "stars": [5, 5, 5, 5]}
    recommender = ep.Recommender(ep.MF(**COMMON)).fit(ep.Dataset(events, rating="stars", at_least=4))
    before = recommender.context_vectors([1, 2, 3])
    recommender.update({"user": [1, 3], "item": [1, 1], "stars": [5, 1]}, users={"user": [777]})
    np.testing.assert_array_equal(recommender.context_vectors(3), before[2:])
    with pytest.raises(ValueError, match="MF can say nothing about 1 of 1, such as user 777"):
        recommender.recommend(777)


def test_during_a_fit() -> None:
    log = ep.datasets.youtube_like(30, 12, seed=1, events_per_user=5)
    told = []

    def after(recommender: ep.Recommender, epoch: Any) -> None:
        with tempfile.TemporaryDirectory() as folder:
            recommender.save(folder)
            assert ep.load(folder).recommend(log.users[0], n=3).equals(recommender.recommend(log.users[0], n=3))
        with pytest.raises(ValueError, match="is being fitted"):
            recommender.update({"user": [log.users[0]], "item": [log.items[0]], "timestamp": [10**9]})
        told.append(epoch)

    ep.Recommender(ep.FM(**COMMON), [ep.UserId()]).fit(log, after)
    assert len(told) == COMMON["epochs"]


def test_columns_that_a_tower_does_not_read() -> None:
    log = ep.datasets.youtube_like(30, 12, seed=1, events_per_user=5)
    for context, item in ((Embedding(2, "country"), Embedding(2)), (Embedding(2, "user"), Linear(2, "category"))):
        recipes = [ep.UserId(), ep.Attributes("country")], [ep.ItemId(), ep.Attributes("category")]
        recommender = ep.Recommender(ep.Separable(context, item, epochs=1), *recipes).fit(log)
        recommender.update({"user": [log.users[0]], "item": [log.items[0]], "timestamp": [10**9]})
        assert recommender.recommend(log.users[0], n=2).num_rows == 2


def test_an_embedding_of_items_beside_their_attributes() -> None:
    log = ep.datasets.youtube_like(30, 12, seed=1, events_per_user=5)
    model = ep.Separable(Embedding(2, "user"), Sum(Embedding(2, "item"), Linear(2, "category")), epochs=2, dtype="float64")
    recommender = ep.Recommender(model, [ep.UserId()], [ep.ItemId(), ep.Attributes("category")]).fit(log)
    recommender.update({"user": [log.users[0]], "item": [log.items[0]], "timestamp": [10**9]})
    at_its_minimum(recommender.state, "item", np.array([0]))


def test_what_new_tables_say() -> None:
    dataset = ep.Dataset({"user": ["a", "b"], "item": [1, 2]}, users={"user": ["a", "b"], "age": [30, 40], "city": ["X", "Y"]})
    more = dataset.extended({"user": ["c"], "item": [1]}, users={"user": ["b", "c"], "age": [41, 50], "cty": ["Z", "Z"]})
    assert more.user_table.to_pydict() == {"age": [30, 41, 50], "city": ["X", "Y", None]}
    assert more.notes == ["columns of users that the dataset does not have: left out (cty)."]
    assert dataset.extended(items={"item": [7]}).items.values.to_pylist() == [1, 2, 7]
    times = {"user": ["a"], "item": [1], "t": [dt.datetime(2500, 1, 1)]}
    fine = {"user": ["a"], "item": [1], "t": pa.array([1], pa.timestamp("ns"))}
    with pytest.raises(ValueError, match=r"nanoseconds.*after 2262"):
        ep.Dataset(times, timestamp="t").extended(fine)


def test_update_of_counts_is_a_fit() -> None:
    log = ep.datasets.youtube_like(30, 12, seed=1, events_per_user=5)
    first = np.arange(len(log)) % 3 > 0
    for model, context in ((ep.CoView, [ep.Previous()]), (ep.Popularity, None)):
        events = {"user": log.users.take(log.user), "item": log.items.take(log.item), "time": log.time}
        parts = [{name: np.asarray(values)[rows] for name, values in events.items()} for rows in (first, ~first)]
        updated = ep.Recommender(model(), context).fit(ep.Dataset(parts[0], timestamp="time")).update(parts[1])
        fitted = ep.Recommender(model(), context).fit(ep.Dataset(events, timestamp="time"))
        users = log.users.values.to_pylist()
        assert updated.recommend(users, n=4).equals(fitted.recommend(users, n=4))


def test_new_items_by_attributes() -> None:
    log = ep.datasets.youtube_like(60, 30, seed=5, events_per_user=8)
    items = {"item": log.items.values, "category": log.item_table["category"]}
    dataset = ep.Dataset({"user": log.users.take(log.user), "item": log.items.take(log.item)}, items=items)
    recommender = ep.Recommender(ep.FM(**COMMON), [ep.UserId()], [ep.ItemId(), ep.Attributes("category")]).fit(dataset)
    before = recommender.recommend(log.users[0], n=30, exclude_seen=False)
    category = log.item_table["category"][3].as_py()
    recommender.add_items({"item": ["a new one", "v03a", "zzz"], "category": [category, category, None]})
    after = recommender.recommend(log.users[0], n=33, exclude_seen=False)
    scores = dict(zip(after["item"].to_pylist(), after["score"].to_pylist(), strict=True))
    assert {name: scores[name] for name in before["item"].to_pylist()} == dict(
        zip(before["item"].to_pylist(), before["score"].to_pylist(), strict=True)
    )
    assert scores["a new one"] == scores["v03a"] != scores["zzz"]
    assert recommender.similar_items("a new one", n=1)["similar"].to_pylist() == ["v03a"]
    with pytest.raises(ValueError, match="nothing was learnt of item 'zzz'"):
        recommender.similar_items("zzz")
    recommender.update({"user": ["u00", "u01", "newcomer"], "item": ["zzz", "zzz", "v03a"]})
    assert "zzz" not in recommender.recommend("u00", n=17)["item"].to_pylist()
    assert recommender.similar_items("zzz", n=2).num_rows == 2
    with pytest.raises(ValueError, match="knows items by their events"):
        ep.Recommender(ep.MF(**COMMON)).fit(dataset).add_items({"item": ["x"]})


REFUSED: dict[str, tuple[Any, str]] = {
    "other ids": ({"user": [1], "item": ["x"], "time": [1]}, "user ids .* are integers"),
    "no time": ({"user": ["u0"], "item": [10]}, "no column 'time'"),
    "times for numbers": ({"user": ["u0"], "item": [10], "time": ["2024-01-01"]}, "must be numbers, like the earlier ones"),
    "nothing": ({"user": [], "item": [], "time": []}, "at least one row"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_refused_update_changes_nothing(case: str) -> None:
    log = ep.Dataset({"user": ["u0", "u1", "u1"], "item": [10, 10, 20], "time": [1, 2, 3]}, timestamp="time")
    recommender = ep.Recommender(ep.MF(**COMMON)).fit(log)
    before = recommender.recommend(["u0", "u1"], n=1, exclude_seen=False)
    new, message = REFUSED[case]
    with pytest.raises((TypeError, ValueError), match=message):
        recommender.update(new)
    assert recommender.dataset_ is log
    assert recommender.recommend(["u0", "u1"], n=1, exclude_seen=False).equals(before)


def test_all_combinations_are_fitted_again() -> None:
    log = ep.datasets.youtube_like(20, 10, seed=1, events_per_user=4)
    model = ep.PARAFAC(**COMMON, combinations="all")
    recommender = ep.Recommender(model, [ep.UserId(), ep.Attributes("country")]).fit(log)
    with pytest.raises(ValueError, match=r"combinations='all'.* Fit it again"):
        recommender.update({"user": [log.users[0]], "item": [log.items[0]], "timestamp": [10**9]})
