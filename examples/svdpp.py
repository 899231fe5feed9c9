"""An SVD++-like model: the user's vector plus vectors of the items in the user's history, with biases on both sides.

    s(user, history, item) = <u_user + sum over history of y_j / sqrt(length), q_item> + b_user + b_item

A bias is a dimension that is multiplied with a constant 1 of the other side.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

import everypair as ep
from everypair.towers import Concat, Constant, Embedding, Linear, Sum

from common import draw, rate, rate_popularity, report


def model(factors: int, **options: Any) -> ep.Separable:
    user = Sum(Embedding(factors, "user"), Linear(factors, "history"))
    return ep.Separable(
        context=Concat(user, Embedding(1, "user", name="user bias"), Constant()),
        item=Concat(Embedding(factors), Constant(), Embedding(1, name="item bias")),
        **options,
    )


def scores(p: dict[str, np.ndarray], contexts: dict[str, Any], items: None = None) -> np.ndarray:
    """The formula, evaluated for every pair."""
    user = p["user"][contexts["user"]] + contexts["history"] @ p["history"]
    return user @ p["item"].T + p["user bias"][contexts["user"]] + p["item bias"].T


def data(n_users: int = 600, n_items: int = 200, length: int = 12, seed: int = 0) -> tuple[np.ndarray, dict[str, Any]]:
    """The items of each user in order, and for each event the user and the history before it."""
    random = np.random.default_rng(seed)
    popular = random.normal(size=n_items)
    taste = 2.0 * random.normal(size=(n_users, 6)) @ random.normal(size=(n_items, 6)).T / 6**0.5 + popular
    item = np.stack([draw(random, taste) for _ in range(length)], axis=1)
    user, t = np.divmod(np.arange(item.size), length)
    rows = np.repeat(np.arange(item.size), t)
    before = np.concatenate([item[u, :s] for u, s in zip(user, t, strict=True)])
    history = sp.csr_array((1 / np.sqrt(t[rows]), (rows, before)), shape=(item.size, n_items))
    return item, {"user": user, "history": history}


def tiny() -> tuple[ep.Feedback, dict[str, Any]]:
    item, contexts = data(n_users=3, n_items=5, length=4)
    return ep.Feedback(np.arange(item.size), item.ravel(), shape=(item.size, 5)), {"contexts": contexts}


def main() -> None:
    item, contexts = data()
    n_users, length = item.shape
    test = np.arange(length - 1, item.size, length)  # the last event of every user
    old = n_users - 100  # the last hundred users are new: only their history is known
    train = np.setdiff1d(np.arange(old * length), test)
    feedback = ep.Feedback(np.arange(len(train)), item.ravel()[train], shape=(len(train), 200))
    seen = {"user": ep.Levels(contexts["user"][train], n_users), "history": contexts["history"][train]}
    settings = {"unobserved_weight": 0.05, "regularization": {"default": 1.0, "user": 10.0}, "epochs": 10}
    fitted = model(16, **settings).fit(feedback, contexts=seen)
    rates = {}
    for name, events in {"known users": test[:old], "new users": test[old:]}.items():
        user = np.where(events < old * length, contexts["user"][events], -1)
        unseen = {"user": user, "history": contexts["history"][events]}
        rates[f"{name}: popularity"] = rate_popularity(feedback, item.ravel()[events])
        rates[f"{name}: user and history"] = rate(fitted, unseen, item.ravel()[events])
    report(rates, "the last item")


if __name__ == "__main__":
    main()
