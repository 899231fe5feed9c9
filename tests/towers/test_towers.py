"""Towers in any combination keep their promises, and what makes no sense is refused."""

from __future__ import annotations

import gc
import itertools
import weakref
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone

import everypair as ep
from everypair import reference
from everypair.engine.cpu import CpuEngine
from everypair.kernels.machine_state import G_F, G_Q, H_FF, H_FQ, H_QQ
from everypair.runtime.parallel import Workers
from everypair.towers import Concat, Constant, Core, Embedding, Linear, Lookup, Machine, Product, Sum, Tower
from everypair.towers.lookup import LevelView

from bumps import Bumps

NUMBERS = itertools.count()
GOOD = ep.Feedback([0, 1, 2, 2], [0, 1, 0, 2], shape=(3, 3))


def rows(random: np.random.Generator, n: int = 10) -> dict[str, Any]:
    """A column of each kind; every level occurs, and some are missing."""
    user, month = random.integers(-1, 3, n), random.integers(-1, 2, n)
    user[:3], month[:2] = range(3), range(2)
    users = {"age": random.random(3), "country": np.array([0, 1, 1]), "user": np.array([0, 1, 1]), "time": random.random(3)}
    return {
        "user": ep.Levels(user, 3, users),
        "month": ep.Levels(month, 2),
        "history": sp.csr_array((random.random((n, 4)) < 0.4) * 1.0),
        "text": random.normal(size=(n, 3)),
        "time": random.random(n),
    }


@st.composite
def towers(draw: st.DrawFn, k: int, depth: int = 2) -> Tower:
    """Any tower of k dimensions."""
    leaves = ["embedding", "level", "linear", "described", "smooth"]
    leaves += ["machine"] if k > 2 else []
    leaves += ["constant"] if k == 1 else []
    joints = ["sum", "product", "core"] + (["concat"] if k > 1 else []) if depth else []
    kind = draw(st.sampled_from(leaves + 2 * joints))
    part = towers(k, depth - 1)
    if kind == "sum":
        return Sum(draw(part), draw(part))
    if kind == "product":
        return Product(draw(part), draw(part))
    if kind == "concat":
        first = draw(st.integers(1, k - 1))
        return Concat(draw(towers(first, depth - 1)), draw(towers(k - first, depth - 1)))
    if kind == "core":
        return Core(*(draw(towers(draw(st.integers(1, 2)), depth - 1)) for _ in range(2)), factors=k, name=name())
    made: dict[str, Any] = {
        "embedding": lambda: Embedding(k, name=name()),
        "level": lambda: Embedding(k, draw(st.sampled_from(["user", "month"])), name=name()),
        "linear": lambda: Linear(k, *draw(st.sampled_from([["history"], ["user", "text"], ["time"]])), name=name()),
        "described": lambda: Lookup("user", Linear(k, "age", "country", name=name())),
        "machine": lambda: Machine(k - 2, "history", "month"),
        "smooth": lambda: Bumps(k, name=name()),
        "constant": Constant,
    }
    return made[kind]()


def name() -> str:
    """One that no other tower has."""
    return f"p{next(NUMBERS)}"


def machines(tower: Tower) -> int:
    return sum(isinstance(part, Machine) for part in tower.walk())


@given(st.data(), st.integers(1, 4), st.sampled_from(["context", "item"]), st.integers(0, 10**6))
@pytest.mark.full
def test_any_tower(data: st.DataObject, k: int, side: str, seed: int) -> None:
    tower = data.draw(towers(k).filter(lambda t: machines(t) < 2))
    ep.testing.check_tower(tower, rows(np.random.default_rng(seed)), side=side, random_state=seed)


CONTEXTS = rows(np.random.default_rng(0))
SOME = [
    Embedding(2, "user"),
    Linear(2, "history", "text"),
    Machine(2, "user", "history"),
    Lookup("user", Linear(2, "age", "country")),
    Sum(Embedding(2, "user"), Linear(2, "history")),
    Sum(Machine(2, "history"), Linear(4, "user")),
    Concat(Embedding(2, "user"), Constant(), Machine(1, "history")),
    Product(Embedding(2, "user"), Linear(2, "history"), Sum(Embedding(2, "month"), Linear(2, "time"))),
    Product(Lookup("user", Machine(2, "age", "country")), Embedding(4, "month")),
    Core(Embedding(2, "user"), Linear(3, "history"), factors=4),
    Core(Machine(1, "history"), Embedding(2, "month"), factors=3),
    Core(Linear(2, "history"), factors=3),
    Bumps(3),
    Lookup("user", Bumps(2)),
    Product(Lookup("user", Bumps(2)), Embedding(2, "month")),
]


