"""A few seconds of the package on small generated data, against what it promises."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np

import everypair as ep
from everypair import reference
from everypair.data import Dataset
from everypair.recommender import Recommender

WEIGHT, L2 = 0.1, 0.05
SHARED = 4_000  # users, whose events are work enough to be shared by threads (see everypair.parallel)


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
    return ep.MF(4, epochs=5, unobserved_weight=WEIGHT, regularization=L2, dtype="float64", **options)


def _recommender(**options: Any) -> Recommender:
    model = ep.FM(4, epochs=3, unobserved_weight=WEIGHT, regularization=L2, **options)
    return Recommender(model, context=[ep.UserId(), ep.Attributes("country"), ep.Previous()])


def _falls() -> str | None:
    objectives = [epoch.objective for epoch in Recommender(_model()).fit(_log()).model.history_]
    return None if objectives == sorted(objectives, reverse=True) else f"it went {objectives}"


def _dense() -> str | None:
    recommender = Recommender(_model()).fit(_log())
    model = recommender.model
    letters = model.parameters_
    dense = reference.objective(reference.mf(letters), recommender.feedback_, WEIGHT, letters, dict.fromkeys(letters, L2)).objective
    ours = model.history_[-1].objective
    return None if np.isclose(ours, dense, rtol=1e-9) else f"{ours} is not {dense}"


def _threads() -> str | None:
    log = _log(SHARED)
    one, two = (_recommender(n_threads=n).fit(log).model.parameters_ for n in (1, 2))
    other = [name for name in one if not np.array_equal(one[name], two[name])]
    return f"parameters {', '.join(other)} differ" if other else None


def _saved() -> str | None:
    recommender = _recommender().fit(_log())
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
            fitted = Recommender(model, **recipes).fit(log)
            fitted.recommend(users=[log.users[0]], n=3)
    return time.perf_counter() - began
