"""PARAFAC with users described by attributes: the user mode is a linear tower, so new users have vectors, too.

    s(user, hour, item) = sum_f (x_user W)_f v_{hour,f} w_{item,f}

The attributes are given once per user, not per event: as columns of the levels.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import everypair as ep
from everypair.towers import Embedding, Linear, Lookup, Product

from common import draw, rate, rate_popularity, report


def model(factors: int, **options: Any) -> ep.Separable:
    user = Lookup("user", Linear(factors, "age", "country", name="attributes"))
    return ep.Separable(context=Product(user, Embedding(factors, "hour")), item=Embedding(factors), **options)


def scores(p: dict[str, np.ndarray], contexts: dict[str, Any], items: None = None) -> np.ndarray:
    """The formula, evaluated for every pair."""
    users = contexts["user"]
    age, country = users.columns["age"], users.columns["country"]
    x = np.hstack([age[:, None], np.eye(country.n)[country.codes]])
    return ((x @ p["attributes"])[users.codes] * p["hour"][contexts["hour"]]) @ p["item"].T


def data(n: int = 12_000, n_users: int = 400, n_hours: int = 6, n_items: int = 100, seed: int = 0) -> tuple[Any, Any, np.ndarray]:
    """Attributes of users, events, and their items, which depend on age, country and hour."""
    random = np.random.default_rng(seed)
    users = {"age": random.random(n_users), "country": random.integers(0, 5, n_users)}
    topics = 6
    by_country, by_age = random.normal(size=(5, topics)), random.normal(size=topics)
    by_hour, topic_of = random.normal(size=(n_hours, topics)), random.integers(0, topics, n_items)
    user, hour = random.integers(0, n_users, n), random.integers(0, n_hours, n)
    liking = by_country[users["country"]] + np.outer(4 * users["age"] - 2, by_age)
    taste = np.exp(liking)[user] * np.exp(by_hour)[hour]
    topic = draw(random, np.log(taste))
    item = draw(random, np.where(topic_of == topic[:, None], 0.0, -5.0) + random.normal(size=n_items))
    return users, {"user": user, "hour": hour}, item


def tiny() -> tuple[ep.Feedback, dict[str, Any]]:
    users, events, item = data(n=14, n_users=4, n_hours=2, n_items=5)
    contexts = {"user": ep.Levels(events["user"], columns=users), "hour": events["hour"]}
    return ep.Feedback(np.arange(14), item, shape=(14, 5)), {"contexts": contexts}


def main() -> None:
    users, events, item = data()
    known = 300  # the other users have no training events
    train, test = np.flatnonzero(events["user"] < known), np.flatnonzero(events["user"] >= known)
    described = {name: column[:known] for name, column in users.items()}
    contexts = {"user": ep.Levels(events["user"][train], columns=described), "hour": events["hour"][train]}
    feedback = ep.Feedback(np.arange(len(train)), item[train], shape=(len(train), 100))
    settings = {"unobserved_weight": 0.05, "regularization": 0.1, "epochs": 20}
    fitted = model(16, **settings).fit(feedback, contexts=contexts)
    new = {"user": ep.Levels(events["user"][test], columns=users), "hour": events["hour"][test]}
    rates = {"popularity": rate_popularity(feedback, item[test]), "attributes x hour": rate(fitted, new, item[test])}
    report(rates, "events of new users")


if __name__ == "__main__":
    main()