@pytest.mark.parametrize("side", ["context", "item"])
@pytest.mark.parametrize("tower", SOME, ids=repr)
def test_some_towers(tower: Tower, side: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ep.testing, "SWEEPS", 60)
    ep.testing.check_tower(tower, CONTEXTS, side=side)


LISTED = {
    "user": ep.Levels([0, 0, 1, 2], 3, {"age": np.array([0.2, 0.7, 0.4]), "country": np.array([0, 1, 1])}),
    "month": ep.Levels([0, 1, 1, 0], 2),
}


@pytest.mark.parametrize(
    "tower",
    [
        Product(Embedding(2, "user"), Embedding(2, "month"), combinations="all"),
        Product(Lookup("user", Linear(2, "age", "country")), Embedding(2, "month"), combinations="all"),
        Product(Lookup("user", Machine(1, "age", "country")), Embedding(3, "month"), combinations="all"),
        Product(Lookup("user", Sum(Embedding(2), Linear(2, "age"))), Embedding(2, "month"), combinations="all"),
        Core(Lookup("user", Linear(2, "age", "country")), Embedding(2, "month"), factors=3, combinations="all"),
    ],
    ids=repr,
)
def test_all_combinations(tower: Tower, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ep.testing, "SWEEPS", 60)
    ep.testing.check_tower(tower, LISTED)


def test_towers_without_columns() -> None:
    for tower in (Embedding(3), Linear(2), Machine(1)):
        ep.testing.check_tower(tower, n_rows=5)


def test_a_sum_whose_parts_move_more_than_its_dimension() -> None:
    """With bias and linear weights held, a Machine too goes dimension by dimension, and moves its bias dimension along."""
    random = np.random.default_rng(1)
    feedback = ep.Feedback(np.arange(10), np.arange(10) % 4)
    X, A = CONTEXTS["history"].toarray(), np.eye(4)[CONTEXTS["user"].codes][:, :3]
    columns = {name: CONTEXTS[name] for name in ("user", "history")}
    context = Sum(Linear(4, "user", name="V"), Machine(2, "history", names=("b", "w", "W")))
    options: dict[str, Any] = {"unobserved_weight": 0.2, "dtype": "float64", "rotate": False, "field_solver": "cd", "epochs": 1}
    model = ep.Separable(context=context, item=Embedding(4, name="H"), **options)
    shapes = {"b": (1,), "w": (4,), "W": (4, 2), "V": (3, 4), "H": (4, 4)}
    start = {name: random.normal(size=shape) for name, shape in shapes.items()}
    free = {name: start[name] for name in ("V", "W", "H")}
    model.fit(feedback, contexts=columns, start=free, fixed={"b": start["b"], "w": start["w"]})

    def score(p: dict[str, np.ndarray]) -> np.ndarray:
        factors = X @ p["W"]
        pairwise = 0.5 * np.sum(factors**2 - X**2 @ p["W"] ** 2, axis=1)
        machine = np.column_stack([factors, p["b"] + X @ p["w"] + pairwise, np.ones(10)])
        return (machine + A @ p["V"]) @ p["H"].T

    parts = [("V", 3, range(4)), ("W", 4, range(2))]
    steps = [(name, (r, f)) for f in range(4) for name, n, dims in parts if f in dims for r in range(n)]
    steps += [("H", (r, f)) for f in range(4) for r in range(4)]
    expected = reference.coordinate_descent(score, start, steps, feedback, 0.2, dict.fromkeys("VWH", 0.01))
    for name in "VWH":
        np.testing.assert_allclose(model.parameters_[name], expected[name], rtol=1e-8, err_msg=name)


VIEWED: list[Any] = [
    (Linear(4, "history"), "the view of a side"),
    (Lookup("user", Embedding(4)), "of levels"),
    (Product(Linear(4, "history"), Embedding(4, "month")), "of a factor"),
    (Core(Linear(4, "history"), Embedding(2, "month"), factors=4), "along a tangent"),
    (Product(Lookup("user", Embedding(4)), Embedding(4, "month"), combinations="all"), "of all combinations"),
]


