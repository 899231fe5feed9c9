"""Small random problems for every model, with what the conventional way needs to know of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp
from hypothesis import strategies as st

import everypair as ep
from everypair import reference
from everypair.engine.objective import ObjectiveValue
from everypair.engine.solver import ICD
from everypair.models.tensor import columns_of_variables
from everypair.models.tower_model import TowerModel
from everypair.runtime.parallel import Workers
from everypair.towers import Concat, Embedding, Linear, Lookup, Product, Sum

MODELS = ["MF", "MFSI", "FM", "PARAFAC", "PARAFAC all", "Tucker", "Tucker all", "sum of towers", "towers of towers"]
CONFIDENCES = ["above", "below", "equal", "mixed", "one"]
Order = Iterator[tuple[str, tuple[int, ...]]]


@dataclass
class Problem:
    """A model's class and arguments, its data, and the same in dense form."""

    name: str
    model: type[TowerModel]
    feedback: ep.Feedback
    options: dict[str, Any]
    arguments: dict[str, Any]
    score: Callable[[dict[str, np.ndarray]], np.ndarray]
    weights: dict[str, Any]  # of each letter's entries in the loss, for the regularization exponent
    order: dict[str, Callable[[dict[str, np.ndarray]], Order]] = field(default_factory=dict)
    everything: ep.Feedback | None = None  # with every context listed (combinations="all")
    raw: dict[str, Any] = field(default_factory=dict)  # cells, y, alpha, m, n as they were given

    @property
    def alpha0(self) -> float:
        return self.options["unobserved_weight"]

    @property
    def dense_feedback(self) -> ep.Feedback:
        return self.everything or self.feedback

    def make(self, **options: Any) -> TowerModel:
        return self.model(**{**self.options, **options})

    def fit(self, **options: Any) -> TowerModel:
        passed = {key: options.pop(key) for key in ("start", "fixed", "callback") if key in options}
        return self.make(**options).fit(self.feedback, **self.arguments, **passed)

    def penalties(self, fixed: tuple[str, ...] = ()) -> dict[str, Any]:
        strength, exponent = self.options["regularization"], self.options.get("regularization_exponent", 0.0)
        return {
            letter: strength * np.power(weight, exponent) if exponent else strength
            for letter, weight in self.weights.items()
            if letter not in fixed
        }

    def dense(self, parameters: dict[str, np.ndarray], fixed: tuple[str, ...] = ()) -> ObjectiveValue:
        """The objective pair by pair, from the data as they were given."""
        p = as_float(parameters)
        scores = self.score(p)
        (c, i), y, alpha, m, n = self.raw["cells"].T, *(self.raw[key] for key in ("y", "alpha", "m", "n"))
        explicit = float(np.sum(alpha * (scores[c, i] - y) ** 2))
        unobserved = np.outer(np.ones(len(scores)) if m is None else m, np.ones(scores.shape[1]) if n is None else n)
        unobserved[c, i] = 0.0
        implicit = self.alpha0 * float(np.sum(unobserved * scores**2))
        l2 = sum(float(np.sum(penalty * p[letter] ** 2)) for letter, penalty in self.penalties(fixed).items())
        return ObjectiveValue(explicit + implicit + l2, explicit, implicit, l2)

    def scale(self, grams: tuple[np.ndarray, np.ndarray] | None = None) -> float:
        """What errors are relative to, beside the objective: without L2, also the size of what the Grams cancel."""
        if self.options["regularization"] > 0 or grams is None:
            return self.feedback.constant
        return self.feedback.constant + self.alpha0 * float(np.sum(np.abs(grams[0]) * np.abs(grams[1])))

    def solver(self, n_threads: int = 1, **options: Any) -> ICD:
        """The solver of a fit, to be driven sweep by sweep."""
        model = self.make(**options)
        contexts, items = self.arguments.get("contexts"), self.arguments.get("items")
        if "levels" in self.arguments:
            contexts = columns_of_variables(contexts, self.arguments["levels"])
        return model.build_solver(self.feedback, contexts, items, Workers(n_threads))


