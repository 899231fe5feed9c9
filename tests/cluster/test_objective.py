"""Fits on shards: the objective of every epoch is that of one machine, for all models and towers that are not refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from shards import fit_on_shards

import everypair as ep
from everypair.columns.history_field import HistoryField, Window
from everypair.models.tensor import columns_of_variables
from everypair.models.tower_model import TowerModel
from everypair.towers import Concat, Constant, Core, Embedding, Linear, Lookup, Machine, Product, Sum

from problems import make

CLOSE = {"float64": 1e-12, "float32": 1e-6}
MODELS = ["MF", "MFSI", "FM", "PARAFAC", "Tucker", "sum of towers", "towers of towers"]


def objectives(model: TowerModel) -> np.ndarray:
    return np.array([epoch.objective for epoch in model.history_])


def assert_same(one: TowerModel, models: list[TowerModel], dtype: str) -> None:
    expected = objectives(one)
    for model in models:
        assert objectives(model).tobytes() == objectives(models[0]).tobytes(), "shards have the same history"
        np.testing.assert_allclose(objectives(model), expected, rtol=CLOSE[dtype])
    assert np.all(np.diff(expected) <= 1e-6 * expected[0])


@pytest.mark.parametrize("name", MODELS)
@given(
    seed=st.integers(0, 10**6), shards=st.sampled_from([2, 4, 8]), exponent=st.sampled_from([0.0, 0.5, 1.0]), weighted=st.booleans()
)
@settings(max_examples=8)
def test_models(name: str, seed: int, shards: int, exponent: float, weighted: bool) -> None:
    compare(name, seed, shards, exponent, "float64", weighted)


@pytest.mark.parametrize("name", MODELS)
def test_models_in_single_precision(name: str) -> None:
    """For one problem each: rounding errors of others may grow from epoch to epoch, on one machine as here."""
    compare(name, 0, 4, 0.5, "float32", weighted=False)


def compare(name: str, seed: int, shards: int, exponent: float, dtype: str, weighted: bool) -> None:
    problem = make(name, seed=seed, n_contexts=64, n_items=9, k=3, exponent=exponent, weighted=weighted, strength=0.2)
    options = {"dtype": dtype, "epochs": 3, "n_threads": 1}
    contexts, items = problem.arguments.get("contexts"), problem.arguments.get("items")
    if "levels" in problem.arguments:
        contexts = columns_of_variables(contexts, problem.arguments["levels"])
    if problem.feedback.n_contexts < 16:  # hardly any combinations of levels
        return
    models, _ = fit_on_shards(lambda: problem.make(**options), problem.feedback, shards, contexts, items)
    assert_same(problem.fit(**options), models, dtype)


def data(seed: int, users: int = 40, items: int = 12) -> tuple[ep.Feedback, dict[str, Any], dict[str, Any]]:
    """Contexts that are events of users; user c has the events ``4 c`` to ``4 c + 3``, and is alone in shard ``c % shards``."""
    random = np.random.default_rng(seed)
    shards = 4
    user = np.concatenate([np.arange(users).reshape(-1, shards)] * 4, axis=0).reshape(-1)  # context c has a user of shard c % 4
    n = len(user)
    chosen = random.integers(0, items, n)
    tags = sp.csr_array((random.random((n, 5)) < 0.4) * random.uniform(0.5, 1.0, (n, 5)))
    contexts = {
        "user": ep.Levels(user, users).of_this_shard(),
        "country": ep.Levels(random.integers(-1, 4, n), 4),
        "tags": tags,
        "text": random.normal(size=(n, 3)),
    }
    of_items = {"id": ep.Levels(np.arange(items)), "kind": ep.Levels(random.integers(0, 3, items), 3),
                "genres": sp.csr_array(random.random((items, 4)) < 0.5).astype(float)}  # fmt: skip
    return ep.Feedback(np.arange(n), chosen, shape=(n, items)), contexts, of_items


def history(seed: int, users: int = 16, items: int = 12) -> HistoryField:
    random = np.random.default_rng(seed)
    lengths = random.integers(0, 6, users)
    bounds = np.concatenate([[0], np.cumsum(lengths)])
    return HistoryField(random.integers(0, items, bounds[-1]), bounds, bounds[:-1], bounds[1:], items, Window(3, 0.8, "sqrt"))


TOWERS = {
    "local and shared levels": lambda: Machine(3, "user", "country"),
    "fields of every kind": lambda: Machine(3, "user", "country", "tags", "text"),
    "linear": lambda: Linear(3, "country", "tags", "text"),
    "users looked up": lambda: Lookup("user", Embedding(3)),
    "countries looked up": lambda: Lookup("country", Embedding(3)),
    "sum": lambda: Sum(Linear(3, "tags"), Embedding(3, "user"), Embedding(3, "country")),
    "concat": lambda: Concat(Linear(2, "country"), Constant()),
    "product": lambda: Product(Embedding(3, "user"), Embedding(3, "country")),
    "core": lambda: Core(Embedding(2, "user"), Embedding(2, "country"), factors=3),
}
ITEMS = {5: lambda: Machine(3, "id", "kind", "genres"), 3: lambda: Linear(3, "id", "genres")}


@pytest.mark.parametrize("dtype", sorted(CLOSE))
@pytest.mark.parametrize("name", TOWERS)
def test_towers(name: str, dtype: str) -> None:
    feedback, contexts, items = data(3)
    tower = TOWERS[name]

    def model() -> ep.Separable:
        of_items = ITEMS[tower().n_dims]()
        options: dict[str, Any] = {"regularization_exponent": 0.5, "popularity_exponent": 0.3, "unobserved_weight": 0.05}
        return ep.Separable(context=tower(), item=of_items, epochs=3, dtype=dtype, n_threads=1, **options)

    used = {column: contexts[column] for column in contexts if column in repr(tower())}
    one = model()._fit(feedback, used, items)
    models, _ = fit_on_shards(model, feedback, 4, used, items)
    assert_same(one, models, dtype)


@pytest.mark.parametrize("make_model", [ep.MFSI, ep.FM])
def test_histories(make_model: Any) -> None:
    field = history(1)
    n, items = field.shape
    random = np.random.default_rng(2)
    chosen = (random.integers(0, items, n)[:, None] + [0, 5]).ravel() % items
    feedback = ep.Feedback(np.repeat(np.arange(n), 2), chosen, shape=(n, items))
    contexts = {"history": field, "user": ep.Levels(np.arange(n) % 5, 5)}

    def model() -> TowerModel:
        return make_model(factors=3, epochs=3, dtype="float64", n_threads=1, regularization=0.1)

    one = model()._fit(feedback, contexts, None)
    models, _ = fit_on_shards(model, feedback, 4, contexts)
    assert_same(one, models, "float64")