@pytest.mark.parametrize(("tower", "kind"), VIEWED, ids=lambda x: x if isinstance(x, str) else "")
def test_a_view_agrees_with_itself(tower: Tower, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two dimensions at once are two directions and what is between them; a move changes the gradient as curvature says."""
    monkeypatch.setattr(CpuEngine, "_lazy", lambda self, tower: False)  # it is the view that moves here, not the parameters
    rows = LISTED if getattr(tower, "combinations", None) == "all" else CONTEXTS
    problem = ep.testing._Check(tower, rows, 0, "context", 0)
    solver = problem.solver()
    side, bound = solver.engine.objective.side("context"), solver.towers["context"]
    if kind == "of levels":
        view: Any = LevelView(side, cast(Lookup, bound))
    elif kind == "of all combinations":
        complete = cast(Product, bound)
        alpha0, J = side.implicit()
        view = LevelView(complete.view_of(0, side), complete.modes[0], alpha0 * complete.implicit_matrix(0, J))
    else:
        view = side if kind == "the view of a side" else cast(Product, bound).view_of(0, side)
    n, f, q = view.n_rows, 1, 3
    state = view.slopes_pair(f, q, np.zeros(n)).copy()

    def along(*dims: int) -> tuple[np.ndarray, np.ndarray]:
        tangent = np.zeros((n, 4))
        tangent[:, dims] = 1.0
        return tuple(x.copy() for x in view.slopes_along(tangent))  # type: ignore[return-value]

    (g_f, h_f), (g_q, h_q), (g, h) = along(f), along(q), along(f, q)
    for column, expected in {G_F: g_f, G_Q: g_q, H_FF: h_f, H_QQ: h_q, H_FQ: (h - h_f - h_q) / 2}.items():
        np.testing.assert_allclose(state[:, column], expected, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(g, g_f + g_q, rtol=1e-9, atol=1e-9)
    slope, curvature = (x.copy() for x in view.slopes(f))
    np.testing.assert_allclose(slope, g_f, rtol=1e-9, atol=1e-9)
    delta = np.linspace(-1.0, 1.0, n)
    view.slopes(f)
    view.move(f, delta)
    np.testing.assert_allclose(view.slopes(f)[0], slope + curvature * delta, rtol=1e-9, atol=1e-9)
    before = [x.copy() for x in view.slopes_pair(f, q, np.zeros(n)).T]
    view.move_pair(f, q, delta, -delta)
    after = view.slopes_pair(f, q, np.zeros(n))
    np.testing.assert_allclose(after[:, G_F], before[G_F] + (before[H_FF] - before[H_FQ]) * delta, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(after[:, G_Q], before[G_Q] + (before[H_FQ] - before[H_QQ]) * delta, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize(
    ("context", "degree", "terms", "std"),
    [
        (Embedding(4, "user"), 1, 1, 0.05),
        (Sum(Embedding(4, "user"), Linear(4, "history")), 1, 1, 0.05),
        (Product(Embedding(4, "user"), Linear(4, "history")), 2, 1, 4 ** (-0.5 / 3)),
        (Sum(Embedding(4, "user"), Product(Embedding(4, "month"), Linear(4, "history"))), 2, 1, 4 ** (-0.5 / 3)),
        (Core(Embedding(2, "user"), Linear(3, "history"), factors=4), 3, 6, 24 ** (-0.5 / 4)),
        (Concat(Constant(), Core(Embedding(2, "user"), factors=3)), 2, 2, 8 ** (-0.5 / 3)),
        (Product(Constant(), Lookup("user", Linear(1, "age"))), 1, 1, 0.1),
        (Constant(), 0, 1, 0.1),
    ],
    ids=repr,
)
def test_start_values(context: Tower, degree: int, terms: int, std: float) -> None:
    """Small for two factors in a term of a score, such that scores are of the size of one for more."""
    assert (context.degree, context.terms) == (degree, terms)
    n_items = 20_000
    model = ep.Separable(context=context, item=Embedding(context.n_dims, name="item"))
    feedback = ep.Feedback(np.arange(10), np.arange(10), shape=(10, n_items))
    start = model.build_solver(feedback, CONTEXTS, None, Workers(1)).towers["item"].parameters["item"]  # type: ignore[attr-defined]
    np.testing.assert_allclose(start.value.std(), std, rtol=0.02)


# models of the paper in terms of towers: the same bits


@pytest.mark.parametrize("order", ["side", "dimension"])
def test_the_models_are_these_towers(order: str) -> None:
    random = np.random.default_rng(3)
    feedback = ep.Feedback(*np.nonzero(random.random((9, 6)) < 0.4), shape=(9, 6))
    X, Z = (sp.csr_array(random.random((n, 4)) < 0.5, dtype=float) for n in (9, 6))
    features = {"contexts": {"x": X}, "items": {"z": Z}}
    pairs = np.stack([np.arange(9) // 3, np.arange(9) % 3], axis=1)
    tensor = {"contexts": {"U": pairs[:, 0], "V": pairs[:, 1]}}
    cases: list[Any] = [
        (ep.MF(3, order=order), {}, Embedding(3, name="W"), Embedding(3, name="H"), {}),
        (ep.MFSI(3, order=order), features, Linear(3, "x", name="W"), Linear(3, "z", name="H"), features),
        (ep.FM(3, order=order), features, Machine(3, "x", names=("b", "w", "W")), Machine(3, names=("h", "H")), features),
    ]
    listed = {"contexts": pairs}
    if order == "side":
        modes = [Embedding(3, "U"), Embedding(3, "V")]
        others = [Embedding(3, "U"), Embedding(3, "V")]
        cases += [
            (ep.PARAFAC(3, combinations="all"), listed, Product(*modes, combinations="all"), Embedding(3, name="W"), tensor),
            (ep.Tucker((3, 3, 2)), listed, Core(*others, factors=2, name="B"), Embedding(2, name="W"), tensor),
        ]
    for built_in, arguments, context, item, columns in cases:
        settings = {key: value for key, value in built_in.get_params().items() if key not in ("factors", "combinations")}
        expected = built_in.fit(feedback, **arguments)
        found = ep.Separable(context=context, item=item, **settings).fit(feedback, **columns)
        assert found.history_[-1].objective == expected.history_[-1].objective
        for letter, value in expected.parameters_.items():
            np.testing.assert_array_equal(found.parameters_[letter], value, err_msg=letter)


def test_a_separable_model_has_what_models_have() -> None:
    context = Concat(Embedding(2, "user"), Linear(2, "history"))
    model = ep.Separable(context=context, item=Embedding(4), epochs=3, regularization={"default": 0.1, "history": 0.3})
    feedback = ep.Feedback(np.arange(10), np.arange(10) % 3)
    contexts = {"user": CONTEXTS["user"], "history": CONTEXTS["history"]}
    calls: list[int] = []
    model.fit(feedback, contexts=contexts, callback=lambda model, epoch: calls.append(epoch.epoch))
    assert calls == [1, 2, 3]
    ids, _ = model.recommend([0, 4], n=2, exclude=feedback)
    assert ids.shape == (2, 2)
    assert sorted(model.parameters_) == ["history", "item", "user"]
    np.testing.assert_allclose(model.predict([0, 1], [1, 2]), np.sum(model.phi_[[0, 1]] * model.psi_[[1, 2]], axis=1), rtol=1e-6)
    again = clone(model).fit(feedback, contexts=contexts)
    np.testing.assert_array_equal(again.phi_, model.phi_)
    held = model.set_params(epochs=1).fit(feedback, contexts=contexts, fixed={"user": np.ones((3, 2))})
    np.testing.assert_array_equal(held.parameters_["user"], 1.0)
    assert "Concat(Embedding(2, 'user'), Linear(2, 'history'))" in repr(model)
    assert not hasattr(context, "rows")  # the description is as it was


def test_vectors_of_other_rows() -> None:
    random = np.random.default_rng(5)
    contexts = rows(random)
    user = Lookup("user", Linear(2, "age", "country"))
    context = Sum(Product(user, Embedding(2, "month")), Embedding(2), Linear(2, "text"))
    feedback = ep.Feedback(np.arange(10), np.arange(10) % 4)
    model = ep.Separable(context=context, item=Embedding(2), epochs=2).fit(feedback, contexts=contexts)
    again = {
        key: column.take(np.arange(3, 6)) if isinstance(column, ep.Levels) else column[3:6] for key, column in contexts.items()
    }
    np.testing.assert_allclose(model.context_vectors({**again, "context": [3, 4, 5]}), model.phi_[3:6], rtol=1e-5)
    plain = {**again, "user": contexts["user"].codes[3:6]}  # levels of the fit, by number
    np.testing.assert_allclose(model.context_vectors({**plain, "context": [3, 4, 5]}), model.phi_[3:6], rtol=1e-5)
    own = model.parameters_["context"][3:6]
    unknown = model.context_vectors({**again, "context": [-1, -1, -1]})
    np.testing.assert_allclose(unknown, model.phi_[3:6] - own, rtol=1e-4, atol=1e-6)
    newcomer = {**again, "user": ep.Levels([0, 0, 0], columns={"age": [0.5], "country": ep.Levels([1], 2)}), "context": [-1] * 3}
    p, month = model.parameters_, again["month"].codes
    seasons = np.where(month[:, None] >= 0, p["month"][month], 0.0)
    expected = np.array([0.5, 0.0, 1.0]) @ p["age+country"] * seasons + again["text"] @ p["text"]
    np.testing.assert_allclose(model.context_vectors(newcomer), expected, rtol=1e-4, atol=1e-6)
    with pytest.raises(ValueError, match=r"a vector for each context of the fit.*-1 for a new context"):
        model.context_vectors(again)
    with pytest.raises(ValueError, match="must have the fields trained on"):
        model.context_vectors({"user": [0]})
    with pytest.raises(ValueError, match=r"contexts\['user'\] must be below 3, got 7"):
        model.context_vectors({**again, "user": [7, 0, 0], "context": [0, 0, 0]})
    with pytest.raises(ValueError, match="same number of rows"):
        model.context_vectors({**again, "context": [0]})


USERS = ep.Levels(np.arange(12) % 4, 4, {"age": [0.1, 0.2, 0.3, 0.4], "country": [0, 1, 1, 2]})
EVENTS = ep.Feedback(np.arange(12), np.arange(12) % 5)


def of_users(tower: Tower) -> ep.Separable:
    return ep.Separable(context=tower, item=Embedding(2), epochs=2).fit(EVENTS, contexts={"user": USERS})


def test_new_levels_with_a_description_of_their_own() -> None:
    """A user never seen, by her attributes; read as in the fit, whatever the few new rows look like."""
    by_age = of_users(Lookup("user", Linear(2, "age")))
    np.testing.assert_array_equal(by_age.context_vectors({"user": ep.Levels([0], columns={"age": [0]})}), 0.0)
    by_country = of_users(Lookup("user", Embedding(2, "country")))
    found = by_country.context_vectors({"user": ep.Levels([0], columns={"country": [1]})})
    np.testing.assert_array_equal(found[0], by_country.parameters_["country"][1])
    both = of_users(Core(Lookup("user", Linear(2, "country", "age")), factors=2))
    found = both.context_vectors({"user": ep.Levels([0], columns={"country": [1], "age": [0.2]})})
    np.testing.assert_allclose(found[0], both.phi_[1], rtol=1e-5)
    mixed = of_users(Sum(Embedding(2, "user"), Lookup("user", Linear(2, "age"))))
    new = {"user": ep.Levels([0, 1], columns={"user": [-1, 2], "age": [0.5, 0.3]})}
    expected = [0.5 * mixed.parameters_["age"][0], mixed.phi_[2]]
    np.testing.assert_allclose(mixed.context_vectors(new), expected, rtol=1e-5)
    with pytest.raises(ValueError, match=r"contexts\['user'\].columns\['country'\] must be below 3, got 3"):
        by_country.context_vectors({"user": ep.Levels([0], columns={"country": [3]})})
    with pytest.raises(ValueError, match=r"contexts\['user'\].columns must have the fields trained on"):
        by_age.context_vectors({"user": ep.Levels([0], columns={"height": [3.0]})})


def test_new_levels_are_not_those_of_the_fit() -> None:
    """A table of new levels numbers its own: only what says which of the fit's they are is taken for them."""
    model = of_users(Sum(Lookup("user", Linear(2, "age")), Linear(2, "user", name="u")))
    new = {"age": [0.5, 0.6, 0.1, 0.9]}
    with pytest.raises(ValueError, match="a vector for each user of the fit"):
        model.context_vectors({"user": ep.Levels([0, 1], columns=new)})
    found = model.context_vectors({"user": ep.Levels([0, 1, -1], columns={**new, "user": [-1, 2, -1, -1]})})
    expected = np.outer([0.5, 0.6, 0.0], model.parameters_["age"][0])
    expected[1] += model.parameters_["u"][2]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-7)
    plain = of_users(Embedding(2, "user"))  # a description that nobody reads
    again = ep.Levels(USERS.codes, columns={"age": [0.1, 0.2, 0.3, 0.4]})
    np.testing.assert_array_equal(plain.context_vectors({"user": again}), plain.phi_)
    with pytest.raises(ValueError, match=r"must have the fields trained on, {'user': 'levels'}, got {}"):
        plain.context_vectors({})
    alone = ep.Separable(context=Embedding(2), item=Embedding(2), epochs=1).fit(EVENTS)
    np.testing.assert_array_equal(alone.context_vectors(pa.table({"context": [3, 1]})), alone.phi_[[3, 1]])
    np.testing.assert_array_equal(alone.context_vectors([-1]), 0.0)
    with pytest.raises(ValueError, match="give the indices as a column 'context'"):
        alone.context_vectors({"user": [0, 1]})


