"""A custom tower: the influence of the previous item decays with time, at a speed that is learned for each item.

This is the code of docs/your-own-model.md, which explains it step by step.
"""

from __future__ import annotations

# [imports]
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import everypair as ep
from everypair.towers import Coordinates, Derivatives, Embedding, Product, Rows, Smooth, Sum

# [imports]
from common import rate, rate_alone, report


# [tower]
@dataclass
class Fading(Smooth):
    """phi_f(previous, gap) = exp(-exp(speed_previous) gap), the same in every dimension f."""

    n_dims: int
    name: str | None = None  # prefix of parameter names, for models with two of these towers

    def start(self, rows: Rows, normal: Callable[..., np.ndarray]) -> dict[str, np.ndarray]:
        return {"speed": np.zeros(rows.levels("previous").n)}  # all items start with the same speed

    def phi(self, p: dict[str, np.ndarray], rows: Rows) -> np.ndarray:
        faded = np.exp(-self.decay(p, rows))
        return np.repeat(faded[:, None], self.n_dims, axis=1)

    def decay(self, p: dict[str, np.ndarray], rows: Rows) -> np.ndarray:
        return np.exp(rows.levels("previous").spread(p["speed"])) * rows.values("gap")

    # [tower]
    # [derivatives]
    def coordinates(self, p: dict[str, np.ndarray], rows: Rows) -> Iterator[Coordinates]:
        yield Coordinates("speed", slice(None), entry=rows.levels("previous").codes)

    def derivatives(self, p: dict[str, np.ndarray], rows: Rows, at: Coordinates) -> Derivatives:
        d, phi = self.decay(p, rows)[:, None], self.phi(p, rows)
        return Derivatives(first=-d * phi, second=(d * d - d) * phi)

    # [derivatives]


def check() -> None:
    # [check]
    contexts = {"user": [0, 1, 2, 1], "previous": [0, 1, 1, 2], "gap": [0.1, 2.0, 0.5, 1.0]}
    ep.testing.check_tower(Fading(2), contexts)
    # [check]


# [model]
def model(factors: int, **options: Any) -> ep.Separable:
    lately = Product(Embedding(factors, "previous"), Fading(factors))
    return ep.Separable(context=Sum(Embedding(factors, "user"), lately), item=Embedding(factors), **options)


# [model]


def scores(p: dict[str, np.ndarray], contexts: dict[str, np.ndarray], items: None = None) -> np.ndarray:
    """The formula, evaluated pair by pair."""
    out = np.empty((len(contexts["user"]), len(p["item"])))
    for c, (u, j, gap) in enumerate(zip(contexts["user"], contexts["previous"], contexts["gap"], strict=True)):
        for i, w in enumerate(p["item"]):
            out[c, i] = w @ (p["user"][u] + np.exp(-np.exp(p["speed"][j]) * gap) * p["previous"][j])
    return out


# [data]
def data(n: int = 20_000, n_users: int = 200, n_items: int = 100, seed: int = 0) -> tuple[Any, np.ndarray, np.ndarray]:
    """Contexts (user, previous item and days since), the chosen items, and the speed at which each item is forgotten."""
    random = np.random.default_rng(seed)
    speed = np.where(random.random(n_items) < 0.5, 2.0, -2.0)  # half of the items are forgotten in hours, half in a week
    user, previous = random.integers(0, n_users, n), random.integers(0, n_items, n)
    gap = np.exp(random.normal(0.0, 2.0, n))
    taste = 2.5 * random.normal(size=(n_users, 6)) @ random.normal(size=(n_items, 6)).T / 6**0.5
    after = 8.0 * random.normal(size=(n_items, 6)) @ random.normal(size=(n_items, 6)).T / 6**0.5
    fresh = np.exp(-np.exp(speed[previous]) * gap)
    preference = taste[user] + fresh[:, None] * after[previous]
    item = np.argmax(preference + random.gumbel(size=preference.shape), axis=1)
    return {"user": user, "previous": previous, "gap": gap}, item, speed


# [data]


def tiny() -> tuple[ep.Feedback, dict[str, Any]]:
    contexts, item, _ = data(n=16, n_users=3, n_items=5)
    return ep.Feedback(np.arange(16), item, shape=(16, 5)), {"contexts": contexts}


def main() -> None:
    # [fit]
    contexts, item, speed = data()
    train, test = np.split(np.arange(len(item)), [18_000])
    seen = {name: column[train] for name, column in contexts.items()}
    feedback = ep.Feedback(train, item[train], shape=(len(train), 100))
    fading = model(16, unobserved_weight=0.05, regularization=0.3, epochs=20).fit(feedback, contexts=seen)

    phi = fading.context_vectors({"user": [7, 7], "previous": [3, 3], "gap": [0.01, 30.0]})  # minutes ago, and a month ago
    best = np.argsort(-phi @ fading.psi_.T, axis=1)[:, :10]
    # [fit]
    settings = {"unobserved_weight": 0.05, "regularization": 0.3, "epochs": 20}
    unseen = {name: column[test] for name, column in contexts.items()}
    steady = ep.Separable(Sum(Embedding(16, "user"), Embedding(16, "previous")), Embedding(16), **settings)
    steady.fit(feedback, contexts=seen)
    rates = {
        "user": rate_alone("user", feedback, seen, unseen, item[test], **settings),
        "user + previous": rate(steady, unseen, item[test]),
        "user + previous, fading": rate(fading, unseen, item[test]),
    }
    report(rates, "held-out events")
    learned = fading.parameters_["speed"]
    print(f"learned speeds against the true ones: correlation {np.corrcoef(learned, speed)[0, 1]:.2f}")
    print(f"the objective fell from {fading.history_[0].objective:,.0f} to {fading.history_[-1].objective:,.0f}")
    print(f"after a month, {len(set(best[0]) - set(best[1]))} of 10 recommendations are different")


if __name__ == "__main__":
    main()
