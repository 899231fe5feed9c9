"""MF with text vectors of items as dense features: an item's vector is a free vector plus a projection of its text vector.

    s(user, item) = <u_user, w_item + z_item W>

Items without feedback are ranked by their text alone. z can be the output of any sentence encoder; here it is generated.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import everypair as ep
from everypair.towers import Embedding, Linear, Sum

from common import draw, hit_rate, report


def model(factors: int, **options: Any) -> ep.Separable:
    return ep.Separable(context=Embedding(factors), item=Sum(Embedding(factors), Linear(factors, "text")), **options)


def scores(p: dict[str, np.ndarray], contexts: None, items: dict[str, np.ndarray]) -> np.ndarray:
    """The formula, evaluated for every pair."""
    return p["context"] @ (p["item"] + items["text"] @ p["text"]).T


def data(n_users: int = 500, n_items: int = 240, length: int = 20, width: int = 32, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Items chosen by each user, and noisy text vectors of the items' topics."""
    random = np.random.default_rng(seed)
    topics = random.normal(size=(n_items, 8))
    taste = 2.5 * random.normal(size=(n_users, 8)) @ topics.T / 8**0.5
    item = np.stack([draw(random, taste) for _ in range(length)], axis=1)
    text = topics @ random.normal(size=(8, width)) / 8**0.5 + 0.3 * random.normal(size=(n_items, width))
    return item, text


def tiny() -> tuple[ep.Feedback, dict[str, Any]]:
    item, text = data(n_users=4, n_items=6, length=3, width=3)
    feedback = ep.Feedback(np.repeat(np.arange(4), 3), item.ravel(), shape=(4, 6), duplicates="sum")
    return feedback, {"items": {"text": text}}


def main() -> None:
    item, text = data()
    n_users, length = item.shape
    user, item = np.repeat(np.arange(n_users), length), item.ravel()
    old = 200  # the other items are new
    train, cold = item < old, item >= old
    feedback = ep.Feedback(user[train], item[train], shape=(n_users, old), duplicates="sum")
    settings = {"unobserved_weight": 0.05, "regularization": {"default": 0.3, "text": 1.0}, "epochs": 20}
    fitted = model(16, **settings).fit(feedback, items={"text": text[:old]})
    psi = fitted.item_vectors({"text": text[old:], "item": np.full(len(text) - old, -1)})
    scores = fitted.phi_[user[cold]] @ psi.T
    chance = np.tile(np.random.default_rng(0).random(len(psi)), (len(scores), 1))
    report({"chance": hit_rate(chance, item[cold] - old), "text": hit_rate(scores, item[cold] - old)}, f"{len(psi)} new items")


if __name__ == "__main__":
    main()