def test_fits_share_nothing_through_their_levels() -> None:
    country = ep.Levels([0, 1, 0, 1], columns={"gdp": [0.1, 0.2], "people": [0.3, 0.4]})
    contexts = {"user": ep.Levels(np.arange(12) % 4, columns={"country": country})}

    def by(column: str) -> ep.Separable:
        tower = Lookup("user", Lookup("country", Linear(2, column)))
        return ep.Separable(context=tower, item=Embedding(2), epochs=1).fit(EVENTS, contexts=contexts)

    one, other = by("gdp"), by("people")
    for model, column in ((one, "gdp"), (other, "people")):
        land = ep.Levels([0], columns={column: [0.7]})
        found = model.context_vectors({"user": ep.Levels([0], columns={"country": land})})
        np.testing.assert_allclose(found[0], 0.7 * model.parameters_[column][0], rtol=1e-6)


def test_columns_as_users_have_them() -> None:
    """Unused ones may be left out, whole numbers serve as numbers, data frames as mappings, and nobody's arrays are shared."""
    user, gap = np.array([0, 1, 1]), np.array([0.5, 1.0, 2.0])
    model = ep.Separable(context=Sum(Embedding(2, "user"), Linear(2, "gap")), item=Embedding(2), epochs=2)
    model.fit(GOOD, contexts={"user": user, "gap": gap, "unused": [1, 2, 3]})
    phi = model.phi_
    np.testing.assert_allclose(model.context_vectors({"user": [1], "gap": [2]})[0], phi[2], rtol=1e-6)
    np.testing.assert_allclose(model.context_vectors({"user": [1], "gap": [1], "unused": [7]})[0], phi[1], rtol=1e-6)
    with pytest.raises(ValueError, match="must have the fields trained on"):
        model.context_vectors({"user": [1], "gap": [2], "unknown": [7]})

    class Frame:
        columns = ["user", "gap"]

        def __getitem__(self, name: str) -> Any:
            return {"user": user, "gap": gap}[name]

    np.testing.assert_array_equal(model.fit(GOOD, contexts=Frame()).phi_, phi)
    np.testing.assert_array_equal(model.fit(GOOD, contexts=pa.table({"user": user, "gap": gap})).phi_, phi)
    user[:], gap[:] = 0, 0.0
    np.testing.assert_array_equal(model.phi_, phi)


