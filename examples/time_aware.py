"""Time-aware MF: the user's vector varies with the month.

    s(user, month, item) = <u_user + v_user * t_month, w_item>

The first term is the taste all year round. The second is a PARAFAC term: seasonal effects, of a different size for each user.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import everypair as ep
from everypair.towers import Embedding, Product, Sum

from common import draw, rate, rate_alone, report, take_rows


def model(factors: int, **options: Any) -> ep.Separable:
    seasonal = Product(Embedding(factors, "user", name="user x month"), Embedding(factors, "month"))
    return ep.Separable(context=Sum(Embedding(factors, "user"), seasonal), item=Embedding(factors), **options)


def scores(p: dict[str, np.ndarray], contexts: dict[str, np.ndarray], items: None = None) -> np.ndarray:
    """The formula, evaluated for every pair."""
    user, month = contexts["user"], contexts["month"]
    return (p["user"][user] + p["user x month"][user] * p["month"][month]) @ p["item"].T


def data(n: int = 20_000, n_users: int = 200, n_items: int = 120, seed: int = 0) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Events that depend on the user's taste, and on seasonal topics that some users follow more than others."""
    random = np.random.default_rng(seed)
    user, month = random.integers(0, n_users, n), random.integers(0, 12, n)
    taste = 1.5 * random.normal(size=(n_users, 6)) @ random.normal(size=(n_items, 6)).T / 6**0.5
    topic = np.where(random.random(n_items) < 0.5, random.integers(0, 12, n_items), -1)  # the month of seasonal items
    follows = random.gamma(1.0, 2.0, n_users)
    season = np.where(topic[None, :] >= 0, np.cos(2 * np.pi * (month[:, None] - topic[None, :]) / 12), 0.0)
    return {"user": user, "month": month}, draw(random, taste[user] + follows[user][:, None] * season)


def tiny() -> tuple[ep.Feedback, dict[str, Any]]:
    contexts, item = data(n=16, n_users=3, n_items=5)
    return ep.Feedback(np.arange(16), item, shape=(16, 5)), {"contexts": contexts}


def main() -> None:
    contexts, item = data()
    train, test = np.split(np.arange(len(item)), [18_000])
    feedback = ep.Feedback(train, item[train], shape=(18_000, 120))
    seen, unseen = take_rows(contexts, train), take_rows(contexts, test)
    settings = {"unobserved_weight": 0.05, "regularization": 0.1, "epochs": 20}
    aware = model(16, **settings).fit(feedback, contexts=seen)
    rates = {
        "user": rate_alone("user", feedback, seen, unseen, item[test], **settings),
        "user + user x month": rate(aware, unseen, item[test]),
    }
    report(rates, "held-out events")


if __name__ == "__main__":
    main()
