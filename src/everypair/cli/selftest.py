"""The self-test of ``everypair doctor``: checks of a few seconds on small generated data."""

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
EPOCHS = 2  # epochs that are compared with conventional coordinate descent
SHARED = 4_000  # users with enough events for several threads (see everypair.runtime.parallel)


def checks() -> dict[str, Callable[[], str | None]]:
    """Checks by name; each returns a description of the problem, or None."""
    by_name = {
        "the objective falls": _falls,
        "the objective equals the sum over every pair": _dense,
        "1 and 2 threads give the same bits": _threads,
        "a saved and loaded model recommends the same": _saved,
    }
    return {name: partial(tried, check) for name, check in by_name.items()}


def tried(check: Callable[[], str | None]) -> str | None:
    """What a check found; an error, too."""
    try:
        return check()
    except Exception as error:  # the other checks still run
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
    """Fit; raise KeyboardInterrupt if Ctrl-C ended it, since a check of part of a fit means nothing."""
    if recommender.fit(log).model.stop_reason_ == "interrupt":  # type: ignore[attr-defined]
        raise KeyboardInterrupt
    return recommender


def _objective(parameters: reference.Parameters, feedback: Any) -> float:
    """The objective of matrix factorization, summed over every pair."""
    return reference.objective(reference.mf(parameters), feedback, WEIGHT, parameters, dict.fromkeys(parameters, L2)).objective


def _falls() -> str | None:
    """The objective falls at every epoch, and equals that of conventional coordinate descent."""
    feedback = _fitted(Recommender(_model()), _log()).feedback_
    random = np.random.default_rng(0)
    parameters = {"W": random.normal(0, 0.1, (feedback.shape[0], 4)), "H": random.normal(0, 0.1, (feedback.shape[1], 4))}
    model = _model(rotate=False).set_params(epochs=EPOCHS).fit(feedback, start=parameters)
    if model.stop_reason_ == "interrupt":
        raise KeyboardInterrupt
    order = [(name, (row, f)) for name in ("W", "H") for f in range(4) for row in range(len(parameters[name]))]
    expected = [_objective(parameters, feedback)]
    for _ in range(EPOCHS):
        parameters = reference.coordinate_descent(reference.mf, parameters, order, feedback, WEIGHT, dict.fromkeys(parameters, L2))
        expected.append(_objective(parameters, feedback))
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
    """Compile the kernels of fits and recommendations of all models; returns the seconds."""
    began = time.perf_counter()
    log = _log()
    features = [ep.Attributes("country"), ep.Previous(), ep.History(last=5)]
    items = [ep.ItemId(), ep.Attributes("category")]
    variables: list[Any] = [ep.UserId(), ep.Previous()]
    for dtype in ("float32", "float64"):
        options: Any = {"epochs": 1, "dtype": dtype, "n_threads": 2}
        models: list[tuple[Any, Any]] = [
            (ep.MF(2, **options), {}),
            (ep.MF(2, block_size=2, **options), {}),
            (ep.MFSI(2, **options), {"context": features, "item": items}),
            (ep.FM(2, **options), {"context": features, "item": items}),
            (ep.PARAFAC(2, **options), {"context": variables}),
            (ep.Tucker(2, **options), {"context": variables}),
        ]
        for model, recipes in models:
            _fitted(Recommender(model, **recipes), log).recommend(users=[log.users[0]], n=3)
    return time.perf_counter() - began