def test_an_embedding_of_ones_own_keeps_its_steps() -> None:
    class Still(Embedding):
        def step(self, view: Any, block: int) -> None:
            """Stay."""

    model = ep.Separable(context=Still(2, "user"), item=Embedding(2), epochs=2, rotate=False)
    start = {"user": np.ones((2, 2))}
    np.testing.assert_array_equal(model.fit(GOOD, contexts=USER, start=start).parameters_["user"], 1.0)


def test_fits_leave_no_garbage() -> None:
    """What a fit held is free when it is done, without waiting for the collector."""
    gc.collect()
    gc.disable()
    try:
        objectives = []
        model = ep.MF(2, epochs=1)
        solver = model.build_solver(GOOD, None, None, Workers(1))  # type: ignore[attr-defined]
        objectives.append(weakref.ref(solver.engine.objective))
        del solver
        assert objectives[0]() is None
    finally:
        gc.enable()


# rotation


def test_parts_of_a_concat_are_turned_on_their_own() -> None:
    """Two inner products: as fast as MF's, and never across the parts."""
    random = np.random.default_rng(0)
    feedback = ep.Feedback(np.arange(40), random.integers(0, 8, 40), shape=(40, 8))
    contexts = {"user": random.integers(0, 5, 40), "previous": random.integers(0, 8, 40)}

    def fpmc(rotate: bool) -> ep.Separable:
        context = Concat(Embedding(3, "user"), Embedding(2, "previous"))
        model = ep.Separable(context=context, item=Embedding(5), rotate=rotate, epochs=60, dtype="float64", regularization=0.3)
        return model.fit(feedback, contexts=contexts)

    turned, plain = fpmc(True), fpmc(False)
    np.testing.assert_allclose(turned.history_[-1].objective, plain.history_[-1].objective, rtol=1e-3)
    solver = turned.build_solver(feedback, contexts, None, Workers(1))  # type: ignore[attr-defined]
    assert solver.engine._rotations == [slice(0, 3), slice(3, 5)]
    solver.engine.turn("context")
    gram = solver.engine.objective.grams["item"]
    np.testing.assert_allclose(gram, np.diag(np.diag(gram)) + np.where(_same_part(5, 3), 0.0, gram), atol=1e-12)


