"""PITF, pairwise interaction tensor factorization: which tag will a user give to an item?

    s(user, item, tag) = <u_user, a_tag> + <v_item, b_tag>

The context is a user and an item; the recommended "items" are tags. A user-item interaction would be the same for all tags and not
affect their order, so it is left out.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import everypair as ep
from everypair.towers import Concat, Embedding

from common import draw, rate, rate_alone, report, take_rows


def model(factors: int, **options: Any) -> ep.Separable:
    context = Concat(Embedding(factors, "user"), Embedding(factors, "item"))
    return ep.Separable(context=context, item=Embedding(2 * factors, name="tag"), **options)


def scores(p: dict[str, np.ndarray], contexts: dict[str, np.ndarray], items: None = None) -> np.ndarray:
    """The formula, evaluated for every pair."""
    by_user, by_item = np.hsplit(p["tag"], 2)
    return p["user"][contexts["user"]] @ by_user.T + p["item"][contexts["item"]] @ by_item.T


def data(n_posts: int = 8_000, n_users: int = 200, n_items: int = 150, n_tags: int = 80, seed: int = 0) -> tuple[Any, np.ndarray]:
    """Posts: a user, an item, and a tag that depends on the user's vocabulary and the item's topics."""
    random = np.random.default_rng(seed)
    words = 2.0 * random.normal(size=(n_users, 5)) @ random.normal(size=(n_tags, 5)).T / 5**0.5
    topics = 2.0 * random.normal(size=(n_items, 5)) @ random.normal(size=(n_tags, 5)).T / 5**0.5
    user, item = random.integers(0, n_users, n_posts), random.integers(0, n_items, n_posts)
    return {"user": user, "item": item}, draw(random, words[user] + topics[item])


def tiny() -> tuple[ep.Feedback, dict[str, Any]]:
    contexts, tag = data(n_posts=14, n_users=3, n_items=4, n_tags=5)
    return ep.Feedback(np.arange(14), tag, shape=(14, 5)), {"contexts": contexts}


def main() -> None:
    contexts, tag = data()
    train, test = np.split(np.arange(len(tag)), [7_000])
    feedback = ep.Feedback(train, tag[train], shape=(7_000, 80))
    seen, unseen = take_rows(contexts, train), take_rows(contexts, test)
    settings = {"unobserved_weight": 0.05, "regularization": 0.1, "epochs": 10}
    pitf = model(16, **settings).fit(feedback, contexts=seen)
    rates = {f"{column} alone": rate_alone(column, feedback, seen, unseen, tag[test], **settings) for column in ("user", "item")}
    rates["user and item (PITF)"] = rate(pitf, unseen, tag[test])
    report(rates, "the tag of a post")


if __name__ == "__main__":
    main()