def as_float(parameters: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {letter: np.asarray(value, float) for letter, value in parameters.items()}


def shown(solver: ICD) -> dict[str, np.ndarray]:
    """The parameters of a solver's towers, as users see them."""
    return {letter: p.show() for tower in solver.towers.values() for letter, p in tower.parameters.items()}


@st.composite
def problems(
    draw: st.DrawFn,
    name: str | None = None,
    confidence: str | None = None,
    positive: bool = False,
    max_size: int = 6,
    max_k: int = 4,
) -> Problem:
    """Random problems; ``positive``: with some regularization and y well above zero."""
    name = name or draw(st.sampled_from(MODELS))
    strengths = [0.01, 0.1] if positive else [0.0, 0.01, 1.0]
    if name.startswith("Tucker"):
        strengths = strengths[-2:]  # without L2, core and factors may grow against each other beyond what float64 resolves
    return make(
        name,
        seed=draw(st.integers(0, 10**6)),
        n_contexts=draw(st.integers(1, max_size)),
        n_items=draw(st.integers(1, max_size)),
        k=draw(st.integers(1, max_k)),
        confidence=confidence or draw(st.sampled_from(CONFIDENCES)),
        weighted=draw(st.booleans()),
        strength=draw(st.sampled_from(strengths)),
        exponent=draw(st.sampled_from([0.0, 0.5, 1.0])),
        alpha0=draw(st.sampled_from([0.03, 0.3, 2.0] if positive else [0.0, 0.03, 0.3, 2.0])),
        positive=positive,
    )


def make(
    name: str,
    seed: int = 0,
    n_contexts: int = 6,
    n_items: int = 5,
    k: int = 3,
    confidence: str = "mixed",
    weighted: bool = False,
    strength: float = 0.1,
    exponent: float = 0.0,
    alpha0: float = 0.3,
    positive: bool = True,
) -> Problem:
    random = np.random.default_rng(seed)
    complete = name.endswith("all")
    contexts, sizes = _combinations(random, n_contexts, complete) if name.split()[0] in ("PARAFAC", "Tucker") else (None, None)
    n_contexts = n_contexts if contexts is None else len(contexts)
    m = random.uniform(0.0, 2.0, n_contexts) if weighted and not complete else None
    n = random.uniform(0.0, 2.0, n_items) if weighted else None
    cells = _cells(random, n_contexts, n_items)
    y: Any = random.uniform(0.5, 1.5, len(cells)) if positive else random.normal(0.0, 1.0, len(cells))
    alpha: Any = {
        "above": random.uniform(1.0, 3.0, len(cells)) + alpha0,
        "below": random.uniform(0.01, 1.0, len(cells)) * max(alpha0, 0.1),
        "equal": alpha0 or 1.0,
        "mixed": random.uniform(0.01, 3.0, len(cells)),
        "one": 1.0,
    }[confidence]
    if confidence == "one":
        y = 1.0
    shape = (n_contexts, n_items)
    feedback = ep.Feedback(cells[:, 0], cells[:, 1], y, alpha, shape=shape, context_weight=m, item_weight=n)
    options: dict[str, Any] = {
        "factors": k,
        "unobserved_weight": alpha0,
        "regularization": strength,
        "regularization_exponent": exponent,
        "popularity_exponent": 0.0,  # feedback has weights of its own
        "dtype": "float64",
        "random_state": seed,
    }
    context_weight, item_weight = feedback.total_weight(alpha0)
    makers = {"MF": _mf, "MFSI": _features, "FM": _features, "PARAFAC": _tensor, "Tucker": _tensor, "sum": _sum, "towers": _nested}
    maker = makers[name.split()[0]]
    tensor = () if contexts is None else (contexts, sizes)
    problem = maker(name, random, feedback, options, context_weight, item_weight, *tensor)
    problem.raw = {"cells": cells, "y": y, "alpha": alpha, "m": m, "n": n}
    if complete:
        _complete(problem, contexts, sizes, cells, y, alpha, n)
    return problem


def _cells(random: np.random.Generator, n_contexts: int, n_items: int) -> np.ndarray:
    cells = np.argwhere(random.random((n_contexts, n_items)) < 0.4)
    if len(cells) == 0:
        cells = np.array([[random.integers(n_contexts), random.integers(n_items)]])
    return cells[random.permutation(len(cells))]


def _rows(letter: str) -> Callable[[dict[str, np.ndarray]], Order]:
    """A matrix dimension by dimension."""
    return lambda p: ((letter, (r, f)) for f in range(p[letter].shape[1]) for r in range(p[letter].shape[0]))


def _entries(letter: str) -> Callable[[dict[str, np.ndarray]], Order]:
    return lambda p: ((letter, index) for index in np.ndindex(*p[letter].shape))


def _mf(name: str, random: Any, feedback: ep.Feedback, options: Any, m: np.ndarray, n: np.ndarray) -> Problem:
    weights = {"W": m[:, None], "H": n[:, None]}
    return Problem(name, ep.MF, feedback, options, {}, reference.mf, weights, {"W": _rows("W"), "H": _rows("H")})


def random_features(random: np.random.Generator, n: int) -> dict[str, Any]:
    """A one-hot field with an empty row now and then, a multi-hot one with real values, and a feature nobody has."""
    codes = random.integers(0, 3, n)
    one_hot = np.eye(3)[codes] * (random.random((n, 1)) < 0.8)
    multi = np.where(random.random((n, 4)) < 0.5, random.normal(0.0, 1.0, (n, 4)), 0.0)
    multi[:, 3] = 0.0
    return {"kind": sp.csr_array(one_hot), "tags": sp.csr_array(multi)}


def _features(name: str, random: Any, feedback: ep.Feedback, options: Any, m: np.ndarray, n: np.ndarray) -> Problem:
    contexts = random_features(random, feedback.n_contexts)
    items = random_features(random, feedback.n_items) if random.random() < 0.7 else None
    X = np.hstack([x.toarray() for x in contexts.values()])
    Z = np.eye(feedback.n_items) if items is None else np.hstack([z.toarray() for z in items.values()])
    x2, z2 = (X**2).T @ m, (Z**2).T @ n
    weights: dict[str, Any] = {"W": x2[:, None], "H": z2[:, None]}
    arguments = {"contexts": contexts, "items": items}
    if name == "MFSI":
        return Problem(
            name, ep.MFSI, feedback, options, arguments, reference.mfsi(X, Z), weights, {"W": _rows("W"), "H": _rows("H")}
        )
    order = {"b": _entries("b"), "w": _entries("w"), "W": _rows("W"), "h": _entries("h"), "H": _rows("H")}
    weights = {"b": m.sum(), "w": x2, "h": z2, **weights}
    return Problem(name, ep.FM, feedback, options, arguments, reference.fm(X, Z), weights, order)


def _levels(random: np.random.Generator, n: int, size: int) -> np.ndarray:
    """Levels with one missing now and then."""
    return np.where(random.random(n) < 0.9, random.integers(0, size, n), -1)


def _one_hot(codes: np.ndarray, size: int) -> np.ndarray:
    return np.eye(size + 1)[codes][:, :size]  # -1 is the last row: nothing


def _sum(name: str, random: Any, feedback: ep.Feedback, options: Any, m: np.ndarray, n: np.ndarray) -> Problem:
    """``<p_a + x W, h>``: both parts of a dimension before the next."""
    k, a, size = options.pop("factors"), _levels(random, feedback.n_contexts, 3), 3
    tags = random_features(random, feedback.n_contexts)["tags"]
    A, X = _one_hot(a, size), tags.toarray()
    options["context"] = Sum(Embedding(k, "a", name="P"), Linear(k, "tags", name="W"))
    options["item"] = Embedding(k, name="H")
    arguments = {"contexts": {"a": ep.Levels(a, size), "tags": tags}}

    def score(p: dict[str, np.ndarray]) -> np.ndarray:
        return (A @ p["P"] + X @ p["W"]) @ p["H"].T

    def both(p: dict[str, np.ndarray]) -> Order:
        return ((letter, (r, f)) for f in range(k) for letter in ("P", "W") for r in range(len(p[letter])))

    weights = {"P": (A.T @ m)[:, None], "W": ((X**2).T @ m)[:, None], "H": n[:, None]}
    return Problem(name, ep.Separable, feedback, options, arguments, score, weights, {"PW": both, "H": _rows("H")})


def _nested(name: str, random: Any, feedback: ep.Feedback, options: Any, m: np.ndarray, n: np.ndarray) -> Problem:
    """``<p_a, h1> + <(x_a W) * v_b, h2>``: towers of towers of towers."""
    k, a, b = options.pop("factors"), *(_levels(random, feedback.n_contexts, size) for size in (3, 2))
    A, B, x = _one_hot(a, 3), _one_hot(b, 2), random.normal(size=(3, 2))
    product = Product(Lookup("a", Linear(k, "x", name="W")), Embedding(k, "b", name="V"))
    options["context"] = Concat(Embedding(k, "a", name="P"), product)
    options["item"] = Embedding(2 * k, name="H")
    arguments = {"contexts": {"a": ep.Levels(a, 3, {"x": x}), "b": ep.Levels(b, 2)}}

    def score(p: dict[str, np.ndarray]) -> np.ndarray:
        return np.hstack([A @ p["P"], (A @ x @ p["W"]) * (B @ p["V"])]) @ p["H"].T

    by_level = A.T @ m
    weights = {"P": by_level[:, None], "W": ((x**2).T @ by_level)[:, None], "V": (B.T @ m)[:, None], "H": n[:, None]}
    order = {letter: _rows(letter) for letter in ("P", "W", "V", "H")}
    return Problem(name, ep.Separable, feedback, options, arguments, score, weights, order)


def _combinations(random: np.random.Generator, n_contexts: int, complete: bool) -> tuple[np.ndarray, tuple[int, ...]]:
    sizes = (2, 3) if random.random() < 0.7 else (2, 1, 2)
    grid = np.argwhere(np.ones(sizes))
    if complete:
        return grid[random.permutation(len(grid))[: max(1, min(n_contexts, len(grid) - 1))]], sizes
    return grid[random.integers(0, len(grid), n_contexts)], sizes


def _tensor(
    name: str,
    random: Any,
    feedback: ep.Feedback,
    options: Any,
    m: np.ndarray,
    n: np.ndarray,
    contexts: np.ndarray,
    sizes: tuple[int, ...],
) -> Problem:
    letters = ["U", "V"] if len(sizes) == 2 else [f"U{j + 1}" for j in range(len(sizes))]
    levels = {letter: np.bincount(contexts[:, j], m, sizes[j])[:, None] for j, letter in enumerate(letters)}
    combinations = "all" if name.endswith("all") else "observed"
    options = {**options, "combinations": combinations}
    arguments = {"contexts": contexts, "levels": sizes}
    weights: dict[str, Any] = {**levels, "W": n[:, None]}
    order = {letter: _rows(letter) for letter in letters}
    if name.startswith("PARAFAC"):
        score = reference.parafac(contexts)
        return Problem(name, ep.PARAFAC, feedback, options, arguments, score, weights, {**order, "W": _rows("W")})
    k = options["factors"]
    options["factors"] = (*random.integers(1, 3, len(sizes)).tolist(), k)
    order["B"] = lambda p: (("B", (*e, f)) for f in range(p["B"].shape[-1]) for e in np.ndindex(*p["B"].shape[:-1]))
    weights["B"] = m.sum()
    return Problem(name, ep.Tucker, feedback, options, arguments, reference.tucker(contexts), weights, {**order, "W": _rows("W")})


def _complete(
    problem: Problem, contexts: np.ndarray, sizes: tuple[int, ...], cells: np.ndarray, y: Any, alpha: Any, n: np.ndarray | None
) -> None:
    """Describe the same problem with all combinations listed."""
    grid = np.argwhere(np.ones(sizes))
    rows = np.ravel_multi_index(tuple(contexts[cells[:, 0]].T), sizes)
    shape = (len(grid), problem.feedback.n_items)
    everything = ep.Feedback(rows, cells[:, 1], y, alpha, shape=shape, item_weight=n)
    problem.everything = everything
    problem.raw["cells"] = np.stack([rows, cells[:, 1]], axis=1)
    problem.score = (reference.parafac if problem.model is ep.PARAFAC else reference.tucker)(grid)
    m, n_ = everything.total_weight(problem.alpha0)
    for j, letter in enumerate(["U", "V"] if len(sizes) == 2 else [f"U{j + 1}" for j in range(len(sizes))]):
        problem.weights[letter] = np.bincount(grid[:, j], m, sizes[j])[:, None]
    problem.weights["W"] = n_[:, None]
    if "B" in problem.weights:
        problem.weights["B"] = m.sum()