def _same_part(n: int, first: int) -> np.ndarray:
    part = np.arange(n) >= first
    return part[:, None] == part[None, :]


@pytest.mark.parametrize(
    ("context", "turns"),
    [
        (Product(Embedding(4, "user"), Embedding(4, "month")), []),
        (Concat(Embedding(2, "user"), Product(Embedding(2, "user", name="u"), Embedding(2, "month"))), [slice(0, 2)]),
        (Sum(Embedding(4, "user"), Linear(4, "history")), [slice(0, 4)]),
        (Sum(Embedding(4, "user"), Product(Embedding(4, "user", name="u"), Embedding(4, "month"))), []),
        (Machine(2, "history"), [slice(0, 2)]),
        (Core(Embedding(2, "user"), factors=4), [slice(0, 4)]),
    ],
    ids=repr,
)
def test_what_can_be_turned(context: Tower, turns: list[slice]) -> None:
    model = ep.Separable(context=context, item=Embedding(4), dtype="float64", unobserved_weight=0.1)
    columns = {name: CONTEXTS[name] for name in ("user", "month", "history")}
    feedback = ep.Feedback(np.arange(10), np.arange(10) % 4)
    solver = model.build_solver(feedback, columns, None, Workers(1))  # type: ignore[attr-defined]
    assert solver.engine._rotations == turns
    before = solver.value().objective
    solver.engine.turn("context")
    solver.engine.update_gram("context")
    np.testing.assert_allclose(solver.value().objective, before, rtol=1e-9)


