"""A few seconds of the package on small generated data, against what it promises."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from functools import cache, partial
from itertools import pairwise
from typing import Any

import numpy as np

import everypair as ep
from everypair import reference
from everypair.data import Dataset
from everypair.models.mixins import PAPER
from everypair.recommender import Recommender

WEIGHT, L2 = 0.1, 0.05
LOSS = {"unobserved_weight": WEIGHT, "regularization": L2, **PAPER}
EPOCHS = 2  # that are compared with those of the slow way
SHARED = 4_000  # users, whose events are work enough to be shared by threads (see everypair.runtime.parallel)


def checks() -> dict[str, Callable[[], str | None]]:
    """By name; each returns what is wrong, None if nothing is."""
    every = {
        "the objective falls": _falls,
        "the objective is that of every pair, one by one": _dense,
        "1 and 2 threads give the same bits": _threads,
        "saved and loaded, the recommendations are the same": _saved,
    }
    return {name: partial(_tried, check) for name, check in every.items()}


def _tried(check: Callable[[], str | None]) -> str | None:
    try:
        return check()
    except Exception as error:  # whatever it is, the others are still worth knowing
        return f"{type(error).__name__}: {error}"


@cache
def _log(users: int = 120) -> Dataset:
    return ep.datasets.youtube_like(users, users // 2, seed=0, events_per_user=8.0)


def _model(**options: Any) -> ep.MF:
    return ep.MF(4, epochs=5, **LOSS, dtype="float64", **options)


def _recommender(**options: Any) -> Recommender:
    model = ep.FM(4, epochs=3, **LOSS, **options)
    return Recommender(model, context=[ep.UserId(), ep.Attributes("country"), ep.Previous()])


def _fitted(recommender: Recommender, log: Dataset) -> Any:
    """After a fit that Ctrl-C did not end: half of one would be taken for a mistake, or for none."""
    if recommender.fit(log).model.stop_reason_ == "interrupt":  # type: ignore[attr-defined]
        raise KeyboardInterrupt
    return recommender


def _objective(letters: reference.Parameters, feedback: Any) -> float:
    """Pair by pair."""
    return reference.objective(reference.mf(letters), feedback, WEIGHT, letters, dict.fromkeys(letters, L2)).objective


def _falls() -> str | None:
    """At every epoch, and exactly as far as by steps that look at every pair, one parameter after the other."""
    feedback = _fitted(Recommender(_model()), _log()).feedback_
    random = np.random.default_rng(0)
    letters = {"W": random.normal(0, 0.1, (feedback.shape[0], 4)), "H": random.normal(0, 0.1, (feedback.shape[1], 4))}
    model = _model(rotate=False).set_params(epochs=EPOCHS).fit(feedback, start=letters)
    if model.stop_reason_ == "interrupt":
        raise KeyboardInterrupt
    order = [(letter, (row, f)) for letter in ("W", "H") for f in range(4) for row in range(len(letters[letter]))]
    expected = [_objective(letters, feedback)]
    for _ in range(EPOCHS):
        letters = reference.coordinate_descent(reference.mf, letters, order, feedback, WEIGHT, dict.fromkeys(letters, L2))
        expected.append(_objective(letters, feedback))
    found = [expected[0], *(epoch.objective for epoch in model.history_)]
    if any(after >= before for before, after in pairwise(found)):
        return f"it went {found}"
    return None if np.allclose(found, expected, rtol=1e-9, atol=0) else f"it went {found}, and should have gone {expected}"


def _dense() -> str | None:
    recommender = _fitted(Recommender(_model()), _log())
    dense, ours = _objective(recommender.model.parameters_, recommender.feedback_), recommender.model.history_[-1].objective
    return None if np.isclose(ours, dense, rtol=1e-9) else f"{ours} is not {dense}"


def _threads() -> str | None:
    log = _log(SHARED)
    one, two = (_fitted(_recommender(n_threads=n), log).model.parameters_ for n in (1, 2))
    other = [name for name in one if not np.array_equal(one[name], two[name])]
    return f"parameters {', '.join(other)} differ" if other else None


def _saved() -> str | None:
    recommender = _fitted(_recommender(), _log())
    users = _log().users.values
    with tempfile.TemporaryDirectory() as folder:
        again = ep.load(recommender.save(f"{folder}/model"), verify=True)
        same = again.recommend(users=users, n=5).equals(recommender.recommend(users=users, n=5))
    return None if same else "they differ"


def warm_up() -> float:
    """Compile what fits of all models use, and what is used after them; returns the seconds it took."""
    began = time.perf_counter()
    log = _log()
    told = [ep.Attributes("country"), ep.Previous(), ep.History(last=5)]
    items = [ep.ItemId(), ep.Attributes("category")]
    pair: list[Any] = [ep.UserId(), ep.Previous()]
    for dtype in ("float32", "float64"):
        options: Any = {"epochs": 1, "dtype": dtype, "n_threads": 2}
        every: list[tuple[Any, Any]] = [
            (ep.MF(2, **options), {}),
            (ep.MF(2, block_size=2, **options), {}),
            (ep.MFSI(2, **options), {"context": told, "item": items}),
            (ep.FM(2, **options), {"context": told, "item": items}),
            (ep.PARAFAC(2, **options), {"context": pair}),
            (ep.Tucker(2, **options), {"context": pair}),
        ]
        for model, recipes in every:
            _fitted(Recommender(model, **recipes), log).recommend(users=[log.users[0]], n=3)
    return time.perf_counter() - began
