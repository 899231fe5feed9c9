"""FPMC, factorizing personalized Markov chains: recommendations by user and previous item.

    s(user, previous, item) = <u_user, a_item> + <v_previous, b_item>

The context vector concatenates those of the user and of the previous item, so an item has twice the dimensions. The first event of
a user has no previous item: its level is -1, and its vector zero.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import everypair as ep
from everypair.towers import Concat, Embedding

from common import draw, rate, rate_alone, report, take_rows


def model(factors: int, **options: Any) -> ep.Separable:
    context = Concat(Embedding(factors, "user"), Embedding(factors, "previous"))
    return ep.Separable(context=context, item=Embedding(2 * factors), **options)


def scores(p: dict[str, np.ndarray], contexts: dict[str, np.ndarray], items: None = None) -> np.ndarray:
    """The formula, evaluated for every pair."""
    k = p["user"].shape[1]
    previous = np.where(contexts["previous"][:, None] >= 0, p["previous"][contexts["previous"]], 0.0)
    return p["user"][contexts["user"]] @ p["item"][:, :k].T + previous @ p["item"][:, k:].T


def data(n_users: int = 300, n_items: int = 200, length: int = 30, seed: int = 0) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Sequences of items that depend on the user's taste and on the previous item."""
    random = np.random.default_rng(seed)
    taste = 1.5 * random.normal(size=(n_users, 8)) @ random.normal(size=(n_items, 8)).T / 8**0.5
    after = 2.0 * random.normal(size=(n_items, 8)) @ random.normal(size=(n_items, 8)).T / 8**0.5
    previous, item = np.full((length, n_users), -1), np.empty((length, n_users), int)
    for t in range(length):
        if t:
            previous[t] = item[t - 1]
        item[t] = draw(random, taste + np.where(previous[t][:, None] >= 0, after[previous[t]], 0.0))
    user = np.tile(np.arange(n_users), length)
    return {"user": user, "previous": previous.ravel()}, item.ravel()


def tiny() -> tuple[ep.Feedback, dict[str, Any]]:
    contexts, item = data(n_users=3, n_items=5, length=5)
    return ep.Feedback(np.arange(15), item, shape=(15, 5)), {"contexts": contexts}


def main() -> None:
    contexts, item = data()
    last = len(item) - 300  # the last item of every user is the test set
    train, test = np.arange(last), np.arange(last, len(item))
    shape = (last, int(item.max()) + 1)
    feedback = ep.Feedback(train, item[train], shape=shape)
    seen = take_rows(contexts, train)
    settings = {"unobserved_weight": 0.05, "regularization": 0.1, "epochs": 10}
    fpmc = model(16, **settings).fit(feedback, contexts=seen)
    unseen = take_rows(contexts, test)
    rates = {
        "user": rate_alone("user", feedback, seen, unseen, item[test], **settings),
        "user and previous item (FPMC)": rate(fpmc, unseen, item[test]),
    }
    report(rates, "the next item")


if __name__ == "__main__":
    main()