# what is refused


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Sum(), ["Sum", "one or more towers"]),
        (lambda: Product(Embedding(2), "user"), ["Product", "takes towers", "'user'", "str"]),
        (lambda: Sum(Embedding(2), Embedding(3)), ["Sum", "same number of dimensions", "[2, 3]"]),
        (lambda: Product(Embedding(2), Embedding(3)), ["Product", "[2, 3]"]),
        (lambda: Embedding(0), ["factors", "at least 1", "0"]),
        (lambda: Core(Embedding(2), factors=0), ["factors", "at least 1"]),
        (lambda: Product(Embedding(2), Embedding(2), combinations="some"), ["combinations", "'all'", "'some'"]),
        (lambda: Linear(2, ["user", "month"]), ["names, as separate arguments", "list"]),
        (lambda: ep.Levels([0, -2]), ["codes", "-2"]),
        (lambda: ep.Levels([0, 3], n=2), ["codes", "below 2", "3"]),
        (lambda: ep.Levels([0, 1], columns={"a": [1.0, 2.0], "b": [1.0]}), ["one row per level", "'b': 1"]),
        (lambda: ep.Levels([0, 1], n=3, columns={"a": [1.0, 2.0]}), ["one row per level (3)", "'a': 2"]),
        (lambda: ep.Levels([0, 2], columns={"a": [1.0, 2.0]}), ["codes", "below 2"]),
    ],
)
def test_bad_towers(make: Any, words: list[str]) -> None:
    with pytest.raises((TypeError, ValueError)) as caught:
        make()
    for word in words:
        assert word in str(caught.value), word


TWICE = Embedding(2)
USER = {"user": [0, 1, 1]}


@pytest.mark.parametrize(
    ("context", "item", "contexts", "words"),
    [
        (TWICE, TWICE, None, ["Embedding(2)", "in context and in item", "Create two towers"]),
        (Product(TWICE, TWICE), Embedding(2), None, ["twice in context"]),
        (Sum(Embedding(2, "user"), Concat(Embedding(1), Constant())), TWICE, None, ["column 'user'", "none"]),
        (Sum(TWICE, TWICE), Embedding(2), None, ["twice in context"]),
        (Embedding(2), Embedding(3), None, ["same number of dimensions", "2 and 3"]),
        ("MF", Embedding(3), None, ["context must be a tower", "'MF'"]),
        (Embedding(2, "who"), Embedding(2), USER, ["'who'", "'user'"]),
        (Embedding(2, "x"), Embedding(2), {"x": np.eye(3)}, ["'x'", "levels", "Linear"]),
        (Sum(Embedding(2, "user"), Embedding(2, "user")), Embedding(2), USER, ["two towers", "'user'", "name="]),
        (Machine(2, names=("w", "W")), Machine(2), None, ["names", "bias"]),
        (Embedding(2, "user"), Embedding(2), {"user": [0, 1]}, ["contexts has 2 rows", "3"]),
        (Embedding(2, "user"), Embedding(2), {"user": [0, 1, 1], "x": np.eye(2)}, ["same number of rows", "'x': 2"]),
        (Embedding(2, "user"), Embedding(2), {1: [0, 1, 1]}, ["strings", "1"]),
        (Linear(2, "user"), Embedding(2), {"user": [0.0, 1.0, np.nan]}, ["contexts['user']", "finite"]),
        (Linear(2, "user"), Embedding(2), {"user": ["a", "b", "c"]}, ["contexts['user']", "integers", "numpy.unique"]),
        (Linear(2, "user"), Embedding(2), {"user": None}, ["'user'", "one or two dimensions", "Levels", "None"]),
        (Linear(2, "user"), Embedding(2), {"user": np.array([["a"], ["b"], ["c"]])}, ["'user'", "must hold numbers"]),
        (Linear(2, "user"), Embedding(2), {"user": [0, -2, 1]}, ["contexts['user']", "-1 for none", "-2 at position 1"]),
        (Bumps(2), Embedding(2), {**USER, "time": [0, 1, 2]}, ["'time'", "levels", "give numbers as floats"]),
        (Linear(2, "x"), Embedding(2), {"x": np.array([[1.0, 2.0], [np.inf, 1.0], [1.0, 1.0]])}, ["'x'", "finite", "(1, 0)"]),
    ],
)  # fmt: skip
def test_bad_models(context: Any, item: Any, contexts: Any, words: list[str]) -> None:
    with pytest.raises((TypeError, ValueError)) as caught:
        ep.Separable(context=context, item=item).fit(GOOD, contexts=contexts)
    for word in words:
        assert word in str(caught.value), word


