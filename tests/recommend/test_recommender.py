"""From tables to recommendations: the same features for training events and requests, every model, merged contexts, fallbacks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone

import everypair as ep
from everypair.columns.keys import NO_LEVEL
from everypair.evaluation import LeaveLast, evaluate
from everypair.ranking.rank import Lists
from everypair.recommend.context_batch import ContextBatch
from everypair.recommend.description import Description

from logs import logs
from settings import COMMON

MODELS: dict[str, tuple[Any, list[Any]]] = {
    "MF": (ep.MF(**COMMON), [ep.UserId()]),
    "MF of the previous item": (ep.MF(**COMMON), [ep.Previous()]),
    "MFSI": (ep.MFSI(**COMMON), [ep.UserId(), ep.Attributes("country"), ep.History(last=3)]),
    "FM": (ep.FM(**COMMON), [ep.Attributes("country"), ep.Previous(), ep.History()]),
    "PARAFAC": (ep.PARAFAC(**COMMON), [ep.UserId(), ep.Previous()]),
    "Tucker": (ep.Tucker(**{**COMMON, "factors": 2}), [ep.Attributes("country"), ep.Previous()]),
    "Popularity": (ep.Popularity(), [ep.UserId()]),
    "CoView": (ep.CoView(), [ep.Previous()]),
}


@pytest.fixture(scope="module")
def dataset() -> ep.Dataset:
    return ep.datasets.youtube_like(60, 30, seed=5, events_per_user=8)


@pytest.mark.filterwarnings("ignore::everypair.FallbackWarning")  # asked for: tested in test_fallback.py
@pytest.mark.parametrize("name", MODELS)
def test_every_model_recommends(name: str, dataset: ep.Dataset) -> None:
    model, context = MODELS[name]
    recommender = ep.Recommender(model, context).fit(dataset)
    contexts = ContextBatch.of_users(dataset, np.arange(dataset.n_users))
    items, scores = recommender.rank(contexts, 5)
    assert items.shape == scores.shape == (dataset.n_users, 5)
    for user in range(dataset.n_users):
        assert not set(items[user]) & set(dataset.item[dataset.bounds[user] : dataset.bounds[user + 1]])
    requests = [{"user": dataset.users[user]} for user in range(dataset.n_users)]
    answer = recommender.recommend(requests=requests, n=5, fallback="popular")
    np.testing.assert_array_equal(answer["score"].to_numpy().reshape(scores.shape), scores)
    np.testing.assert_array_equal(dataset.items.codes(answer["item"]).reshape(items.shape), items)
    by_user = recommender.recommend([dataset.users[user] for user in range(dataset.n_users)], n=5, fallback="popular")
    assert by_user.drop_columns(["user"]).equals(answer.drop_columns(["request"]))


@pytest.mark.parametrize("name", ["FM", "MFSI", "MF of the previous item"])
def test_scores_are_those_of_the_model(name: str, dataset: ep.Dataset) -> None:
    """At the contexts of training events, the vectors of new rows are the vectors of the fit."""
    model, context = MODELS[name]
    recommender = ep.Recommender(model, context).fit(dataset)
    contexts = ContextBatch.of_events(dataset)
    state = recommender.state
    scores = state.scores(contexts)[0].block(0, len(contexts))
    groups = state.contexts.groups(contexts)
    rows = np.arange(len(contexts)) if groups is None or recommender.feedback_.n_contexts == len(contexts) else groups
    expected = (model.phi_ @ model.psi_.T)[rows]
    known = state.contexts.known(contexts) | isinstance(model, ep.FM)
    np.testing.assert_allclose(scores[known], expected[known], rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("model", [ep.FM, ep.MFSI])
@given(log=logs())
def test_merged_contexts_have_the_same_loss(model: Any, log: ep.Dataset) -> None:
    """Events with the same features as one context of their weight, or each on its own."""
    recipes = [ep.Attributes("country"), ep.Previous()]
    recommender = ep.Recommender(model(**COMMON), recipes).fit(log)
    contexts = ContextBatch.of_events(log)
    columns = Description("context", recipes, log, contexts).keyed_columns(contexts)
    events = ep.Feedback(np.arange(len(log)), log.item, shape=(len(log), log.n_items)).keyed(items=log.items.keys())
    apart = model(**COMMON).fit(events, contexts=columns)
    assert recommender.feedback_.n_contexts == len({tuple(c.codes[j] for c in columns.values()) for j in range(len(log))})
    for one, other in zip(recommender.model.history_, apart.history_, strict=True):
        np.testing.assert_allclose([one.objective, one.explicit], [other.objective, other.explicit], rtol=1e-7, atol=1e-9)


@given(log=logs())
def test_a_user_is_a_context_where_nothing_changes_from_event_to_event(log: ep.Dataset) -> None:
    by_user = ep.Recommender(ep.MF(**COMMON), [ep.UserId()]).fit(log).feedback_
    expected = ep.Feedback(log.user, log.item, shape=log_shape(log), duplicates="sum")
    assert by_user.shape == expected.shape
    assert np.array_equal(by_user.by_context.indices, expected.by_context.indices)
    np.testing.assert_array_equal(np.broadcast_to(by_user.alpha, len(by_user)), np.broadcast_to(expected.alpha, len(expected)))
    assert by_user.context_weight is None or set(by_user.context_weight) == {1.0}
    by_event = ep.Recommender(ep.FM(**COMMON), [ep.UserId()], unit="event").fit(log).feedback_
    assert by_event.context_weight is None or by_event.context_weight.sum() == len(log)


def log_shape(log: ep.Dataset) -> tuple[int, int]:
    return log.n_users, log.n_items


@given(log=logs(repeats="sum"))
def test_repeats_are_summed_when_fitted(log: ep.Dataset) -> None:
    events, alpha = log.counted()
    pairs = list(zip(log.user[events], log.item[events], strict=True))
    assert len(set(pairs)) == len(pairs)
    assert alpha.sum() == len(log)
    fitted = ep.Recommender(ep.FM(**COMMON), [ep.Previous()]).fit(log).feedback_
    assert fitted.constant == pytest.approx(len(log))


def test_where_nothing_is_known_popularity_decides(dataset: ep.Dataset) -> None:
    train = dataset.subset(dataset.user != 7)
    popular = np.argsort(-np.bincount(train.item, minlength=train.n_items), kind="stable")[:4]
    contexts = ContextBatch.of_users(dataset, [7]).anonymous()
    for name in ("MF", "MFSI", "CoView", "Popularity"):
        model, context = MODELS[name]
        context = [ep.UserId(), ep.History()] if name == "MFSI" else context
        items, _ = ep.Recommender(model, context).fit(train).rank(contexts, 4)
        assert items[0].tolist() == popular.tolist(), name
    known_id = ContextBatch.of_users(train, [7])  # an id of the data without a training event
    assert ep.Recommender(ep.MF(**COMMON)).fit(train).rank(known_id, 4)[0][0].tolist() == popular.tolist()
    with pytest.raises(ValueError, match=r"MF can say nothing about 1 of 2, such as request 1.*'history'.*FM or MFSI"):
        ep.Recommender(ep.MF(**COMMON)).fit(train).recommend(requests=[{"user": train.users[1]}, {"country": "DE"}])


def test_a_stranger_is_told_by_attributes_and_history(dataset: ep.Dataset) -> None:
    recommender = ep.Recommender(ep.FM(**COMMON), [ep.Attributes("country", "age"), ep.Previous(), ep.History(last=5)])
    recommender.fit(dataset)
    watched = [dataset.items[code] for code in dataset.item[:3]]
    answer = recommender.recommend(requests=[{"country": "DE", "history": watched}, {"age": "65+"}, {}], n=4)
    assert answer["request"].to_pylist() == [0] * 4 + [1] * 4 + [2] * 4
    assert answer["rank"].to_pylist() == [1, 2, 3, 4] * 3
    assert not set(answer["item"].to_pylist()[:4]) & set(watched)
    assert np.isfinite(answer["score"].to_numpy()).all()
    nearly_all = [dataset.items[code] for code in range(dataset.n_items - 2)]
    with pytest.warns(ep.FewerItemsWarning, match=r"1 of 1 lists .* request 0, which has 2: there are 30 in all.*the history"):
        assert recommender.recommend(requests=[{"history": nearly_all}], n=4).num_rows == 2


@given(log=logs(), data=st.data())
def test_ranks_do_not_depend_on_who_else_asks(log: ep.Dataset, data: st.DataObject) -> None:
    histories = [ep.History(), ep.History(last=2, name="lately")]
    recommender = ep.Recommender(ep.FM(**COMMON), [ep.UserId(), ep.Previous(), *histories]).fit(log)
    contexts = ContextBatch.of_users(log, np.arange(log.n_users))
    some = np.array(data.draw(st.lists(st.integers(0, log.n_users - 1), min_size=1)))
    together, apart = recommender.rank(contexts, 3), recommender.rank(contexts.take(some), 3)
    for one, other in zip(together, apart, strict=True):
        np.testing.assert_array_equal(other, one[some])


@given(log=logs(max_items=4))
def test_every_combination_is_a_context_that_weighs_one(log: ep.Dataset) -> None:
    """However often it was met; what was chosen in it adds up."""
    settings: dict[str, Any] = {**COMMON, "combinations": "all", "unobserved_weight": 0.1}
    recommender = ep.Recommender(ep.PARAFAC(**settings), [ep.UserId(), ep.Previous()]).fit(log)
    before = ContextBatch.of_events(log).previous()
    levels = np.stack([log.user + 1, before + 1], axis=1)
    table, context = np.unique(levels, axis=0, return_inverse=True)
    feedback = ep.Feedback(context.ravel(), log.item, shape=(len(table), log.n_items), duplicates="sum")
    variables = {"U": (log.users, table[:, 0]), "V": (log.items, table[:, 1])}
    columns = {
        letter: ep.Levels(codes, len(ids) + 1).keyed(np.append(np.uint64(NO_LEVEL), ids.keys()))
        for letter, (ids, codes) in variables.items()
    }
    model = ep.PARAFAC(**settings).fit_levels(feedback.keyed(items=log.items.keys()), columns)
    for name, parameter in model.parameters_.items():
        found = recommender.model.parameters_[name]  # type: ignore[attr-defined]
        np.testing.assert_allclose(parameter, found, rtol=1e-6, atol=1e-9)  # contexts may be in another order


def test_the_most_frequent_given_any_level(dataset: ep.Dataset) -> None:
    recommender = ep.Recommender(ep.CoView(), [ep.Attributes("country")]).fit(dataset)
    country = np.array(dataset.user_table["country"].to_pylist())[dataset.user]
    for name in sorted(set(country.tolist()) - {None}):
        counts = np.bincount(dataset.item[country == name], minlength=dataset.n_items)
        (best,) = recommender.recommend(requests=[{"country": name}], n=1)["item"].to_pylist()
        assert counts[dataset.items.codes([best])[0]] == counts.max()
    overall = recommender.recommend(requests=[{"country": "nowhere"}], n=3)["item"].to_pylist()
    popular = ep.Recommender(ep.Popularity()).fit(dataset).recommend(requests=[{}], n=3)["item"].to_pylist()
    assert overall == popular


def test_item_attributes(dataset: ep.Dataset) -> None:
    recommender = ep.Recommender(ep.FM(**COMMON), [ep.UserId()], [ep.ItemId(), ep.Attributes("category")]).fit(dataset)
    features = dataset.n_items + len(set(dataset.item_table["category"].to_pylist()))
    assert recommender.model.parameters_["H"].shape == (features, 3)


REFUSED: dict[str, tuple[Any, str]] = {
    "not a model": (lambda d: ep.Recommender("MF"), "model must be a model"),
    "not recipes": (lambda d: ep.Recommender(ep.FM(), ["user"]), "list of recipes"),
    "no recipes": (lambda d: ep.Recommender(ep.FM(), []), "list of recipes"),
    "the other side": (lambda d: ep.Recommender(ep.FM(), [ep.ItemId()]), "describes the item, not the context"),
    "two of a name": (
        lambda d: ep.Recommender(ep.FM(), [ep.History(name="old"), ep.History(last=2, name="old")]).fit(d),
        "named 'old'",
    ),
    "no such attribute": (lambda d: ep.Recommender(ep.FM(), [ep.Attributes("city")]).fit(d), "no attribute 'city'"),
    "MF with two": (lambda d: ep.Recommender(ep.MF(), [ep.UserId(), ep.Previous()]).fit(d), "Use FM or MFSI"),
    "MF with two attributes": (lambda d: ep.Recommender(ep.MF(), [ep.Attributes("age", "country")]).fit(d), "Use FM or MFSI"),
    "MF with a history": (lambda d: ep.Recommender(ep.MF(), [ep.History()]).fit(d), "Use FM or MFSI"),
    "MF with item attributes": (lambda d: ep.Recommender(ep.MF(), item=[ep.Attributes()]).fit(d), "items by id alone"),
    "CoView with a user": (lambda d: ep.Recommender(ep.CoView()).fit(d), "CoView takes"),
    "not a dataset": (lambda d: ep.Recommender(ep.MF()).fit([1, 2]), "must be an everypair.Dataset"),
    "no events": (lambda d: ep.Recommender(ep.MF()).fit(d.subset([])), "nothing to learn from"),
    "a callback of 3": (lambda d: ep.Recommender(ep.MF()).fit(d, callback=3), "callback must be callable"),
    "a text of recipes": (lambda d: ep.Recommender(ep.FM(), "user"), "list of recipes such as .* got 'user'"),
    "no attributes": (
        lambda d: ep.Recommender(ep.FM(), [ep.Attributes()]).fit(ep.Dataset({"user": [1], "item": [1]})),
        "users=...",
    ),
    "not fitted": (lambda d: ep.Recommender(ep.MF()).recommend(requests=[{}]), "not fitted"),
    "a decay of 2": (lambda d: ep.History(decay=2.0), "decay must be"),
    "nothing last": (lambda d: ep.History(last=0), "last must be at least 1"),
    "a history of a user": (lambda d: ep.Recommender(ep.FM(), [ep.History()], unit="user").fit(d), "Use unit='event'"),
    "an unknown unit": (lambda d: ep.Recommender(ep.MF(), unit="row"), "unit must be one of"),
    "a kind that is not": (lambda d: ep.Attributes("age", kind="number"), "kind must be one of"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(case: str, dataset: ep.Dataset) -> None:
    attempt, message = REFUSED[case]
    with pytest.raises((TypeError, ValueError), match=message):
        attempt(dataset)


def test_a_refused_fit_changes_nothing(dataset: ep.Dataset) -> None:
    recommender = ep.Recommender(ep.FM(**COMMON), [ep.Attributes("country")]).fit(dataset)
    before = recommender.recommend(requests=[{"country": "DE"}])["score"]
    other = ep.Dataset({"user": ["a"], "item": ["x"]})
    with pytest.raises(ValueError, match="no attribute 'country'"):
        recommender.fit(other)
    recommender.model.set_params(epochs=0)
    with pytest.raises(ValueError, match="epochs"):
        recommender.fit(dataset.subset(np.arange(50)))
    assert recommender.dataset_ is dataset
    np.testing.assert_array_equal(recommender.recommend(requests=[{"country": "DE"}])["score"], before)


def test_a_refused_fit_after_one_that_failed(dataset: ep.Dataset) -> None:
    """What the failed callback left behind stays; what is refused later changes nothing."""

    def fails(*args: Any) -> None:
        raise RuntimeError

    recommender = ep.Recommender(ep.MF(**COMMON))
    with pytest.raises(RuntimeError):
        recommender.fit(dataset, callback=fails)
    recommender.model.set_params(epochs=0)
    with pytest.raises(ValueError, match="epochs"):
        recommender.fit(ep.datasets.youtube_like(20, 30, seed=9, events_per_user=5))
    assert recommender.dataset_ is dataset
    assert recommender.recommend(dataset.users[0], n=3).num_rows == 3


def test_a_model_fitted_again_elsewhere(dataset: ep.Dataset) -> None:
    for model in (ep.MF(**COMMON), ep.Popularity()):
        recommender = ep.Recommender(model).fit(dataset)
        ep.Recommender(model).fit(dataset.subset(np.arange(50)))
        with pytest.raises(ValueError, match="a model of its own"):
            recommender.recommend(requests=[{}])


def test_a_model_fitted_again_after_a_failed_callback(dataset: ep.Dataset) -> None:
    def fails(*args: Any) -> None:
        raise RuntimeError

    model = ep.MF(**COMMON)
    recommender = ep.Recommender(model)
    with pytest.raises(RuntimeError):
        recommender.fit(dataset, callback=fails)
    ep.Recommender(model).fit(dataset.subset(np.arange(50)))
    with pytest.raises(ValueError, match="a model of its own"):
        recommender.recommend(requests=[{}])


def test_contexts_of_other_users_are_refused() -> None:
    first = ep.Dataset({"user": ["a", "a", "b"], "item": ["x", "y", "x"]})
    other = ep.Dataset({"user": ["b", "c", "c"], "item": ["x", "y", "x"]})
    recommender = ep.Recommender(ep.MF(**COMMON)).fit(first)
    with pytest.raises(ValueError, match="other users or items"):
        recommender.rank(ContextBatch.of_users(other, [0]), 1)
    recommender.rank(ContextBatch.of_users(other, [0]).anonymous(), 1)
    same = ep.Dataset({"user": ["a", "b"], "item": ["x", "y"]})
    recommender.rank(ContextBatch.of_users(same, [0]), 1)


def test_a_product_of_towers_falls_back_too(dataset: ep.Dataset) -> None:
    from everypair.towers import Embedding, Product

    context = Product(Embedding(2, "user"), Embedding(2, "previous"))
    model = ep.Separable(context=context, item=Embedding(2), epochs=3, regularization=0.1)
    recommender = ep.Recommender(model, [ep.UserId(), ep.Previous()]).fit(dataset)
    watched = int(dataset.item[0])
    popularity = np.bincount(dataset.item, minlength=dataset.n_items).astype(float)
    popularity[watched] = -1.0
    popular = np.argsort(-popularity, kind="stable")[:3]
    ids, _ = recommender.rank(ContextBatch.of_requests([{"history": [dataset.items[watched]]}], dataset), 3)
    assert ids[0].tolist() == popular.tolist()


def test_candidates_are_checked(dataset: ep.Dataset) -> None:
    recommender = ep.Recommender(ep.Popularity()).fit(dataset)
    contexts = ContextBatch.of_users(dataset, [0, 1])
    one = np.array([0]), np.array([1])
    with pytest.raises(ValueError, match="a list for each of the 2 contexts, got 1"):
        recommender.rank(contexts, 2, candidates=Lists(*one, np.array([0])))
    with pytest.raises(ValueError, match="must not be negative"):
        recommender.rank(contexts.take(np.array([0])), 2, candidates=Lists(*one, np.array([-1])))


def test_products_fall_back_where_one_level_was_never_met(dataset: ep.Dataset) -> None:
    popular = np.argsort(-np.bincount(dataset.item, minlength=dataset.n_items), kind="stable")[:3]
    for model in (ep.PARAFAC(**COMMON), ep.Tucker(**{**COMMON, "factors": 2})):
        recommender = ep.Recommender(model, [ep.UserId(), ep.Attributes("country")]).fit(dataset)
        ids, _ = recommender.rank(ContextBatch.of_requests([{"country": "DE"}], dataset), 3)
        assert ids[0].tolist() == popular.tolist()
        with pytest.raises(ValueError, match="can say nothing about 1 of 1"):
            recommender.recommend(requests=[{"country": "DE"}], n=3)


def test_a_history_of_items_never_in_a_history_is_not_known(dataset: ep.Dataset) -> None:
    train = dataset.subset(dataset.item < 15)
    recommender = ep.Recommender(ep.MFSI(**COMMON), [ep.History(last=2)]).fit(train)
    popular = np.argsort(-np.bincount(train.item, minlength=train.n_items), kind="stable")[:3]
    old, new = ([dataset.items[code]] for code in (2, 20))
    requests = [{"history": new}, {"history": old + new + new}, {"history": new + old}]
    ids, _ = recommender.rank(ContextBatch.of_requests(requests, train), 3)
    assert ids[0].tolist() == ids[1].tolist() == popular.tolist()
    assert ids[2].tolist() != ids[0].tolist()


def test_a_column_of_users_and_of_interactions() -> None:
    """That of the interactions counts, also where all attributes are meant."""
    events = {"user": [1, 1, 2, 2] * 5, "item": list("abab") * 5, "place": ["x", "y", "x", "y"] * 5}
    dataset = ep.Dataset(events, users={"user": [1, 2], "place": ["x", "x"]})
    by_name, all_there = (
        ep.Recommender(ep.FM(**COMMON), [recipe]).fit(dataset) for recipe in (ep.Attributes("place"), ep.Attributes())
    )
    requests = [{"place": "x"}, {"place": "y"}]
    assert by_name.recommend(requests=requests, n=1)["item"].to_pylist() == ["a", "b"]
    assert by_name.recommend(requests=requests, n=2).equals(all_there.recommend(requests=requests, n=2))


def test_a_callback_sees_a_recommender_that_works(dataset: ep.Dataset) -> None:
    seen = []

    def after(recommender: ep.Recommender, epoch: Any) -> bool:
        seen.append(recommender.recommend(requests=[{"country": "DE"}], n=2)["score"].to_numpy())
        return epoch.epoch == 2

    ep.Recommender(ep.FM(**COMMON), [ep.Attributes("country")]).fit(dataset, callback=after)
    assert len(seen) == 2
    assert not np.array_equal(*seen)


def test_event_attributes_and_events_of_time() -> None:
    """A column of the interactions is known at each event, and where a request tells it."""
    events = {"user": [1, 1, 2, 2, 2], "item": list("abcab"), "device": ["tv", "phone", "tv", "tv", None]}
    dataset = ep.Dataset(events)
    recommender = ep.Recommender(ep.FM(**COMMON), [ep.Attributes("device")]).fit(dataset)
    assert recommender.feedback_.n_contexts == 3
    assert recommender.recommend(requests=[{"device": "tv"}, {"device": "fridge"}], n=2).num_rows == 4
    assert recommender.unknown_ == {"device": 1}
    with pytest.raises(ValueError, match="'contry', which the data do not have"):
        recommender.recommend(requests=[{"contry": "DE"}])


@given(log=logs())
def test_items_further_back(log: ep.Dataset) -> None:
    contexts = ContextBatch.of_events(log)
    for back in (1, 2, 3):
        histories = [contexts.items[b:e] for b, e in zip(contexts.begin, contexts.end, strict=True)]
        expected = [history[-back] if len(history) >= back else -1 for history in histories]
        np.testing.assert_array_equal(contexts.previous(back), expected)
    recipes = [ep.Previous(), ep.Previous(2)]
    recommender = ep.Recommender(ep.FM(**COMMON), recipes).fit(log)
    assert list(recommender.model.state.towers["context"].rows.columns) == ["previous", "previous 2"]  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="back must be"):
        ep.Previous(0)


# parameters


@pytest.mark.parametrize("name", MODELS)
def test_clones_have_the_same_parameters_and_no_fit(name: str, dataset: ep.Dataset) -> None:
    model, context = MODELS[name]
    recommender = ep.Recommender(model, context, unit="event" if name == "MF" else "auto", unknown="error").fit(dataset)
    for other in (clone(recommender), recommender.unfitted()):
        assert repr(other) == repr(recommender)
        assert (other.unit, other.unknown) == (recommender.unit, recommender.unknown)
        assert other.model is not recommender.model
        with pytest.raises(ep.NotFittedError):
            _ = other.state
        assert not other.model.is_fitted
        other.fit(dataset)
        users = [{"user": dataset.users[user]} for user in range(5)]
        tables = [each.recommend(requests=users, n=3, fallback="popular") for each in (recommender, other)]
        assert tables[0].equals(tables[1])


def test_parameters_are_those_of_the_constructor() -> None:
    model, context = ep.FM(factors=4, epochs=3), [ep.UserId(), ep.Previous()]
    recommender = ep.Recommender(model, context)
    assert list(recommender.get_params(deep=False)) == ["model", "context", "item", "unit", "unknown", "event_weights"]
    assert recommender.get_params(deep=False)["context"] is context
    assert recommender.get_params()["model__factors"] == 4
    assert recommender.set_params(unknown="error", model__factors=8, model__epochs=1) is recommender
    assert (recommender.unknown, model.factors, model.epochs) == ("error", 8, 1)
    recommender.set_params(model__factors=2, model=ep.MF())  # of the new model, whatever the order
    assert (recommender.model.factors, model.factors) == (2, 8)  # type: ignore[attr-defined]
    for wrong in ({"colour": 1}, {"model__colour": 1}, {"unit__x": 1}):
        with pytest.raises(ValueError, match=f"Recommender has no parameter {next(iter(wrong))!r}; it has model, context"):
            recommender.set_params(unit="user", **wrong)
    assert recommender.unit == "auto"


def test_parameters_that_were_changed_are_checked_by_the_fit(dataset: ep.Dataset) -> None:
    recommender = ep.Recommender(ep.MF(**COMMON)).fit(dataset)
    before = recommender.recommend(dataset.users[0], n=3)
    for wrong, message in (
        ({"unit": "row"}, "unit must be one of"),
        ({"context": [ep.ItemId()]}, "describes the item, not the context"),
        ({"model": "MF"}, "cannot use str"),
    ):
        kept = recommender.get_params(deep=False)
        with pytest.raises((TypeError, ValueError), match=message):
            recommender.set_params(**wrong).fit(dataset)
        recommender.set_params(**kept)
    assert recommender.recommend(dataset.users[0], n=3).equals(before)


def test_the_state_answers_on_its_own(dataset: ep.Dataset) -> None:
    """It does not change when its recommender is updated or fitted again."""
    recommender = ep.Recommender(ep.FM(**COMMON), [ep.UserId(), ep.History()]).fit(dataset)
    state, user, item = recommender.state, dataset.users[3], dataset.items[1]
    tables = [recommender.recommend(user, n=4), recommender.similar_items(item, n=3)]
    why = recommender.explain(user, item).table
    recommender.update({"user": [user], "item": [item], "timestamp": [10**9]})
    recommender.set_params(model__epochs=1).fit(dataset)
    assert recommender.state is not state
    assert state.recommend(user, n=4).equals(tables[0])
    assert state.similar("item", item, 3).equals(tables[1])
    assert state.explain(user, item).table.equals(why)
    assert not recommender.recommend(user, n=4).equals(tables[0])
    with pytest.raises(ep.NotFittedError, match="call fit first"):
        _ = ep.Recommender(ep.MF()).state


def test_a_fit_is_committed_at_its_end_or_not_at_all(dataset: ep.Dataset) -> None:
    """All that a fit leaves is replaced together: of another fit, or of the epochs before a callback failed."""
    recommender = ep.Recommender(ep.MF(**COMMON)).fit(dataset)
    recommender.recommend(requests=[{"user": dataset.users[0], "history": ["nothing"]}], n=1, fallback="popular")
    recommender.evaluation_ = {"metrics": {}}
    fitted = ("state", "feedback_", "unknown_", "validation_", "evaluation_")
    before = {name: getattr(recommender, name) for name in fitted}
    other = dataset.subset(np.arange(len(dataset)) < 100)
    recommender.set_params(model__factors=0)
    with pytest.raises(ValueError, match="factors"):
        recommender.fit(other)
    assert all(getattr(recommender, name) is value for name, value in before.items())
    recommender.set_params(model__factors=2)
    with pytest.raises(ZeroDivisionError):
        recommender.fit(other, lambda recommender, epoch: epoch.epoch == 2 and 1 // 0)
    assert recommender.dataset_ is other
    assert (recommender.unknown_, recommender.evaluation_, len(recommender.model.history_)) == ({}, None, 2)  # type: ignore[attr-defined]
    assert recommender.state.adapter.trained


CATALOGUE = {"item": ["v1", "v2", "v3", "new", "newer"], "genre": ["news", "film", "film", "news", "film"]}


def plays(data: st.DataObject) -> dict[str, list[Any]]:
    """Events of the first three items, each of which has one."""
    more = data.draw(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 2)), max_size=20))
    pairs = [*((j, j) for j in range(3)), *more]
    return {"user": [user for user, _ in pairs], "item": [f"v{item + 1}" for _, item in pairs]}


@given(st.data())
def test_items_without_events_are_kept_when_told(data: st.DataObject) -> None:
    events = plays(data)
    dropped, kept = (ep.Dataset(events, items=CATALOGUE, all_items=all_items) for all_items in (False, True))
    assert dropped.items[:] == ["v1", "v2", "v3"]
    assert kept.items[:] == sorted(CATALOGUE["item"])
    assert kept.notes == ["2 items have no events: kept."]
    assert kept.items.take(kept.item).equals(dropped.items.take(dropped.item))
    assert dict(zip(kept.items, kept.item_table["genre"].to_pylist(), strict=True)) == dict(zip(*CATALOGUE.values(), strict=True))
    item = [ep.ItemId(), ep.Attributes("genre")]
    recommender = ep.Recommender(ep.FM(**COMMON), item=item).fit(kept)
    table = recommender.recommend(users=[0], n=5, exclude_seen=False)
    assert set(table["item"].to_pylist()) == set(CATALOGUE["item"])
    assert recommender.state.notes == []
    assert recommender.state.trained_items.all()


def test_the_loss_has_all_pairs_of_kept_items() -> None:
    """They are trained on as items that nobody chose."""
    events = {"user": [1, 2, 2], "item": ["v1", "v2", "v3"]}
    model = ep.FM(**COMMON)
    recommender = ep.Recommender(model, item=[ep.Attributes("genre")]).fit(ep.Dataset(events, items=CATALOGUE, all_items=True))
    assert recommender.feedback_.shape == (2, 5)
    scores = dict(
        zip(recommender.dataset_.items, (recommender.context_vectors([1]) @ recommender.item_vectors().T)[0], strict=True)
    )
    assert scores["new"] == scores["v1"]
    assert scores["newer"] == scores["v2"] == scores["v3"]


def test_a_model_of_ids_says_that_it_knows_nothing_of_kept_items() -> None:
    events = {"user": [1, 1, 1, 2, 2, 2], "item": ["v1", "v2", "v3", "v2", "v3", "v1"]}
    dataset = ep.Dataset(events, items=CATALOGUE, all_items=True, chronological=True)
    split = LeaveLast().split(dataset)
    recommender = ep.Recommender(ep.MF(**COMMON)).fit(split.train)
    assert "3 of 5 items have no events, and item=[ItemId()] says nothing else of them" in recommender.state.notes[0]
    found = evaluate(recommender, split.test, ["coverage@5"], exclude_seen=False)
    assert found["coverage@5"] == 1.0
    assert any("items have no events" in note for note in found.notes)
    assert ep.Recommender(ep.Popularity()).fit(split.train).state.notes == []
