"""Generated pairs with long tails on both sides and a structure to be found, made on a GPU."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from everypair.columns.features import Features
from everypair.columns.fields import OneHotField
from everypair.engine.feedback import Feedback

LOYAL = 0.6  # the share of events that follow a user's topics
SPREAD = 1.2  # of the logarithm of users' activity
TOPICS = 64


class Pairs(NamedTuple):
    """A size of generated data."""

    name: str
    n_users: int
    n_items: int
    n_pairs: int


NINE = Pairs("9.1 M pairs", 136_677, 20_108, 9_100_000)
HUNDRED = Pairs("100 M pairs", 2_000_000, 200_000, 100_000_000)
SIZES = [Pairs(f"{n:,} pairs", n // 60, n // 200, n) for n in (20_000, 100_000, 500_000, 2_000_000)]
TINY = Pairs("a tenth of a million pairs", 3_000, 1_000, 100_000)


def generate(xp: Any, size: Pairs, seed: int = 0) -> Feedback:
    """Each pair once: users of log-normal activity, items of Zipf's popularity, three favourite topics a user."""
    random, device = np.random.default_rng(seed), xp.random.RandomState(seed)
    activity = random.lognormal(0.0, SPREAD, size.n_users)
    activity = np.minimum(activity, activity.sum() * (size.n_items / 6) / size.n_pairs)
    users = xp.asarray(np.cumsum(activity) / activity.sum())
    popularity = 1.0 / (np.arange(size.n_items) + size.n_items / 2_000)
    items = np.append(0.0, np.cumsum(popularity[random.permutation(size.n_items)]))
    topic = np.sort(random.integers(0, TOPICS, size.n_items))
    bounds = xp.asarray(items[np.searchsorted(topic, np.arange(TOPICS + 1))])
    favourites, items = xp.asarray(random.integers(0, TOPICS, (size.n_users, 3))), xp.asarray(items)
    keys = xp.empty(0, np.int64)
    while len(keys) < size.n_pairs:
        n = int(1.3 * (size.n_pairs - len(keys))) + 1_000
        user = xp.minimum(xp.searchsorted(users, device.random_sample(n)), size.n_users - 1)
        kind = favourites[user, device.randint(0, 3, n)]
        anything = device.random_sample(n) >= LOYAL
        low, high = xp.where(anything, 0.0, bounds[kind]), xp.where(anything, items[-1], bounds[kind + 1])
        item = xp.minimum(xp.searchsorted(items, low + device.random_sample(n) * (high - low), side="right") - 1, size.n_items - 1)
        keys = xp.unique(xp.concatenate([keys, user.astype(np.int64) * size.n_items + item]))
        del user, kind, anything, low, high, item
    keys = xp.sort(device.permutation(keys)[: size.n_pairs])
    indptr = xp.searchsorted(keys, xp.arange(size.n_users + 1, dtype=np.int64) * size.n_items)
    columns = (keys % size.n_items).astype(np.int32)
    parts = [np.asarray(part.get() if hasattr(part, "get") else part) for part in (columns, indptr)]
    del keys, columns, indptr
    matrix = sp.csr_array((np.ones(size.n_pairs, np.float32), *parts), shape=(size.n_users, size.n_items))
    return Feedback.from_scipy(matrix)


def events(n_events: int, n_users: int, n_items: int, seed: int = 0) -> tuple[Feedback, Features]:
    """Events of users, one after the other: a context per event, with user, previous item, age and country."""
    random = np.random.default_rng(seed)
    activity = random.lognormal(0.0, 1.0, n_users)
    counts = np.maximum(1, np.round(activity * (n_events / activity.sum()))).astype(np.int64)
    user = np.repeat(np.arange(n_users), counts)[:n_events]
    n_events = len(user)
    popularity = 1.0 / (np.arange(n_items) + n_items / 2_000)
    items = np.append(0.0, np.cumsum(popularity[random.permutation(n_items)]))
    bounds = items[np.searchsorted(np.sort(random.integers(0, TOPICS, n_items)), np.arange(TOPICS + 1))]
    kind = random.integers(0, TOPICS, (n_users, 3))[user, random.integers(0, 3, n_events)]
    loyal = random.random(n_events) < LOYAL
    low, high = np.where(loyal, bounds[kind], 0.0), np.where(loyal, bounds[kind + 1], items[-1])
    item = np.minimum(np.searchsorted(items, low + random.random(n_events) * (high - low), side="right") - 1, n_items - 1)
    previous = np.append(-1, item[:-1])
    previous[np.append(True, user[1:] != user[:-1])] = -1
    age, country = random.integers(0, 7, n_users)[user], np.minimum(random.zipf(1.5, n_users) - 1, 49)[user]
    fields = {"user": (user, n_users), "previous": (previous, n_items), "age": (age, 7), "country": (country, 50)}
    features = Features({name: OneHotField(codes, n) for name, (codes, n) in fields.items()})
    return Feedback(np.arange(n_events), item, shape=(n_events, n_items)), features