@pytest.mark.parametrize(
    ("context", "words"),
    [
        (Product(Embedding(2, "user"), Linear(2, "month"), combinations="all"), ["Lookup or an Embedding of a column", "Linear"]),
        (Sum(Embedding(2, "user"), Product(Embedding(2, "month"), combinations="all")), ["cannot be part of another"]),
        (Product(Embedding(2, "gone"), Embedding(2, "month"), combinations="all"), ["missing", "(2, 0)"]),
        (Product(Embedding(2, "user"), Embedding(2, "user", name="v"), combinations="all"), ["'user' twice"]),
    ],
)
def test_bad_combinations(context: Tower, words: list[str]) -> None:
    contexts = {"user": [0, 1, 1], "month": [0, 0, 1], "gone": [0, 1, -1]}
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        ep.Separable(context=context, item=Embedding(2)).fit(GOOD, contexts=contexts)
    for word in words:
        assert word in str(caught.value), word
    complete = Product(Embedding(2, "user"), Embedding(2, "month"), combinations="all")
    with pytest.raises(ValueError, match="or describe items"):
        ep.Separable(context=Embedding(2), item=complete).fit(GOOD, items=contexts)


def test_order_by_dimension_is_for_towers_that_step_so() -> None:
    product = Product(Embedding(2, "user"), Embedding(2, "user", name="u"))
    with pytest.raises(ValueError, match="order='dimension' is not supported by Separable"):
        ep.Separable(context=product, item=Embedding(2), order="dimension").fit(GOOD, contexts=USER)
    both = Concat(Embedding(1, "user"), Sum(Embedding(1), Linear(1, "user", name="v")))
    model = ep.Separable(context=both, item=Embedding(2), order="dimension", dtype="float64", epochs=3, unobserved_weight=0.2)
    objectives = [epoch.objective for epoch in model.fit(GOOD, contexts=USER).history_]
    assert objectives == sorted(objectives, reverse=True)


def test_names_and_columns_in_regularization() -> None:
    """A name means the parameter of that name; a column stands for those that have no such name."""

    def l2(regularization: Any) -> dict[str, Any]:
        context = Sum(Embedding(1, "user"), Embedding(1, "user", name="again"))
        model = ep.Separable(context=context, item=Embedding(1, name="H"), regularization=regularization)
        towers = model.build_solver(GOOD, USER, None, Workers(1)).towers  # type: ignore[attr-defined]
        return {name: p.penalty for tower in towers.values() for name, p in tower.parameters.items()}

    assert l2({"default": 1.0, "user": 2.0}) == {"user": 2.0, "again": 1.0, "H": 1.0}
    assert l2({"default": 1.0, "again.user": 2.0, "item": 3.0}) == {"user": 1.0, "again": 2.0, "H": 3.0}
    both = Sum(Embedding(1, "user"), Linear(1, "user", "age"))
    columns = {**USER, "age": [0.1, 0.2, 0.3]}
    with pytest.raises(ValueError, match=r"\['user'\] is ambiguous.*'user\+age.user'"):
        ep.Separable(both, Embedding(1), regularization={"default": 1.0, "user": 2.0}).fit(GOOD, contexts=columns)
