"""Four-way PARAFAC: recommendations by user, hour and place.

    s(user, hour, place, item) = sum_f u_{user,f} h_{hour,f} p_{place,f} w_{item,f}

With ``combinations="all"``, every combination of user, hour and place is a context, including those that never occurred; they are
not enumerated.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import everypair as ep
from everypair.towers import Embedding, Product

from common import draw, rate, rate_alone, report, take_rows


def model(factors: int, combinations: str = "observed", **options: Any) -> ep.Separable:
    modes = [Embedding(factors, column) for column in ("user", "hour", "place")]
    return ep.Separable(context=Product(*modes, combinations=combinations), item=Embedding(factors), **options)


def scores(p: dict[str, np.ndarray], contexts: dict[str, np.ndarray], items: None = None) -> np.ndarray:
    """The formula, evaluated for every pair."""
    modes = [p[column][contexts[column]] for column in ("user", "hour", "place")]
    return np.einsum("cf,cf,cf,if->ci", *modes, p["item"])


def data(n: int = 8_000, sizes: tuple[int, ...] = (60, 6, 4, 100), topics: int = 8, seed: int = 0) -> tuple[Any, np.ndarray]:
    """Events: users, hours and places prefer topics, and an item of a topic that suits all three is chosen."""
    random = np.random.default_rng(seed)
    n_users, n_hours, n_places, n_items = sizes
    user, hour, place = (random.integers(0, size, n) for size in (n_users, n_hours, n_places))
    likes = [random.dirichlet(np.full(topics, 0.3), size) for size in (n_users, n_hours, n_places)]
    topic = draw(random, np.log(likes[0][user] * likes[1][hour] * likes[2][place] + 1e-6))
    topic_of = random.integers(0, topics, n_items)
    item = draw(random, np.where(topic_of == topic[:, None], 0.0, -4.0) + random.normal(size=n_items))
    return {"user": user, "hour": hour, "place": place}, item


def tiny() -> tuple[ep.Feedback, dict[str, Any]]:
    contexts, item = data(n=12, sizes=(3, 2, 2, 5), topics=2)
    return ep.Feedback(np.arange(12), item, shape=(12, 5)), {"contexts": contexts}


def main() -> None:
    contexts, item = data()
    train, test = np.split(np.arange(len(item)), [7_000])
    settings = {"unobserved_weight": 0.02, "regularization": 0.05, "epochs": 20}
    # combinations may occur repeatedly: each is one context, and its events are summed
    seen, context = np.unique(np.stack(list(take_rows(contexts, train).values()), axis=1), axis=0, return_inverse=True)
    feedback = ep.Feedback(context, item[train], shape=(len(seen), 100), duplicates="sum")
    columns = dict(zip(contexts, seen.T, strict=True))
    rates = {}
    for combinations in ("observed", "all"):
        fitted = model(16, combinations, **settings).fit(feedback, contexts=columns)
        rates[f"PARAFAC, {combinations} combinations"] = rate(fitted, take_rows(contexts, test), item[test])
    rates["user alone"] = rate_alone("user", feedback, columns, take_rows(contexts, test), item[test], **settings)
    report(rates, "held-out events")


if __name__ == "__main__":
    main()
